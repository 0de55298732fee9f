//! A run that can be carried out again, and what comes of it.

use std::rc::Rc;

use tandem::zoo::Defect;

use crate::report::RunReport;
use crate::scenario::Scenario;
use crate::story::{Chronicle, Chronicler};
use crate::world::{self, Plan, Schedule, Witness};

/// Everything that determines a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is done and goes wrong. It must be [valid](Scenario::validate).
    pub scenario: Scenario,
    /// The defect to put back into the system, if any.
    pub plant: Option<Defect>,
    /// Where decisions come from.
    pub schedule: Schedule,
}

/// What a run came to, and what is needed to tell of it or to repeat it.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What the oracles say.
    pub report: RunReport,
    /// The decisions that were taken, without the calm ones at the end.
    pub decisions: Vec<u32>,
    /// What happened, if it was to be written down.
    pub chronicle: Option<Chronicle>,
}

/// Carries out a case, and writes down what happens if that is wanted. It must be the first run on
/// its OS thread.
pub fn record(case: &Case, watched: bool) -> Recording {
    let chronicler = watched.then(Chronicler::new);
    let carried = world::carry_out(Plan {
        scenario: case.scenario.clone(),
        plant: case.plant,
        schedule: case.schedule.clone(),
        witness: chronicler.clone().map(|chronicler| -> Rc<dyn Witness> { chronicler }),
    });
    let mut decisions = carried.decisions;
    let calm = decisions.iter().rev().take_while(|decision| **decision == 0).count();
    decisions.truncate(decisions.len() - calm);
    let chronicle = chronicler.map(|chronicler| chronicler.take());
    Recording { report: carried.report, decisions, chronicle }
}
