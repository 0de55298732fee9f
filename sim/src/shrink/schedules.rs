//! Under which schedules a smaller scenario is tried.

use tandem::env::Role;

use super::Best;
use crate::replay::Case;
use crate::scenario::{Fault, Scenario, StrategyChoice};
use crate::sched::STALLS;
use crate::world::Schedule;

/// A strategy that switches more often than any that is drawn, for short runs.
const RESTLESS: StrategyChoice =
    StrategyChoice::Random { switch_per_mille: 300, stall_per_myriad: 0, stall_ns_max: 0 };

/// So many schedules of a scenario, drawn anew: each has another seed, and every other one a strategy
/// that switches more often.
pub fn redrawn(case: &Case, redraws: u64) -> impl Iterator<Item = Case> {
    (0..redraws).map(|draw| {
        let mut scenario = case.scenario.clone();
        if draw > 0 {
            scenario.seed = draw;
        }
        if draw % 2 == 1 {
            scenario.strategy = RESTLESS;
        }
        Case { scenario, plant: case.plant, schedule: Schedule::Drawn }
    })
}

/// The cases to try for a scenario, the most wanted first: the calm schedule; unless that is what
/// the best has already, the recorded one; and some that are drawn anew, for which the scenario gets
/// another seed. Where the calm schedule fails, only the network is drawn anew, which the seed does
/// too.
pub(super) fn of(best: &Best, scenario: Scenario, redraws: u64) -> Vec<Case> {
    let plant = best.case.plant;
    let case = |scenario: Scenario, schedule| Case { scenario, plant, schedule };
    let mut cases = vec![case(scenario.clone(), Schedule::Recorded(Vec::new()))];
    let decisions = &best.recording.decisions;
    if decisions.is_empty() {
        cases.extend((1..redraws).map(|seed| {
            case(Scenario { seed, ..scenario.clone() }, Schedule::Recorded(Vec::new()))
        }));
        return cases;
    }
    let as_recorded = case(scenario, Schedule::Recorded(decisions.clone()));
    let drawn: Vec<_> = redrawn(&as_recorded, redraws).collect();
    cases.push(as_recorded);
    cases.extend(drawn);
    cases
}

/// How long a fault that stands for a schedule lasts, in nanoseconds of virtual time.
const FAULT_NS: [u64; 2] = [2_000_000, 20_000_000];

/// At how many moments of the run such a fault is tried.
const FAULT_MOMENTS: u64 = 8;

/// The calm schedule, with one fault more: what many small interruptions do, one stall or one slow
/// merge often does too, and a person sees at once what it is.
pub(super) fn with_a_fault(case: &Case) -> impl Iterator<Item = Case> {
    let span_ns = case.scenario.horizon_ns() + FAULT_NS[1] / 2;
    let moments = (0..FAULT_MOMENTS).map(move |moment| span_ns / FAULT_MOMENTS * moment);
    let places = moments.flat_map(|from_ns| FAULT_NS.map(|for_ns| (from_ns, for_ns)));
    let faults = places.flat_map(|(from_ns, for_ns)| {
        [
            Fault::StallRuntime { role: Role::Interactive, from_ns, for_ns },
            Fault::StallRuntime { role: Role::Maintenance, from_ns, for_ns },
            Fault::SlowMerge { factor: 1_000, process: None, from_ns, to_ns: from_ns + for_ns },
        ]
    });
    faults.map(|fault| {
        let mut scenario = case.scenario.clone();
        scenario.faults.push(fault);
        Case { scenario, plant: case.plant, schedule: Schedule::Recorded(Vec::new()) }
    })
}

/// How far into a run a single switch is tried, in decisions.
const POSITIONS_MAX: usize = 600;

/// All schedules in which one decision is not calm, the earliest first: another thread runs, or one
/// stalls.
pub(super) fn with_one_switch(case: &Case) -> impl Iterator<Item = Case> {
    let len = match &case.schedule {
        Schedule::Recorded(decisions) => decisions.len().min(POSITIONS_MAX),
        Schedule::Drawn => POSITIONS_MAX,
    };
    let threads = 2 * case.scenario.peers().min(3) as u32;
    (0..len).flat_map(move |position| {
        (1..threads * (1 + STALLS)).map(move |decision| {
            let mut decisions = vec![0; position];
            decisions.push(decision);
            Case { schedule: Schedule::Recorded(decisions), ..case.clone() }
        })
    })
}

/// Schedules that switch seldom, so that few of their decisions are to be made calm.
pub(super) fn seldom(case: &Case, redraws: u64) -> impl Iterator<Item = Case> {
    (1..=8 * redraws).map(|draw| {
        let mut scenario = Scenario { seed: draw, ..case.scenario.clone() };
        let switch_per_mille = [10, 25, 60][(draw % 3) as usize];
        scenario.strategy = StrategyChoice::Random {
            switch_per_mille,
            stall_per_myriad: 10 * switch_per_mille * (draw as u32 % 2),
            stall_ns_max: 10_000_000,
        };
        Case { scenario, plant: case.plant, schedule: Schedule::Drawn }
    })
}
