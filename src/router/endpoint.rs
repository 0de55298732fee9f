//! A replica's one endpoint: routing in front of its runtimes, and the merge of their workers behind it.

use std::collections::BTreeMap;

use super::partitioned::{MergeError, Partitioned};
use super::{RouteError, Router};
use crate::env::Role;
use crate::protocol::{Command, Nonce, Response};

/// Which runtimes a replica has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One runtime that does everything.
    Solo,
    /// A maintenance and an interactive runtime.
    Split,
}

impl Layout {
    /// The roles of its runtimes.
    pub fn roles(self) -> &'static [Role] {
        match self {
            Layout::Solo => &[Role::Solo],
            Layout::Split => &[Role::Maintenance, Role::Interactive],
        }
    }
}

/// Makes the workers of all runtimes of a replica look like one.
pub struct Endpoint {
    /// Absent when there is nothing to choose between.
    router: Option<Router>,
    merges: BTreeMap<Role, Partitioned>,
    /// The connection that is open.
    nonce: Nonce,
}

impl Endpoint {
    /// An endpoint before runtimes of `peers` workers each, counted over all processes.
    pub fn new(layout: Layout, peers: usize) -> Self {
        let merges = layout.roles().iter().map(|role| (*role, Partitioned::new(peers))).collect();
        let router = (layout == Layout::Split).then(Router::new);
        Endpoint { router, merges, nonce: Nonce::default() }
    }

    /// The runtimes that get `command`.
    ///
    /// # Errors
    /// [`RouteError`] when the command breaks the protocol; nothing has changed then.
    pub fn command(&mut self, command: Command) -> Result<Vec<(Role, Command)>, RouteError> {
        let hello = match &command {
            Command::Hello { nonce } => Some(*nonce),
            _ => None,
        };
        let routed = match &mut self.router {
            Some(router) => router.command(command)?,
            None => vec![(Role::Solo, command)],
        };
        self.nonce = hello.unwrap_or(self.nonce);
        Ok(routed)
    }

    /// What the controller gets to hear of one worker's response, if anything. `nonce` says to which connection the
    /// worker said it; of earlier ones nothing is passed on.
    ///
    /// # Errors
    /// [`MergeError`] when the worker contradicts itself; nothing has changed then.
    pub fn response(
        &mut self,
        role: Role,
        worker: usize,
        nonce: Nonce,
        response: Response,
    ) -> Result<Option<Response>, MergeError> {
        let merge = self.merges.get_mut(&role).expect("a runtime of this endpoint's layout");
        merge.opened(worker, nonce)?;
        let merged = merge.absorb(worker, response)?.filter(|_| merge.nonce() == self.nonce);
        Ok(merged.and_then(|response| match &mut self.router {
            Some(router) => router.response(role, response),
            None => Some(response),
        }))
    }
}
