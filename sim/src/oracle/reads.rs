//! O2: a read succeeds only if readable at its capture, and is refused only if the controller had given up on it.

use std::collections::BTreeSet;

use tandem::env::{Event, Role};
use tandem::protocol::PeekId;
use tandem::repr::{readable, show};

use super::{Reads, Verdict};
use crate::report::{Oracle, Violation};

/// Judges captures and refusals.
#[derive(Default)]
pub struct ReadOracle {
    /// Peeks of which some worker's part was refused.
    refused: BTreeSet<PeekId>,
}

impl ReadOracle {
    /// Takes note of an event.
    pub fn event(&mut self, now: u64, event: &Event, reads: &Reads, verdict: &mut Verdict) {
        match event {
            Event::SnapshotTaken { id, worker, at, since, upper, peek } => {
                verdict.checked(Oracle::O2);
                if !readable(since, upper, *at) {
                    let reader = peek.map_or("a read".to_string(), |peek| peek.to_string());
                    let violation =
                        Violation::new(Oracle::O2, now, format!(
                            "{reader} captured {id} on worker {worker} at {at}, which is not readable there: \
                             expected since {} <= {at} < upper {}",
                            show(since),
                            show(upper)
                        ))
                        .class("unreadable capture")
                        .of_id(*id)
                        .of_worker(*worker);
                    verdict.found(
                        peek.iter().fold(violation, |violation, peek| violation.of_peek(*peek)),
                    );
                }
            }
            Event::ImportCaptured { part, as_of, since, upper, .. } => {
                verdict.checked(Oracle::O2);
                if !readable(since, upper, *as_of) {
                    verdict.found(
                        Violation::new(Oracle::O2, now, format!(
                            "an import captured {} on worker {} as of {as_of}, which is not readable there: \
                             expected since {} <= {as_of} < upper {}",
                            part.id,
                            part.worker,
                            show(since),
                            show(upper)
                        ))
                        .class("unreadable import")
                        .of_id(part.id)
                        .of_worker(part.worker),
                    );
                }
            }
            Event::PeekAnswered { role: Role::Interactive, worker, peek, answer: "refused" } => {
                verdict.checked(Oracle::O2);
                self.refused.insert(*peek);
                let read = reads.get(peek);
                if read.is_none_or(|read| !read.given_up && !read.answered) {
                    let asked = read.map_or("never asked".to_string(), |read| {
                        format!("a read of {:?} at {}", read.reads, read.at)
                    });
                    verdict.found(
                        Violation::new(
                            Oracle::O2,
                            now,
                            format!(
                                "{peek} ({asked}) was refused on worker {worker}, \
                             but the controller has not given up on it"
                            ),
                        )
                        .class("refused though wanted")
                        .of_peek(*peek)
                        .of_worker(*worker),
                    );
                }
            }
            _ => {}
        }
    }

    /// Whether some worker refused its part of a peek.
    pub fn was_refused(&self, peek: PeekId) -> bool {
        self.refused.contains(&peek)
    }
}
