//! O3: reads never pin maintenance compaction.
//!
//! Within [`TURNS`] turns after a worker applied `AllowCompaction(F)`, the trace's real logical frontier (the meet over
//! all its handles) is `F`, whatever the interactive runtime does; and whenever the worker reports a trace at the end of
//! a turn, merging is allowed up to its upper, its spans are few, and the published view holds no more of them.

use std::collections::{BTreeMap, VecDeque};

use tandem::env::{Event, Half, PartName, Role};
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

/// An allowance that is still to be judged.
struct Allowed {
    /// The turn of the worker in which it was applied.
    turn: u64,
    id: GlobalId,
    frontier: Frontier,
}

/// Judges how far traces compact.
#[derive(Default)]
pub struct PinOracle {
    turns: BTreeMap<usize, u64>,
    /// Of each worker, in the order in which they fall due.
    pending: BTreeMap<usize, VecDeque<Allowed>>,
    /// The last allowance of each part.
    latest: BTreeMap<(GlobalId, usize), Frontier>,
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
                let (id, turn) = (*id, self.turns.get(worker).copied().unwrap_or(0));
                let allowed = Allowed { turn, id, frontier: frontier.clone() };
                self.pending.entry(*worker).or_default().push_back(allowed);
                self.latest.insert((id, *worker), frontier.clone());
            }
            Event::Dropped { worker, id, role: Role::Maintenance | Role::Solo } => {
                self.latest.remove(&(*id, *worker));
                if let Some(pending) = self.pending.get_mut(worker) {
                    pending.retain(|allowed| allowed.id != *id);
                }
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

    fn overdue(&mut self, now: u64, worker: usize, turn: u64, verdict: &mut Verdict) {
        let Some(pending) = self.pending.get_mut(&worker) else { return };
        let due = pending.partition_point(|allowed| allowed.turn + TURNS <= turn);
        for Allowed { id, frontier, .. } in pending.drain(..due).collect::<Vec<_>>() {
            verdict.checked(Oracle::O3);
            self.compacted(now, id, worker, &frontier, verdict);
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
        if let Some(violation) = self.held_back(now, id, worker, allowed).next() {
            verdict.found(violation);
        }
    }

    /// The traces of a part that are not where compaction was allowed to take them.
    fn held_back<'a>(
        &'a self,
        now: u64,
        id: GlobalId,
        worker: usize,
        allowed: &'a Frontier,
    ) -> impl Iterator<Item = Violation> + 'a {
        let parts = [Half::Oks, Half::Errs].map(|half| PartName { id, half, worker });
        let traces = parts.into_iter().filter_map(|part| Some((part, self.traces.get(&part)?)));
        let behind = traces.filter(|(_, state)| !PartialOrder::less_equal(allowed, &state.logical));
        behind.map(move |(part, state)| {
            Violation::new(Oracle::O3, now, format!(
                "{id} {:?} of worker {worker} was allowed to compact to {}, but {TURNS} turns later, or at rest, its \
                 trace is held back at {} (upper {}, {} batches)",
                part.half,
                show(allowed),
                show(&state.logical),
                show(&state.upper),
                state.batches
            ))
            .class("held back")
            .of_id(id)
            .of_worker(worker)
        })
    }

    /// What must still happen before the system is at rest: every trace is where it was allowed to be, and free to merge
    /// everything.
    pub fn restless(&self, now: u64) -> Vec<Violation> {
        let held_back = self.latest.iter();
        let held_back = held_back
            .flat_map(|((id, worker), allowed)| self.held_back(now, *id, *worker, allowed));
        let pinned = self.traces.iter().filter(|(_, state)| state.physical != state.upper);
        let pinned =
            pinned.map(|(part, state)| {
                Violation::new(Oracle::O3, now, format!(
                "{} {:?} of worker {} is at rest, but may merge only up to {} of its upper {}",
                part.id, part.half, part.worker, show(&state.physical), show(&state.upper)
            ))
            .class("may not merge")
            .of_id(part.id)
            .of_worker(part.worker)
            });
        held_back.chain(pinned).collect()
    }

    /// How far each worker has been allowed to compact `id`.
    pub fn allowed(&self, id: GlobalId) -> impl Iterator<Item = (usize, &Frontier)> {
        let latest = self.latest.range((id, 0)..=(id, usize::MAX));
        latest.map(|((_, worker), frontier)| (*worker, frontier))
    }

    /// The upper of every trace that is maintained for `id`, by worker.
    pub fn uppers(&self, id: GlobalId) -> Vec<(PartName, Frontier)> {
        let parts = self.traces.iter().filter(|(part, _)| part.id == id);
        parts.map(|(part, state)| (*part, state.upper.clone())).collect()
    }
}
