//! The testbed's own promises: runs are clean, repeat themselves, agree with threads, and find what is planted.

use std::collections::BTreeMap;

use tandem::zoo::Defect;
use tandem_sim::report::{Oracle, RunReport, Violation};
use tandem_sim::scenario::{Profile, Scenario};
use tandem_sim::sweep::{RunRequest, Simulation, judge};
use tandem_sim::world::{self, Carried, Plan, Schedule};

/// A run has its OS thread for itself.
fn alone<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(run).join().expect("a run does not panic")
}

fn carry_out(scenario: Scenario, schedule: Schedule) -> (RunReport, Vec<u32>) {
    alone(move || {
        let plan = Plan { scenario, plant: None, schedule, witness: None };
        let Carried { report, decisions } = world::carry_out(plan);
        (report, decisions)
    })
}

#[test]
fn a_recorded_schedule_replays_to_the_same_hash() {
    for seed in 0..6 {
        let scenario = Scenario::from_seed(seed, Profile::Smoke);
        let (drawn, decisions) = carry_out(scenario.clone(), Schedule::Drawn);
        let (replayed, again) = carry_out(scenario, Schedule::Recorded(decisions.clone()));
        assert_eq!((drawn.hash, decisions), (replayed.hash, again), "seed {seed}");
        assert!(drawn.decisions > 100, "seed {seed} decided nothing");
    }
}

#[test]
fn every_list_of_decisions_is_legal() {
    let scenario = Scenario::from_seed(3, Profile::Smoke);
    let (_, decisions) = carry_out(scenario.clone(), Schedule::Drawn);
    let cut = decisions[..decisions.len() / 2].to_vec();
    let foreign = (0..20_000u32).map(|index| index.wrapping_mul(2_654_435_761) >> 27).collect();
    for list in [vec![], cut, foreign] {
        let (report, _) = carry_out(scenario.clone(), Schedule::Recorded(list));
        assert_eq!(report.violation, None);
    }
}

#[test]
fn the_same_scenarios_hold_on_threads() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..12 {
        let scenario = Scenario::from_seed(seed, Profile::Swarm);
        let on_threads = alone({
            let scenario = scenario.clone();
            move || world::threads::run(&scenario)
        });
        assert_eq!(on_threads.violation, None, "seed {seed} on threads");
        let (simulated, _) = carry_out(scenario, Schedule::Drawn);
        assert_eq!(simulated.violation, None, "seed {seed} simulated");
        for what in ["peek", "query", "create-index", "drop", "tick"] {
            let (real, simulated) = (on_threads.exercised[what], simulated.exercised[what]);
            assert_eq!(real, simulated, "{what}, seed {seed}");
        }
        for (what, count) in &on_threads.exercised {
            *seen.entry(what).or_default() += count;
        }
        assert!(on_threads.checks[&Oracle::O1] > 0, "seed {seed} compared no answer");
    }
    let answers = ["answered with rows", "answered with an error", "answered as cancelled"];
    for what in answers.into_iter().chain(["slow path"]) {
        assert!(seen.get(what).is_some_and(|count| *count > 0), "{what} never occurred: {seen:?}");
    }
}

fn verdict(seed: u64, plant: Option<Defect>) -> Option<Violation> {
    let request = RunRequest { plant, ..RunRequest::new(seed) };
    let judged = judge(&Simulation, &request, false).expect("the tool works");
    judged.recording.report.violation
}

#[test]
fn every_planted_defect_is_found_by_its_oracle_and_again_by_its_seed() {
    for defect in Defect::ALL {
        let found = (0..500).find_map(|seed| Some((seed, verdict(seed, Some(defect))?)));
        let (seed, found) = found.unwrap_or_else(|| panic!("no seed finds {}", defect.name()));
        let Violation { oracle, message, .. } = &found;
        assert_eq!(oracle.name(), defect.oracle(), "{}: {message}", defect.name());
        assert_eq!(verdict(seed, Some(defect)), Some(found), "{} by seed {seed}", defect.name());
        assert_eq!(verdict(seed, None), None, "seed {seed} fails without {}", defect.name());
    }
}
