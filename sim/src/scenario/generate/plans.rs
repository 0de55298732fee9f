//! Plans of indexes and queries.

use crate::scenario::draw::Draw;
use crate::scenario::{Pick, PlanShape, Swarm};

use super::expressions::{aggregate, columns, predicate, scalar};

/// What a plan can read, as far as the generator knows: the first `favoured` of `len` collections
/// are read more often than the others.
#[derive(Clone, Copy)]
pub(super) struct Readable {
    pub(super) favoured: usize,
    pub(super) len: usize,
}

impl Readable {
    pub(super) fn pick(self, draw: &mut Draw) -> Pick {
        match draw.below(100) {
            0..50 => Pick::Nth(draw.index(self.favoured.max(1))),
            50..88 => Pick::Nth(draw.index(self.len.max(1))),
            _ => Pick::Newest,
        }
    }
}

/// Kinds of plans; each makes sure that rows stay narrow.
#[derive(Clone, Copy)]
enum Kind {
    Get,
    Chain,
    Reduce,
    Distinct,
    Union,
    Join(usize),
    /// What is in one and not in the other.
    Except,
    /// What a filter leaves out.
    Rest,
    /// Rows of negative multiplicity: a read of these is an error.
    Negative,
}

pub(super) fn shape(draw: &mut Draw, swarm: &Swarm, readable: Readable) -> PlanShape {
    if !swarm.derived {
        return PlanShape::Get(readable.pick(draw));
    }
    let several = u32::from(swarm.joins);
    let kind = draw.weighted(&[
        (18, Kind::Get),
        (26, Kind::Chain),
        (18, Kind::Reduce),
        (6, Kind::Distinct),
        (6, Kind::Rest),
        (1, Kind::Negative),
        (7 * several, Kind::Union),
        (6 * several, Kind::Except),
        (15 * several, Kind::Join(2)),
        (5 * several, Kind::Join(3)),
    ]);
    of_kind(draw, kind, readable)
}

fn of_kind(draw: &mut Draw, kind: Kind, readable: Readable) -> PlanShape {
    let input = Box::new(leaf(draw, readable));
    match kind {
        Kind::Get => PlanShape::Get(readable.pick(draw)),
        Kind::Chain => chain(draw, readable),
        Kind::Reduce => PlanShape::Reduce {
            input,
            key: columns(draw, 0, 2),
            aggregates: (0..draw.within(1, 2)).map(|_| aggregate(draw)).collect(),
        },
        Kind::Distinct => PlanShape::Distinct { input },
        Kind::Union => PlanShape::Union { inputs: vec![*input, leaf(draw, readable)] },
        Kind::Join(inputs) => join(draw, inputs, readable),
        Kind::Except => {
            let other = Box::new(leaf(draw, readable));
            let inputs = vec![*input, PlanShape::Negate { input: other }];
            PlanShape::Threshold { input: Box::new(PlanShape::Union { inputs }) }
        }
        Kind::Rest => {
            let filtered =
                PlanShape::Filter { input: input.clone(), predicates: vec![predicate(draw)] };
            let inputs = vec![*input, PlanShape::Negate { input: Box::new(filtered) }];
            PlanShape::Union { inputs }
        }
        Kind::Negative => PlanShape::Negate { input },
    }
}

fn leaf(draw: &mut Draw, readable: Readable) -> PlanShape {
    if draw.percent(30) { chain(draw, readable) } else { PlanShape::Get(readable.pick(draw)) }
}

fn chain(draw: &mut Draw, readable: Readable) -> PlanShape {
    let mut plan = PlanShape::Get(readable.pick(draw));
    let (filter_before, map) = (draw.percent(40), draw.percent(60));
    if filter_before || !map {
        let count = draw.weighted(&[(80, 1), (20, 2)]);
        let predicates = (0..count).map(|_| predicate(draw)).collect();
        plan = PlanShape::Filter { input: Box::new(plan), predicates };
    }
    if map {
        let exprs = (0..draw.within(1, 2)).map(|_| scalar(draw)).collect();
        plan = PlanShape::Map { input: Box::new(plan), exprs };
        if draw.percent(25) {
            plan = PlanShape::Filter { input: Box::new(plan), predicates: vec![predicate(draw)] };
        }
    }
    PlanShape::Project { input: Box::new(plan), columns: columns(draw, 2, 3) }
}

fn join(draw: &mut Draw, inputs: usize, readable: Readable) -> PlanShape {
    let width = draw.weighted(&[(85, 1), (15, 2)]);
    // Mostly by the columns that are most alike: keys with keys.
    let key = |draw: &mut Draw| match draw.percent(65) {
        true => (0..width as usize).collect(),
        false => columns(draw, width, width),
    };
    let keys = (0..inputs).map(|_| key(draw)).collect();
    let inputs = (0..inputs).map(|_| leaf(draw, readable)).collect();
    let joined = PlanShape::Join { inputs, keys };
    PlanShape::Project { input: Box::new(joined), columns: columns(draw, 2, 3) }
}
