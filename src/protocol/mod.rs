//! What the controller and a replica say to each other.
//!
//! Commands flow from the controller to the replica, responses flow back; both streams are ordered, asynchronous and
//! resumable. On reconnection the controller sends a [`Command::Hello`] with a fresh nonce and replays its compacted
//! [history](history::CommandHistory). [`frame`] puts messages on the wire.
//!
//! Contracts: exactly one [`Response::Peek`] per peek uuid, cancelled or not; frontiers of a collection never regress
//! within a connection and are reported only by the runtime that owns it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::plan::{DataflowDescription, Finishing};
use crate::repr::{
    Frontier, GlobalId, Row, Timestamp, deserialize_frontier, deserialize_frontier_option,
};

pub mod frame;
pub mod history;
pub mod progress;

/// Tells the connections of a controller apart: each carries a greater nonce than the one before.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Nonce(pub u64);

/// The name of one peek, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeekId(pub u64);

impl fmt::Display for PeekId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peek {}", self.0)
    }
}

/// What holds of a replica as long as it lives. Both sides must agree on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceConfig {
    /// The workers of each runtime, over all processes.
    pub peers: usize,
}

/// What may be changed while a replica runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// How many positions a peek walk visits before others get their turn.
    pub walk_budget: Option<usize>,
}

/// A one-time read of an index at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peek {
    /// The name of this read.
    pub uuid: PeekId,
    /// The index to read.
    pub target: GlobalId,
    /// The time to read at.
    pub timestamp: Timestamp,
    /// Only rows with one of these keys; all rows when absent.
    pub keys: Option<Vec<Row>>,
    /// What to make of the rows found.
    pub finishing: Finishing,
}

/// What the controller asks of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Opens a connection. Everything of the connection before it is void.
    Hello {
        /// Greater than that of every earlier connection.
        nonce: Nonce,
    },
    /// Begins the instance.
    CreateInstance(InstanceConfig),
    /// Changes parameters; absent ones stay.
    UpdateConfiguration(Parameters),
    /// The replayed history ends here: what it did not mention is gone.
    InitializationComplete,
    /// Builds a dataflow. It does not run before it is scheduled.
    CreateDataflow(Box<DataflowDescription>),
    /// Lets the dataflow that exports this collection run.
    Schedule(GlobalId),
    /// Allows the collection to write to durable outputs.
    AllowWrites(GlobalId),
    /// Allows a collection to forget what is not beyond the frontier. The empty frontier drops it.
    AllowCompaction {
        /// The collection.
        id: GlobalId,
        /// Reads from here on only beyond this.
        #[serde(deserialize_with = "deserialize_frontier")]
        frontier: Frontier,
    },
    /// Reads an index once.
    Peek(Box<Peek>),
    /// The answer of this peek is no longer wanted; it is answered all the same.
    CancelPeek {
        /// The peek.
        uuid: PeekId,
    },
}

impl Command {
    /// The kind of this command, as messages name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Command::Hello { .. } => "Hello",
            Command::CreateInstance(_) => "CreateInstance",
            Command::UpdateConfiguration(_) => "UpdateConfiguration",
            Command::InitializationComplete => "InitializationComplete",
            Command::CreateDataflow(_) => "CreateDataflow",
            Command::Schedule(_) => "Schedule",
            Command::AllowWrites(_) => "AllowWrites",
            Command::AllowCompaction { .. } => "AllowCompaction",
            Command::Peek(_) => "Peek",
            Command::CancelPeek { .. } => "CancelPeek",
        }
    }

    /// The collection this command is about; for a dataflow, the first it exports.
    pub fn collection(&self) -> Option<GlobalId> {
        match self {
            Command::CreateDataflow(dataflow) => dataflow.export_ids().next(),
            Command::Schedule(id)
            | Command::AllowWrites(id)
            | Command::AllowCompaction { id, .. } => Some(*id),
            Command::Peek(peek) => Some(peek.target),
            _ => None,
        }
    }

    /// The peek this command is about.
    pub fn peek(&self) -> Option<PeekId> {
        match self {
            Command::Peek(peek) => Some(peek.uuid),
            Command::CancelPeek { uuid } => Some(*uuid),
            _ => None,
        }
    }
}

/// The answer of a peek.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeekResponse {
    /// The rows, each with its multiplicity.
    Rows(Vec<(Row, u64)>),
    /// The read failed: the data has errors at that time, or the read was refused.
    Error(String),
    /// The read was cancelled before it was answered.
    Canceled,
}

/// Progress of a collection. Absent parts have not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frontiers {
    /// What is sealed: times not beyond it are complete and readable.
    #[serde(deserialize_with = "deserialize_frontier_option")]
    pub write: Option<Frontier>,
    /// What has been read of the inputs.
    #[serde(deserialize_with = "deserialize_frontier_option")]
    pub input: Option<Frontier>,
    /// What the dataflow has produced.
    #[serde(deserialize_with = "deserialize_frontier_option")]
    pub output: Option<Frontier>,
}

/// What a replica tells the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// A collection progressed.
    Frontiers {
        /// The collection.
        id: GlobalId,
        /// Its frontiers.
        frontiers: Frontiers,
    },
    /// A peek is answered.
    Peek {
        /// The peek.
        uuid: PeekId,
        /// Its answer.
        response: PeekResponse,
    },
    /// A command was not carried out: it broke the protocol. Nothing has changed.
    Status {
        /// What was wrong.
        message: String,
    },
}
