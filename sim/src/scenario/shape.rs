//! Symbolic plans: what an operation computes, before it is known over what.
//!
//! A shape becomes a [`Plan`] over the collections that exist when its operation is carried out. Any
//! shape fits any non-empty set of collections: slots are taken modulo their number and columns
//! modulo the arity at hand; unions are cut to the least arity of their inputs; inputs of joins and
//! unions that would make the result too large are left out.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tandem::plan::{Aggregate, Expr, Finishing, OrderBy, Plan};
use tandem::repr::GlobalId;

use super::operation::Pick;

/// The total absolute multiplicity of every collection that a shape can come to is at most two to
/// this power. It keeps products of multiplicities far from overflow and a run's evaluation cheap.
pub const MAGNITUDE_BITS_MAX: u32 = 13;

/// A collection that plans can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionInfo {
    /// What a plan calls it: a source's own id, or what an index is *on*.
    pub id: GlobalId,
    /// The number of its columns, at least one.
    pub arity: usize,
    /// Two to this power bounds the total absolute multiplicity of its rows. A source has
    /// [`SourceSpec::bits`](super::SourceSpec::bits), an index what its [`Concrete`] says.
    pub bits: u32,
}

/// A relational expression over collections yet to be picked.
///
/// Mirrors [`Plan`]; columns count modulo what is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlanShape {
    /// A collection.
    Get(Pick),
    /// Appends values.
    Map {
        /// What is mapped.
        input: Box<PlanShape>,
        /// The appended values, each over the row as extended so far.
        exprs: Vec<Expr>,
    },
    /// Keeps rows of which all predicates are true.
    Filter {
        /// What is filtered.
        input: Box<PlanShape>,
        /// The predicates.
        predicates: Vec<Expr>,
    },
    /// Keeps some columns.
    Project {
        /// What is projected.
        input: Box<PlanShape>,
        /// The columns; none stands for the first.
        columns: Vec<usize>,
    },
    /// Pairs rows whose keys agree.
    Join {
        /// Two inputs or more.
        inputs: Vec<PlanShape>,
        /// The key columns of each input; all are made as long as the first.
        keys: Vec<Vec<usize>>,
    },
    /// Aggregates each group.
    Reduce {
        /// What is reduced.
        input: Box<PlanShape>,
        /// The columns that make a group.
        key: Vec<usize>,
        /// The aggregates; without a key, none stands for the count.
        aggregates: Vec<Aggregate>,
    },
    /// The distinct rows.
    Distinct {
        /// Of what.
        input: Box<PlanShape>,
    },
    /// Adds multiplicities.
    Union {
        /// One input or more, cut to the least arity among them.
        inputs: Vec<PlanShape>,
    },
    /// Negates multiplicities.
    Negate {
        /// Of what.
        input: Box<PlanShape>,
    },
    /// Keeps rows of positive multiplicity.
    Threshold {
        /// Of what.
        input: Box<PlanShape>,
    },
}

/// A shape made concrete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concrete {
    /// The plan.
    pub plan: Plan,
    /// The number of its columns, at least one.
    pub arity: usize,
    /// Two to this power bounds the total absolute multiplicity of its rows.
    pub bits: u32,
    /// The positions, among the collections given, of those it reads.
    pub reads: BTreeSet<usize>,
}

/// An index specification made concrete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConcreteIndex {
    /// What is indexed.
    pub over: Concrete,
    /// The columns that make the key: distinct, and columns of the plan.
    pub key: Vec<usize>,
}

impl PlanShape {
    /// The plan that this is over `collections`: always valid. Nothing when there are none.
    pub fn concretise(&self, collections: &[CollectionInfo]) -> Option<Concrete> {
        (!collections.is_empty()).then(|| self.fit(collections))
    }

    /// The index that this is, by `key`, over `collections`; nothing when there are none.
    pub fn concretise_index(
        &self,
        key: &[usize],
        collections: &[CollectionInfo],
    ) -> Option<ConcreteIndex> {
        let over = self.concretise(collections)?;
        let mut distinct = Vec::new();
        for column in key.iter().map(|column| column % over.arity) {
            if !distinct.contains(&column) {
                distinct.push(column);
            }
        }
        Some(ConcreteIndex { over, key: distinct })
    }

    /// The shapes this is made of.
    pub fn inputs(&self) -> Vec<&PlanShape> {
        match self {
            PlanShape::Get(_) => vec![],
            PlanShape::Map { input, .. }
            | PlanShape::Filter { input, .. }
            | PlanShape::Project { input, .. }
            | PlanShape::Reduce { input, .. }
            | PlanShape::Distinct { input }
            | PlanShape::Negate { input }
            | PlanShape::Threshold { input } => vec![input],
            PlanShape::Join { inputs, .. } | PlanShape::Union { inputs } => inputs.iter().collect(),
        }
    }

    /// `collections` is not empty.
    fn fit(&self, collections: &[CollectionInfo]) -> Concrete {
        match self {
            PlanShape::Get(pick) => get(*pick, collections),
            PlanShape::Map { input, exprs } => {
                let input = input.fit(collections);
                let arity = input.arity;
                let exprs: Vec<_> =
                    exprs.iter().enumerate().map(|(i, expr)| fit_expr(expr, arity + i)).collect();
                let grown = arity + exprs.len();
                input.wrap(grown, |input| Plan::Map { input, exprs })
            }
            PlanShape::Filter { input, predicates } => {
                let input = input.fit(collections);
                let arity = input.arity;
                let predicates = predicates.iter().map(|expr| fit_expr(expr, arity)).collect();
                input.wrap(arity, |input| Plan::Filter { input, predicates })
            }
            PlanShape::Project { input, columns } => {
                let input = input.fit(collections);
                let mut columns = fit_columns(columns, input.arity);
                if columns.is_empty() {
                    columns.push(0);
                }
                input.project(columns)
            }
            PlanShape::Join { inputs, keys } => join(inputs, keys, collections),
            PlanShape::Reduce { input, key, aggregates } => {
                reduce(input.fit(collections), key, aggregates)
            }
            PlanShape::Distinct { input } => {
                let input = input.fit(collections);
                let arity = input.arity;
                let (key, aggregates) = ((0..arity).collect(), Vec::new());
                input.wrap(arity, |input| Plan::Reduce { input, key, aggregates })
            }
            PlanShape::Union { inputs } => union(inputs, collections),
            PlanShape::Negate { input } => {
                let input = input.fit(collections);
                let arity = input.arity;
                input.wrap(arity, |input| Plan::Negate { input })
            }
            PlanShape::Threshold { input } => {
                let input = input.fit(collections);
                let arity = input.arity;
                input.wrap(arity, |input| Plan::Threshold { input })
            }
        }
    }
}

impl Concrete {
    /// This under another node, which changes neither what is read nor the bound.
    fn wrap(self, arity: usize, node: impl FnOnce(Box<Plan>) -> Plan) -> Concrete {
        Concrete { plan: node(Box::new(self.plan)), arity, ..self }
    }

    fn project(self, columns: Vec<usize>) -> Concrete {
        self.wrap(columns.len(), |input| Plan::Project { input, columns })
    }
}

fn get(pick: Pick, collections: &[CollectionInfo]) -> Concrete {
    let position = pick.resolve(collections.len()).expect("callers pass at least one collection");
    let collection = &collections[position];
    Concrete {
        plan: Plan::Get(collection.id),
        arity: collection.arity,
        bits: collection.bits,
        reads: BTreeSet::from([position]),
    }
}

/// A product of multiplicities: inputs are taken as long as their bounds add up to what is allowed.
fn join(inputs: &[PlanShape], keys: &[Vec<usize>], collections: &[CollectionInfo]) -> Concrete {
    let mut bits = 0;
    let mut kept: Vec<(Concrete, &[usize])> = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        let input = input.fit(collections);
        if kept.is_empty() || bits + input.bits <= MAGNITUDE_BITS_MAX {
            bits += input.bits;
            kept.push((input, keys.get(index).map_or(&[], Vec::as_slice)));
        }
    }
    if kept.len() < 2 {
        return kept.pop().map_or_else(|| get(Pick::Newest, collections), |(input, _)| input);
    }
    let width = keys.first().map_or(1, |key| key.len().max(1));
    let arity = kept.iter().map(|(input, _)| input.arity).sum();
    let reads = kept.iter().flat_map(|(input, _)| input.reads.iter().copied()).collect();
    let keys = kept
        .iter()
        .map(|(input, key)| {
            (0..width).map(|i| key.get(i).copied().unwrap_or(i) % input.arity).collect()
        })
        .collect();
    let inputs = kept.into_iter().map(|(input, _)| input.plan).collect();
    Concrete { plan: Plan::Join { inputs, keys }, arity, bits, reads }
}

fn reduce(input: Concrete, key: &[usize], aggregates: &[Aggregate]) -> Concrete {
    let key = fit_columns(key, input.arity);
    let mut aggregates: Vec<_> =
        aggregates.iter().map(|aggregate| fit_aggregate(aggregate, input.arity)).collect();
    if key.is_empty() && aggregates.is_empty() {
        aggregates.push(Aggregate::Count);
    }
    input.wrap(key.len() + aggregates.len(), |input| Plan::Reduce { input, key, aggregates })
}

/// A sum of multiplicities: inputs are taken as long as the sum of their bounds is allowed.
fn union(inputs: &[PlanShape], collections: &[CollectionInfo]) -> Concrete {
    let mut total = 0u64;
    let mut kept: Vec<Concrete> = Vec::new();
    for input in inputs {
        let input = input.fit(collections);
        let grown = total.saturating_add(1u64.checked_shl(input.bits).unwrap_or(u64::MAX));
        if kept.is_empty() || grown <= 1 << MAGNITUDE_BITS_MAX {
            total = grown;
            kept.push(input);
        }
    }
    if kept.len() < 2 {
        return kept.pop().unwrap_or_else(|| get(Pick::Newest, collections));
    }
    let arity = kept.iter().map(|input| input.arity).min().expect("at least two are kept");
    let reads = kept.iter().flat_map(|input| input.reads.iter().copied()).collect();
    let cut = |input: Concrete| match input.arity {
        same if same == arity => input.plan,
        _ => input.project((0..arity).collect()).plan,
    };
    let inputs = kept.into_iter().map(cut).collect();
    let bits = total.next_power_of_two().ilog2();
    Concrete { plan: Plan::Union { inputs }, arity, bits, reads }
}

fn fit_columns(columns: &[usize], arity: usize) -> Vec<usize> {
    columns.iter().map(|column| column % arity).collect()
}

fn fit_expr(expr: &Expr, arity: usize) -> Expr {
    match expr {
        Expr::Column(column) => Expr::Column(column % arity),
        Expr::Literal(datum) => Expr::Literal(datum.clone()),
        Expr::Not(input) => Expr::Not(Box::new(fit_expr(input, arity))),
        Expr::Binary(func, left, right) => {
            Expr::Binary(*func, Box::new(fit_expr(left, arity)), Box::new(fit_expr(right, arity)))
        }
    }
}

fn fit_aggregate(aggregate: &Aggregate, arity: usize) -> Aggregate {
    match aggregate {
        Aggregate::Count => Aggregate::Count,
        Aggregate::Sum(column) => Aggregate::Sum(column % arity),
        Aggregate::Min(column) => Aggregate::Min(column % arity),
        Aggregate::Max(column) => Aggregate::Max(column % arity),
    }
}

/// The finishing with its columns taken modulo what rows of `arity` columns have; always valid.
///
/// # Panics
/// If `arity` is zero; no collection of a scenario is without columns.
pub fn fit_finishing(finishing: &Finishing, arity: usize) -> Finishing {
    let project = finishing.project.as_ref().map(|columns| fit_columns(columns, arity));
    let answered = project.as_ref().map_or(arity, Vec::len);
    let order_by = finishing.order_by.iter().filter(|_| answered > 0);
    Finishing {
        filter: finishing.filter.iter().map(|expr| fit_expr(expr, arity)).collect(),
        order_by: order_by
            .map(|order| OrderBy { column: order.column % answered, ..*order })
            .collect(),
        project,
        ..finishing.clone()
    }
}
