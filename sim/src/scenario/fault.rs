//! What goes wrong in a run, and how its threads are chosen.

use serde::{Deserialize, Serialize};
use tandem::env::Role;

/// Something that goes wrong in a window of virtual time.
///
/// Times are nanoseconds of virtual time after the run's start. Faults may overlap. In the second
/// phase of a run everything is healed: windows that reach beyond the last operation are cut there.
/// More kinds will come (crashes, lost connections): whoever carries faults out names those it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub enum Fault {
    /// Merges of batches cost many times what they usually do.
    SlowMerge {
        /// How many times as much virtual time each merged update costs, at least one.
        factor: u64,
        /// Only in this process; everywhere when absent.
        process: Option<usize>,
        /// When it begins.
        from_ns: u64,
        /// When it ends; after it began.
        to_ns: u64,
    },
    /// One worker of one runtime does nothing for a while, wherever it happens to be.
    StallWorker {
        /// The runtime.
        role: Role,
        /// The worker, counted over all processes.
        worker: usize,
        /// When it begins.
        from_ns: u64,
        /// How long it lasts.
        for_ns: u64,
    },
    /// All workers of one runtime, in every process, do nothing for a while.
    StallRuntime {
        /// The runtime.
        role: Role,
        /// When it begins.
        from_ns: u64,
        /// How long it lasts.
        for_ns: u64,
    },
}

impl Fault {
    /// All kinds of faults, by [`Fault::kind`].
    pub const KINDS: [&'static str; 3] = ["slow-merge", "stall-worker", "stall-runtime"];

    /// What kind of fault this is.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::SlowMerge { .. } => "slow-merge",
            Fault::StallWorker { .. } => "stall-worker",
            Fault::StallRuntime { .. } => "stall-runtime",
        }
    }

    /// When this begins and ends, in nanoseconds of virtual time.
    pub fn window_ns(&self) -> (u64, u64) {
        match *self {
            Fault::SlowMerge { from_ns, to_ns, .. } => (from_ns, to_ns),
            Fault::StallWorker { from_ns, for_ns, .. }
            | Fault::StallRuntime { from_ns, for_ns, .. } => {
                (from_ns, from_ns.saturating_add(for_ns))
            }
        }
    }
}

/// How the scheduler chooses among threads that could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum StrategyChoice {
    /// Uniformly.
    Random {
        /// How many of a thousand points switch to another thread.
        switch_per_mille: u32,
        /// How many of ten thousand points stall their thread.
        stall_per_myriad: u32,
        /// The longest such stall, in nanoseconds of virtual time.
        stall_ns_max: u64,
    },
    /// Uniformly, but for a victim that is kept from running again and again.
    Starvation {
        /// Who is starved.
        victim: Victim,
        /// How many of a thousand points switch to another thread.
        switch_per_mille: u32,
        /// How long the victim is kept from running, in nanoseconds of virtual time.
        starve_ns: u64,
        /// How long it may run in between, in nanoseconds of virtual time.
        relief_ns: u64,
    },
}

/// Whom a [`StrategyChoice::Starvation`] starves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Victim {
    /// All workers of a runtime.
    Runtime(Role),
    /// One worker of a runtime.
    Worker {
        /// The runtime.
        role: Role,
        /// The worker, counted over all processes.
        worker: usize,
    },
}
