//! Smaller and simpler scenarios: what there is to try, without knowing whether it fails.
//!
//! Every form that is offered is simpler in the same direction, so that a search that takes one
//! never comes back to where it was.

use std::ops::Range;

use tandem::plan::Finishing;

use crate::scenario::{
    Cancel, Fault, IndexSpec, KeyChoice, Operation, Pick, PlanShape, Scenario, StrategyChoice,
    Victim, When,
};

/// A gap that lets commands arrive and be carried out, in nanoseconds of virtual time.
const GAP_NS: u64 = 1_000_000;

/// Fewer processes and workers, the fewest first.
pub(super) fn topologies(scenario: &Scenario) -> Vec<Scenario> {
    let (processes, workers) = (scenario.processes, scenario.workers);
    let mut shapes = vec![(1, 1), (1, workers), (processes, 1)];
    shapes.push((processes.saturating_sub(1).max(1), workers));
    shapes.push((processes, workers.saturating_sub(1).max(1)));
    let smaller = |(p, w): &(usize, usize)| p * w < processes * workers;
    shapes.into_iter().filter(smaller).map(|(p, w)| reshaped(scenario, p, w)).collect()
}

/// The same with so many processes and workers; what concerned others concerns one of these.
fn reshaped(scenario: &Scenario, processes: usize, workers: usize) -> Scenario {
    let mut scenario = Scenario { processes, workers, ..scenario.clone() };
    let peers = scenario.peers();
    for fault in &mut scenario.faults {
        match fault {
            Fault::SlowMerge { process: Some(process), .. } => *process %= processes,
            Fault::StallWorker { worker, .. } => *worker %= peers,
            _ => {}
        }
    }
    if let StrategyChoice::Starvation { victim: Victim::Worker { worker, .. }, .. } =
        &mut scenario.strategy
    {
        *worker %= peers;
    }
    scenario
}

/// Without some operations. Those that follow come when they came before.
pub(super) fn without_operations(scenario: &Scenario, range: Range<usize>) -> Scenario {
    let mut scenario = scenario.clone();
    let gone_ns: u64 = scenario.operations[range.clone()].iter().map(|timed| timed.gap_ns).sum();
    scenario.operations.drain(range.clone());
    if let Some(next) = scenario.operations.get_mut(range.start) {
        next.gap_ns = next.gap_ns.saturating_add(gone_ns);
    }
    scenario
}

/// Without some faults.
pub(super) fn without_faults(scenario: &Scenario, range: Range<usize>) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.faults.drain(range);
    scenario
}

/// Without some sources. What was done to them is done to others.
pub(super) fn without_sources(scenario: &Scenario, range: Range<usize>) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.sources.drain(range);
    scenario
}

/// How many updates all ticks have.
pub(super) fn updates(scenario: &Scenario) -> usize {
    let ticks = scenario.operations.iter().map(|timed| match &timed.operation {
        Operation::Tick { updates, .. } => updates.len(),
        _ => 0,
    });
    ticks.sum()
}

/// Without some updates, counted over all ticks.
pub(super) fn without_updates(scenario: &Scenario, range: Range<usize>) -> Scenario {
    let mut scenario = scenario.clone();
    let mut position = 0;
    for timed in &mut scenario.operations {
        if let Operation::Tick { updates, .. } = &mut timed.operation {
            updates.retain(|_| {
                position += 1;
                !range.contains(&(position - 1))
            });
        }
    }
    scenario
}

/// Operations in simpler times: all at once, or each after the same gap.
pub(super) fn gaps(scenario: &Scenario) -> Vec<Scenario> {
    let longest = |most: u64| {
        let mut scenario = scenario.clone();
        scenario.operations.iter_mut().for_each(|timed| timed.gap_ns = timed.gap_ns.min(most));
        scenario
    };
    let all = [0, GAP_NS, 10 * GAP_NS].map(longest);
    all.into_iter().filter(|simpler| simpler != scenario).collect()
}

/// Simpler forms of an operation, the simplest first.
pub(super) fn forms(operation: &Operation) -> Vec<Operation> {
    let mut forms = Vec::new();
    match operation {
        Operation::Tick { .. } | Operation::Drop { .. } | Operation::Recreate { .. } => {}
        Operation::Advance { source, by } => {
            if *by > 1 {
                forms.push(Operation::Advance { source: *source, by: 1 });
            }
        }
        Operation::SetLag { collection, lag } => {
            if *lag > 0 {
                forms.push(Operation::SetLag { collection: *collection, lag: 0 });
            }
        }
        Operation::CreateIndex { spec } => {
            let specs = specs(spec).into_iter();
            forms.extend(specs.map(|spec| Operation::CreateIndex { spec }));
        }
        Operation::Peek { .. } => forms.extend(peeks(operation)),
        Operation::Query { when, finishing, cancel, .. } => {
            forms.push(Operation::Peek {
                index: Pick::Nth(0),
                when: *when,
                keys: KeyChoice::All,
                finishing: finishing.clone(),
                cancel: *cancel,
            });
            forms.extend(queries(operation));
        }
    }
    forms.retain(|form| form != operation);
    forms
}

fn specs(spec: &IndexSpec) -> Vec<IndexSpec> {
    let mut specs = Vec::new();
    specs.extend(shapes(&spec.over).into_iter().map(|over| IndexSpec { over, ..spec.clone() }));
    if spec.key.len() > 1 {
        specs.push(IndexSpec { key: vec![spec.key[0]], ..spec.clone() });
    }
    if spec.lag > 0 {
        specs.push(IndexSpec { lag: 0, ..spec.clone() });
    }
    specs
}

/// Simpler plans: a source, a part of this one, or this one with fewer inputs.
fn shapes(shape: &PlanShape) -> Vec<PlanShape> {
    let mut shapes = Vec::new();
    if !matches!(shape, PlanShape::Get(_)) {
        shapes.push(PlanShape::Get(Pick::Nth(0)));
    }
    shapes.extend(shape.inputs().into_iter().cloned());
    match shape {
        PlanShape::Join { inputs, keys } if inputs.len() > 2 => {
            shapes.push(PlanShape::Join { inputs: inputs[..2].to_vec(), keys: keys.clone() });
        }
        PlanShape::Union { inputs } if inputs.len() > 1 => {
            shapes.push(PlanShape::Union { inputs: inputs[..1].to_vec() });
        }
        _ => {}
    }
    shapes
}

fn peeks(operation: &Operation) -> Vec<Operation> {
    let mut forms = Vec::new();
    let mut form = |change: &dyn Fn(&mut KeyChoice, &mut Finishing, &mut Pick)| {
        let mut changed = operation.clone();
        if let Operation::Peek { keys, finishing, index, .. } = &mut changed {
            change(keys, finishing, index);
        }
        forms.push(changed);
    };
    form(&|keys, finishing, _| (*keys, *finishing) = (KeyChoice::All, Finishing::default()));
    form(&|keys, _, _| *keys = KeyChoice::All);
    form(&|_, finishing, _| *finishing = Finishing::default());
    form(&|_, _, index| *index = Pick::Nth(0));
    forms.extend(reads(operation));
    forms
}

fn queries(operation: &Operation) -> Vec<Operation> {
    let mut forms = Vec::new();
    if let Operation::Query { plan, .. } = operation {
        for simpler in shapes(plan) {
            let mut changed = operation.clone();
            if let Operation::Query { plan, .. } = &mut changed {
                *plan = simpler;
            }
            forms.push(changed);
        }
    }
    let mut plain = operation.clone();
    if let Operation::Query { key, finishing, .. } = &mut plain {
        (*key, *finishing) = (Vec::new(), Finishing::default());
    }
    forms.push(plain);
    forms.extend(reads(operation));
    forms
}

/// Reads at a simpler time, and without their cancel or with a simpler one.
fn reads(operation: &Operation) -> Vec<Operation> {
    let mut forms = Vec::new();
    let mut form = |change: &dyn Fn(&mut When, &mut Option<Cancel>)| {
        let mut changed = operation.clone();
        if let Operation::Peek { when, cancel, .. } | Operation::Query { when, cancel, .. } =
            &mut changed
        {
            change(when, cancel);
        }
        forms.push(changed);
    };
    form(&|_, cancel| *cancel = None);
    form(&|_, cancel| {
        if let Some(cancel) = cancel {
            cancel.then_compact = false;
        }
    });
    form(&|_, cancel| {
        if let Some(cancel) = cancel {
            cancel.after_ns = 0;
        }
    });
    form(&|when, _| *when = When::UpperMinusOne);
    forms
}
