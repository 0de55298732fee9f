//! Shrinking: from a run that fails to a small one that fails in the same way.
//!
//! Scenarios are made for this: any operation, update or fault can be taken away and what remains is
//! legal, and every list of decisions is a schedule. So a shrinker only has to try. It takes away
//! chunks, large ones first ([`Shrinker::remove`]), of operations, faults, updates, sources, and
//! makes what remains simpler ([`simpler`]); then it does the same with the decisions that are not
//! calm. A candidate counts if an oracle fails with the same [class](crate::report::Violation::class)
//! of violation, and is rejected if the tool itself breaks over it.
//!
//! A schedule that was recorded under one scenario is a legal schedule of a smaller one, but means
//! something else there. So each smaller scenario is tried under several: the calm one, the
//! recorded one, and some that are drawn anew. Once the calm schedule fails, there is nothing to
//! look for in others, and only it is tried.
//!
//! Candidates are tried a few at a time, and of those that fail the first in order is taken, so the
//! result depends on the clock only where the budget ends the search.

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use crate::replay::{Case, Recording, ReplayFile};
use crate::report::{Oracle, Violation};
use crate::scenario::{Operation, Scenario};
use crate::sweep::{Runner, apart};
use crate::world::Schedule;

pub mod schedules;
mod simpler;

#[cfg(test)]
mod tests;

/// In how many parts the decisions of a large run are made calm.
const COARSE: usize = 16;

/// How long to look, and how many candidates to try at a time.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// When to stop.
    pub deadline: Instant,
    /// How many candidates are tried at once.
    pub jobs: NonZeroUsize,
}

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// What is asked of the system.
    pub operations: usize,
    /// What goes wrong.
    pub faults: usize,
    /// Updates, over all ticks.
    pub updates: usize,
    /// Processes.
    pub processes: usize,
    /// Workers of a runtime in a process.
    pub workers: usize,
    /// Sources.
    pub sources: usize,
    /// Decisions other than the calm one: context switches, and stalls, which count as switches.
    pub switches: usize,
}

impl Size {
    /// The size of a scenario that is run with these decisions.
    pub fn new(scenario: &Scenario, decisions: &[u32]) -> Size {
        Size {
            operations: scenario.operations.len(),
            faults: scenario.faults.len(),
            updates: simpler::updates(scenario),
            processes: scenario.processes,
            workers: scenario.workers,
            sources: scenario.sources.len(),
            switches: restless(decisions).len(),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { operations, faults, updates, processes, workers, sources, switches } = self;
        write!(
            f,
            "{operations} operations, {updates} updates, {faults} faults, {processes}x{workers} \
             workers, {sources} sources, {switches} context switches"
        )
    }
}

/// Why something cannot be shrunk.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ShrinkError {
    /// It does not fail.
    #[error("seed {seed} does not fail: there is nothing to shrink")]
    Passes {
        /// The seed of its scenario.
        seed: u64,
    },
    /// The tool broke over it.
    #[error("the tool itself broke on seed {seed}: {message}")]
    Broken {
        /// The seed of its scenario.
        seed: u64,
        /// What went wrong.
        message: String,
    },
    /// Two runs of it differ, so that no candidate means anything.
    #[error("seed {seed} differs from itself (O11): replay it, find out why, and shrink then")]
    Unsteady {
        /// The seed of its scenario.
        seed: u64,
    },
}

/// How far it is, shown whenever something smaller fails.
pub struct Progress<'a> {
    /// The smallest case that fails so far.
    pub case: &'a Case,
    /// Its run.
    pub recording: &'a Recording,
    /// How large it is.
    pub size: Size,
    /// How many runs were made.
    pub tried: u64,
}

/// The end of a search.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest case that fails.
    pub file: ReplayFile,
    /// What it was at first.
    pub from: Size,
    /// What it is now.
    pub to: Size,
    /// What the oracle says now.
    pub violation: Violation,
    /// How many runs were made.
    pub tried: u64,
    /// Whether two more runs of the result were the same in every event.
    pub is_stable: bool,
    /// Whether the search was ended by the budget.
    pub is_cut_off: bool,
}

/// What a candidate must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    oracle: Oracle,
    class: &'static str,
}

impl Target {
    fn is_met(&self, recording: &Recording) -> bool {
        let violation = recording.report.violation.as_ref();
        violation.is_some_and(|seen| (seen.oracle, seen.class) == (self.oracle, self.class))
    }
}

/// Looks for the smallest run that fails as `case` does. `observe` sees every improvement, and may
/// end the search.
///
/// # Errors
/// If `case` does not fail in the same way twice.
pub fn shrink(
    runner: &dyn Runner,
    case: &Case,
    budget: Budget,
    observe: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<Shrunk, ShrinkError> {
    let seed = case.scenario.seed;
    let broken = |message| ShrinkError::Broken { seed, message };
    let recording = apart(runner, case, false).map_err(broken)?;
    let again = apart(runner, case, false).map_err(broken)?;
    if recording.report.hash != again.report.hash {
        return Err(ShrinkError::Unsteady { seed });
    }
    let Some(violation) = &recording.report.violation else {
        return Err(ShrinkError::Passes { seed });
    };
    let target = Target { oracle: violation.oracle, class: violation.class };
    let from = Size::new(&case.scenario, &recording.decisions);
    let case = recorded(case, &recording);
    let best = Rc::new(Best { case, recording });
    let mut shrinker =
        Shrinker { runner, target, budget, observe, best, tried: 2, redraws: 0, is_over: false };
    shrinker.search();
    shrinker.conclude(from).map_err(broken)
}

/// The case that repeats a recording.
fn recorded(case: &Case, recording: &Recording) -> Case {
    Case { schedule: Schedule::Recorded(recording.decisions.clone()), ..case.clone() }
}

/// The smallest so far. Its case is scheduled by the decisions of its recording.
struct Best {
    case: Case,
    recording: Recording,
}

/// A search.
struct Shrinker<'a> {
    runner: &'a dyn Runner,
    target: Target,
    budget: Budget,
    observe: &'a mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    best: Rc<Best>,
    tried: u64,
    /// How many schedules are drawn for a scenario for which no known one fails.
    redraws: u64,
    is_over: bool,
}

impl Shrinker<'_> {
    fn size(&self) -> Size {
        Size::new(&self.best.case.scenario, &self.best.recording.decisions)
    }

    fn is_over(&self) -> bool {
        self.is_over || Instant::now() >= self.budget.deadline
    }

    /// Goes through everything that could be smaller, until nothing is. What is quick comes first:
    /// schedules are drawn again and again only for what is small already.
    fn search(&mut self) {
        self.calm_down(COARSE);
        for redraws in [1, 8, 40] {
            self.redraws = redraws;
            loop {
                let before = Rc::clone(&self.best);
                self.round();
                if redraws > 1 {
                    self.seek_calm();
                }
                if self.is_over() || Rc::ptr_eq(&self.best, &before) {
                    break;
                }
            }
        }
    }

    fn round(&mut self) {
        let best = Rc::clone(&self.best);
        self.try_scenarios(simpler::topologies(&best.case.scenario));
        self.remove(|scenario| scenario.operations.len(), simpler::without_operations);
        self.remove(|scenario| scenario.faults.len(), simpler::without_faults);
        self.remove(simpler::updates, simpler::without_updates);
        self.remove(|scenario| scenario.sources.len(), simpler::without_sources);
        self.simplify_operations();
        let best = Rc::clone(&self.best);
        self.try_scenarios(simpler::gaps(&best.case.scenario));
        // As long as a scenario is large, runs are long and decisions many.
        self.calm_down(if self.redraws > 1 { usize::MAX } else { COARSE });
    }

    /// Looks for other schedules with fewer context switches: none, but a fault instead; one; or
    /// fewer than there are, drawn at random.
    fn seek_calm(&mut self) {
        let switches = |shrinker: &Self| restless(&shrinker.best.recording.decisions).len();
        let best = Rc::clone(&self.best);
        if switches(self) > 0 {
            self.try_cases(schedules::with_a_fault(&best.case), switches(self));
        }
        if switches(self) > 1 {
            self.try_cases(schedules::with_one_switch(&best.case), switches(self));
        }
        if switches(self) > 1 {
            let before = switches(self);
            self.try_cases(schedules::seldom(&best.case, self.redraws), before);
            self.calm_down(usize::MAX);
        }
    }

    /// Tries each operation in simpler forms, until none is left that fails.
    fn simplify_operations(&mut self) {
        let mut operation = 0;
        while operation < self.best.case.scenario.operations.len() && !self.is_over() {
            let best = Rc::clone(&self.best);
            let forms = simpler::forms(&best.case.scenario.operations[operation].operation);
            let with = |form: Operation| {
                let mut scenario = best.case.scenario.clone();
                scenario.operations[operation].operation = form;
                scenario
            };
            if self.try_scenarios(forms.into_iter().map(with)).is_none() {
                operation += 1;
            }
        }
    }

    /// Takes away chunks of something that a scenario has so many of: large chunks first, the last
    /// first.
    fn remove(
        &mut self,
        len: impl Fn(&Scenario) -> usize,
        without: impl Fn(&Scenario, Range<usize>) -> Scenario,
    ) {
        let mut chunk = len(&self.best.case.scenario);
        while chunk > 0 {
            let mut end = len(&self.best.case.scenario);
            while end > 0 && !self.is_over() {
                let chunks = chunks(end, chunk);
                let best = Rc::clone(&self.best);
                let fewer = |range: &Range<usize>| without(&best.case.scenario, range.clone());
                match self.try_scenarios(chunks.iter().map(fewer)) {
                    Some(index) => end = chunks[index].start,
                    None => break,
                }
            }
            chunk /= 2;
        }
    }

    /// Makes decisions calm: all, then chunks of those that are not, down to one in so many of them.
    fn calm_down(&mut self, parts: usize) {
        let mut chunk = restless(&self.best.recording.decisions).len();
        let least = chunk / parts;
        while chunk > least {
            let mut end = usize::MAX;
            while end > 0 && !self.is_over() {
                let best = Rc::clone(&self.best);
                let decisions = &best.recording.decisions;
                let positions = restless(decisions);
                end = end.min(positions.len());
                let chunks = chunks(end, chunk);
                let calmer = chunks.iter().map(|range| {
                    let mut decisions = decisions.clone();
                    positions[range.clone()].iter().for_each(|position| decisions[*position] = 0);
                    Case { schedule: Schedule::Recorded(decisions), ..best.case.clone() }
                });
                match self.try_cases(calmer, positions.len()) {
                    Some(index) => end = chunks[index].start,
                    None => break,
                }
            }
            chunk /= 2;
        }
    }

    /// Tries scenarios, each under several schedules. Gives the position of the one that is now the
    /// best.
    fn try_scenarios(&mut self, scenarios: impl IntoIterator<Item = Scenario>) -> Option<usize> {
        let (best, redraws) = (Rc::clone(&self.best), self.redraws);
        let positions = Cell::new(Vec::new());
        let cases = scenarios.into_iter().enumerate().flat_map(|(position, scenario)| {
            let cases = match scenario.validate() {
                Ok(()) => schedules::of(&best, scenario, redraws),
                Err(_) => Vec::new(),
            };
            let mut known = positions.take();
            known.extend(cases.iter().map(|_| position));
            positions.set(known);
            cases
        });
        let index = self.try_cases(cases, usize::MAX)?;
        Some(positions.take()[index])
    }

    /// Tries cases in order. The first that fails as it should, with fewer context switches than
    /// `limit`, becomes the best. Gives its position.
    fn try_cases(&mut self, cases: impl IntoIterator<Item = Case>, limit: usize) -> Option<usize> {
        let mut cases = cases.into_iter();
        let mut first = 0;
        loop {
            let batch: Vec<_> = cases.by_ref().take(self.budget.jobs.get()).collect();
            if batch.is_empty() || self.is_over() {
                return None;
            }
            self.tried += batch.len() as u64;
            let results = at_once(self.runner, &batch);
            for (index, (case, result)) in batch.iter().zip(results).enumerate() {
                let Ok(recording) = result else { continue };
                if self.target.is_met(&recording) && restless(&recording.decisions).len() < limit {
                    let case = recorded(case, &recording);
                    self.best = Rc::new(Best { case, recording });
                    self.tell();
                    return Some(first + index);
                }
            }
            first += batch.len();
        }
    }

    fn tell(&mut self) {
        let size = self.size();
        let best = Rc::clone(&self.best);
        let Best { case, recording } = &*best;
        let progress = Progress { case, recording, size, tried: self.tried };
        self.is_over |= (self.observe)(&progress).is_break();
    }

    /// Runs the result twice more, watched.
    fn conclude(self, from: Size) -> Result<Shrunk, String> {
        let (to, is_cut_off) = (self.size(), self.is_over());
        let Best { case, recording } = &*self.best;
        let watched = apart(self.runner, case, true)?;
        let again = apart(self.runner, case, true)?;
        let hash = recording.report.hash;
        let is_stable = [&watched, &again].iter().all(|run| run.report.hash == hash);
        let violation = recording.report.violation.clone();
        Ok(Shrunk {
            file: ReplayFile::new(case, &watched),
            from,
            to,
            violation: violation.expect("only what fails becomes the best"),
            tried: self.tried + 2,
            is_stable,
            is_cut_off,
        })
    }
}

/// The positions of decisions that are not calm.
fn restless(decisions: &[u32]) -> Vec<usize> {
    let all = decisions.iter().enumerate().filter(|(_, decision)| **decision != 0);
    all.map(|(position, _)| position).collect()
}

/// The ranges of so many among the first `end`, the last first. What is left over at the beginning
/// is a smaller one.
fn chunks(end: usize, chunk: usize) -> Vec<Range<usize>> {
    let mut chunks = Vec::new();
    let mut end = end;
    while end > 0 {
        let start = end.saturating_sub(chunk);
        chunks.push(start..end);
        end = start;
    }
    chunks
}

/// Runs cases at the same time, each on a thread of its own.
fn at_once(runner: &dyn Runner, cases: &[Case]) -> Vec<Result<Recording, String>> {
    thread::scope(|scope| {
        let runs: Vec<_> =
            cases.iter().map(|case| scope.spawn(move || apart(runner, case, false))).collect();
        let join = |run: thread::ScopedJoinHandle<'_, _>| {
            run.join().unwrap_or_else(|_| Err("the thread that waits for a run broke".to_string()))
        };
        runs.into_iter().map(join).collect()
    })
}
