//! What a run comes to, and what a sweep makes of it.

use std::collections::BTreeMap;
use std::fmt;

use tandem::protocol::PeekId;
use tandem::repr::GlobalId;

use crate::sched::ThreadId;

/// The situations that a sweep of some size must have reached, or it has tested too little to be
/// called green. A run reports each by this name in [`RunReport::sometimes`].
pub const REQUIRED: [&str; 9] = [
    "peek before publication",
    "read during a merge",
    "cancel before the answer",
    "cancel during the answer",
    "cancel after the answer",
    "refusal after the controller gave up",
    "compaction past a queued read",
    "drop with readers queued",
    "query over a placeholder",
];

/// The oracles, by the numbers that the design gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Oracle {
    /// Every row answer equals the sequential reference model at that time.
    O1,
    /// A read succeeds only if readable at its capture, and is refused only if the controller had given up on it.
    O2,
    /// Reads never pin maintenance compaction.
    O3,
    /// Exactly one response per peek.
    O4,
    /// Frontiers never regress, and only owners report.
    O5,
    /// Once faults stop, every read is answered and every frontier reaches its target.
    O7,
    /// No unexpected panic, and no command is rejected.
    O8,
    /// After readers leave, live batches are exactly the traces' own; after the run, there are none.
    O9,
    /// A read that is ready waits for no maintenance step, merge or lock.
    O10,
    /// The run is deterministic.
    O11,
}

impl Oracle {
    /// All of them, in order.
    pub const ALL: [Oracle; 10] = [
        Oracle::O1,
        Oracle::O2,
        Oracle::O3,
        Oracle::O4,
        Oracle::O5,
        Oracle::O7,
        Oracle::O8,
        Oracle::O9,
        Oracle::O10,
        Oracle::O11,
    ];

    /// The oracle of this short name.
    pub fn from_name(name: &str) -> Option<Oracle> {
        Oracle::ALL.into_iter().find(|oracle| oracle.name() == name)
    }

    /// Its short name.
    pub fn name(self) -> &'static str {
        match self {
            Oracle::O1 => "O1",
            Oracle::O2 => "O2",
            Oracle::O3 => "O3",
            Oracle::O4 => "O4",
            Oracle::O5 => "O5",
            Oracle::O7 => "O7",
            Oracle::O8 => "O8",
            Oracle::O9 => "O9",
            Oracle::O10 => "O10",
            Oracle::O11 => "O11",
        }
    }

    /// What it promises, in one line.
    pub fn promise(self) -> &'static str {
        match self {
            Oracle::O1 => "every row answer equals a sequential reference model at that time",
            Oracle::O2 => {
                "a read succeeds only if readable at its capture, and is refused only if the controller had given up on it"
            }
            Oracle::O3 => {
                "never pins: soon after AllowCompaction(F) the trace's real logical frontier is F, its physical frontier its upper, its batches few"
            }
            Oracle::O4 => "exactly one response per peek",
            Oracle::O5 => "frontiers never regress, and only owners report",
            Oracle::O7 => {
                "once faults stop, every read is answered and every frontier reaches its target in bounded virtual time"
            }
            Oracle::O8 => "no unexpected panic, and no command of the controller is rejected",
            Oracle::O9 => {
                "no live batch remains after the world is gone, and no orphaned slot after readers leave"
            }
            Oracle::O10 => "a read that is ready waits for no maintenance step, merge or lock",
            Oracle::O11 => "same seed, same event hash",
        }
    }

    /// The exit code of a sweep in which it fired.
    pub fn exit_code(self) -> u8 {
        match self {
            Oracle::O7 => 3,
            Oracle::O11 => 4,
            _ => 1,
        }
    }
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An oracle fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub oracle: Oracle,
    /// When, in virtual nanoseconds.
    pub at_ns: u64,
    /// Which of the things that this oracle looks for, in a few words; empty where there is but one. Violations of one
    /// oracle and one class are the same failure to whoever shrinks it.
    pub class: &'static str,
    /// What was expected, what was seen, of which ids, frontiers and times.
    pub message: String,
    /// Whom it is about.
    pub about: Subjects,
}

/// Whom a violation is about: where the story of what led to it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subjects {
    /// Collections.
    pub ids: Vec<GlobalId>,
    /// Reads.
    pub peeks: Vec<PeekId>,
    /// Workers, counted over all processes. None stands for all.
    pub workers: Vec<usize>,
    /// Threads.
    pub threads: Vec<ThreadId>,
}

impl Violation {
    /// `oracle` fired at this virtual time, in nanoseconds. About nobody yet, and of no class.
    pub fn new(oracle: Oracle, at_ns: u64, message: String) -> Violation {
        Violation { oracle, at_ns, class: "", message, about: Subjects::default() }
    }

    /// Of this class.
    pub fn class(self, class: &'static str) -> Violation {
        Violation { class, ..self }
    }

    /// About this collection too.
    pub fn of_id(mut self, id: GlobalId) -> Violation {
        self.about.ids.push(id);
        self
    }

    /// About this read too.
    pub fn of_peek(mut self, peek: PeekId) -> Violation {
        self.about.peeks.push(peek);
        self
    }

    /// About this worker too.
    pub fn of_worker(mut self, worker: usize) -> Violation {
        self.about.workers.push(worker);
        self
    }

    /// About this thread too.
    pub fn of_thread(mut self, thread: ThreadId) -> Violation {
        self.about.threads.push(thread);
        self
    }
}

/// What one run came to.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The seed.
    pub seed: u64,
    /// The first violation, if any. The run ends with it.
    pub violation: Option<Violation>,
    /// The decisions the scheduler took.
    pub decisions: u64,
    /// The virtual time that passed, in nanoseconds.
    pub virtual_ns: u64,
    /// The hash over all decisions and events.
    pub hash: u64,
    /// How often each situation occurred. Situations that did not are present with zero.
    pub sometimes: BTreeMap<&'static str, u64>,
    /// How often each thing was done: operations by kind, answers by kind, faults by kind, commands, events.
    pub exercised: BTreeMap<&'static str, u64>,
    /// How often each oracle judged something.
    pub checks: BTreeMap<Oracle, u64>,
    /// Number of processes, and of workers per process and runtime.
    pub shape: (usize, usize),
}
