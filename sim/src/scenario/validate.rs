//! Which scenarios can be run at all: the check of what was read from a file.

use super::fault::{Fault, StrategyChoice, Victim};
use super::operation::{Operation, When};
use super::shape::{MAGNITUDE_BITS_MAX, PlanShape};
use super::{Scenario, SourceSpec};

/// What bounds a scenario. Generated ones stay well within; these keep a file that was edited by
/// hand from asking for more than a machine, or the arithmetic of times, can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits;

impl Limits {
    /// The most processes.
    pub const PROCESSES_MAX: usize = 16;
    /// The most workers of a runtime in a process.
    pub const WORKERS_MAX: usize = 16;
    /// The most columns of a source.
    pub const ARITY_MAX: usize = 8;
    /// The longest virtual time of a run, or of anything within, in nanoseconds: an hour.
    pub const TIME_NS_MAX: u64 = 3_600_000_000_000;
    /// The most timestamps by which one operation advances a source.
    pub const ADVANCE_MAX: u64 = 1_000_000;
}

/// Why a scenario cannot be run. Operations and faults are named by their position, from zero.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// No processes, or too many.
    #[error("{0} processes: it takes 1 to {max}", max = Limits::PROCESSES_MAX)]
    Processes(usize),
    /// No workers, or too many.
    #[error("{0} workers per process: it takes 1 to {max}", max = Limits::WORKERS_MAX)]
    Workers(usize),
    /// A peek walk that never gets anywhere.
    #[error("a walk budget of 0 positions: no peek would ever be answered")]
    WalkBudget,
    /// Idle traces that would never merge.
    #[error("an idle effort of 0 updates: no merge would ever be finished")]
    IdleEffort,
    /// A latency range that is empty or too long.
    #[error("a network latency of {min} to {max} ns: the range is empty or beyond {limit} ns",
        limit = Limits::TIME_NS_MAX)]
    Latency {
        /// The least, in nanoseconds.
        min: u64,
        /// The most, in nanoseconds.
        max: u64,
    },
    /// Nothing to read.
    #[error("no sources")]
    NoSources,
    /// A source whose numbers make no sense.
    #[error("source {source_index}: {name} is {value}, which is not within {least} to {most}")]
    Source {
        /// Which source.
        source_index: usize,
        /// Which of its numbers.
        name: &'static str,
        /// What it is.
        value: i64,
        /// The least it may be.
        least: i64,
        /// The most it may be.
        most: i64,
    },
    /// A strategy's number that makes no sense.
    #[error("strategy: {name} is {value}, which is more than {most}")]
    Strategy {
        /// Which number.
        name: &'static str,
        /// What it is.
        value: u64,
        /// The most it may be.
        most: u64,
    },
    /// Starvation of a worker that does not exist.
    #[error("strategy: starves worker {worker} of {peers}")]
    Victim {
        /// The worker.
        worker: usize,
        /// The workers there are.
        peers: usize,
    },
    /// Gaps or delays that add up to too much.
    #[error("operation {operation}: {ns} ns of virtual time, more than {max}",
        max = Limits::TIME_NS_MAX)]
    Time {
        /// The operation.
        operation: usize,
        /// When it, or what it asks for, would happen, in nanoseconds.
        ns: u64,
    },
    /// A source advanced by nothing or by too much.
    #[error("operation {operation}: advances a source by {by}: it takes 1 to {max}",
        max = Limits::ADVANCE_MAX)]
    Advance {
        /// The operation.
        operation: usize,
        /// By how much, in timestamps.
        by: u64,
    },
    /// A join or a union of too few inputs.
    #[error("operation {operation}: a {node} of {inputs} inputs")]
    Shape {
        /// The operation.
        operation: usize,
        /// `join` or `union`.
        node: &'static str,
        /// Its inputs.
        inputs: usize,
    },
    /// A read of the last time that nothing ends.
    #[error("operation {operation}: a read of the last of all times that is never cancelled")]
    Endless {
        /// The operation.
        operation: usize,
    },
    /// A fault in a process or worker that does not exist.
    #[error("fault {fault}: {what} {slot} of {len}")]
    FaultSlot {
        /// The fault.
        fault: usize,
        /// `process` or `worker`.
        what: &'static str,
        /// The one it names.
        slot: usize,
        /// How many there are.
        len: usize,
    },
    /// A fault that ends before it begins, or too late.
    #[error("fault {fault}: from {from_ns} to {to_ns} ns: the window is empty or beyond {max} ns",
        max = Limits::TIME_NS_MAX)]
    FaultWindow {
        /// The fault.
        fault: usize,
        /// When it begins, in nanoseconds.
        from_ns: u64,
        /// When it ends, in nanoseconds.
        to_ns: u64,
    },
    /// A slow merge that would be infinitely fast.
    #[error("fault {fault}: merges at 0 times their cost")]
    FaultFactor {
        /// The fault.
        fault: usize,
    },
}

impl Scenario {
    /// Whether this can be run. Every generated scenario can, and stays so whatever operations,
    /// updates or faults are taken away from it.
    ///
    /// # Errors
    /// The first thing that is impossible, with its numbers.
    pub fn validate(&self) -> Result<(), ScenarioError> {
        if !(1..=Limits::PROCESSES_MAX).contains(&self.processes) {
            return Err(ScenarioError::Processes(self.processes));
        }
        if !(1..=Limits::WORKERS_MAX).contains(&self.workers) {
            return Err(ScenarioError::Workers(self.workers));
        }
        if self.walk_budget == 0 {
            return Err(ScenarioError::WalkBudget);
        }
        if self.idle_effort == Some(0) {
            return Err(ScenarioError::IdleEffort);
        }
        let (min, max) = (self.network.latency_ns_min, self.network.latency_ns_max);
        if min > max || max > Limits::TIME_NS_MAX {
            return Err(ScenarioError::Latency { min, max });
        }
        if self.sources.is_empty() {
            return Err(ScenarioError::NoSources);
        }
        for (index, source) in self.sources.iter().enumerate() {
            check_source(index, source)?;
        }
        self.check_strategy()?;
        self.check_operations()?;
        self.faults.iter().enumerate().try_for_each(|(index, fault)| self.check_fault(index, fault))
    }

    fn check_strategy(&self) -> Result<(), ScenarioError> {
        let numbers = match self.strategy {
            StrategyChoice::Random { switch_per_mille, stall_per_myriad, stall_ns_max } => [
                ("switch_per_mille", u64::from(switch_per_mille), 1000),
                ("stall_per_myriad", u64::from(stall_per_myriad), 10_000),
                ("stall_ns_max", stall_ns_max, Limits::TIME_NS_MAX),
            ],
            StrategyChoice::Starvation { switch_per_mille, starve_ns, relief_ns, .. } => [
                ("switch_per_mille", u64::from(switch_per_mille), 1000),
                ("starve_ns", starve_ns, Limits::TIME_NS_MAX),
                ("relief_ns", relief_ns, Limits::TIME_NS_MAX),
            ],
        };
        if let Some(&(name, value, most)) = numbers.iter().find(|(_, value, most)| value > most) {
            return Err(ScenarioError::Strategy { name, value, most });
        }
        match self.strategy {
            StrategyChoice::Starvation { victim: Victim::Worker { worker, .. }, .. }
                if worker >= self.peers() =>
            {
                Err(ScenarioError::Victim { worker, peers: self.peers() })
            }
            _ => Ok(()),
        }
    }

    fn check_operations(&self) -> Result<(), ScenarioError> {
        let mut now_ns = 0u64;
        for (operation, timed) in self.operations.iter().enumerate() {
            now_ns = now_ns.saturating_add(timed.gap_ns);
            check_operation(operation, &timed.operation)?;
            let cancel = timed.operation.read().and_then(|(_, cancel)| cancel);
            let ns = now_ns.saturating_add(cancel.map_or(0, |cancel| cancel.after_ns));
            if ns > Limits::TIME_NS_MAX {
                return Err(ScenarioError::Time { operation, ns });
            }
        }
        Ok(())
    }

    fn check_fault(&self, fault: usize, what: &Fault) -> Result<(), ScenarioError> {
        let within = |what, slot, len| match slot {
            slot if slot < len => Ok(()),
            slot => Err(ScenarioError::FaultSlot { fault, what, slot, len }),
        };
        match *what {
            Fault::SlowMerge { factor: 0, .. } => return Err(ScenarioError::FaultFactor { fault }),
            Fault::SlowMerge { process: Some(process), .. } => {
                within("process", process, self.processes)?;
            }
            Fault::StallWorker { worker, .. } => within("worker", worker, self.peers())?,
            Fault::SlowMerge { process: None, .. } | Fault::StallRuntime { .. } => {}
        }
        let (from_ns, to_ns) = what.window_ns();
        if from_ns >= to_ns || to_ns > Limits::TIME_NS_MAX {
            return Err(ScenarioError::FaultWindow { fault, from_ns, to_ns });
        }
        Ok(())
    }
}

fn check_source(source_index: usize, source: &SourceSpec) -> Result<(), ScenarioError> {
    let arity = i64::try_from(source.arity).unwrap_or(i64::MAX);
    let numbers = [
        ("arity", arity, 1, Limits::ARITY_MAX as i64),
        ("keys", source.keys, 1, i64::MAX),
        ("values", source.values, 1, i64::MAX),
        ("skew_percent", i64::from(source.skew_percent), 0, 100),
        ("capacity", i64::from(source.capacity), 1, 1 << MAGNITUDE_BITS_MAX),
    ];
    for (name, value, least, most) in numbers {
        if !(least..=most).contains(&value) {
            return Err(ScenarioError::Source { source_index, name, value, least, most });
        }
    }
    Ok(())
}

fn check_operation(operation: usize, what: &Operation) -> Result<(), ScenarioError> {
    match what {
        Operation::Advance { by, .. } if !(1..=Limits::ADVANCE_MAX).contains(by) => {
            Err(ScenarioError::Advance { operation, by: *by })
        }
        Operation::Peek { when: When::Last, cancel: None, .. }
        | Operation::Query { when: When::Last, cancel: None, .. } => {
            Err(ScenarioError::Endless { operation })
        }
        Operation::CreateIndex { spec } => check_shape(operation, &spec.over),
        Operation::Query { plan, .. } => check_shape(operation, plan),
        _ => Ok(()),
    }
}

fn check_shape(operation: usize, shape: &PlanShape) -> Result<(), ScenarioError> {
    match shape {
        PlanShape::Join { inputs, .. } if inputs.len() < 2 => {
            Err(ScenarioError::Shape { operation, node: "join", inputs: inputs.len() })
        }
        PlanShape::Union { inputs } if inputs.is_empty() => {
            Err(ScenarioError::Shape { operation, node: "union", inputs: 0 })
        }
        _ => shape.inputs().into_iter().try_for_each(|input| check_shape(operation, input)),
    }
}
