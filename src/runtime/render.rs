//! Turning a dataflow description into a dataflow.
//!
//! Every collection is two: its rows and its errors. Whatever arrangement a plan finds, of this dataflow, of another on
//! the same worker or of the other runtime, has one type ([`SharedTrace`]), so that joins are rendered in one way.
//!
//! Chains of map, filter and project become one operator. A join goes through its inputs from left to right and uses an
//! imported arrangement wherever one has the right key.

use std::collections::BTreeMap;

use differential_dataflow::operators::arrange::{Arranged, TraceAgent};
use differential_dataflow::trace::implementations::ord_neu::VecOrdValBuilder;
use differential_dataflow::{AsCollection, VecCollection};
use timely::dataflow::Scope;
use timely::dataflow::operators::core::OkErr;
use timely::dataflow::operators::vec::Map;

use crate::arrange::{ArcSpine, SharedTrace, arrange, local};
use crate::env::{self, Point};
use crate::plan::{Aggregate, Expr, IndexDescription, Plan, all_true};
use crate::repr::{Diff, EvalError, GlobalId, Row, Timestamp};

pub(super) type OksTrace = SharedTrace<Row, Row, Timestamp, Diff>;
pub(super) type ErrsTrace = SharedTrace<EvalError, (), Timestamp, Diff>;
pub(super) type OksSpine = ArcSpine<Row, Row, Timestamp, Diff>;
pub(super) type ErrsSpine = ArcSpine<EvalError, (), Timestamp, Diff>;
type Rows<'scope> = VecCollection<'scope, Timestamp, Row, Diff>;
type Errors<'scope> = VecCollection<'scope, Timestamp, EvalError, Diff>;
/// Rows, and errors in parts that are concatenated only where somebody needs them in one.
type Rendered<'scope> = (Rows<'scope>, Vec<Errors<'scope>>);
type ArrangedRows<'scope> = Arranged<'scope, OksTrace>;

/// A collection as a dataflow has it so far.
struct Bundle<'scope> {
    oks: Option<Rows<'scope>>,
    arranged: BTreeMap<Vec<usize>, ArrangedRows<'scope>>,
    errs: Vec<Errors<'scope>>,
}

impl<'scope> Bundle<'scope> {
    /// The rows, whether or not they come from an arrangement.
    fn rows(&mut self) -> Rows<'scope> {
        let arranged = &self.arranged;
        self.oks
            .get_or_insert_with(|| {
                let arranged = arranged.values().next().expect("rows or an arrangement of them");
                arranged.clone().as_collection(|_key, row| row.clone())
            })
            .clone()
    }
}

/// The collections of one dataflow while it is built.
pub(super) struct Context<'scope> {
    scope: Scope<'scope, Timestamp>,
    bundles: BTreeMap<GlobalId, Bundle<'scope>>,
}

impl<'scope> Context<'scope> {
    pub(super) fn new(scope: Scope<'scope, Timestamp>) -> Self {
        Context { scope, bundles: BTreeMap::new() }
    }

    /// Makes a source readable.
    pub(super) fn import_source(&mut self, id: GlobalId, oks: Rows<'scope>) {
        let bundle = Bundle { oks: Some(oks), arranged: BTreeMap::new(), errs: Vec::new() };
        self.bundles.insert(id, bundle);
    }

    /// Makes the collection that an index holds readable, through the index.
    pub(super) fn import_index(
        &mut self,
        index: &IndexDescription,
        oks: ArrangedRows<'scope>,
        errs: Arranged<'scope, ErrsTrace>,
    ) {
        match self.bundles.get_mut(&index.on) {
            // Another index of the same collection brought its errors already.
            Some(bundle) => {
                bundle.arranged.insert(index.key.clone(), oks);
            }
            None => {
                let errs = vec![errs.as_collection(|error, ()| error.clone())];
                let arranged = BTreeMap::from([(index.key.clone(), oks)]);
                self.bundles.insert(index.on, Bundle { oks: None, arranged, errs });
            }
        }
    }

    /// Builds a collection.
    pub(super) fn build(&mut self, id: GlobalId, plan: &Plan) {
        let (oks, errs) = self.render(plan);
        self.bundles.insert(id, Bundle { oks: Some(oks), arranged: BTreeMap::new(), errs });
    }

    /// Arranges a collection that is to be exported.
    #[allow(clippy::type_complexity)]
    pub(super) fn export(
        &mut self,
        index: &IndexDescription,
    ) -> (Arranged<'scope, TraceAgent<OksSpine>>, Arranged<'scope, TraceAgent<ErrsSpine>>) {
        let (oks, errs) = self.get(index.on);
        let errs = differential_dataflow::collection::concatenate(self.scope, errs);
        (arrange(keyed(oks, &index.key), "Index"), arrange(errs.map(|error| (error, ())), "Errors"))
    }

    fn get(&mut self, id: GlobalId) -> Rendered<'scope> {
        let bundle = self.bundles.get_mut(&id).expect("validated: imported or built before");
        (bundle.rows(), bundle.errs.clone())
    }

    fn render(&mut self, plan: &Plan) -> Rendered<'scope> {
        match plan {
            Plan::Get(id) => self.get(*id),
            Plan::Map { .. } | Plan::Filter { .. } | Plan::Project { .. } => {
                self.render_linear(plan)
            }
            Plan::Join { inputs, keys } => self.render_join(inputs, keys),
            Plan::Reduce { input, key, aggregates } => self.render_reduce(input, key, aggregates),
            Plan::Union { inputs } => {
                let rendered: Vec<_> = inputs.iter().map(|input| self.render(input)).collect();
                let (oks, errs): (Vec<_>, Vec<_>) = rendered.into_iter().unzip();
                let oks = differential_dataflow::collection::concatenate(self.scope, oks);
                (oks, errs.into_iter().flatten().collect())
            }
            Plan::Negate { input } => {
                let (oks, errs) = self.render(input);
                (oks.negate(), errs)
            }
            Plan::Threshold { input } => self.render_threshold(input),
        }
    }

    /// One operator for a whole chain of map, filter and project.
    fn render_linear(&mut self, plan: &Plan) -> Rendered<'scope> {
        let mut steps = Vec::new();
        let mut input = plan;
        loop {
            let (step, below) = match input {
                Plan::Map { input, exprs } => (Linear::Map(exprs.clone()), input),
                Plan::Filter { input, predicates } => (Linear::Filter(predicates.clone()), input),
                Plan::Project { input, columns } => (Linear::Project(columns.clone()), input),
                _ => break,
            };
            steps.push(step);
            input = below;
        }
        steps.reverse();
        let (oks, mut errs) = self.render(input);
        let (oks, failed) = split(oks, move |row| apply(&steps, row).transpose());
        errs.push(failed);
        (oks, errs)
    }

    /// The arrangement of `plan` by `key`, if the dataflow has one.
    fn arranged(
        &mut self,
        plan: &Plan,
        key: &[usize],
    ) -> (ArrangedRows<'scope>, Vec<Errors<'scope>>) {
        if let Plan::Get(id) = plan {
            let bundle = self.bundles.get(id).expect("validated: imported or built before");
            if let Some(arranged) = bundle.arranged.get(key) {
                return (arranged.clone(), bundle.errs.clone());
            }
        }
        let (oks, errs) = self.render(plan);
        (local(arrange(keyed(oks, key), "Join input")), errs)
    }

    fn render_join(&mut self, inputs: &[Plan], keys: &[Vec<usize>]) -> Rendered<'scope> {
        let (mut left, mut errs) = self.arranged(&inputs[0], &keys[0]);
        for (index, (input, key)) in inputs.iter().zip(keys).enumerate().skip(1) {
            let (right, right_errs) = self.arranged(input, key);
            errs.extend(right_errs);
            let joined = left.join_core(right, |key: &Row, left: &Row, right: &Row| {
                env::point(Point::Records(1));
                let row = left.0.iter().chain(&right.0).cloned().collect();
                Some((key.clone(), Row(row)))
            });
            if index + 1 == inputs.len() {
                return (joined.map(|(_key, row)| row), errs);
            }
            left = local(arrange(joined, "Join stage"));
        }
        unreachable!("validated: a join has at least two inputs")
    }

    fn render_reduce(
        &mut self,
        input: &Plan,
        key: &[usize],
        aggregates: &[Aggregate],
    ) -> Rendered<'scope> {
        let (arranged, mut errs) = self.arranged(input, key);
        let aggregates = aggregates.to_vec();
        let reduced = reduce(arranged, "Reduce", move |key, group, output| {
            env::point(Point::Records(group.len()));
            let mut row = key.clone();
            for aggregate in &aggregates {
                match aggregate.eval(group.iter().map(|(row, diff)| (*row, *diff))) {
                    Ok(datum) => row.0.push(datum),
                    Err(error) => {
                        output.push((Err(error), 1));
                        return;
                    }
                }
            }
            output.push((Ok(row), 1));
        });
        let reduced = reduced.as_collection(|_key, result| result.clone());
        let (oks, failed) = split(reduced, Some);
        errs.push(failed);
        (oks, errs)
    }

    fn render_threshold(&mut self, input: &Plan) -> Rendered<'scope> {
        let (oks, errs) = self.render(input);
        let arranged = arrange(oks.map(|row| (row, ())), "Threshold input");
        let reduced = arranged
            .reduce_abelian::<_, VecOrdValBuilder<_, _, _, _>, ArcSpine<Row, (), Timestamp, Diff>, _, _>(
                "Threshold",
                |_row, input, output| {
                    if input[0].1 > 0 {
                        output.push(((), input[0].1));
                    }
                },
                push_updates,
            );
        (reduced.as_collection(|row, ()| row.clone()), errs)
    }
}

type Reduced<'scope> =
    Arranged<'scope, TraceAgent<ArcSpine<Row, Result<Row, EvalError>, Timestamp, Diff>>>;

fn reduce<'scope>(
    arranged: ArrangedRows<'scope>,
    name: &str,
    mut logic: impl FnMut(&Row, &[(&Row, Diff)], &mut Vec<(Result<Row, EvalError>, Diff)>) + 'static,
) -> Reduced<'scope> {
    arranged.reduce_abelian::<_, VecOrdValBuilder<_, _, _, _>, _, _, _>(
        name,
        move |key, group, output| logic(key, group, output),
        push_updates,
    )
}

fn push_updates<K: Clone, V>(
    buffer: &mut Vec<((K, V), Timestamp, Diff)>,
    key: &K,
    updates: &mut Vec<(V, Timestamp, Diff)>,
) {
    buffer.clear();
    buffer.extend(updates.drain(..).map(|(value, time, diff)| ((key.clone(), value), time, diff)));
}

fn keyed<'scope>(
    rows: Rows<'scope>,
    key: &[usize],
) -> VecCollection<'scope, Timestamp, (Row, Row), Diff> {
    let key = key.to_vec();
    rows.map(move |row| (row.project(&key), row))
}

/// One step of a chain that works row by row.
enum Linear {
    Map(Vec<Expr>),
    Filter(Vec<Expr>),
    Project(Vec<usize>),
}

fn apply(steps: &[Linear], mut row: Row) -> Result<Option<Row>, EvalError> {
    for step in steps {
        match step {
            Linear::Map(exprs) => {
                for expr in exprs {
                    let datum = expr.eval(&row.0)?;
                    row.0.push(datum);
                }
            }
            Linear::Filter(predicates) => {
                if !all_true(predicates, &row.0)? {
                    return Ok(None);
                }
            }
            Linear::Project(columns) => row = row.project(columns),
        }
    }
    Ok(Some(row))
}

/// Applies `logic` to each record and sends what it makes of it one way or the other.
fn split<'scope, D: differential_dataflow::Data>(
    collection: VecCollection<'scope, Timestamp, D, Diff>,
    mut logic: impl FnMut(D) -> Option<Result<Row, EvalError>> + 'static,
) -> (Rows<'scope>, Errors<'scope>) {
    let results = collection.inner.flat_map(move |(datum, time, diff)| {
        env::point(Point::Records(1));
        logic(datum).map(|result| (result, time, diff))
    });
    let (oks, errs) = results.ok_err(|(result, time, diff)| match result {
        Ok(row) => Ok((row, time, diff)),
        Err(error) => Err((error, time, diff)),
    });
    (oks.as_collection(), errs.as_collection())
}
