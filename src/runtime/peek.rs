//! One worker's part of answering peeks.
//!
//! A peek first waits until its index is readable at its time, then walks a snapshot. The walk is sliced: each worker has
//! a budget of positions a turn, which the walks share in turn, so that a lookup never waits for somebody else's scan, and
//! a cancel takes effect between slices. Every peek that arrives is answered exactly once by every worker.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::arrange::{Refused, Snapshot, Walk};
use crate::env::{self, Activity};
use crate::plan::Finishing;
use crate::protocol::{Peek, PeekId, PeekResponse};
use crate::registry::{IndexSnapshot, Slot};
use crate::repr::{Diff, EvalError, GlobalId, Row, Timestamp};

/// How many positions a worker visits for peeks in one turn, unless configured.
pub const DEFAULT_WALK_BUDGET: usize = 10_000;

/// A part of an answer, and how it came about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) response: PeekResponse,
    /// `rows`, `error`, `refused` or `canceled`.
    pub(super) kind: &'static str,
}

impl Answer {
    pub(super) fn canceled() -> Answer {
        Answer { response: PeekResponse::Canceled, kind: "canceled" }
    }

    pub(super) fn refused(refused: &Refused<Timestamp>) -> Answer {
        Answer { response: PeekResponse::Error(refused.to_string()), kind: "refused" }
    }

    pub(super) fn error(error: impl ToString) -> Answer {
        Answer { response: PeekResponse::Error(error.to_string()), kind: "error" }
    }
}

/// A peek that waits to become readable.
pub(super) struct Waiting {
    pub(super) peek: Peek,
    /// The shared index it waits for; absent when the index is this worker's own.
    pub(super) slot: Option<Arc<Slot>>,
}

/// What a walk is looking at.
enum Stage {
    Errs(Walk<EvalError, (), Timestamp, Diff>, Option<Snapshot<Row, Row, Timestamp, Diff>>),
    Oks(Walk<Row, Row, Timestamp, Diff>),
}

/// A peek that is being answered.
pub(super) struct Walking {
    peek: Peek,
    stage: Stage,
    error: Option<EvalError>,
    rows: Vec<(Row, u64)>,
    failure: Option<String>,
}

impl Walking {
    pub(super) fn new(peek: Peek, snapshot: IndexSnapshot) -> Self {
        let stage = Stage::Errs(snapshot.errs.walk(None), Some(snapshot.oks));
        Walking { peek, stage, error: None, rows: Vec::new(), failure: None }
    }

    /// Visits at most `budget` positions; the answer, once there is one.
    fn advance(&mut self, budget: &mut usize) -> Option<Answer> {
        let _walking = env::enter(Activity::Walk(self.peek.uuid));
        if let Stage::Errs(walk, oks) = &mut self.stage {
            let error = &mut self.error;
            let done = walk.step(budget, |key, (), diff| {
                // Keys come in order: the first error is the least.
                if diff > 0 && error.is_none() {
                    *error = Some(key.clone());
                }
            });
            if let Some(error) = error {
                return Some(Answer::error(error));
            }
            if !done {
                return None;
            }
            let oks = oks.take().expect("taken once, when the errors are done");
            self.stage = Stage::Oks(oks.walk(self.peek.keys.clone()));
        }
        let Stage::Oks(walk) = &mut self.stage else { unreachable!("errors were just finished") };
        let (finishing, rows, failure) = (&self.peek.finishing, &mut self.rows, &mut self.failure);
        let done =
            walk.step(budget, |_key, row, diff| collect(finishing, row, diff, rows, failure));
        if let Some(failure) = failure.take() {
            return Some(Answer::error(failure));
        }
        if !done {
            return None;
        }
        let mut rows = std::mem::take(&mut self.rows);
        truncate(&self.peek.finishing, &mut rows);
        Some(Answer { response: PeekResponse::Rows(rows), kind: "rows" })
    }
}

/// Adds what one row of the index contributes.
fn collect(
    finishing: &Finishing,
    row: &Row,
    diff: Diff,
    rows: &mut Vec<(Row, u64)>,
    failure: &mut Option<String>,
) {
    if failure.is_some() {
        return;
    }
    // The rows are what the index holds, which the sender may have been wrong about.
    if let Err(error) = finishing.validate(row.0.len()) {
        *failure = Some(error.to_string());
        return;
    }
    match (finishing.apply(row), u64::try_from(diff)) {
        (Err(error), _) => *failure = Some(error.to_string()),
        (Ok(_), Err(_)) => *failure = Some(format!("row {row} has negative multiplicity {diff}")),
        (Ok(None), _) => {}
        (Ok(Some(row)), Ok(count)) => {
            rows.push((row, count));
            // Twice the bound before cutting, so that the cost of a cut is spread over as many rows.
            if finishing
                .bound()
                .is_some_and(|bound| rows.len() > bound.saturating_mul(2).saturating_add(64))
            {
                truncate(finishing, rows);
            }
        }
    }
}

/// Keeps the first rows of the order that the whole answer can need from this part.
fn truncate(finishing: &Finishing, rows: &mut Vec<(Row, u64)>) {
    if let Some(bound) = finishing.bound() {
        let part = Finishing {
            limit: Some(bound),
            order_by: finishing.order_by.clone(),
            ..Finishing::default()
        };
        *rows = part.finish(std::mem::take(rows));
    }
}

/// The peeks of one worker.
#[derive(Default)]
pub(super) struct Peeks {
    pub(super) waiting: BTreeMap<PeekId, Waiting>,
    walking: VecDeque<Walking>,
}

impl Peeks {
    /// Begins to answer a peek.
    pub(super) fn walk(&mut self, walking: Walking) {
        self.walking.push_back(walking);
    }

    /// Whether a peek of this name is not answered yet.
    pub(super) fn contains(&self, uuid: PeekId) -> bool {
        let walks = self.walking.iter().any(|walking| walking.peek.uuid == uuid);
        walks || self.waiting.contains_key(&uuid)
    }

    /// Whether some peek waits for this index.
    pub(super) fn waits_for(&self, id: GlobalId) -> bool {
        self.waiting.values().any(|waiting| waiting.peek.target == id)
    }

    /// Stops the walk of a peek. Whether there was one.
    pub(super) fn stop(&mut self, uuid: PeekId) -> bool {
        let walking = self.walking.len();
        self.walking.retain(|walking| walking.peek.uuid != uuid);
        self.walking.len() < walking
    }

    /// Whether there is a walk to go on with.
    pub(super) fn is_walking(&self) -> bool {
        !self.walking.is_empty()
    }

    /// Forgets all peeks.
    pub(super) fn clear(&mut self) {
        *self = Peeks::default();
    }

    /// The number of unanswered peeks.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.walking.len()
    }

    /// Gives every walk its share of `budget` positions and takes the answers.
    pub(super) fn advance(&mut self, budget: usize) -> Vec<(PeekId, Answer)> {
        let mut answers = Vec::new();
        if self.walking.is_empty() {
            return answers;
        }
        let share = (budget / self.walking.len()).max(1);
        for _ in 0..self.walking.len() {
            let Some(mut walking) = self.walking.pop_front() else { break };
            match walking.advance(&mut share.clone()) {
                Some(answer) => answers.push((walking.peek.uuid, answer)),
                None => self.walking.push_back(walking),
            }
        }
        answers
    }
}
