//! Under which schedules a smaller scenario is tried.

use super::Best;
use crate::replay::Case;
use crate::scenario::{Scenario, StrategyChoice};
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
