//! O3: reads never pin maintenance compaction.
//!
//! Within [`TURNS`] turns after a worker applied `AllowCompaction(F)`, the trace's real logical frontier (the meet over
//! all its handles) is `F`, whatever the interactive runtime does; and whenever the worker reports a trace at the end of
//! a turn, merging is allowed up to its upper, its spans are few, and the published view holds no more of them.

use std::collections::BTreeMap;

use tandem::env::{Event, PartName, Role};
use tandem::repr::{Frontier, GlobalId, show};
use timely::PartialOrder;

use super::Verdict;
use crate::report::{Oracle, Violation};

/// How many turns a worker has for passing compaction on to its trace. Dataflows of its own that read the trace pass on
/// only after they have stepped, a few turns later.
pub const TURNS: u64 = 40;

#[derive(Clone, Debug)]
struct State {
    logical: Frontier,
    physical: Frontier,
    upper: Frontier,
    batches: usize,
    spans: usize,
    updates: usize,
    published_spans: usize,
}

struct Allowed {
    frontier: Frontier,
    turn: u64,
}

/// Judges how far traces compact.
#[derive(Default)]
pub struct PinOracle {
    turns: BTreeMap<usize, u64>,
    allowed: BTreeMap<(GlobalId, usize), Allowed>,
    traces: BTreeMap<PartName, State>,
}

/// How many spans a trace of so many updates may have after the tick: one for each size, two while they merge.
pub fn spans_max(updates: usize) -> usize {
    6 + 2 * (updates + 1).ilog2() as usize
}

impl PinOracle {
    /// Takes note of an event.
    pub fn event(&mut self, now: u64, event: &Event, verdict: &mut Verdict) {
        match event {
            Event::Turn { role: Role::Maintenance | Role::Solo, worker } => {
                let turn = self.turns.entry(*worker).or_default();
                *turn += 1;
                let turn = *turn;
                self.overdue(now, *worker, turn, verdict);
            }
            Event::CompactionApplied {
                role: Role::Maintenance | Role::Solo,
                worker,
                id,
                frontier,
            } => {
                let turn = self.turns.get(worker).copied().unwrap_or(0);
                // A later allowance does not give more time for an earlier one.
                let allowed = self
                    .allowed
                    .entry((*id, *worker))
                    .or_insert(Allowed { frontier: frontier.clone(), turn });
                if self
                    .traces
                    .iter()
                    .filter(|(part, _)| part.id == *id && part.worker == *worker)
                    .all(|(_, state)| PartialOrder::less_equal(&allowed.frontier, &state.logical))
                {
                    allowed.turn = turn;
                }
                allowed.frontier = frontier.clone();
            }
            Event::Dropped { worker, id, role: Role::Maintenance | Role::Solo } => {
                self.allowed.remove(&(*id, *worker));
                self.traces.retain(|part, _| !(part.id == *id && part.worker == *worker));
            }
            Event::TraceState {
                part,
                logical,
                physical,
                upper,
                batches,
                spans,
                updates,
                published_spans,
            } => {
                let state = State {
                    logical: logical.clone(),
                    physical: physical.clone(),
                    upper: upper.clone(),
                    batches: *batches,
                    spans: *spans,
                    updates: *updates,
                    published_spans: *published_spans,
                };
                Self::few(now, part, &state, verdict);
                self.traces.insert(*part, state);
            }
            _ => {}
        }
    }

    fn few(now: u64, part: &PartName, state: &State, verdict: &mut Verdict) {
        verdict.checked(Oracle::O3);
        let most = spans_max(state.updates);
        if state.spans > most || state.published_spans > most {
            verdict.found(
                Violation::new(Oracle::O3, now, format!(
                    "{} {:?} of worker {} holds {} spans ({} with updates, {} published) for {} updates after its \
                     tick; expected at most {most}: something holds back merging (physical {}, upper {})",
                    part.id,
                    part.half,
                    part.worker,
                    state.spans,
                    state.batches,
                    state.published_spans,
                    state.updates,
                    show(&state.physical),
                    show(&state.upper)
                ))
                .class("many spans")
                .of_id(part.id)
                .of_worker(part.worker),
            );
        }
    }

    fn overdue(&self, now: u64, worker: usize, turn: u64, verdict: &mut Verdict) {
        let due = self
            .allowed
            .iter()
            .filter(|((_, owner), allowed)| *owner == worker && turn == allowed.turn + TURNS);
        for ((id, _), allowed) in due {
            verdict.checked(Oracle::O3);
            self.compacted(now, *id, worker, &allowed.frontier, verdict);
        }
    }

    fn compacted(
        &self,
        now: u64,
        id: GlobalId,
        worker: usize,
        allowed: &Frontier,
        verdict: &mut Verdict,
    ) {
        for (part, state) in
            self.traces.iter().filter(|(part, _)| part.id == id && part.worker == worker)
        {
            if !PartialOrder::less_equal(allowed, &state.logical) {
                verdict.found(
                    Violation::new(Oracle::O3, now, format!(
                        "{id} {:?} of worker {worker} was allowed to compact to {} more than {TURNS} turns ago, but its \
                         trace is held back at {} (upper {}, {} batches)",
                        part.half,
                        show(allowed),
                        show(&state.logical),
                        show(&state.upper),
                        state.batches
                    ))
                    .class("held back")
                    .of_id(id)
                    .of_worker(worker),
                );
            }
        }
    }

    /// At rest, every trace must be where it was allowed to be and free to merge everything.
    pub fn at_rest(&self, now: u64, verdict: &mut Verdict) {
        for ((id, worker), allowed) in &self.allowed {
            verdict.checked(Oracle::O3);
            self.compacted(now, *id, *worker, &allowed.frontier, verdict);
        }
        for (part, state) in &self.traces {
            if state.physical != state.upper {
                verdict.found(
                    Violation::new(Oracle::O3, now, format!(
                        "{} {:?} of worker {} is at rest, but may merge only up to {} of its upper {}",
                        part.id, part.half, part.worker, show(&state.physical), show(&state.upper)
                    ))
                    .class("may not merge")
                    .of_id(part.id)
                    .of_worker(part.worker),
                );
            }
        }
    }

    /// The upper of every trace that is maintained for `id`, by worker.
    pub fn uppers(&self, id: GlobalId) -> Vec<(PartName, Frontier)> {
        let parts = self.traces.iter().filter(|(part, _)| part.id == id);
        parts.map(|(part, state)| (*part, state.upper.clone())).collect()
    }
}
