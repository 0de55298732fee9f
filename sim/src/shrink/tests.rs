//! Shrinking what fails by a rule that is known, so that the smallest is known too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tandem::repr::Row;

use super::*;
use crate::report::RunReport;
use crate::scenario::Profile;
use crate::sweep::RunRequest;

/// Fails by rules about scenarios and decisions instead of running anything.
struct Rule<F> {
    /// What a run comes to.
    fails: F,
    runs: AtomicU64,
}

impl<F: Fn(&Scenario, &[u32]) -> Option<&'static str> + Sync> Runner for Rule<F> {
    fn record(&self, case: &Case, _watched: bool) -> Recording {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let mut decisions: Vec<u32> = match &case.schedule {
            Schedule::Drawn => (0..200).map(|index| u32::from(index % 9 == 0)).collect(),
            Schedule::Recorded(decisions) => decisions.clone(),
        };
        while decisions.last() == Some(&0) {
            decisions.pop();
        }
        let class = (self.fails)(&case.scenario, &decisions);
        let violation =
            class.map(|class| Violation::new(Oracle::O3, 0, "held back".to_string()).class(class));
        let report = RunReport {
            seed: case.scenario.seed,
            violation,
            decisions: decisions.len() as u64,
            virtual_ns: 0,
            hash: decisions.iter().map(|decision| u64::from(*decision)).sum(),
            sometimes: BTreeMap::new(),
            exercised: BTreeMap::new(),
            checks: BTreeMap::new(),
            shape: (case.scenario.processes, case.scenario.workers),
        };
        Recording { report, decisions, chronicle: None }
    }
}

fn shrunk<F>(fails: F, jobs: usize) -> Result<Shrunk, ShrinkError>
where
    F: Fn(&Scenario, &[u32]) -> Option<&'static str> + Sync,
{
    let rule = Rule { fails, runs: AtomicU64::new(0) };
    let deadline = Instant::now() + Duration::from_secs(60);
    let budget = Budget { deadline, jobs: NonZeroUsize::new(jobs).unwrap() };
    let case = RunRequest { profile: Profile::Smoke, ..RunRequest::new(7) }.case();
    let result = shrink(&rule, &case, budget, &mut |_| ControlFlow::Continue(()));
    assert!(rule.runs.load(Ordering::Relaxed) > 0);
    result
}

fn kinds(scenario: &Scenario) -> Vec<&'static str> {
    scenario.operations.iter().map(|timed| timed.operation.kind()).collect()
}

#[test]
fn what_does_not_matter_is_taken_away_whatever_the_number_of_jobs() {
    let fails = |scenario: &Scenario, _: &[u32]| {
        let kinds = kinds(scenario);
        let create = kinds.iter().position(|kind| *kind == "create-index")?;
        kinds[create..].contains(&"peek").then_some("held back")
    };
    let one = shrunk(fails, 1).unwrap();
    let two = shrunk(fails, 2).unwrap();
    assert_eq!(one.file, two.file);
    assert_eq!(kinds(&one.file.scenario), ["create-index", "peek"]);
    let Size { operations, faults, updates, processes, workers, sources, switches } = one.to;
    assert_eq!((operations, faults, updates, switches), (2, 0, 0, 0));
    assert_eq!((processes, workers, sources), (1, 1, 1));
    assert!(one.from.operations == 60 && one.is_stable && !one.is_cut_off, "{one:?}");
}

#[test]
fn a_violation_of_another_class_is_another_failure() {
    // The smaller ones fail too, but of something else.
    let fails = |scenario: &Scenario, _: &[u32]| match scenario.operations.len() {
        0..=9 => Some("many spans"),
        _ => Some("held back"),
    };
    let shrunk = shrunk(fails, 2).unwrap();
    assert_eq!((shrunk.to.operations, shrunk.violation.class), (10, "held back"));
}

#[test]
fn context_switches_are_taken_away_but_for_those_that_matter() {
    let fails = |_: &Scenario, decisions: &[u32]| {
        let is_on = |position: usize| decisions.get(position).is_some_and(|value| *value != 0);
        (is_on(9) && is_on(99)).then_some("held back")
    };
    let shrunk = shrunk(fails, 2).unwrap();
    assert_eq!((shrunk.from.switches > 20, shrunk.to.switches), (true, 2));
    let expected: Vec<u32> = (0..100).map(|index| u32::from(index == 9 || index == 99)).collect();
    assert_eq!(shrunk.file.decisions, expected);
}

#[test]
fn single_updates_are_taken_away_from_ticks_that_stay() {
    let two = |row: &Row| row.0.first().is_some_and(|datum| *datum == 2.into());
    let fails = |scenario: &Scenario, _: &[u32]| {
        let mut ticks = scenario.operations.iter().filter_map(|timed| match &timed.operation {
            Operation::Tick { updates, .. } => Some(updates),
            _ => None,
        });
        ticks.any(|updates| updates.iter().any(|(row, _)| two(row))).then_some("held back")
    };
    let shrunk = shrunk(fails, 2).unwrap();
    assert_eq!((shrunk.to.operations, shrunk.to.updates), (1, 1), "{}", shrunk.from);
}

#[test]
fn a_candidate_that_breaks_the_tool_is_rejected() {
    let fails = |scenario: &Scenario, _: &[u32]| {
        assert!(scenario.operations.len() > 5, "five operations break the tool");
        Some("held back")
    };
    assert_eq!(shrunk(fails, 2).unwrap().to.operations, 6);
}

#[test]
fn what_does_not_fail_is_not_shrunk() {
    let error = shrunk(|_: &Scenario, _: &[u32]| None, 1).unwrap_err();
    assert!(matches!(error, ShrinkError::Passes { seed: 7 }), "{error}");
}

#[test]
fn every_simpler_scenario_of_every_seed_is_valid_or_refused() {
    let mut valid = 0;
    for seed in 0..30 {
        let scenario = Scenario::from_seed(seed, Profile::Smoke);
        let mut simpler = simpler::topologies(&scenario);
        simpler.extend(simpler::gaps(&scenario));
        simpler.push(simpler::without_operations(&scenario, 3..40));
        simpler.push(simpler::without_updates(&scenario, 0..simpler::updates(&scenario)));
        for scenario in &simpler {
            scenario.validate().unwrap();
            valid += 1;
        }
        let fewer = simpler::without_operations(&scenario, 3..40);
        assert_eq!(fewer.horizon_ns(), scenario.horizon_ns(), "those that follow keep their time");
    }
    assert!(valid > 60, "only {valid} were looked at");
}
