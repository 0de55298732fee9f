//! Sweeps: one run after the other, over a range of seeds, on a few threads at once.
//!
//! A run says everything there is to say in a [`RunReport`]; a sweep adds those up to a [`Tally`].
//! How a run is carried out is behind the trait [`Runner`], so that what is here is tested without
//! a world.
//!
//! Two things make a run depend on its request alone. Each has an OS thread of its own, because
//! thread-locals and hash seeds outlive a run that shares one. And one seed in
//! [`DETERMINISM_EVERY`] is run twice and compared with itself, which is oracle O11.
//!
//! The result does not depend on the number of jobs either. Seeds are handed out in ascending order
//! and each that was handed out is finished, so whatever ends a sweep early (a planted defect was
//! found, the tool broke), all seeds below it are known; what lies above it is thrown away. Results
//! are put back into the order of the seeds before anybody sees them.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use tandem::env::Role;
use tandem::zoo::Defect;

use crate::replay::{self, Case, Recording};
use crate::report::{Oracle, RunReport, Violation};
use crate::scenario::{Profile, Scenario, StrategyChoice, Victim};
use crate::story;
use crate::world::Schedule;

mod seeds;
mod tally;

pub use seeds::{Seeds, SeedsError};
pub use tally::{COVERING_SEEDS, EXIT_BROKEN, Failure, Tally};

/// Seeds that are multiples of this are run twice.
pub const DETERMINISM_EVERY: u64 = 20;

/// How many events before the one at which two runs part are shown.
const PARTING_CONTEXT: u64 = 4;

/// The stack of a run's OS thread, in bytes: simulated threads have their own, but plans are
/// evaluated by recursion.
const STACK_BYTES: usize = 8 << 20;

/// A kind of scheduling strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrategyName {
    /// Uniform choice among the threads that could run.
    Random,
    /// One runtime or one worker is kept from running again and again.
    Starvation,
}

impl StrategyName {
    /// All of them.
    pub const ALL: [StrategyName; 2] = [StrategyName::Random, StrategyName::Starvation];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            StrategyName::Random => "random",
            StrategyName::Starvation => "starvation",
        }
    }

    /// The strategy of this name.
    pub fn from_name(name: &str) -> Option<StrategyName> {
        StrategyName::ALL.into_iter().find(|strategy| strategy.name() == name)
    }

    /// What kind of strategy this is.
    pub fn of(choice: &StrategyChoice) -> StrategyName {
        match choice {
            StrategyChoice::Random { .. } => StrategyName::Random,
            StrategyChoice::Starvation { .. } => StrategyName::Starvation,
        }
    }

    /// Has the scenario scheduled by this strategy: as it was drawn if it was drawn so, and with
    /// middling parameters otherwise.
    pub fn impose(self, scenario: &mut Scenario) {
        if StrategyName::of(&scenario.strategy) == self {
            return;
        }
        scenario.strategy = match self {
            StrategyName::Random => StrategyChoice::Random {
                switch_per_mille: 50,
                stall_per_myriad: 1,
                stall_ns_max: 200_000,
            },
            StrategyName::Starvation => StrategyChoice::Starvation {
                victim: Victim::Runtime(Role::Interactive),
                switch_per_mille: 50,
                starve_ns: 500_000,
                relief_ns: 100_000,
            },
        };
    }
}

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRequest {
    /// What everything random is drawn from.
    pub seed: u64,
    /// How large a scenario.
    pub profile: Profile,
    /// The defect to put back into the system, if any.
    pub plant: Option<Defect>,
    /// The strategy to impose on the scenario, if it shall not be the one it was drawn with.
    pub strategy: Option<StrategyName>,
}

impl RunRequest {
    /// A default run of this seed.
    pub fn new(seed: u64) -> RunRequest {
        let profile = Profile::default();
        RunRequest { seed, profile, plant: None, strategy: None }
    }

    /// What this seed and profile draw, with the strategy imposed.
    pub fn scenario(&self) -> Scenario {
        let mut scenario = Scenario::from_seed(self.seed, self.profile);
        if let Some(strategy) = self.strategy {
            strategy.impose(&mut scenario);
        }
        scenario
    }

    /// The run itself: what is drawn, scheduled as the scenario's strategy draws.
    pub fn case(&self) -> Case {
        Case { scenario: self.scenario(), plant: self.plant, schedule: Schedule::Drawn }
    }

    /// The command that runs this and tells it as a story.
    pub fn replay_command(&self) -> String {
        ReplayCommand(self).to_string()
    }
}

struct ReplayCommand<'a>(&'a RunRequest);

impl fmt::Display for ReplayCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunRequest { seed, profile, plant, strategy } = self.0;
        write!(f, "cargo run --release -p tandem-sim -- replay --seed {seed}")?;
        if *profile != Profile::default() {
            write!(f, " --profile {}", profile_name(*profile))?;
        }
        if let Some(defect) = plant {
            write!(f, " --plant {}", defect.name())?;
        }
        if let Some(strategy) = strategy {
            write!(f, " --strategy {}", strategy.name())?;
        }
        Ok(())
    }
}

/// All profiles, smallest first.
pub const PROFILES: [Profile; 3] = [Profile::Smoke, Profile::Swarm, Profile::Soak];

/// The name of a profile on the command line.
pub fn profile_name(profile: Profile) -> &'static str {
    match profile {
        Profile::Smoke => "smoke",
        Profile::Swarm => "swarm",
        Profile::Soak => "soak",
    }
}

/// Carries out runs.
pub trait Runner: Sync {
    /// Carries out a case, and writes down what happens if it is to be watched. Called on an OS thread that has run
    /// nothing else and ends afterwards.
    ///
    /// # Panics
    /// If the testbed itself is wrong; whatever the system does goes into the report.
    fn record(&self, case: &Case, watched: bool) -> Recording;
}

/// Carries out runs in the simulated world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulation;

impl Runner for Simulation {
    fn record(&self, case: &Case, watched: bool) -> Recording {
        replay::record(case, watched)
    }
}

/// What a run came to, in which O11 has had its say.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The first run.
    pub recording: Recording,
    /// How many runs were made, one or two.
    pub runs: u64,
}

/// The tool itself broke: a run panicked outside the system, or its thread could not be started.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the tool itself broke on seed {}: {message}", request.seed)]
pub struct Broken {
    /// What was run.
    pub request: RunRequest,
    /// What went wrong.
    pub message: String,
}

/// Runs one seed, twice if it is its turn, so that a replay comes to the same verdict as a sweep.
///
/// # Errors
/// If the tool itself breaks.
pub fn judge(runner: &dyn Runner, request: &RunRequest, watched: bool) -> Result<Judged, Broken> {
    let is_twice = request.seed.is_multiple_of(DETERMINISM_EVERY);
    judge_case(runner, &request.case(), watched, is_twice)
        .map_err(|message| Broken { request: *request, message })
}

/// Carries out a case, twice if that is wanted and the first run goes well.
///
/// # Errors
/// What the tool says if it breaks.
pub fn judge_case(
    runner: &dyn Runner,
    case: &Case,
    watched: bool,
    is_twice: bool,
) -> Result<Judged, String> {
    let mut recording = apart(runner, case, watched)?;
    if recording.report.violation.is_some() || !is_twice {
        return Ok(Judged { recording, runs: 1 });
    }
    let again = apart(runner, case, false)?.report;
    let report = &mut recording.report;
    *report.checks.entry(Oracle::O11).or_default() += 1;
    if report.hash != again.hash || again.violation.is_some() {
        let part = parting(runner, case)?;
        report.violation = Some(self_difference(report, &again, &part));
    }
    Ok(Judged { recording, runs: 2 })
}

/// How the second run of a seed differs from the first, which went well.
fn self_difference(first: &RunReport, again: &RunReport, part: &str) -> Violation {
    let fired = again.violation.as_ref().map_or(String::new(), |violation| {
        format!("; the second run also violated {}: {}", violation.oracle, violation.message)
    });
    let message = format!(
        "two runs of seed {} must have the same event hash, but the first has {:016x} \
         ({} decisions) and the second {:016x} ({} decisions){fired}\n{part}",
        first.seed, first.hash, first.decisions, again.hash, again.decisions,
    );
    Violation::new(Oracle::O11, first.virtual_ns, message)
}

/// Where two more runs of a case that differs from itself part.
fn parting(runner: &dyn Runner, case: &Case) -> Result<String, String> {
    let left = apart(runner, case, true)?.chronicle.unwrap_or_default();
    let right = apart(runner, case, true)?.chronicle.unwrap_or_default();
    let Some(number) = left.first_difference(&right) else {
        return Ok("two more runs, watched, did not differ in any event".to_string());
    };
    let mut text = format!("two more runs, watched, part at event {number}");
    for (name, chronicle) in [("one", &left), ("the other", &right)] {
        text.push_str(&format!("\nin {name}:"));
        let from = number.saturating_sub(PARTING_CONTEXT);
        let lines = story::everything(chronicle).skip_while(|line| line.number < from);
        for line in lines.take_while(|line| line.number <= number + 1) {
            let mark = if line.number == number { '>' } else { ' ' };
            text.push_str(&format!("\n{mark} {line}"));
        }
    }
    Ok(text)
}

/// Carries out a case on a fresh OS thread.
///
/// # Errors
/// What the tool says if it breaks: a panic, or that there is no thread.
pub fn apart(runner: &dyn Runner, case: &Case, watched: bool) -> Result<Recording, String> {
    thread::scope(|scope| {
        let run = thread::Builder::new()
            .name(format!("seed {}", case.scenario.seed))
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || runner.record(case, watched))
            .map_err(|error| format!("no thread for the run: {error}"))?;
        run.join().map_err(|payload| panic_message(payload.as_ref()))
    })
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("(without a text)"))
}

/// Runs `request` with each of the seeds, `jobs` at a time, and adds the results up.
///
/// After each seed, in ascending order, `observe` sees the sum so far, and may end the sweep. With
/// a planted defect the sweep ends at the lowest seed that finds it, and always where the tool
/// breaks.
pub fn sweep(
    runner: &dyn Runner,
    request: &RunRequest,
    seeds: Seeds,
    jobs: NonZeroUsize,
    observe: &mut dyn FnMut(&Tally) -> ControlFlow<()>,
) -> Tally {
    let hand_out = HandOut { next: AtomicU64::new(0), end: AtomicU64::new(seeds.count()) };
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..seeds.count().min(jobs.get() as u64) {
            let (sender, hand_out) = (sender.clone(), &hand_out);
            scope.spawn(move || {
                while let Some(offset) = hand_out.take() {
                    let request = RunRequest { seed: seeds.at(offset), ..*request };
                    let outcome = judge(runner, &request, false);
                    if ends_sweep(&request, &outcome) {
                        hand_out.end_at(offset + 1);
                    }
                    if sender.send((offset, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let tally = collect(request, seeds, results, observe);
        hand_out.end_at(0);
        tally
    })
}

/// Whether nothing above this seed counts.
fn ends_sweep(request: &RunRequest, outcome: &Result<Judged, Broken>) -> bool {
    match outcome {
        Ok(judged) => request.plant.is_some() && judged.recording.report.violation.is_some(),
        Err(_) => true,
    }
}

/// Puts results into the order of their seeds and adds them up.
fn collect(
    request: &RunRequest,
    seeds: Seeds,
    results: mpsc::Receiver<(u64, Result<Judged, Broken>)>,
    observe: &mut dyn FnMut(&Tally) -> ControlFlow<()>,
) -> Tally {
    let mut tally = Tally::new(*request);
    let mut early = BTreeMap::new();
    let mut due = 0;
    for (offset, outcome) in results {
        early.insert(offset, outcome);
        while let Some(outcome) = early.remove(&due) {
            let ends = ends_sweep(request, &outcome);
            tally.add(seeds.at(due), outcome);
            due += 1;
            if observe(&tally).is_break() || ends {
                return tally;
            }
        }
    }
    tally
}

/// Hands out offsets of seeds in ascending order.
struct HandOut {
    next: AtomicU64,
    /// Offsets from here on are not started any more.
    end: AtomicU64,
}

impl HandOut {
    fn take(&self) -> Option<u64> {
        let offset = self.next.fetch_add(1, Ordering::Relaxed);
        (offset < self.end.load(Ordering::Relaxed)).then_some(offset)
    }

    fn end_at(&self, offset: u64) {
        self.end.fetch_min(offset, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod fake;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::fake::{Fake, jobs};
    use super::*;

    const CONTINUE: ControlFlow<()> = ControlFlow::Continue(());

    /// So many seeds that a sweep returns only if something ends it.
    fn endless() -> Seeds {
        Seeds::new(0, u64::MAX).unwrap()
    }

    fn run(fake: &Fake, request: RunRequest, end: u64, jobs: NonZeroUsize) -> Tally {
        let seeds = Seeds::new(0, end).unwrap();
        sweep(fake, &request, seeds, jobs, &mut |_| CONTINUE)
    }

    fn failing(tally: &Tally) -> Vec<u64> {
        tally.failures.iter().map(|failure| failure.request.seed).collect()
    }

    #[test]
    fn the_result_does_not_depend_on_the_number_of_jobs() {
        let fake = Fake { fails: vec![(7, Oracle::O3), (23, Oracle::O7)], ..Fake::default() };
        let one = run(&fake, RunRequest::new(0), 60, jobs(1));
        let more = run(&fake, RunRequest::new(0), 60, jobs(3));
        assert_eq!(failing(&one), [7, 23]);
        assert_eq!(failing(&more), [7, 23]);
        assert_eq!((one.hash, one.runs, one.decisions), (more.hash, more.runs, more.decisions));
        assert_ne!(one.hash, 0);
        assert_eq!(one.sometimes, more.sometimes);
    }

    #[test]
    fn a_planted_sweep_ends_at_the_lowest_failing_seed_even_if_a_higher_one_fails_first() {
        let mut fake = Fake { fails: vec![(5, Oracle::O3), (6, Oracle::O1)], ..Fake::default() };
        fake.slow = vec![5];
        let request = RunRequest { plant: Some(Defect::FrozenPublisher), ..RunRequest::new(0) };
        for count in 1..=4 {
            let tally = sweep(&fake, &request, endless(), jobs(count), &mut |_| CONTINUE);
            assert_eq!((failing(&tally), tally.seeds), (vec![5], 6), "{count} jobs");
            assert_eq!(tally.failures[0].violation.oracle, Oracle::O3);
        }
        let ran = fake.ran.lock().unwrap();
        assert!(ran.contains(&6), "a sweep of several jobs had started seed 6: {ran:?}");
    }

    #[test]
    fn one_seed_in_twenty_is_run_twice() {
        let fake = Fake::default();
        let tally = run(&fake, RunRequest::new(0), 41, jobs(2));
        assert_eq!((tally.seeds, tally.runs), (41, 44));
        assert_eq!(tally.checks[&Oracle::O11], 3);
        let twice = fake.ran.lock().unwrap().iter().filter(|seed| **seed == 20).count();
        assert_eq!(twice, 2);
    }

    #[test]
    fn a_seed_that_differs_from_itself_violates_o11_and_names_both_hashes() {
        let fake = Fake { wobbles: vec![20], ..Fake::default() };
        let tally = run(&fake, RunRequest::new(0), 30, jobs(2));
        assert_eq!((failing(&tally), tally.exit_code()), (vec![20], 4));
        let violation = &tally.failures[0].violation;
        assert_eq!(violation.oracle, Oracle::O11);
        let hash = fake::report(20).hash;
        for part in ["seed 20".to_string(), format!("{hash:016x}"), format!("{:016x}", hash + 1)] {
            assert!(violation.message.contains(&part), "{}", violation.message);
        }
    }

    #[test]
    fn a_panic_of_the_tool_ends_the_sweep_with_its_seed_and_text() {
        let fake = Fake { panics: vec![9], fails: vec![(4, Oracle::O1)], ..Fake::default() };
        for count in [1, 2] {
            let tally = run(&fake, RunRequest::new(0), 60, jobs(count));
            let broken = tally.broken.as_ref().expect("seed 9 panics");
            assert_eq!((broken.request.seed, tally.seeds, tally.exit_code()), (9, 9, 101));
            assert!(broken.to_string().contains("seed 9: panic: lost my way"), "{broken}");
            assert_eq!(failing(&tally), [4]);
        }
    }

    #[test]
    fn every_run_has_a_fresh_thread() {
        let fake = Fake::default();
        run(&fake, RunRequest::new(0), 25, jobs(2));
        let threads = fake.threads.into_inner().unwrap();
        let distinct: HashSet<_> = threads.iter().collect();
        assert_eq!((distinct.len(), threads.len()), (27, 27));
    }

    #[test]
    fn an_observer_sees_seeds_in_order_and_can_end_the_sweep() {
        let fake = Fake { slow: vec![0, 3], ..Fake::default() };
        let mut seen = Vec::new();
        let seeds = endless();
        let tally = sweep(&fake, &RunRequest::new(0), seeds, jobs(3), &mut |tally| {
            seen.push(tally.seeds);
            if tally.seeds == 10 { ControlFlow::Break(()) } else { CONTINUE }
        });
        assert_eq!(seen, (1..=10).collect::<Vec<_>>());
        assert_eq!(tally.seeds, 10);
    }

    #[test]
    fn a_replay_command_has_the_flags_that_are_not_default_and_no_others() {
        let plain = "cargo run --release -p tandem-sim -- replay --seed 17";
        assert_eq!(RunRequest::new(17).replay_command(), plain);
        let request = RunRequest {
            profile: Profile::Smoke,
            plant: Some(Defect::CancelTwice),
            strategy: Some(StrategyName::Starvation),
            ..RunRequest::new(17)
        };
        let flags = " --profile smoke --plant cancel-twice --strategy starvation";
        assert_eq!(request.replay_command(), format!("{plain}{flags}"));
    }

    #[test]
    fn an_imposed_strategy_replaces_another_kind_keeps_its_own_and_changes_nothing_else() {
        let mut replaced = 0;
        for (seed, strategy) in (0..20).flat_map(|seed| StrategyName::ALL.map(|s| (seed, s))) {
            let request = RunRequest { profile: Profile::Smoke, ..RunRequest::new(seed) };
            let drawn = request.scenario();
            let imposed = RunRequest { strategy: Some(strategy), ..request }.scenario();
            imposed.validate().unwrap();
            assert_eq!(StrategyName::of(&imposed.strategy), strategy);
            replaced += usize::from(imposed.strategy != drawn.strategy);
            let kept = StrategyName::of(&drawn.strategy) == strategy;
            assert_eq!(kept, imposed.strategy == drawn.strategy);
            assert_eq!(Scenario { strategy: drawn.strategy, ..imposed }, drawn);
        }
        assert_eq!(replaced, 20, "each seed was drawn with one of the two kinds");
    }

    #[test]
    fn names_of_strategies_lead_back_to_them() {
        for strategy in StrategyName::ALL {
            assert_eq!(StrategyName::from_name(strategy.name()), Some(strategy));
        }
        assert_eq!(StrategyName::from_name("luck"), None);
    }
}
