//! Scenarios: everything a run does, as one value drawn from a seed.
//!
//! A [`Scenario`] says what the replica looks like (processes, workers, sources, network), what is
//! asked of it (operations, each after a gap of virtual time), what goes wrong (faults, each in a
//! window of virtual time) and how threads are chosen (the strategy). It does not say how threads
//! interleave: that is the schedule, a list of decisions kept beside it.
//!
//! The shape is chosen for shrinking. An operation never names what it acts on; it picks it, modulo
//! what exists when it is carried out ([`Pick`]). Plans and keys are symbolic in the same way
//! ([`PlanShape`]), and updates pass a [`Ledger`] that admits only what keeps multiplicities from
//! going negative. So any operation, update or fault can be deleted and what remains is a legal
//! scenario; an operation that finds nothing to act on does nothing.
//!
//! The parts are drawn from separately named streams of the seed: a change in how faults are drawn
//! does not shuffle the workload. The invariant that the dataflow and the model both lean on is
//! *magnitude*: no collection that a scenario can make holds rows of total absolute multiplicity
//! above `2^`[`MAGNITUDE_BITS_MAX`], because [`PlanShape::concretise`] leaves out join and union
//! inputs that would exceed it.

use std::fmt;

use serde::{Deserialize, Serialize};

mod draw;
mod fault;
mod generate;
mod ledger;
mod operation;
mod shape;
mod validate;

pub use fault::{Fault, StrategyChoice, Victim};
pub use ledger::Ledger;
pub use operation::{Cancel, IndexSpec, KeyChoice, Operation, Pick, Timed, When};
pub use shape::{
    CollectionInfo, Concrete, ConcreteIndex, MAGNITUDE_BITS_MAX, PlanShape, fit_finishing,
};
pub use validate::{Limits, ScenarioError};

/// Everything a run does, but for how its threads interleave.
///
/// Prints itself as JSON, and is read back with serde; what was read must be
/// [validated](Scenario::validate) before it is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What this was drawn from. Also seeds whatever the run itself draws (the schedule, for one).
    pub seed: u64,
    /// How large it was drawn.
    pub profile: Profile,
    /// The processes of the replica, at least one.
    pub processes: usize,
    /// The timely workers of each runtime in each process, at least one.
    pub workers: usize,
    /// What bounds compaction beside the controller.
    pub policy: Policy,
    /// How many positions a peek walk visits before others get their turn.
    pub walk_budget: usize,
    /// How many updates an idle trace merges at a time. When absent, traces merge only when something is inserted: in
    /// the tick.
    pub idle_effort: Option<usize>,
    /// How long messages are under way.
    pub network: Network,
    /// What this seed stresses.
    pub swarm: Swarm,
    /// The sources, created before the first operation. Collections are counted from these on.
    pub sources: Vec<SourceSpec>,
    /// How threads are chosen.
    pub strategy: StrategyChoice,
    /// What is asked, in order.
    pub operations: Vec<Timed>,
    /// What goes wrong, in no order.
    pub faults: Vec<Fault>,
}

/// How much a scenario does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// A short run, for a test that runs often.
    Smoke,
    /// The run a sweep is made of.
    #[default]
    Swarm,
    /// A long run over more data.
    Soak,
}

impl Profile {
    /// How many operations a scenario of this profile has.
    pub fn operations(self) -> usize {
        match self {
            Profile::Smoke => 60,
            Profile::Swarm => 200,
            Profile::Soak => 800,
        }
    }
}

/// What bounds how far an arrangement compacts, beside the controller's frontier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Nothing: reads are admitted at capture or refused.
    #[default]
    Gate,
}

/// How long a message between the controller and a process is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// At least this long, in nanoseconds of virtual time.
    pub latency_ns_min: u64,
    /// At most this long, in nanoseconds of virtual time; not below the least.
    pub latency_ns_max: u64,
}

/// A durable collection outside the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// The columns of its rows: the first is the key, the others are values.
    pub arity: usize,
    /// Keys are drawn from `1..=keys`. Zero is no ordinary key, so that divisions fail rarely.
    pub keys: i64,
    /// Values are drawn from `1..=values`.
    pub values: i64,
    /// How many of a hundred rows have the hot key, 1.
    pub skew_percent: u32,
    /// The most rows it holds at once, counted with their multiplicities.
    pub capacity: u32,
    /// How far the controller lets its since trail its upper, in timestamps.
    pub lag: u64,
}

impl SourceSpec {
    /// An upper bound of the total multiplicity of its rows at any time, as a power of two.
    pub fn bits(&self) -> u32 {
        self.capacity.max(1).next_power_of_two().ilog2()
    }

    /// An empty ledger of this source.
    pub fn ledger(&self) -> Ledger {
        Ledger::new(self.arity, i64::from(self.capacity))
    }
}

/// What a seed stresses: each switch that is off removes a kind of event from the whole scenario,
/// so that the others meet more often than they would if everything happened always.
///
/// The switches only tell how the scenario was drawn; nothing that carries it out reads them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swarm {
    /// Rows are deleted also while there is room for more.
    pub deletions: bool,
    /// Zeros in the data, so that divisions fail until the row is deleted again.
    pub zeros: bool,
    /// The extremes of `i64` in the data, so that arithmetic overflows.
    pub extremes: bool,
    /// Absent values, and texts where numbers are expected.
    pub oddities: bool,
    /// Indexes over plans, not only over collections as they are.
    pub derived: bool,
    /// Joins and unions among those plans.
    pub joins: bool,
    /// Queries that build a dataflow.
    pub queries: bool,
    /// Reads that are cancelled.
    pub cancels: bool,
    /// Indexes that are dropped, and created again.
    pub drops: bool,
    /// Reads beyond the upper.
    pub ahead: bool,
    /// Every collection starts with lag zero, or near.
    pub aggressive: bool,
    /// Lags change during the run.
    pub lags: bool,
    /// Operations that follow each other in the same instant.
    pub bursts: bool,
    /// [`Fault::SlowMerge`].
    pub slow_merges: bool,
    /// [`Fault::StallWorker`].
    pub stalled_workers: bool,
    /// [`Fault::StallRuntime`].
    pub stalled_runtimes: bool,
}

impl Scenario {
    /// The workers of each runtime, over all processes.
    pub fn peers(&self) -> usize {
        self.processes * self.workers
    }

    /// When the last operation begins, in nanoseconds of virtual time after the run's start.
    pub fn horizon_ns(&self) -> u64 {
        self.operations.iter().fold(0, |sum, timed| sum.saturating_add(timed.gap_ns))
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?;
        f.write_str(&json)
    }
}

#[cfg(test)]
mod tests;
