//! The sequential reference model: what every read must answer.
//!
//! The model keeps the whole update history of every source, and says what a collection holds at a
//! time by evaluating its plan from scratch over what the sources hold at that time: plain recursion
//! over maps, no differential computation, no compaction, nothing incremental that could be wrong in
//! the same way as the system. What it shares with the system is the meaning of a single row or group
//! (`tandem::plan`: scalar evaluation, aggregation, finishing).
//!
//! The rules that both must agree on, beside those of [`Plan`]:
//!
//! * A chain of maps, filters and projections makes of each row one row, nothing, or *one* error, the
//!   first in order. The error has the row's multiplicity. Errors of the input stay.
//! * The errors of a join or union are those of its inputs, each input's once. Negation leaves errors
//!   as they are.
//! * A group exists while one of its rows has a multiplicity other than zero. It comes to one row or
//!   to the error of its first failing aggregate, once.
//!
//! Contents are remembered for the last time at which any source beneath changed, so that reads at
//! times between two changes are evaluated once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tandem::plan::{Aggregate, Finishing, IndexDescription, Plan, all_true};
use tandem::protocol::PeekResponse;
use tandem::repr::{Diff, EvalError, GlobalId, Row, Timestamp};

/// What a collection holds at a time: rows and errors, each with its multiplicity, which is not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The rows.
    pub oks: BTreeMap<Row, Diff>,
    /// The errors.
    pub errs: BTreeMap<EvalError, Diff>,
}

impl Contents {
    fn add(&mut self, row: Row, diff: Diff) {
        accumulate(&mut self.oks, row, diff);
    }

    fn add_error(&mut self, error: EvalError, diff: Diff) {
        accumulate(&mut self.errs, error, diff);
    }

    fn add_errors(&mut self, errors: &BTreeMap<EvalError, Diff>) {
        for (error, diff) in errors {
            self.add_error(error.clone(), *diff);
        }
    }
}

/// Multiplicities wrap as the system's do; no scenario comes near that.
fn accumulate<T: Ord>(into: &mut BTreeMap<T, Diff>, value: T, diff: Diff) {
    use std::collections::btree_map::Entry;
    match into.entry(value) {
        Entry::Vacant(_) if diff == 0 => {}
        Entry::Vacant(entry) => {
            entry.insert(diff);
        }
        Entry::Occupied(mut entry) => {
            let sum = entry.get().wrapping_add(diff);
            match sum {
                0 => drop(entry.remove()),
                _ => drop(entry.insert(sum)),
            }
        }
    }
}

/// What a read must answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// These rows in this order, each with its multiplicity, which is not zero.
    Rows(Vec<(Row, u64)>),
    /// An error.
    Error(ReadError),
}

impl Expected {
    /// Whether a response is this answer. Errors in the data must be named; of errors of the read
    /// itself, any may be reported. A cancelled read agrees with nothing.
    pub fn agrees(&self, response: &PeekResponse) -> bool {
        match (self, response) {
            (Expected::Rows(expected), PeekResponse::Rows(rows)) => expected == rows,
            (Expected::Error(ReadError::Data(error)), PeekResponse::Error(message)) => {
                message.contains(&error.to_string())
            }
            (Expected::Error(_), PeekResponse::Error(_)) => true,
            _ => false,
        }
    }
}

/// Why a read must answer an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The collection holds errors: the least of those of positive multiplicity, whatever keys the
    /// read is about.
    #[error("{0}")]
    Data(EvalError),
    /// A predicate of the finishing fails.
    #[error("a predicate fails: {0}")]
    Predicate(EvalError),
    /// A row that the read is about, whether its predicates keep it or not, has a negative
    /// multiplicity.
    #[error("negative multiplicity: {diff} of {row}")]
    Negative {
        /// The row.
        row: Row,
        /// Its multiplicity.
        diff: Diff,
    },
}

/// A wrong use of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Nothing of that name.
    #[error("{0} is not known to the model")]
    Unknown(GlobalId),
    /// Updates for what is not a source.
    #[error("{0} is not a source")]
    NotASource(GlobalId),
    /// A read of what is not an index.
    #[error("{0} is not an index")]
    NotAnIndex(GlobalId),
    /// A definition for the name of a source.
    #[error("{0} is a source and cannot be defined as something else")]
    IsASource(GlobalId),
    /// A source of the name of a defined collection.
    #[error("{0} is defined and cannot be a source")]
    IsDefined(GlobalId),
    /// A collection defined over itself.
    #[error("{0} would be defined over itself")]
    Cycle(GlobalId),
}

/// A collection defined over others.
struct Definition {
    plan: Rc<Plan>,
    /// The sources beneath, however deep.
    sources: BTreeSet<GlobalId>,
}

/// By collection, and by the last time at which a source beneath it changed.
type Memo = BTreeMap<GlobalId, BTreeMap<Option<Timestamp>, Rc<Contents>>>;

/// The history of all sources, and what is defined over them.
#[derive(Default)]
pub struct Model {
    sources: BTreeMap<GlobalId, BTreeMap<Timestamp, Vec<(Row, Diff)>>>,
    definitions: BTreeMap<GlobalId, Definition>,
    indexes: BTreeMap<GlobalId, IndexDescription>,
    memo: RefCell<Memo>,
}

impl Model {
    /// A model of nothing.
    pub fn new() -> Model {
        Model::default()
    }

    /// Adds a source that holds nothing. Does nothing when there is one of that name.
    ///
    /// # Errors
    /// [`ModelError::IsDefined`].
    pub fn create_source(&mut self, id: GlobalId) -> Result<(), ModelError> {
        if self.definitions.contains_key(&id) {
            return Err(ModelError::IsDefined(id));
        }
        self.sources.entry(id).or_default();
        Ok(())
    }

    /// Adds updates to the history of a source, in any order.
    ///
    /// # Errors
    /// [`ModelError::NotASource`]; then nothing is added.
    pub fn append(
        &mut self,
        source: GlobalId,
        updates: impl IntoIterator<Item = (Row, Timestamp, Diff)>,
    ) -> Result<(), ModelError> {
        let history = self.sources.get_mut(&source).ok_or(ModelError::NotASource(source))?;
        let mut earliest: Option<Timestamp> = None;
        for (row, time, diff) in updates {
            earliest = Some(earliest.map_or(time, |earliest| earliest.min(time)));
            history.entry(time).or_default().push((row, diff));
        }
        if earliest.is_some() {
            let memo = self.memo.get_mut();
            memo.values_mut().for_each(|remembered| drop(remembered.split_off(&earliest)));
        }
        Ok(())
    }

    /// Names the collection of a plan over sources and collections defined before. Takes the place
    /// of an earlier definition of that name, also beneath collections that were defined over it.
    ///
    /// # Errors
    /// [`ModelError`] when the name is that of a source, or the plan reads what is not known or is
    /// defined over the name itself.
    pub fn define(&mut self, id: GlobalId, plan: Plan) -> Result<(), ModelError> {
        if self.sources.contains_key(&id) {
            return Err(ModelError::IsASource(id));
        }
        if self.reads(&plan)?.contains(&id) {
            return Err(ModelError::Cycle(id));
        }
        let replaced = self.definitions.contains_key(&id);
        let sources = self.sources_beneath(&plan);
        self.definitions.insert(id, Definition { plan: Rc::new(plan), sources });
        if replaced {
            self.refresh_sources();
            self.memo.get_mut().clear();
        }
        Ok(())
    }

    /// Names an index.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] when it is on nothing known.
    pub fn define_index(
        &mut self,
        id: GlobalId,
        index: IndexDescription,
    ) -> Result<(), ModelError> {
        self.reads(&Plan::Get(index.on))?;
        self.indexes.insert(id, index);
        Ok(())
    }

    /// What a source or defined collection holds at a time, if the sources' history is complete up
    /// to then.
    ///
    /// # Errors
    /// [`ModelError::Unknown`].
    pub fn contents(&self, id: GlobalId, time: Timestamp) -> Result<Rc<Contents>, ModelError> {
        let changed = self.last_change(id, time)?;
        if let Some(known) = self.remembered(id, changed) {
            return Ok(known);
        }
        let contents = match self.definitions.get(&id) {
            Some(definition) => self.evaluate(&definition.plan, time)?,
            None => Rc::new(self.accumulate_source(id, changed)),
        };
        let mut memo = self.memo.borrow_mut();
        memo.entry(id).or_default().insert(changed, Rc::clone(&contents));
        Ok(contents)
    }

    /// What a plan over known collections comes to at a time.
    ///
    /// # Errors
    /// [`ModelError::Unknown`].
    ///
    /// # Panics
    /// If the plan reads columns that are not there; plans are validated before.
    pub fn evaluate(&self, plan: &Plan, time: Timestamp) -> Result<Rc<Contents>, ModelError> {
        let mut stages = Vec::new();
        let base = linear_stages(plan, &mut stages);
        let contents = self.evaluate_base(base, time)?;
        if stages.is_empty() {
            return Ok(contents);
        }
        let mut result = Contents { oks: BTreeMap::new(), errs: contents.errs.clone() };
        for (row, diff) in &contents.oks {
            match apply_stages(&stages, row.clone()) {
                Ok(Some(row)) => result.add(row, *diff),
                Ok(None) => {}
                Err(error) => result.add_error(error, *diff),
            }
        }
        Ok(Rc::new(result))
    }

    /// What a read of an index must answer, if the sources' history is complete up to its time.
    ///
    /// # Errors
    /// [`ModelError::NotAnIndex`].
    ///
    /// # Panics
    /// If the finishing reads columns that are not there; it is validated before.
    pub fn answer(
        &self,
        index: GlobalId,
        time: Timestamp,
        keys: Option<&[Row]>,
        finishing: &Finishing,
    ) -> Result<Expected, ModelError> {
        let index = self.indexes.get(&index).ok_or(ModelError::NotAnIndex(index))?;
        let contents = self.contents(index.on, time)?;
        if let Some((error, _)) = contents.errs.iter().find(|(_, diff)| **diff > 0) {
            return Ok(Expected::Error(ReadError::Data(error.clone())));
        }
        let keys: Option<BTreeSet<&Row>> = keys.map(|keys| keys.iter().collect());
        let asked = contents.oks.iter().filter(|(row, _)| {
            keys.as_ref().is_none_or(|keys| keys.contains(&row.project(&index.key)))
        });
        Ok(match collect(asked, finishing) {
            Ok(rows) => Expected::Rows(finishing.finish(rows)),
            Err(error) => Expected::Error(error),
        })
    }

    /// All nodes that are not maps, filters or projections.
    fn evaluate_base(&self, plan: &Plan, time: Timestamp) -> Result<Rc<Contents>, ModelError> {
        let evaluated = |inputs: &[Plan]| {
            inputs.iter().map(|input| self.evaluate(input, time)).collect::<Result<Vec<_>, _>>()
        };
        Ok(Rc::new(match plan {
            Plan::Get(id) => return self.contents(*id, time),
            Plan::Map { .. } | Plan::Filter { .. } | Plan::Project { .. } => {
                return self.evaluate(plan, time);
            }
            Plan::Join { inputs, keys } => join(&evaluated(inputs)?, keys),
            Plan::Reduce { input, key, aggregates } => {
                reduce(&*self.evaluate(input, time)?, key, aggregates)
            }
            Plan::Union { inputs } => {
                let mut result = Contents::default();
                for input in evaluated(inputs)? {
                    input.oks.iter().for_each(|(row, diff)| result.add(row.clone(), *diff));
                    result.add_errors(&input.errs);
                }
                result
            }
            Plan::Negate { input } => {
                let mut result = Rc::unwrap_or_clone(self.evaluate(input, time)?);
                result.oks.values_mut().for_each(|diff| *diff = diff.wrapping_neg());
                result
            }
            Plan::Threshold { input } => {
                let mut result = Rc::unwrap_or_clone(self.evaluate(input, time)?);
                result.oks.retain(|_, diff| *diff > 0);
                result
            }
        }))
    }

    /// Starts from the latest contents remembered before, if any.
    fn accumulate_source(&self, id: GlobalId, changed: Option<Timestamp>) -> Contents {
        let memo = self.memo.borrow();
        let before = memo.get(&id).and_then(|known| known.range(..changed).next_back());
        let (from, mut contents) = match before {
            Some((Some(time), contents)) => (Some(*time), Contents::clone(contents)),
            _ => (None, Contents::default()),
        };
        let history = self.sources.get(&id).into_iter().flatten();
        let new = history.filter(|(time, _)| Some(**time) > from && Some(**time) <= changed);
        for (row, diff) in new.flat_map(|(_, updates)| updates) {
            contents.add(row.clone(), *diff);
        }
        contents
    }

    fn remembered(&self, id: GlobalId, changed: Option<Timestamp>) -> Option<Rc<Contents>> {
        self.memo.borrow().get(&id)?.get(&changed).cloned()
    }

    /// The last time, not after `time`, at which a source beneath `id` changed.
    fn last_change(&self, id: GlobalId, time: Timestamp) -> Result<Option<Timestamp>, ModelError> {
        let of_source = |id: &GlobalId| {
            let history = self.sources.get(id)?;
            history.range(..=time).next_back().map(|(time, _)| *time)
        };
        match self.definitions.get(&id) {
            Some(definition) => Ok(definition.sources.iter().filter_map(of_source).max()),
            None if self.sources.contains_key(&id) => Ok(of_source(&id)),
            None => Err(ModelError::Unknown(id)),
        }
    }

    /// All that a plan reads, however deep.
    fn reads(&self, plan: &Plan) -> Result<BTreeSet<GlobalId>, ModelError> {
        let mut reads = BTreeSet::new();
        let mut todo: Vec<_> = plan.depends_on().into_iter().collect();
        while let Some(id) = todo.pop() {
            if !reads.insert(id) {
                continue;
            }
            match self.definitions.get(&id) {
                Some(definition) => todo.extend(definition.plan.depends_on()),
                None if self.sources.contains_key(&id) => {}
                None => return Err(ModelError::Unknown(id)),
            }
        }
        Ok(reads)
    }

    fn sources_beneath(&self, plan: &Plan) -> BTreeSet<GlobalId> {
        let mut reads = self.reads(plan).unwrap_or_default();
        reads.retain(|id| self.sources.contains_key(id));
        reads
    }

    /// After a definition was replaced, what lies beneath others may have changed.
    fn refresh_sources(&mut self) {
        let ids: Vec<_> = self.definitions.keys().copied().collect();
        for id in ids {
            let sources = self.sources_beneath(&self.definitions[&id].plan);
            self.definitions.get_mut(&id).expect("its id was just listed").sources = sources;
        }
    }
}

/// Collects the maps, filters and projections above a node of another kind, lowest first.
fn linear_stages<'a>(plan: &'a Plan, stages: &mut Vec<&'a Plan>) -> &'a Plan {
    match plan {
        Plan::Map { input, .. } | Plan::Filter { input, .. } | Plan::Project { input, .. } => {
            let base = linear_stages(input, stages);
            stages.push(plan);
            base
        }
        _ => plan,
    }
}

/// What a chain of maps, filters and projections makes of one row.
fn apply_stages(stages: &[&Plan], mut row: Row) -> Result<Option<Row>, EvalError> {
    for stage in stages {
        match stage {
            Plan::Map { exprs, .. } => {
                for expr in exprs {
                    let value = expr.eval(&row.0)?;
                    row.0.push(value);
                }
            }
            Plan::Filter { predicates, .. } => {
                if !all_true(predicates, &row.0)? {
                    return Ok(None);
                }
            }
            Plan::Project { columns, .. } => row = row.project(columns),
            other => unreachable!("{other:?} is no map, filter or projection"),
        }
    }
    Ok(Some(row))
}

fn join(inputs: &[Rc<Contents>], keys: &[Vec<usize>]) -> Contents {
    let mut result = Contents::default();
    inputs.iter().for_each(|input| result.add_errors(&input.errs));
    let groups: Vec<_> =
        inputs.iter().zip(keys).map(|(input, key)| group_by(&input.oks, key)).collect();
    let Some((first, others)) = groups.split_first() else { return result };
    for (key, rows) in first {
        let matches: Option<Vec<_>> = others.iter().map(|group| group.get(key)).collect();
        let Some(matches) = matches else { continue };
        let mut products: Vec<(Row, Diff)> =
            rows.iter().map(|(row, diff)| ((*row).clone(), *diff)).collect();
        for others in matches {
            products = multiply(&products, others);
        }
        products.into_iter().for_each(|(row, diff)| result.add(row, diff));
    }
    result
}

fn multiply(left: &[(Row, Diff)], right: &[(&Row, Diff)]) -> Vec<(Row, Diff)> {
    let pairs = left.iter().flat_map(|left| right.iter().map(move |right| (left, right)));
    pairs
        .map(|((left, left_diff), (right, right_diff))| {
            let row = Row(left.0.iter().chain(&right.0).cloned().collect());
            (row, left_diff.wrapping_mul(*right_diff))
        })
        .collect()
}

fn reduce(input: &Contents, key: &[usize], aggregates: &[Aggregate]) -> Contents {
    let mut result = Contents { oks: BTreeMap::new(), errs: input.errs.clone() };
    for (mut group, rows) in group_by(&input.oks, key) {
        let values: Result<Vec<_>, _> =
            aggregates.iter().map(|aggregate| aggregate.eval(rows.iter().copied())).collect();
        match values {
            Ok(values) => {
                group.0.extend(values);
                result.add(group, 1);
            }
            Err(error) => result.add_error(error, 1),
        }
    }
    result
}

/// Rows by the values of their key columns.
fn group_by<'a>(
    rows: &'a BTreeMap<Row, Diff>,
    key: &[usize],
) -> BTreeMap<Row, Vec<(&'a Row, Diff)>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (row, diff) in rows {
        groups.entry(row.project(key)).or_default().push((row, *diff));
    }
    groups
}

/// The rows of a read before they are ordered and cut.
fn collect<'a>(
    rows: impl Iterator<Item = (&'a Row, &'a Diff)>,
    finishing: &Finishing,
) -> Result<Vec<(Row, u64)>, ReadError> {
    let mut result = Vec::new();
    for (row, diff) in rows {
        let count = u64::try_from(*diff)
            .map_err(|_| ReadError::Negative { row: row.clone(), diff: *diff })?;
        if let Some(row) = finishing.apply(row).map_err(ReadError::Predicate)? {
            result.push((row, count));
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests;
