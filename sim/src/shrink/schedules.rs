//! Under which schedules a smaller scenario is tried.

use super::Best;
use crate::replay::Case;
use crate::scenario::{Scenario, StrategyChoice};
use crate::world::Schedule;

/// A strategy that switches more often than any that is drawn, for short runs.
const RESTLESS: StrategyChoice =
    StrategyChoice::Random { switch_per_mille: 300, stall_per_myriad: 0, stall_ns_max: 0 };

/// The cases to try for a scenario, the most wanted first: the calm schedule; unless that is what
/// the best has already, the recorded one; and `redraws` that are drawn anew, for which the
/// scenario gets another seed.
pub(super) fn of(best: &Best, scenario: Scenario, redraws: u64) -> Vec<Case> {
    let plant = best.case.plant;
    let case = |scenario: Scenario, schedule| Case { scenario, plant, schedule };
    let mut cases = vec![case(scenario.clone(), Schedule::Recorded(Vec::new()))];
    let decisions = &best.recording.decisions;
    if decisions.is_empty() {
        return cases;
    }
    cases.push(case(scenario.clone(), Schedule::Recorded(decisions.clone())));
    for draw in 0..redraws {
        let mut drawn = scenario.clone();
        if draw > 0 {
            drawn.seed = draw;
        }
        if draw % 2 == 1 {
            drawn.strategy = RESTLESS;
        }
        cases.push(case(drawn, Schedule::Drawn));
    }
    cases
}
