//! Reading: peeks of an index, and queries, which build a dataflow to peek.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{DataflowDescription, Finishing, IndexDescription, IndexImport, Plan};
use crate::protocol::{Command, Peek, PeekId};
use crate::repr::{GlobalId, Row, Timestamp, step_forward};

use super::collection::ReadPolicy;
use super::holds::Holder;
use super::peeks::Outstanding;
use super::{Controller, ControllerError};

/// A read of an index: the fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeekRequest {
    /// The index.
    pub target: GlobalId,
    /// The time to read at; it need not be complete yet.
    pub timestamp: Timestamp,
    /// Only rows with one of these keys; all rows when absent.
    pub keys: Option<Vec<Row>>,
    /// What to make of the rows found.
    pub finishing: Finishing,
}

/// A read of what a plan gives over indexes: the slow path, through a dataflow of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRequest {
    /// What to compute. It reads the collections that `index_imports` are indexes on.
    pub plan: Plan,
    /// The indexes it reads.
    pub index_imports: Vec<GlobalId>,
    /// The time to read at; it need not be complete yet.
    pub timestamp: Timestamp,
    /// What to make of the rows found.
    pub finishing: Finishing,
}

impl Controller {
    /// Reads an index at a time. The answer comes as an event.
    ///
    /// The index stays readable at that time until the peek is answered or cancelled.
    ///
    /// # Errors
    /// If there is no such index, if it was dropped or cannot be read at that time any more, and if
    /// the keys or the finishing do not fit its rows.
    pub fn peek(&mut self, request: PeekRequest) -> Result<PeekId, ControllerError> {
        self.check_peek(&request)?;
        Ok(self.start_peek(request, false))
    }

    /// Computes something over indexes at a time. The answer comes as an event.
    ///
    /// The indexes stay readable at that time until the query is answered or cancelled; its
    /// dataflow is dropped then.
    ///
    /// # Errors
    /// [`ControllerError::LastTime`] for the last time of all, the errors of
    /// [`Controller::create_dataflow`], and those of [`Controller::peek`] about the finishing.
    pub fn query(&mut self, request: QueryRequest) -> Result<PeekId, ControllerError> {
        let QueryRequest { plan, index_imports, timestamp, finishing } = request;
        let until = step_forward(timestamp);
        if until.is_empty() {
            return Err(ControllerError::LastTime(timestamp));
        }
        let mut imports = BTreeMap::new();
        for id in index_imports {
            let (collection, index) = self.readable_index(id, timestamp)?;
            imports.insert(id, IndexImport { index: index.clone(), arity: collection.arity });
        }
        let (object, target, next_transient) = self.free_transients(&imports);
        let mut description = DataflowDescription {
            source_imports: BTreeMap::new(),
            index_imports: imports,
            objects_to_build: vec![(object, plan)],
            index_exports: BTreeMap::from([(target, IndexDescription { on: object, key: vec![] })]),
            as_of: timestamp,
            until,
        };
        let arity = description.validate()?[&object];
        finishing.validate(arity)?;
        // All columns are the key, so that the rows spread over all workers.
        let index = IndexDescription { on: object, key: (0..arity).collect() };
        description.index_exports.insert(target, index);
        self.create_dataflow(description)?;
        self.next_transient = next_transient;
        self.set_read_policy(target, ReadPolicy::Pinned)?;
        Ok(self.start_peek(PeekRequest { target, timestamp, keys: None, finishing }, true))
    }

    /// Gives up on a peek or a query: nobody waits for its answer, which comes all the same.
    ///
    /// What it held is let go at once. Says whether there was anything to cancel: not if it is
    /// unknown, answered, or cancelled already.
    pub fn cancel(&mut self, uuid: PeekId) -> bool {
        let Some(peek) = self.peeks.cancel(uuid) else {
            return false;
        };
        // The cancellation goes first: the compaction that may follow is the reason for it.
        self.send(Command::CancelPeek { uuid });
        self.release_peek(uuid, &peek);
        true
    }

    fn check_peek(&self, request: &PeekRequest) -> Result<(), ControllerError> {
        let id = request.target;
        let (collection, index) = self.readable_index(id, request.timestamp)?;
        let expected = index.key.len();
        if let Some(key) = request.keys.iter().flatten().find(|key| key.0.len() != expected) {
            return Err(ControllerError::KeyLength { id, expected, found: key.0.len() });
        }
        Ok(request.finishing.validate(collection.arity)?)
    }

    fn start_peek(&mut self, request: PeekRequest, owns_target: bool) -> PeekId {
        let PeekRequest { target, timestamp, keys, finishing } = request;
        let uuid = self.peeks.enter(Outstanding {
            target,
            timestamp,
            finishing: finishing.clone(),
            canceled: false,
            owns_target,
        });
        if let Some(collection) = self.collections.get_mut(&target) {
            collection.holds.place(Holder::Peek(uuid), timestamp);
        }
        let peek = Peek { uuid, target, timestamp, keys, finishing };
        self.send(Command::Peek(Box::new(peek)));
        uuid
    }

    /// Two ids for a query over `imports`: its result and the index on it; and where to look next
    /// time.
    fn free_transients(
        &self,
        imports: &BTreeMap<GlobalId, IndexImport>,
    ) -> (GlobalId, GlobalId, u64) {
        let read: BTreeSet<GlobalId> = imports.values().map(|import| import.index.on).collect();
        let mut next = self.next_transient;
        let mut free = || {
            loop {
                let id = GlobalId::Transient(next);
                next += 1;
                if !self.collections.contains_key(&id) && !read.contains(&id) {
                    return id;
                }
            }
        };
        (free(), free(), next)
    }
}
