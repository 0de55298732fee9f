//! Who watches a run to tell of it afterwards: for timelines and traces.

use tandem::env::Role;
use tandem::protocol::{Command, PeekId, PeekResponse, Response};
use tandem::repr::{Frontier, GlobalId, Timestamp};

use crate::report::Violation;
use crate::scenario::Fault;
use crate::sched::{Observer, ThreadId};

/// A fact about the controller, its user and the network, where [`tandem::env::Event`] has those of the replica.
#[derive(Clone, Debug)]
pub enum Fact<'a> {
    /// A thread of the replica exists.
    Thread {
        /// Its name among the scheduler's threads.
        id: ThreadId,
        /// Its name for people.
        name: &'a str,
        /// The runtime it works for.
        role: Role,
        /// The process it runs in.
        process: usize,
    },
    /// The controller sent a command.
    Sent(&'a Command),
    /// A command reached process 0 of the replica.
    Delivered(&'a Command),
    /// The controller heard a response.
    Heard(&'a Response),
    /// The user asked for a read.
    Asked {
        /// Its name.
        peek: PeekId,
        /// The index peeked.
        target: GlobalId,
        /// The indexes read.
        reads: &'a [GlobalId],
        /// The time read at.
        at: Timestamp,
    },
    /// The user cancelled a read.
    Canceled {
        /// Its name.
        peek: PeekId,
        /// Whether it was still unanswered.
        in_time: bool,
    },
    /// A read has its answer.
    Answered {
        /// Its name.
        peek: PeekId,
        /// The answer.
        response: &'a PeekResponse,
    },
    /// A source was appended to, or its time advanced.
    Appended {
        /// The source.
        source: GlobalId,
        /// The number of updates.
        updates: usize,
        /// Its upper from now on.
        upper: &'a Frontier,
    },
    /// A fault begins or ends.
    Fault {
        /// The fault.
        fault: &'a Fault,
        /// Whether it begins.
        begins: bool,
    },
    /// The second phase begins.
    Healed,
    /// The run is over. What threads do from now on is being torn down.
    Over,
    /// An oracle fired.
    Violated(&'a Violation),
}

/// Sees everything that happens in a run: the machine through [`Observer`], the rest here.
pub trait Witness: Observer {
    /// Something happened outside of the replica's threads, at this virtual time in nanoseconds.
    fn fact(&self, now_ns: u64, fact: &Fact<'_>);
}
