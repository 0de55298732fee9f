//! The judges of a run: one oracle per file, each named for what it checks.
//!
//! Oracles read facts ([`tandem::env::Event`], what the client asked and was answered) and never touch the system. The
//! first violation ends the run. An oracle counts what it judged: one that judged nothing has shown nothing.

use std::collections::BTreeMap;

use tandem::env::Event;
use tandem::protocol::PeekId;
use tandem::repr::{GlobalId, Timestamp};

use crate::report::{Oracle, Violation};

pub mod answers;
pub mod isolation;
pub mod memory;
pub mod once;
pub mod pins;
pub mod reads;
pub mod sometimes;

/// Collects what the oracles find.
#[derive(Default)]
pub struct Verdict {
    violation: Option<Violation>,
    checks: BTreeMap<Oracle, u64>,
}

impl Verdict {
    /// Counts that `oracle` judged something.
    pub fn checked(&mut self, oracle: Oracle) {
        *self.checks.entry(oracle).or_default() += 1;
    }

    /// Records a violation, if it is the first.
    pub fn violated(&mut self, oracle: Oracle, at_ns: u64, message: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { oracle, at_ns, message });
        }
    }

    /// The first violation.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// How often each oracle judged something.
    pub fn checks(&self) -> &BTreeMap<Oracle, u64> {
        &self.checks
    }
}

/// A read as the client knows it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What is peeked: an index, or the transient output of a query.
    pub target: GlobalId,
    /// The indexes it reads: the target itself, or what the query imports.
    pub reads: Vec<GlobalId>,
    /// The time it reads at.
    pub at: Timestamp,
    /// The controller has given up on it: cancelled.
    pub given_up: bool,
    /// The controller has its answer.
    pub answered: bool,
}

/// The reads of a run, by name.
pub type Reads = BTreeMap<PeekId, Asked>;

/// One line of a story: an event in the words of the design.
pub fn tell(event: &Event) -> Option<String> {
    use tandem::repr::show;
    let part = |part: &tandem::env::PartName| {
        format!("{} {:?} of worker {}", part.id, part.half, part.worker)
    };
    Some(match event {
        Event::PlaceholderCreated { part: name } => {
            format!("a reader creates a placeholder for {} on worker {}", name.id, name.worker)
        }
        Event::Attached { part: name, adopted } => {
            let how = if *adopted { "adopts the placeholder of" } else { "publishes" };
            format!("maintenance {how} {}", part(name))
        }
        Event::Published { part: name, since, upper, spans } => format!(
            "view of {}: since {}, upper {}, {spans} spans",
            part(name),
            show(since),
            show(upper)
        ),
        Event::Closed { part: name } => format!("{} is closed", part(name)),
        Event::SnapshotTaken { id, worker, at, since, upper, peek } => format!(
            "{} captures {id} on worker {worker} at {at} (since {}, upper {})",
            reader(peek),
            show(since),
            show(upper)
        ),
        Event::SnapshotRefused { id, worker, at, since, peek } => format!(
            "{} is refused {id} on worker {worker} at {at}: since is {}",
            reader(peek),
            show(since)
        ),
        Event::ReadWaits { id, worker, peek, published } => {
            let why = if *published { "a seal" } else { "its publication" };
            format!("{peek} on worker {worker} waits for {why} of {id}")
        }
        Event::ImportCaptured { part: name, as_of, since, upper, over_placeholder } => format!(
            "an import{} captures {} as of {as_of} (since {}, upper {})",
            if *over_placeholder { " over a placeholder" } else { "" },
            part(name),
            show(since),
            show(upper)
        ),
        Event::ImportRefused { part: name, as_of, since } => {
            format!(
                "an import of {} as of {as_of} is refused: since is {}",
                part(name),
                show(since)
            )
        }
        Event::CommandApplied { role, worker, command, id, peek } => {
            let id = id.map_or(String::new(), |id| format!(" {id}"));
            let peek = peek.map_or(String::new(), |peek| format!(" ({peek})"));
            format!("{role:?} worker {worker} applies {command}{id}{peek}")
        }
        Event::CompactionApplied { role, worker, id, frontier } => {
            format!("{role:?} worker {worker} may compact {id} to {}", show(frontier))
        }
        Event::PeekAnswered { role, worker, peek, answer } => {
            format!("{role:?} worker {worker} answers {peek}: {answer}")
        }
        Event::Rendered { role, worker, exports } => {
            let exports: Vec<_> = exports.iter().map(GlobalId::to_string).collect();
            format!("{role:?} worker {worker} renders {}", exports.join(", "))
        }
        Event::Dropped { role, worker, id } => format!("{role:?} worker {worker} drops {id}"),
        Event::Rejected { role, message } => format!("{role:?} rejects a command: {message}"),
        Event::TraceState { part: name, logical, physical, upper, batches, .. } => format!(
            "trace of {}: logical {}, physical {}, upper {}, {batches} batches",
            part(name),
            show(logical),
            show(physical),
            show(upper)
        ),
        Event::Turn { .. } | Event::BatchAllocated { .. } | Event::BatchFreed { .. } => {
            return None;
        }
    })
}

fn reader(peek: &Option<PeekId>) -> String {
    peek.map_or("a read".to_string(), |peek| peek.to_string())
}
