//! Dataflow descriptions and the small relational plan they carry.
//!
//! A plan says *what* a collection is, as an expression over other collections. It is evaluated in two ways that must
//! agree: rendered as a dataflow (`runtime::render`), and, by the testbed's reference model, sequentially at one time.
//! What both share is here: scalar evaluation, aggregation, the finishing of a peek, and validation.
//!
//! Errors are data (see [`EvalError`]): evaluating an expression over one row yields a row or an error, and errors take
//! their row's place in the collection beside.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::repr::{
    Datum, Diff, EvalError, Frontier, GlobalId, Row, Timestamp, deserialize_frontier,
};

/// How deep plans and expressions may nest, together, when they cross the wire.
///
/// They are decoded by recursion, and a few bytes for each level would otherwise let a peer exhaust the
/// stack.
pub const MAX_NESTING: usize = 128;

/// Counts how deep the plan or expression nests that this thread encodes or decodes.
struct Nested;

thread_local! {
    static NESTING: Cell<usize> = const { Cell::new(0) };
}

impl Nested {
    fn enter() -> Result<Nested, String> {
        let depth = NESTING.get();
        if depth == MAX_NESTING {
            return Err(format!("nested deeper than {MAX_NESTING} levels"));
        }
        NESTING.set(depth + 1);
        Ok(Nested)
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        NESTING.set(NESTING.get() - 1);
    }
}

/// Serde for a type whose derived implementation is `remote = "Self"`, within [`MAX_NESTING`].
macro_rules! serde_nested {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let _nested = Nested::enter().map_err(serde::ser::Error::custom)?;
                // The derived one: an inherent function goes before a trait's.
                $name::serialize(self, serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let _nested = Nested::enter().map_err(serde::de::Error::custom)?;
                $name::deserialize(deserializer)
            }
        }
    };
}

serde_nested!(Expr);
serde_nested!(Plan);

/// A scalar expression over one row.
///
/// It crosses the wire only if it nests no deeper than [`MAX_NESTING`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Expr {
    /// The value of a column.
    Column(usize),
    /// A constant.
    Literal(Datum),
    /// A function of two operands.
    Binary(BinaryFunc, Box<Expr>, Box<Expr>),
    /// Logical negation.
    Not(Box<Expr>),
}

/// A function of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BinaryFunc {
    /// Addition; [`EvalError::Overflow`] when out of range.
    Add,
    /// Subtraction; [`EvalError::Overflow`] when out of range.
    Sub,
    /// Multiplication; [`EvalError::Overflow`] when out of range.
    Mul,
    /// Division towards zero; [`EvalError::DivisionByZero`] for a zero divisor.
    Div,
    /// Remainder; [`EvalError::DivisionByZero`] for a zero divisor.
    Rem,
    /// Equality of any two datums.
    Eq,
    /// Order of any two datums.
    Lt,
    /// Logical and; both operands are evaluated.
    And,
    /// Logical or; both operands are evaluated.
    Or,
}

impl Expr {
    /// The value of a column.
    pub fn column(column: usize) -> Expr {
        Expr::Column(column)
    }

    /// A constant.
    pub fn literal(value: impl Into<Datum>) -> Expr {
        Expr::Literal(value.into())
    }

    /// `func(self, other)`.
    pub fn call(self, func: BinaryFunc, other: Expr) -> Expr {
        Expr::Binary(func, Box::new(self), Box::new(other))
    }

    /// The value of this expression over `row`.
    ///
    /// # Errors
    /// What evaluation comes to: division by zero, overflow, an operand of the wrong type. `Null` operands of arithmetic
    /// and logic give `Null`.
    pub fn eval(&self, row: &[Datum]) -> Result<Datum, EvalError> {
        match self {
            Expr::Column(column) => Ok(row[*column].clone()),
            Expr::Literal(datum) => Ok(datum.clone()),
            Expr::Not(input) => match input.eval(row)? {
                Datum::Bool(value) => Ok(Datum::Bool(!value)),
                Datum::Null => Ok(Datum::Null),
                other => Err(EvalError::Type(format!("not {other}"))),
            },
            Expr::Binary(func, left, right) => func.eval(left.eval(row)?, right.eval(row)?),
        }
    }

    /// The largest column this expression reads.
    fn max_column(&self) -> Option<usize> {
        match self {
            Expr::Column(column) => Some(*column),
            Expr::Literal(_) => None,
            Expr::Not(input) => input.max_column(),
            Expr::Binary(_, left, right) => left.max_column().max(right.max_column()),
        }
    }
}

impl BinaryFunc {
    fn eval(self, left: Datum, right: Datum) -> Result<Datum, EvalError> {
        use BinaryFunc::*;
        match (self, left, right) {
            (Eq, left, right) => Ok(Datum::Bool(left == right)),
            (Lt, left, right) => Ok(Datum::Bool(left < right)),
            (_, Datum::Null, _) | (_, _, Datum::Null) => Ok(Datum::Null),
            (And, Datum::Bool(left), Datum::Bool(right)) => Ok(Datum::Bool(left && right)),
            (Or, Datum::Bool(left), Datum::Bool(right)) => Ok(Datum::Bool(left || right)),
            (Div | Rem, Datum::Int(_), Datum::Int(0)) => Err(EvalError::DivisionByZero),
            (Add | Sub | Mul | Div | Rem, Datum::Int(left), Datum::Int(right)) => {
                let result = match self {
                    Add => left.checked_add(right),
                    Sub => left.checked_sub(right),
                    Mul => left.checked_mul(right),
                    Div => left.checked_div(right),
                    _ => left.checked_rem(right),
                };
                result.map(Datum::Int).ok_or(EvalError::Overflow)
            }
            (func, left, right) => Err(EvalError::Type(format!("{func:?}({left}, {right})"))),
        }
    }
}

/// An aggregate over the rows of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Aggregate {
    /// The number of rows.
    Count,
    /// The sum of a column; [`EvalError::Overflow`] when out of range, `Null` counts as nothing.
    Sum(usize),
    /// The least value of a column.
    Min(usize),
    /// The greatest value of a column.
    Max(usize),
}

impl Aggregate {
    /// This aggregate over a group: its distinct rows, each with its multiplicity, which is never zero.
    ///
    /// # Errors
    /// When the result is out of range or a summed column is not an integer.
    pub fn eval<'a>(
        &self,
        group: impl IntoIterator<Item = (&'a Row, Diff)>,
    ) -> Result<Datum, EvalError> {
        let group = group.into_iter();
        match self {
            Aggregate::Count => integer(group.map(|(_, diff)| i128::from(diff)).sum()),
            Aggregate::Sum(column) => {
                let mut sum = 0i128;
                for (row, diff) in group {
                    match &row.0[*column] {
                        Datum::Null => {}
                        Datum::Int(value) => sum += i128::from(*value) * i128::from(diff),
                        other => return Err(EvalError::Type(format!("sum of {other}"))),
                    }
                }
                integer(sum)
            }
            Aggregate::Min(column) => extreme(group.map(|(row, _)| &row.0[*column]).min()),
            Aggregate::Max(column) => extreme(group.map(|(row, _)| &row.0[*column]).max()),
        }
    }

    fn column(&self) -> Option<usize> {
        match self {
            Aggregate::Count => None,
            Aggregate::Sum(column) | Aggregate::Min(column) | Aggregate::Max(column) => {
                Some(*column)
            }
        }
    }
}

fn integer(value: i128) -> Result<Datum, EvalError> {
    i64::try_from(value).map(Datum::Int).map_err(|_| EvalError::Overflow)
}

fn extreme(value: Option<&Datum>) -> Result<Datum, EvalError> {
    Ok(value.cloned().unwrap_or(Datum::Null))
}

/// A relational expression over named collections.
///
/// It crosses the wire only if it nests no deeper than [`MAX_NESTING`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Plan {
    /// A collection of the description: an imported source or index, or an object built earlier.
    Get(GlobalId),
    /// The input's rows, each with the values of `exprs` appended.
    Map {
        /// What is mapped.
        input: Box<Plan>,
        /// The appended values, each over the row as extended so far.
        exprs: Vec<Expr>,
    },
    /// The input's rows for which every predicate is true; `Null` is not.
    Filter {
        /// What is filtered.
        input: Box<Plan>,
        /// The predicates, evaluated in order until one is not true.
        predicates: Vec<Expr>,
    },
    /// The named columns of the input.
    Project {
        /// What is projected.
        input: Box<Plan>,
        /// The columns, in the order of the output.
        columns: Vec<usize>,
    },
    /// The rows of the cross product on whose keys all inputs agree, concatenated in input order.
    Join {
        /// At least two inputs.
        inputs: Vec<Plan>,
        /// For each input, its key columns; all of one length.
        keys: Vec<Vec<usize>>,
    },
    /// One row for each group that holds a row: its key and its aggregates. Without aggregates: distinct.
    Reduce {
        /// What is reduced.
        input: Box<Plan>,
        /// The columns that make a group.
        key: Vec<usize>,
        /// The values to compute for each group.
        aggregates: Vec<Aggregate>,
    },
    /// The sum of the inputs' multiplicities.
    Union {
        /// At least one input.
        inputs: Vec<Plan>,
    },
    /// The input with negated multiplicities; errors are not negated.
    Negate {
        /// What is negated.
        input: Box<Plan>,
    },
    /// The input's rows of positive multiplicity.
    Threshold {
        /// What is cut off.
        input: Box<Plan>,
    },
}

impl Plan {
    /// The inputs of this node.
    pub fn inputs(&self) -> Vec<&Plan> {
        match self {
            Plan::Get(_) => vec![],
            Plan::Map { input, .. }
            | Plan::Filter { input, .. }
            | Plan::Project { input, .. }
            | Plan::Reduce { input, .. }
            | Plan::Negate { input }
            | Plan::Threshold { input } => vec![input],
            Plan::Join { inputs, .. } | Plan::Union { inputs } => inputs.iter().collect(),
        }
    }

    /// The collections this plan reads.
    pub fn depends_on(&self) -> BTreeSet<GlobalId> {
        match self {
            Plan::Get(id) => BTreeSet::from([*id]),
            _ => self.inputs().into_iter().flat_map(Plan::depends_on).collect(),
        }
    }

    /// The number of columns of this plan's rows, where `arities` gives those of the collections it reads.
    ///
    /// # Errors
    /// [`PlanError`] when the plan reads what is not there.
    pub fn arity(&self, arities: &BTreeMap<GlobalId, usize>) -> Result<usize, PlanError> {
        let within = |column: Option<usize>, arity: usize| match column {
            Some(column) if column >= arity => Err(PlanError::Column { column, arity }),
            _ => Ok(()),
        };
        match self {
            Plan::Get(id) => arities.get(id).copied().ok_or(PlanError::Unknown(*id)),
            Plan::Map { input, exprs } => {
                let arity = input.arity(arities)?;
                for (index, expr) in exprs.iter().enumerate() {
                    within(expr.max_column(), arity.saturating_add(index))?;
                }
                Ok(arity.saturating_add(exprs.len()))
            }
            Plan::Filter { input, predicates } => {
                let arity = input.arity(arities)?;
                predicates.iter().try_for_each(|expr| within(expr.max_column(), arity))?;
                Ok(arity)
            }
            Plan::Project { input, columns } => {
                let arity = input.arity(arities)?;
                columns.iter().try_for_each(|column| within(Some(*column), arity))?;
                Ok(columns.len())
            }
            Plan::Join { inputs, keys } => {
                if inputs.len() < 2 || inputs.len() != keys.len() {
                    return Err(PlanError::Join { inputs: inputs.len(), keys: keys.len() });
                }
                let mut total = 0;
                for (input, key) in inputs.iter().zip(keys) {
                    let arity = input.arity(arities)?;
                    if key.len() != keys[0].len() {
                        return Err(PlanError::Keys(keys[0].len(), key.len()));
                    }
                    key.iter().try_for_each(|column| within(Some(*column), arity))?;
                    total = arity.saturating_add(total);
                }
                Ok(total)
            }
            Plan::Reduce { input, key, aggregates } => {
                let arity = input.arity(arities)?;
                key.iter().try_for_each(|column| within(Some(*column), arity))?;
                aggregates.iter().try_for_each(|aggregate| within(aggregate.column(), arity))?;
                Ok(key.len() + aggregates.len())
            }
            Plan::Union { inputs } => {
                let mut arities = inputs.iter().map(|input| input.arity(arities));
                let first = arities.next().ok_or(PlanError::EmptyUnion)??;
                for arity in arities {
                    let arity = arity?;
                    if arity != first {
                        return Err(PlanError::Union(first, arity));
                    }
                }
                Ok(first)
            }
            Plan::Negate { input } | Plan::Threshold { input } => input.arity(arities),
        }
    }
}

/// What is wrong with a plan or a dataflow description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The plan reads a collection that the description neither imports nor builds before.
    #[error("{0} is read but neither imported nor built before")]
    Unknown(GlobalId),
    /// A column that the rows do not have.
    #[error("column {column} of rows that have {arity}")]
    Column {
        /// The column asked for.
        column: usize,
        /// The columns there are.
        arity: usize,
    },
    /// A join without two inputs, or with another number of keys.
    #[error(
        "a join of {inputs} inputs with {keys} keys: it needs at least two, and a key for each"
    )]
    Join {
        /// The number of inputs.
        inputs: usize,
        /// The number of keys.
        keys: usize,
    },
    /// Join keys of unequal length.
    #[error("join keys of {0} and of {1} columns")]
    Keys(usize, usize),
    /// A union of nothing.
    #[error("a union of no inputs")]
    EmptyUnion,
    /// A union of rows of unequal length.
    #[error("a union of rows of {0} and of {1} columns")]
    Union(usize, usize),
    /// Two objects of one name.
    #[error("{0} is imported or built twice")]
    Duplicate(GlobalId),
    /// A description that exports nothing.
    #[error("a dataflow that exports nothing")]
    NoExports,
    /// A dataflow that ends before it begins.
    #[error("as_of {as_of} is not before until {until}")]
    Interval {
        /// The first readable time.
        as_of: Timestamp,
        /// The time at which the dataflow may stop.
        until: Timestamp,
    },
}

/// An arrangement of a collection by some of its columns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IndexDescription {
    /// The indexed collection.
    pub on: GlobalId,
    /// The columns that make the key.
    pub key: Vec<usize>,
}

/// An index that a dataflow reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexImport {
    /// What the index holds: within this description, `Get(index.on)` reads it.
    pub index: IndexDescription,
    /// The number of columns of its rows.
    pub arity: usize,
}

/// A dataflow: what it reads, what it builds, what it exports, and for which times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataflowDescription {
    /// The sources read, each with the number of its columns.
    pub source_imports: BTreeMap<GlobalId, usize>,
    /// The indexes read.
    pub index_imports: BTreeMap<GlobalId, IndexImport>,
    /// The collections built, in order; each may read those before it.
    pub objects_to_build: Vec<(GlobalId, Plan)>,
    /// The indexes this dataflow maintains, of collections it imports or builds.
    pub index_exports: BTreeMap<GlobalId, IndexDescription>,
    /// The first readable time.
    pub as_of: Timestamp,
    /// The frontier at which the dataflow may stop; empty for never.
    #[serde(deserialize_with = "deserialize_frontier")]
    pub until: Frontier,
}

impl DataflowDescription {
    /// The collections this dataflow reads from outside.
    pub fn import_ids(&self) -> impl Iterator<Item = GlobalId> + '_ {
        self.source_imports.keys().chain(self.index_imports.keys()).copied()
    }

    /// The collections this dataflow exports.
    pub fn export_ids(&self) -> impl Iterator<Item = GlobalId> + '_ {
        self.index_exports.keys().copied()
    }

    /// Whether this is a bounded read: only transient exports, and an end.
    pub fn is_bounded_read(&self) -> bool {
        !self.until.is_empty() && self.export_ids().all(GlobalId::is_transient)
    }

    /// The number of columns of every collection that plans here may read.
    ///
    /// # Errors
    /// [`PlanError`] naming what does not fit; a description that gives an answer here can be rendered.
    pub fn validate(&self) -> Result<BTreeMap<GlobalId, usize>, PlanError> {
        if self.index_exports.is_empty() {
            return Err(PlanError::NoExports);
        }
        if let Some(until) = self.until.as_option()
            && *until <= self.as_of
        {
            return Err(PlanError::Interval { as_of: self.as_of, until: *until });
        }
        let mut arities = self.source_imports.clone();
        for import in self.index_imports.values() {
            arities.entry(import.index.on).or_insert(import.arity);
            check_key(&import.index, &arities)?;
        }
        for (id, plan) in &self.objects_to_build {
            let arity = plan.arity(&arities)?;
            if arities.insert(*id, arity).is_some() {
                return Err(PlanError::Duplicate(*id));
            }
        }
        for index in self.index_exports.values() {
            check_key(index, &arities)?;
        }
        Ok(arities)
    }
}

fn check_key(
    index: &IndexDescription,
    arities: &BTreeMap<GlobalId, usize>,
) -> Result<(), PlanError> {
    let arity = *arities.get(&index.on).ok_or(PlanError::Unknown(index.on))?;
    match index.key.iter().find(|column| **column >= arity) {
        Some(column) => Err(PlanError::Column { column: *column, arity }),
        None => Ok(()),
    }
}

/// What a peek makes of the rows it finds.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Finishing {
    /// Rows must satisfy all of these; a row whose predicate fails to evaluate is an error of the read.
    pub filter: Vec<Expr>,
    /// The columns to answer; all of them when absent. Taken after `filter` and before `order_by`.
    pub project: Option<Vec<usize>>,
    /// The columns to order by; ties, and answers without an order, are ordered by the whole row.
    pub order_by: Vec<OrderBy>,
    /// How many rows to skip.
    pub offset: usize,
    /// How many rows to answer at most.
    pub limit: Option<usize>,
}

/// One column of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OrderBy {
    /// The column of the projected row.
    pub column: usize,
    /// Whether the greatest comes first.
    pub descending: bool,
}

impl Finishing {
    /// What one row of the index contributes, if anything.
    ///
    /// # Errors
    /// The error of a predicate.
    pub fn apply(&self, row: &Row) -> Result<Option<Row>, EvalError> {
        if !all_true(&self.filter, &row.0)? {
            return Ok(None);
        }
        Ok(Some(match &self.project {
            Some(columns) => row.project(columns),
            None => row.clone(),
        }))
    }

    /// The order of answered rows.
    pub fn compare(&self, left: &Row, right: &Row) -> Ordering {
        for order in &self.order_by {
            let (left, right) = (&left.0[order.column], &right.0[order.column]);
            let ordering = if order.descending { right.cmp(left) } else { left.cmp(right) };
            if ordering.is_ne() {
                return ordering;
            }
        }
        left.cmp(right)
    }

    /// Orders `rows` and keeps those that `offset` and `limit` leave. Each row stands for its multiplicity.
    pub fn finish(&self, mut rows: Vec<(Row, u64)>) -> Vec<(Row, u64)> {
        rows.sort_by(|(left, _), (right, _)| self.compare(left, right));
        rows.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = kept.1.saturating_add(next.1);
            }
            same
        });
        let mut skip = self.offset as u64;
        let mut take = self.limit.map_or(u64::MAX, |limit| limit as u64);
        rows.retain_mut(|(_, count)| {
            let skipped = skip.min(*count);
            skip -= skipped;
            *count = (*count - skipped).min(take);
            take -= *count;
            *count > 0
        });
        rows
    }

    /// How many rows one part of the answer needs to keep at most, for the whole to be right.
    pub fn bound(&self) -> Option<usize> {
        self.limit.map(|limit| limit.saturating_add(self.offset))
    }

    /// # Errors
    /// [`PlanError::Column`] for a column that rows of `arity` do not have.
    pub fn validate(&self, arity: usize) -> Result<(), PlanError> {
        let filtered = self.filter.iter().filter_map(|expr| expr.max_column());
        let projected = self.project.iter().flatten().copied();
        if let Some(column) = filtered.chain(projected).find(|column| *column >= arity) {
            return Err(PlanError::Column { column, arity });
        }
        let arity = self.project.as_ref().map_or(arity, Vec::len);
        match self.order_by.iter().find(|order| order.column >= arity) {
            Some(order) => Err(PlanError::Column { column: order.column, arity }),
            None => Ok(()),
        }
    }
}

/// Whether every predicate is true of `row`. Evaluation stops at the first that is not.
///
/// # Errors
/// The error of the first predicate that fails to evaluate, or [`EvalError::Type`] when one is not a truth value.
pub fn all_true(predicates: &[Expr], row: &[Datum]) -> Result<bool, EvalError> {
    for predicate in predicates {
        match predicate.eval(row)? {
            Datum::Bool(true) => {}
            Datum::Bool(false) | Datum::Null => return Ok(false),
            other => return Err(EvalError::Type(format!("predicate gives {other}"))),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(values: &[i64]) -> Row {
        Row::new(values.iter().copied())
    }

    #[test]
    fn arithmetic_names_its_errors() {
        let div = Expr::column(0).call(BinaryFunc::Div, Expr::column(1));
        assert_eq!(div.eval(&ints(&[7, 2]).0), Ok(Datum::Int(3)));
        assert_eq!(div.eval(&ints(&[7, 0]).0), Err(EvalError::DivisionByZero));
        assert_eq!(div.eval(&ints(&[i64::MIN, -1]).0), Err(EvalError::Overflow));
        assert_eq!(div.eval(&[Datum::Null, Datum::Int(0)]), Ok(Datum::Null));
        let mixed = Expr::literal("a").call(BinaryFunc::Add, Expr::literal(1));
        assert!(matches!(mixed.eval(&[]), Err(EvalError::Type(_))));
    }

    #[test]
    fn aggregates_weigh_rows_by_multiplicity() {
        let (one, big) = (ints(&[1]), ints(&[i64::MAX]));
        let group = [(&one, 3), (&big, 1)];
        assert_eq!(Aggregate::Count.eval(group), Ok(Datum::Int(4)));
        assert_eq!(Aggregate::Sum(0).eval(group), Err(EvalError::Overflow));
        assert_eq!(Aggregate::Sum(0).eval([(&one, 3)]), Ok(Datum::Int(3)));
        assert_eq!(Aggregate::Max(0).eval(group), Ok(Datum::Int(i64::MAX)));
    }

    #[test]
    fn finishing_orders_then_skips_then_limits_by_multiplicity() {
        let finishing = Finishing {
            order_by: vec![OrderBy { column: 0, descending: true }],
            offset: 1,
            limit: Some(3),
            ..Finishing::default()
        };
        let rows = vec![(ints(&[1]), 5), (ints(&[3]), 2), (ints(&[2]), 1)];
        assert_eq!(finishing.finish(rows), vec![(ints(&[3]), 1), (ints(&[2]), 1), (ints(&[1]), 1)]);
    }

    #[test]
    fn validation_names_the_column_and_the_arity() {
        let source = GlobalId::User(1);
        let plan = Plan::Project { input: Box::new(Plan::Get(source)), columns: vec![2] };
        let arities = BTreeMap::from([(source, 2)]);
        assert_eq!(plan.arity(&arities), Err(PlanError::Column { column: 2, arity: 2 }));
        assert_eq!(plan.arity(&BTreeMap::new()), Err(PlanError::Unknown(source)));
    }
}
