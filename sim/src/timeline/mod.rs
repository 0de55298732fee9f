//! A run drawn along virtual time: a [page] to look at, and a [trace](perfetto) for Perfetto.
//!
//! [`record`] carries a run out once more with a [recorder](record) that watches it. Watching
//! changes nothing, so what is drawn is the very run that was asked about, which
//! [`Recording::report`] proves by its hash. The result is a [`Timeline`]: plain data, in which
//! every thread has properly nested [slices](Slice), every command and every read knows the moments
//! of its way, and every collection its frontiers. The two drawings are functions of it.
//!
//! Clocks of different threads are apart by up to the scheduler's skew, so an arrow may be a little
//! steeper than it should be, but along one thread time only grows.

use std::rc::Rc;
use std::thread;

use serde::Serialize;
use tandem::env::{Half, Role};
use tandem::protocol::PeekId;
use tandem::repr::{GlobalId, Timestamp};
use tandem::zoo::Defect;

use crate::replay::Case;
use crate::report::{Oracle, RunReport};
use crate::scenario::Scenario;
use crate::sweep::RunRequest;
use crate::world::{self, Plan, Schedule};

pub mod page;
pub mod perfetto;
mod record;

use record::Recorder;

#[cfg(test)]
mod tests;

/// The stack of the OS thread of a recorded run, in bytes: as much as in a sweep.
const STACK_BYTES: usize = 8 << 20;

/// A run to be recorded.
#[derive(Clone, Debug)]
pub struct Subject {
    /// What people call the run, such as `seed 7`.
    pub name: String,
    /// The command that replays it.
    pub command: String,
    /// What is done and goes wrong.
    pub scenario: Scenario,
    /// The defect to put back into the system, if any.
    pub plant: Option<Defect>,
    /// Where decisions come from.
    pub schedule: Schedule,
}

impl Subject {
    /// What a request asks for.
    pub fn of(request: &RunRequest) -> Subject {
        let (scenario, plant) = (request.scenario(), request.plant);
        let case = Case { scenario, plant, schedule: Schedule::Drawn };
        Subject::of_case(&case, &request.replay_command())
    }

    /// A case, and the command that replays it.
    pub fn of_case(case: &Case, command: &str) -> Subject {
        let Case { scenario, plant, schedule } = case.clone();
        let planted = plant.map(|defect| format!(", {} planted", defect.name()));
        Subject {
            name: format!("seed {}{}", scenario.seed, planted.unwrap_or_default()),
            command: command.to_string(),
            scenario,
            plant,
            schedule,
        }
    }
}

/// A run that was recorded.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What happened when.
    pub timeline: Timeline,
    /// What the oracles say.
    pub report: RunReport,
}

/// What keeps a run from being recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The operating system gives no thread.
    #[error("cannot record {name}: no thread for the run: {source}")]
    Thread {
        /// The run.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// The testbed itself panicked.
    #[error("cannot record {name}: the testbed panicked; replay it without drawing to see where")]
    Broken {
        /// The run.
        name: String,
    },
}

/// Carries out a run on a fresh OS thread, and records it.
///
/// # Errors
/// If there is no such thread, or the testbed panics.
pub fn record(subject: &Subject) -> Result<Recording, RecordError> {
    let name = subject.name.clone();
    thread::scope(|scope| {
        thread::Builder::new()
            .name(format!("recording {name}"))
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || watch(subject))
            .map_err(|source| RecordError::Thread { name: name.clone(), source })?
            .join()
            .map_err(|_| RecordError::Broken { name })
    })
}

fn watch(subject: &Subject) -> Recording {
    let recorder = Rc::new(Recorder::new());
    let Subject { scenario, plant, schedule, .. } = subject.clone();
    let witness: Rc<dyn world::Witness> = recorder.clone();
    let plan = Plan { scenario, plant, schedule, witness: Some(witness) };
    let report = world::carry_out(plan).report;
    Recording { timeline: recorder.finish(subject, &report), report }
}

/// A frontier of a moment: the least time beyond it, or nothing when it is closed.
pub type Level = Option<Timestamp>;

/// Everything that can be drawn of a run. Times are nanoseconds of virtual time after its start.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// What people call the run.
    pub name: String,
    /// The command that replays it.
    pub command: String,
    /// The number of decisions of the scheduler.
    pub decisions: u64,
    /// The event hash.
    pub hash: u64,
    /// The summary of the planted defect, if any.
    pub planted: Option<String>,
    /// When everything was over.
    pub end_ns: u64,
    /// When faults stopped and the world began to settle.
    pub healed_ns: Option<u64>,
    /// The threads, by their number.
    pub threads: Vec<Thread>,
    /// Wakes of sleeping threads, by when they took effect.
    pub wakes: Vec<Wake>,
    /// The controller's commands, in the order they were sent.
    pub commands: Vec<SentCommand>,
    /// The reads, in the order they were asked for.
    pub peeks: Vec<Read>,
    /// The sources and indexes, by name.
    pub collections: Vec<Strip>,
    /// What went wrong on purpose, by when it began.
    pub faults: Vec<FaultWindow>,
    /// The violation that ended the run, if any.
    pub violation: Option<Mark>,
}

impl Timeline {
    /// The number of things that happened.
    pub fn events(&self) -> usize {
        let slices: usize = self.threads.iter().map(|thread| thread.slices.len()).sum();
        let steps: usize = self.collections.iter().map(Strip::steps).sum();
        slices + steps + self.wakes.len() + self.commands.len() + self.peeks.len()
    }
}

/// What the drawings ask about threads.
impl Timeline {
    /// Whether a thread is inside some slice at this time.
    fn is_busy(&self, thread: usize, at_ns: u64) -> bool {
        let slices = &self.threads[thread].slices;
        let before = slices.partition_point(|slice| slice.begin_ns <= at_ns);
        let around = slices[..before].iter().rev().take_while(|slice| slice.depth > 0).count();
        slices[..before].iter().rev().take(around + 1).any(|slice| at_ns <= slice.end_ns)
    }

    /// When the first slice of a thread begins that does not begin before this.
    fn next_slice(&self, thread: usize, from_ns: u64) -> Option<u64> {
        let slices = &self.threads[thread].slices;
        let next = slices.partition_point(|slice| slice.begin_ns < from_ns);
        slices.get(next).map(|slice| slice.begin_ns)
    }
}

/// A thread of the replica.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// The runtime it works for.
    pub role: Role,
    /// The process it runs in.
    pub process: usize,
    /// When it died, if it did before the run was over.
    pub died_ns: Option<u64>,
    /// What it did, in the order it began to. Slices are disjoint, or one is inside the other.
    pub slices: Vec<Slice>,
}

/// What a thread did for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// What.
    pub doing: Doing,
    /// From when.
    pub begin_ns: u64,
    /// Until when.
    pub end_ns: u64,
    /// How many slices it is inside of.
    pub depth: usize,
}

/// What a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doing {
    /// A worker's turn: whatever of it is no activity.
    Turn,
    /// Applying commands.
    Commands,
    /// A step of timely.
    Step,
    /// A call that may merge for as long as it likes, and for whom.
    Compact(Option<(GlobalId, Half)>),
    /// Merging two batches.
    Merge,
    /// Walking a snapshot for a read.
    Walk(PeekId),
    /// The maintenance tick.
    Tick,
    /// Nothing, until somebody wakes it.
    Idle,
    /// Waiting for a lock.
    Blocked {
        /// What the lock protects.
        lock: &'static str,
        /// The thread that held it.
        holder: Option<usize>,
    },
    /// Its core stands still.
    Stalled,
}

impl Doing {
    /// All kinds, in the order of [`Doing::kind`].
    pub const KINDS: [&'static str; 10] = [
        "turn", "commands", "step", "compact", "merge", "walk", "tick", "idle", "blocked",
        "stalled",
    ];

    /// The index of its kind among [`Doing::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Doing::Turn => 0,
            Doing::Commands => 1,
            Doing::Step => 2,
            Doing::Compact(_) => 3,
            Doing::Merge => 4,
            Doing::Walk(_) => 5,
            Doing::Tick => 6,
            Doing::Idle => 7,
            Doing::Blocked { .. } => 8,
            Doing::Stalled => 9,
        }
    }

    /// Whether it waits for another thread.
    fn is_wait(&self) -> bool {
        matches!(self, Doing::Idle | Doing::Blocked { .. })
    }

    /// The read it is for.
    pub fn peek(&self) -> Option<PeekId> {
        match self {
            Doing::Walk(peek) => Some(*peek),
            _ => None,
        }
    }

    /// What it is, for people; `threads` have the names.
    pub fn label(&self, threads: &[Thread]) -> String {
        match self {
            Doing::Compact(Some((id, half))) => format!("compact {id} {}", half_name(*half)),
            Doing::Walk(peek) => format!("walk for {peek}"),
            Doing::Blocked { lock, holder } => {
                let holder = holder.and_then(|holder| threads.get(holder));
                let holder = holder.map_or("the driver", |holder| &holder.name);
                format!("blocked: the lock of a {lock} is held by {holder}")
            }
            plain => Doing::KINDS[plain.kind()].to_string(),
        }
    }
}

fn half_name(half: Half) -> &'static str {
    match half {
        Half::Oks => "oks",
        Half::Errs => "errs",
    }
}

/// A wake of a sleeping thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Who woke it; nobody among the threads when it was the network.
    pub by: Option<usize>,
    /// When.
    pub at_ns: u64,
    /// Whom.
    pub thread: usize,
    /// When that ran again.
    pub runs_ns: u64,
}

/// A command on its way.
#[derive(Clone, Debug)]
pub struct SentCommand {
    /// Its kind.
    pub kind: &'static str,
    /// What else there is to say of it.
    pub detail: String,
    /// The collection it is about.
    pub id: Option<GlobalId>,
    /// The read it is about.
    pub peek: Option<PeekId>,
    /// When the controller sent it.
    pub sent_ns: u64,
    /// When it reached the replica.
    pub delivered_ns: Option<u64>,
    /// Which threads applied it, and when.
    pub applied: Vec<(usize, u64)>,
}

impl SentCommand {
    /// What it is, for people.
    pub fn label(&self) -> String {
        let id = self.id.map(|id| format!(" {id}")).unwrap_or_default();
        let peek = self.peek.map(|peek| format!(" ({peek})")).unwrap_or_default();
        let gap = if self.detail.is_empty() { "" } else { " " };
        format!("{}{id}{peek}{gap}{}", self.kind, self.detail)
    }
}

/// A read on its way.
#[derive(Clone, Debug)]
pub struct Read {
    /// Its name.
    pub peek: PeekId,
    /// The index peeked, or the output of a query.
    pub target: GlobalId,
    /// The indexes read.
    pub reads: Vec<GlobalId>,
    /// The time read at.
    pub at: Timestamp,
    /// When the user asked.
    pub asked_ns: u64,
    /// When the user cancelled it, and whether it was unanswered then.
    pub canceled: Option<(u64, bool)>,
    /// When the controller had the answer, of which kind, and what it was.
    pub answered: Option<(u64, &'static str, String)>,
    /// What workers did for it, by when.
    pub steps: Vec<ReadStep>,
}

/// Something that a worker did for a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadStep {
    /// When.
    pub at_ns: u64,
    /// Which thread.
    pub thread: usize,
    /// A word for it: `applied`, `rendered`, `waits`, `captured`, `refused` or `answered`.
    pub what: &'static str,
    /// What else there is to say of it.
    pub detail: String,
}

/// The frontiers of a collection, each a list of moments and of what held from then on.
#[derive(Clone, Debug)]
pub struct Strip {
    /// The collection.
    pub id: GlobalId,
    /// Whether it is a source.
    pub source: bool,
    /// From where on all published views are accurate.
    pub since: Vec<(u64, Level)>,
    /// Up to where all published views are complete.
    pub upper: Vec<(u64, Level)>,
    /// How far the controller allows compaction.
    pub allowed: Vec<(u64, Level)>,
    /// How far the traces really let themselves be compacted: behind `allowed`, something holds
    /// them.
    pub held: Vec<(u64, Level)>,
}

impl Strip {
    fn new(id: GlobalId) -> Strip {
        let (since, upper, allowed, held) = Default::default();
        Strip { id, source: false, since, upper, allowed, held }
    }

    fn steps(&self) -> usize {
        self.since.len() + self.upper.len() + self.allowed.len() + self.held.len()
    }
}

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultWindow {
    /// What goes wrong.
    pub label: String,
    /// From when.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
}

/// Where an oracle fired.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Which one.
    pub oracle: Oracle,
    /// When.
    pub at_ns: u64,
    /// What was expected, and what was seen.
    pub message: String,
    /// The thread on which it was seen, if it was on one.
    pub thread: Option<usize>,
    /// If that waited for a lock: the thread that held it, and when that began what it did. By the
    /// clock of the one who waits, it may be over already.
    pub holding: Option<(usize, u64)>,
    /// The reads that the message names.
    pub peeks: Vec<PeekId>,
    /// The collections that the message names.
    pub collections: Vec<GlobalId>,
}

/// The name of a runtime, for people.
fn runtime_name(role: Role) -> &'static str {
    match role {
        Role::Solo => "solo",
        Role::Maintenance => "maintenance",
        Role::Interactive => "interactive",
    }
}

/// JSON that may stand inside a page: no text can end the element it is in.
fn json_for_html<T: Serialize>(value: &T) -> String {
    let json = serde_json::to_string(value).expect("plain data with names for keys");
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}
