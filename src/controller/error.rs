//! What a controller refuses, and what it hears that must not be.

use crate::plan::{IndexDescription, PlanError};
use crate::protocol::progress::Regression;
use crate::protocol::{Nonce, PeekId};
use crate::repr::{Frontier, GlobalId, Timestamp, show};

/// A request that cannot be carried out. Nothing was sent and nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    /// There is no such collection.
    #[error("{0} does not exist")]
    Unknown(GlobalId),
    /// The collection exists already.
    #[error("{0} exists already")]
    Exists(GlobalId),
    /// The collection was dropped.
    #[error("{0} was dropped")]
    Dropped(GlobalId),
    /// A collection of this id was dropped, but readers or the replica are not done with it.
    #[error("{0} was dropped and is not yet gone")]
    Draining(GlobalId),
    /// The collection cannot be read at that time any more.
    #[error("{id} cannot be read at {time}: its since is {}", show(.since))]
    Compacted {
        /// The collection.
        id: GlobalId,
        /// When it would be read: an `as_of`, or a peek's timestamp.
        time: Timestamp,
        /// From where on it can be read.
        since: Frontier,
    },
    /// A query at the last time of all: no time follows at which its dataflow could end.
    #[error("a query cannot read at {0}, after which there is no time")]
    LastTime(Timestamp),
    /// A source where an index is needed.
    #[error("{0} is not an index")]
    NotAnIndex(GlobalId),
    /// An index where a source is needed.
    #[error("{0} is not a source")]
    NotASource(GlobalId),
    /// An import that takes a collection for another than it is.
    #[error("{id} has {arity} columns, and not {imported}")]
    Arity {
        /// The collection.
        id: GlobalId,
        /// The columns it has.
        arity: usize,
        /// The columns the import says.
        imported: usize,
    },
    /// An import that takes an index for another than it is.
    #[error("{id} is an index on {} by {:?}, and not on {} by {:?}", 
        .index.on, .index.key, .imported.on, .imported.key)]
    Index {
        /// The index.
        id: GlobalId,
        /// What it is.
        index: IndexDescription,
        /// What the import says.
        imported: IndexDescription,
    },
    /// A key of a peek that the index has no rows for by its length alone.
    #[error("a key of {found} columns for {id}, whose keys have {expected}")]
    KeyLength {
        /// The index.
        id: GlobalId,
        /// The length of its keys.
        expected: usize,
        /// The length of the peek's key.
        found: usize,
    },
    /// The plan, the dataflow or the finishing does not fit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What is complete cannot become incomplete.
    #[error("{id}: {regression}")]
    Regressed {
        /// The source.
        id: GlobalId,
        /// From where, to where.
        regression: Regression,
    },
    /// A connection that is not newer than the one before.
    #[error("a connection with nonce {nonce} after nonce {last}", nonce = .nonce.0, last = .last.0)]
    Stale {
        /// The nonce of the connection before.
        last: Nonce,
        /// The nonce that should have been greater.
        nonce: Nonce,
    },
}

/// A response that a replica must not give. It was ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    /// The answer of a peek that was never asked, or is answered already.
    #[error("an answer for {uuid}, which is not outstanding")]
    UnknownPeek {
        /// The peek.
        uuid: PeekId,
    },
    /// Frontiers of a collection that the replica was not asked to maintain, or that is gone.
    #[error("frontiers of {id}, which the replica does not maintain")]
    UnknownCollection {
        /// The collection.
        id: GlobalId,
    },
    /// Frontiers that go back within a connection.
    #[error("{id}: {regression}")]
    Regressed {
        /// The collection.
        id: GlobalId,
        /// Which frontier, from where, to where.
        regression: Regression,
    },
}
