//! The only authority on compaction.
//!
//! A controller creates collections on a replica, reads them, and decides what they may forget. It
//! is a state machine: requests and responses go in, commands and [events](ControllerEvent) come
//! out. Whoever runs it carries the commands of [`Controller::take_commands`] to the replica, in
//! order, and hands its responses to [`Controller::response`].
//!
//! # Holds
//!
//! What keeps a collection's `since` from advancing is here, and nowhere on the replica: one hold
//! for the collection's [`ReadPolicy`], one for each dataflow that imports it, one for each
//! outstanding peek of it. Whenever the meet of these moves forward, it is allowed as compaction.
//! The hold of a peek goes when the peek is answered *or cancelled*; the replica may then be told
//! to compact past a read whose commands it has not seen yet. That is legal, and the read will be
//! refused.
//!
//! The empty frontier, which drops a collection, is sent for one that was asked to be dropped
//! once nobody holds it, and never because nobody happens to hold one (H5).
//!
//! # Connections
//!
//! [`Controller::connect`] opens one: it queues a `Hello` and the reduced
//! [history](crate::protocol::history), which stands for everything asked before. The replica says
//! everything again from the start: frontiers begin at the minimum, and every outstanding peek is
//! answered in the new connection. Nothing that was said in an older connection may be handed to
//! [`Controller::response`] any more; keeping the streams apart is up to whoever carries them. A
//! collection whose drop was on its way is gone with the old connection, and a peek that was
//! cancelled there is answered as cancelled by the controller itself, because neither is part of
//! the history.

use std::collections::{BTreeMap, VecDeque};

use crate::protocol::history::CommandHistory;
use crate::protocol::progress::Progress;
use crate::protocol::{
    Command, Frontiers, InstanceConfig, Nonce, Parameters, PeekId, PeekResponse, Response,
};
use crate::repr::{Frontier, GlobalId, Timestamp};

use collection::{Collection, Stage};
use dataflow::Dataflow;
use holds::Holds;
use peeks::{Outstanding, Peeks};

mod collection;
mod create;
mod dataflow;
mod error;
mod holds;
mod peeks;
mod read;

pub use collection::ReadPolicy;
pub use error::{ControllerError, ProtocolViolation};
pub use holds::{DataflowKey, Holder};
pub use read::{PeekRequest, QueryRequest};

/// What a controller has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerEvent {
    /// A peek has its one answer.
    PeekAnswered {
        /// The peek.
        uuid: PeekId,
        /// The answer: ordered, cut off and otherwise finished.
        response: PeekResponse,
        /// Whether the controller had given up on it before.
        canceled: bool,
    },
    /// A collection is complete up to here, in the current connection.
    FrontierAdvanced {
        /// The collection.
        id: GlobalId,
        /// Times not beyond this are complete.
        write: Frontier,
    },
    /// The replica did not carry out a command.
    Status {
        /// Why.
        message: String,
    },
    /// The replica broke the protocol. What it said was ignored.
    Violation(ProtocolViolation),
}

/// Creates collections on one replica, reads them, and decides what they may forget.
#[derive(Clone, Debug)]
pub struct Controller {
    history: CommandHistory,
    nonce: Option<Nonce>,
    connected: bool,
    /// To be sent in the current connection.
    commands: VecDeque<Command>,
    collections: BTreeMap<GlobalId, Collection>,
    dataflows: BTreeMap<DataflowKey, Dataflow>,
    peeks: Peeks,
    source_compaction: Vec<(GlobalId, Frontier)>,
    next_dataflow: u64,
    next_transient: u64,
}

impl Controller {
    /// A controller of a replica it is not yet connected to.
    pub fn new(config: InstanceConfig) -> Controller {
        let mut history = CommandHistory::new();
        history.push(Command::CreateInstance(config));
        Controller {
            history,
            nonce: None,
            connected: false,
            commands: VecDeque::new(),
            collections: BTreeMap::new(),
            dataflows: BTreeMap::new(),
            peeks: Peeks::default(),
            source_compaction: Vec::new(),
            next_dataflow: 0,
            next_transient: 0,
        }
    }

    /// Opens a connection: what is queued from now on begins with `Hello` and all that still
    /// matters.
    ///
    /// Gives the answers of the peeks that were cancelled and will not be answered otherwise.
    ///
    /// # Errors
    /// [`ControllerError::Stale`] if `nonce` is not greater than that of the connection before.
    pub fn connect(&mut self, nonce: Nonce) -> Result<Vec<ControllerEvent>, ControllerError> {
        match self.nonce.replace(nonce) {
            None => self.history.push(Command::InitializationComplete),
            Some(last) if last < nonce => {}
            Some(last) => {
                self.nonce = Some(last);
                return Err(ControllerError::Stale { last, nonce });
            }
        }
        self.history.push(Command::Hello { nonce });
        self.history.reduce();
        self.commands = self.history.iter().cloned().collect();
        self.connected = true;
        self.forget_connection();
        let canceled = self.peeks.take_canceled().into_iter();
        let response = PeekResponse::Canceled;
        Ok(canceled
            .map(|uuid| ControllerEvent::PeekAnswered {
                uuid,
                response: response.clone(),
                canceled: true,
            })
            .collect())
    }

    /// The connection is lost: there is nobody to queue commands for until the next one.
    pub fn disconnect(&mut self) {
        self.connected = false;
        self.commands.clear();
    }

    /// What to send to the replica, in order.
    pub fn take_commands(&mut self) -> Vec<Command> {
        self.commands.drain(..).collect()
    }

    /// What sources may be compacted to, in order. The empty frontier drops the source.
    pub fn take_source_compaction(&mut self) -> Vec<(GlobalId, Frontier)> {
        std::mem::take(&mut self.source_compaction)
    }

    /// Changes parameters of the replica; absent ones stay.
    pub fn update_configuration(&mut self, parameters: Parameters) {
        self.send(Command::UpdateConfiguration(parameters));
    }

    /// Takes in what the replica says in the current connection.
    pub fn response(&mut self, response: Response) -> Vec<ControllerEvent> {
        match response {
            Response::Status { message } => vec![ControllerEvent::Status { message }],
            Response::Peek { uuid, response } => vec![self.answered(uuid, response)],
            Response::Frontiers { id, frontiers } => match self.reported(id, &frontiers) {
                Ok(Some(write)) => vec![ControllerEvent::FrontierAdvanced { id, write }],
                Ok(None) => vec![],
                Err(violation) => vec![ControllerEvent::Violation(violation)],
            },
        }
    }

    fn answered(&mut self, uuid: PeekId, response: PeekResponse) -> ControllerEvent {
        let Some(peek) = self.peeks.answer(uuid) else {
            return ControllerEvent::Violation(ProtocolViolation::UnknownPeek { uuid });
        };
        self.history.retire_peek(uuid);
        if !peek.canceled {
            self.release_peek(uuid, &peek);
        }
        let response = peek.finish(response);
        ControllerEvent::PeekAnswered { uuid, response, canceled: peek.canceled }
    }

    /// Gives the write frontier if that is news.
    fn reported(
        &mut self,
        id: GlobalId,
        report: &Frontiers,
    ) -> Result<Option<Frontier>, ProtocolViolation> {
        let collection = self.collections.get_mut(&id).filter(|known| known.dataflow().is_some());
        let collection = collection.ok_or(ProtocolViolation::UnknownCollection { id })?;
        let news = collection
            .progress
            .advance(report)
            .map_err(|regression| ProtocolViolation::Regressed { id, regression })?;
        collection.apply_policy();
        self.settle([id]);
        Ok(news.write)
    }

    /// Says it to the replica, now if there is a connection, and in every connection to come.
    fn send(&mut self, command: Command) {
        if self.connected {
            self.commands.push_back(command.clone());
        }
        self.history.push(command);
    }

    /// Takes back what was only true of the connection before.
    fn forget_connection(&mut self) {
        let dataflows = &self.dataflows;
        self.collections.retain(|_, collection| match collection.dataflow() {
            Some(key) => collection.stage != Stage::Dropped || dataflows.contains_key(&key),
            None => true,
        });
        for collection in self.collections.values_mut() {
            if collection.dataflow().is_some() {
                collection.progress = Progress::start();
            }
        }
        for command in &self.commands {
            if let Command::CreateDataflow(description) = command
                && let Some(id) = description.export_ids().next()
                && let Some(key) = self.collections.get(&id).and_then(Collection::dataflow)
                && let Some(dataflow) = self.dataflows.get_mut(&key)
            {
                dataflow.as_of = description.as_of;
            }
        }
        self.settle(self.collections.keys().copied().collect::<Vec<_>>());
    }

    /// Lets the holds on `ids` take effect, and those on what they are built from.
    ///
    /// Compaction of a collection is sent before that of its imports, so that a replay, which cuts
    /// the commands anywhere, never finds a dataflow whose `as_of` its imports have passed.
    fn settle(&mut self, ids: impl IntoIterator<Item = GlobalId>) {
        let mut pending: VecDeque<GlobalId> = ids.into_iter().collect();
        while let Some(id) = pending.pop_front() {
            let Some(collection) = self.collections.get_mut(&id) else { continue };
            let allowed = collection.advance();
            match (collection.dataflow(), allowed) {
                (None, None) => {}
                (None, Some(frontier)) => self.source_compaction.push((id, frontier)),
                (Some(key), allowed) => {
                    if let Some(frontier) = allowed {
                        self.send(Command::AllowCompaction { id, frontier });
                    }
                    pending.extend(self.follow(key));
                }
            }
            self.forget_if_over(id);
        }
    }

    /// Moves a dataflow's holds on its imports to where its exports let it. Gives the imports
    /// concerned.
    fn follow(&mut self, key: DataflowKey) -> Vec<GlobalId> {
        let Some(dataflow) = self.dataflows.get(&key) else {
            return vec![];
        };
        let live = dataflow.exports.iter().filter_map(|id| {
            let export = self.collections.get(id)?;
            (export.stage != Stage::Dropped).then_some((&export.since, &export.progress.write))
        });
        let hold = dataflow.hold(live);
        let mut moved = vec![];
        for id in dataflow.imports.clone() {
            // An import cannot be gone while this holds it.
            let Some(import) = self.collections.get_mut(&id) else { continue };
            match hold {
                Some(time) if import.holds.place(Holder::Dataflow(key), time) => moved.push(id),
                Some(_) => {}
                None => {
                    import.holds.release(Holder::Dataflow(key));
                    moved.push(id);
                }
            }
        }
        if hold.is_none()
            && let Some(dataflow) = self.dataflows.remove(&key)
        {
            dataflow.exports.into_iter().for_each(|id| self.forget_if_over(id));
        }
        moved
    }

    /// Frees the id of a collection that is dropped and has reported for the last time.
    ///
    /// The id of an index stays taken as long as its dataflow is replayed for the sake of another
    /// export.
    fn forget_if_over(&mut self, id: GlobalId) {
        let Some(collection) = self.collections.get(&id) else { return };
        let replayed = collection.dataflow().is_some_and(|key| self.dataflows.contains_key(&key));
        if collection.is_over() && !replayed {
            self.collections.remove(&id);
        }
    }

    /// The peek needs nothing any more.
    fn release_peek(&mut self, uuid: PeekId, peek: &Outstanding) {
        if let Some(target) = self.collections.get_mut(&peek.target) {
            target.holds.release(Holder::Peek(uuid));
            if peek.owns_target {
                target.start_drop();
            }
            self.settle([peek.target]);
        }
    }
}

/// What a controller knows, for those who judge or drive it.
impl Controller {
    /// The nonce of the last connection.
    pub fn nonce(&self) -> Option<Nonce> {
        self.nonce
    }

    /// The collections that exist or are not yet gone.
    pub fn collections(&self) -> impl Iterator<Item = GlobalId> + '_ {
        self.collections.keys().copied()
    }

    /// Whether a collection exists and was not dropped.
    pub fn is_live(&self, id: GlobalId) -> bool {
        self.collections.get(&id).is_some_and(|collection| collection.stage == Stage::Live)
    }

    /// From where on a collection can be read.
    pub fn since(&self, id: GlobalId) -> Option<&Frontier> {
        self.collections.get(&id).map(|collection| &collection.since)
    }

    /// Up to where a collection is complete: a source in all, anything else as reported in the
    /// current connection.
    pub fn upper(&self, id: GlobalId) -> Option<&Frontier> {
        self.collections.get(&id).map(|collection| &collection.progress.write)
    }

    /// The last compaction that was allowed of a collection; `None` also if none was.
    pub fn allowed(&self, id: GlobalId) -> Option<&Frontier> {
        self.collections.get(&id).and_then(|collection| collection.allowed.as_ref())
    }

    /// The peeks that are not answered: each with what it reads, when, and whether it was
    /// cancelled.
    pub fn outstanding(&self) -> impl Iterator<Item = (PeekId, GlobalId, Timestamp, bool)> + '_ {
        let peeks = self.peeks.iter();
        peeks.map(|(uuid, peek)| (uuid, peek.target, peek.timestamp, peek.canceled))
    }

    /// The holds on a collection.
    pub fn holds(&self, id: GlobalId) -> Vec<(Holder, Timestamp)> {
        let holds = self.collections.get(&id).map(|collection| &collection.holds);
        holds.into_iter().flat_map(Holds::iter).collect()
    }

    /// The number of holds of peeks and of dataflows, on all collections together; policies do not
    /// count.
    pub fn holds_len(&self) -> usize {
        let holds = self.collections.values().flat_map(|collection| collection.holds.iter());
        holds.filter(|(holder, _)| *holder != Holder::Policy).count()
    }

    /// What a replica would be told in a new connection, and what else was not yet reduced away.
    pub fn history(&self) -> &CommandHistory {
        &self.history
    }
}

#[cfg(test)]
mod tests;
