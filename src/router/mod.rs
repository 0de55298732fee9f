//! One protocol endpoint over two runtimes.
//!
//! A controller speaks to a replica as if it were one thing. The router decides which runtime each
//! command is for, and which of their responses go back. A replica of one runtime
//! ([`Role::Solo`]) needs none.
//!
//! | command | goes to |
//! |---|---|
//! | `Hello`, `CreateInstance`, `UpdateConfiguration`, `InitializationComplete` | both |
//! | `Peek`, `CancelPeek` | interactive |
//! | `CreateDataflow` of a bounded read | interactive, which then owns its exports |
//! | every other `CreateDataflow` | maintenance, which then owns its exports |
//! | `Schedule`, `AllowWrites`, `AllowCompaction` | the owner of the collection |
//!
//! Peeks leave no trace here: their answers pass, from the interactive runtime only.
//!
//! # Ownership, from creation to the last report
//!
//! A collection's frontiers pass only from its owner; the other runtime may hold an empty copy
//! whose frontiers would regress the controller's (H14). Ownership begins with `CreateDataflow`.
//! It does not end with the drop: the owner's last report, both frontiers empty, is still to come,
//! and without it the controller would never learn that the drop is done. So it ends when the drop
//! *and* the last report have passed, in whichever order: a dataflow that ran to its `until` closes
//! before anyone drops it.
//!
//! Could a report of a dropped collection be taken for one of a successor under the same id? A
//! runtime's responses are ordered, so if both have one owner, the predecessor's last report comes
//! first. If they have different owners, nothing orders them. Either way the controller, reading
//! one stream, could not tell them apart if they met. They never do: an id may be created again
//! only once its predecessor is forgotten here, that is, after the last report was *forwarded*. The
//! controller waits for that report before it creates the id again, and it cannot have it before
//! the router had it. An earlier creation breaks the protocol: [`RouteError::Draining`].
//!
//! # Connections
//!
//! A [`Command::Hello`] forgets every route: what the replay does not mention is gone (H19). The
//! runtimes learn of it later than the router does, and what they still say about the connection
//! before must not reach the new one. Whoever carries responses keeps those streams apart, and
//! hands [`Router::response`] only what was said after the `Hello` of [`Router::nonce`].

use std::collections::BTreeMap;

use crate::env::Role;
use crate::plan::DataflowDescription;
use crate::protocol::progress::Progress;
use crate::protocol::{Command, Nonce, Response};
use crate::repr::GlobalId;

pub mod endpoint;
pub mod partitioned;

/// A command that cannot be routed. It was sent nowhere and nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The collection was never created, or its drop is complete.
    #[error("{command} names {id}, which does not exist")]
    Unknown {
        /// The kind of command.
        command: &'static str,
        /// The collection.
        id: GlobalId,
    },
    /// The collection was dropped before.
    #[error("{command} names {id}, which was dropped")]
    Dropped {
        /// The kind of command.
        command: &'static str,
        /// The collection.
        id: GlobalId,
    },
    /// The collection exists already.
    #[error("CreateDataflow exports {id}, which exists already ({owner:?})")]
    Exists {
        /// The collection.
        id: GlobalId,
        /// Who has it.
        owner: Role,
    },
    /// The collection was dropped, but its owner's last report is still to come.
    #[error("CreateDataflow exports {id}, whose predecessor is still being dropped ({owner:?})")]
    Draining {
        /// The collection.
        id: GlobalId,
        /// Who still has it.
        owner: Role,
    },
    /// A connection that is not newer than the one before.
    #[error("Hello with nonce {} after nonce {}", .nonce.0, .current.0)]
    Stale {
        /// The nonce of the open connection.
        current: Nonce,
        /// The nonce that should have been greater.
        nonce: Nonce,
    },
}

/// Who owns a collection, and how far its end has come.
#[derive(Clone, Debug)]
struct Route {
    owner: Role,
    progress: Progress,
    dropped: bool,
}

impl Route {
    fn is_over(&self) -> bool {
        self.dropped && self.progress.is_final()
    }
}

/// Routes commands to the two runtimes of a replica, and their responses back.
#[derive(Clone, Debug, Default)]
pub struct Router {
    nonce: Option<Nonce>,
    routes: BTreeMap<GlobalId, Route>,
}

impl Router {
    /// A router before its first connection.
    pub fn new() -> Router {
        Router::default()
    }

    /// The open connection: the nonce of the last `Hello`.
    pub fn nonce(&self) -> Option<Nonce> {
        self.nonce
    }

    /// Who owns a collection; `None` if it was never created, or its drop is complete.
    pub fn owner(&self, id: GlobalId) -> Option<Role> {
        self.routes.get(&id).map(|route| route.owner)
    }

    /// The number of collections that exist or whose drop is not complete.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether no collection exists and no drop is under way.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Where a command goes: each runtime that must apply it, with what it must apply.
    ///
    /// # Errors
    /// [`RouteError`]; then the command goes nowhere and nothing has changed.
    pub fn command(&mut self, command: Command) -> Result<Vec<(Role, Command)>, RouteError> {
        let owner = match &command {
            Command::Hello { nonce } => {
                self.open(*nonce)?;
                return Ok(both(command));
            }
            Command::CreateInstance(_)
            | Command::UpdateConfiguration(_)
            | Command::InitializationComplete => return Ok(both(command)),
            Command::Peek(peek) => {
                self.live(peek.target, "Peek")?;
                Role::Interactive
            }
            Command::CancelPeek { .. } => Role::Interactive,
            Command::CreateDataflow(dataflow) => self.create(dataflow)?,
            Command::Schedule(id) => self.live(*id, "Schedule")?.owner,
            Command::AllowWrites(id) => self.live(*id, "AllowWrites")?.owner,
            Command::AllowCompaction { id, frontier } => {
                let route = self.live(*id, "AllowCompaction")?;
                let owner = route.owner;
                route.dropped = frontier.is_empty();
                self.forget_if_over(*id);
                owner
            }
        };
        Ok(vec![(owner, command)])
    }

    /// What of a runtime's response the controller gets to see.
    ///
    /// `from` is the runtime that said it, all of its workers together.
    pub fn response(&mut self, from: Role, response: Response) -> Option<Response> {
        match &response {
            Response::Status { .. } => Some(response),
            Response::Peek { .. } => (from == Role::Interactive).then_some(response),
            Response::Frontiers { id, frontiers } => {
                let route = self.routes.get_mut(id)?;
                if route.owner != from {
                    return None;
                }
                // A regression is for the controller to see and to name; it is no end of anything.
                let _ = route.progress.advance(frontiers);
                self.forget_if_over(*id);
                Some(response)
            }
        }
    }

    fn open(&mut self, nonce: Nonce) -> Result<(), RouteError> {
        if let Some(current) = self.nonce
            && nonce <= current
        {
            return Err(RouteError::Stale { current, nonce });
        }
        self.nonce = Some(nonce);
        self.routes.clear();
        Ok(())
    }

    fn create(&mut self, dataflow: &DataflowDescription) -> Result<Role, RouteError> {
        for id in dataflow.export_ids() {
            match self.routes.get(&id) {
                Some(Route { owner, dropped: true, .. }) => {
                    return Err(RouteError::Draining { id, owner: *owner });
                }
                Some(Route { owner, .. }) => return Err(RouteError::Exists { id, owner: *owner }),
                None => {}
            }
        }
        for id in dataflow.index_imports.keys() {
            self.live(*id, "CreateDataflow")?;
        }
        let owner = match dataflow.is_bounded_read() {
            true => Role::Interactive,
            false => Role::Maintenance,
        };
        for id in dataflow.export_ids() {
            let route = Route { owner, progress: Progress::start(), dropped: false };
            self.routes.insert(id, route);
        }
        Ok(owner)
    }

    fn live(&mut self, id: GlobalId, command: &'static str) -> Result<&mut Route, RouteError> {
        match self.routes.get_mut(&id) {
            None => Err(RouteError::Unknown { command, id }),
            Some(Route { dropped: true, .. }) => Err(RouteError::Dropped { command, id }),
            Some(route) => Ok(route),
        }
    }

    fn forget_if_over(&mut self, id: GlobalId) {
        if self.routes.get(&id).is_some_and(Route::is_over) {
            self.routes.remove(&id);
        }
    }
}

fn both(command: Command) -> Vec<(Role, Command)> {
    vec![(Role::Maintenance, command.clone()), (Role::Interactive, command)]
}

#[cfg(test)]
mod tests;
