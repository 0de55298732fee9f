//! One test for each node of a plan, and for what a read makes of the result.

use tandem::plan::{BinaryFunc, Expr, OrderBy};
use tandem::repr::Datum;

use super::*;

const LEFT: GlobalId = GlobalId::User(1);
const RIGHT: GlobalId = GlobalId::User(2);
const VIEW: GlobalId = GlobalId::User(3);
const INDEX: GlobalId = GlobalId::User(4);

fn row<const N: usize>(values: [i64; N]) -> Row {
    Row::new(values)
}

fn oks<const N: usize, const M: usize>(rows: [([i64; N], Diff); M]) -> BTreeMap<Row, Diff> {
    rows.into_iter().map(|(values, diff)| (row(values), diff)).collect()
}

/// Two sources: `LEFT` has a row with a zero from time 2 to time 5.
fn model() -> Model {
    let mut model = Model::new();
    model.create_source(LEFT).unwrap();
    model.create_source(RIGHT).unwrap();
    let left = [([1, 10], 0, 2), ([1, 20], 1, 1), ([2, 0], 2, 3), ([2, 0], 5, -3)];
    let right = [([1, 7], 0, 1), ([1, 8], 3, 2), ([3, 9], 0, 1)];
    model.append(LEFT, left.map(|(values, time, diff)| (row(values), time, diff))).unwrap();
    model.append(RIGHT, right.map(|(values, time, diff)| (row(values), time, diff))).unwrap();
    model
}

fn get(id: GlobalId) -> Box<Plan> {
    Box::new(Plan::Get(id))
}

fn divide(left: i64, column: usize) -> Expr {
    Expr::literal(left).call(BinaryFunc::Div, Expr::column(column))
}

fn less(column: usize, than: i64) -> Expr {
    Expr::column(column).call(BinaryFunc::Lt, Expr::literal(than))
}

fn at(model: &Model, plan: &Plan, time: Timestamp) -> Contents {
    Contents::clone(&model.evaluate(plan, time).unwrap())
}

fn zero_division(diff: Diff) -> BTreeMap<EvalError, Diff> {
    BTreeMap::from([(EvalError::DivisionByZero, diff)])
}

/// An index of `plan` by its first column, at `INDEX`.
fn indexed(plan: Plan) -> Model {
    let mut model = model();
    model.define(VIEW, plan).unwrap();
    model.define_index(INDEX, IndexDescription { on: VIEW, key: vec![0] }).unwrap();
    model
}

fn answer(model: &Model, time: Timestamp, keys: Option<&[Row]>, finishing: Finishing) -> Expected {
    model.answer(INDEX, time, keys, &finishing).unwrap()
}

#[test]
fn a_source_holds_the_sum_of_its_updates_up_to_a_time() {
    let model = model();
    let left = Plan::Get(LEFT);
    assert_eq!(at(&model, &left, 0).oks, oks([([1, 10], 2)]));
    let all = oks([([1, 10], 2), ([1, 20], 1), ([2, 0], 3)]);
    assert_eq!(at(&model, &left, 4).oks, all);
    assert_eq!(at(&model, &left, Timestamp::MAX).oks, oks([([1, 10], 2), ([1, 20], 1)]));
}

#[test]
fn a_late_update_changes_what_was_remembered_of_later_times_only() {
    let mut model = model();
    let count = Plan::Reduce { input: get(LEFT), key: vec![], aggregates: vec![Aggregate::Count] };
    model.define(VIEW, count).unwrap();
    let counts = |model: &Model| {
        [0, 1, 4].map(|time| model.contents(VIEW, time).unwrap().oks.keys().next().cloned())
    };
    assert_eq!(counts(&model), [2, 3, 6].map(|count| Some(row([count]))));
    model.append(LEFT, [(row([9, 9]), 1, 1)]).unwrap();
    assert_eq!(counts(&model), [2, 4, 7].map(|count| Some(row([count]))));
}

#[test]
fn reads_between_two_changes_are_evaluated_once() {
    let mut model = model();
    model.define(VIEW, Plan::Negate { input: get(LEFT) }).unwrap();
    let (three, four) = (model.contents(VIEW, 3).unwrap(), model.contents(VIEW, 4).unwrap());
    assert!(Rc::ptr_eq(&three, &four));
    assert!(!Rc::ptr_eq(&four, &model.contents(VIEW, 5).unwrap()));
}

#[test]
fn a_map_turns_a_failing_row_into_one_error_of_its_multiplicity() {
    let overflow = Expr::literal(i64::MAX).call(BinaryFunc::Add, Expr::literal(1));
    let plan = Plan::Map { input: get(LEFT), exprs: vec![divide(100, 1), less(2, 10), overflow] };
    let Plan::Map { exprs, .. } = &plan else { unreachable!() };
    let two = Plan::Map { input: get(LEFT), exprs: exprs[..2].to_vec() };
    let contents = at(&model(), &two, 2);
    assert_eq!(contents.errs, zero_division(3));
    let extended = Row(vec![1.into(), 20.into(), 5.into(), true.into()]);
    assert_eq!(contents.oks.get(&extended), Some(&1));
    // The first error of a row counts, not the last.
    let errs = BTreeMap::from([(EvalError::DivisionByZero, 3), (EvalError::Overflow, 3)]);
    assert_eq!(at(&model(), &plan, 2), Contents { oks: BTreeMap::new(), errs });
}

#[test]
fn a_filter_keeps_what_is_true_and_a_later_stage_never_sees_what_it_drops() {
    let null = Expr::literal(Datum::Null);
    let kept = Plan::Filter { input: get(LEFT), predicates: vec![less(1, 15)] };
    assert_eq!(at(&model(), &kept, 1).oks, oks([([1, 10], 2)]));
    let unknown = Plan::Filter { input: get(LEFT), predicates: vec![null] };
    assert_eq!(at(&model(), &unknown, 1), Contents::default());
    let without_zeros =
        Plan::Filter { input: get(LEFT), predicates: vec![Expr::Not(Box::new(less(1, 1)))] };
    let safe = Plan::Map { input: Box::new(without_zeros), exprs: vec![divide(100, 1)] };
    assert_eq!(at(&model(), &safe, 2).errs, BTreeMap::new());
}

#[test]
fn a_projection_adds_up_rows_that_become_equal() {
    let plan = Plan::Project { input: get(LEFT), columns: vec![0, 0] };
    assert_eq!(at(&model(), &plan, 2).oks, oks([([1, 1], 3), ([2, 2], 3)]));
}

#[test]
fn a_join_multiplies_and_takes_the_errors_of_each_input_once() {
    let failing = Plan::Map { input: get(LEFT), exprs: vec![divide(100, 1)] };
    let inputs = vec![failing, Plan::Get(RIGHT)];
    let plan = Plan::Join { inputs, keys: vec![vec![0], vec![0]] };
    let contents = at(&model(), &plan, 3);
    let expected = oks([
        ([1, 10, 10, 1, 7], 2),
        ([1, 10, 10, 1, 8], 4),
        ([1, 20, 5, 1, 7], 1),
        ([1, 20, 5, 1, 8], 2),
    ]);
    assert_eq!(contents, Contents { oks: expected, errs: zero_division(3) });
}

#[test]
fn a_join_of_three_needs_the_key_in_all_of_them() {
    let inputs = vec![Plan::Get(RIGHT), Plan::Get(LEFT), Plan::Get(RIGHT)];
    let plan = Plan::Join { inputs, keys: vec![vec![0], vec![0], vec![0]] };
    assert_eq!(at(&model(), &plan, 0).oks, oks([([1, 7, 1, 10, 1, 7], 2)]));
}

#[test]
fn a_group_comes_to_one_row_or_to_its_first_error() {
    let sum = |input| Plan::Reduce {
        input,
        key: vec![0],
        aggregates: vec![Aggregate::Count, Aggregate::Sum(1), Aggregate::Max(1)],
    };
    let contents = at(&model(), &sum(get(LEFT)), 2);
    assert_eq!(contents.oks, oks([([1, 3, 40, 20], 1), ([2, 3, 0, 0], 1)]));
    let mut model = model();
    model.append(LEFT, [(row([1, i64::MAX]), 3, 1), (row([7, i64::MIN]), 3, 2)]).unwrap();
    let contents = at(&model, &sum(get(LEFT)), 3);
    assert_eq!(contents.oks, oks([([2, 3, 0, 0], 1)]));
    assert_eq!(contents.errs, BTreeMap::from([(EvalError::Overflow, 2)]));
}

#[test]
fn a_group_exists_while_any_row_has_a_multiplicity_even_a_negative_one() {
    let negated = Plan::Negate { input: get(LEFT) };
    let reduce = |input| Plan::Reduce { input, key: vec![0], aggregates: vec![] };
    let contents = at(&model(), &reduce(Box::new(negated.clone())), 2);
    assert_eq!(contents.oks, oks([([1], 1), ([2], 1)]));
    let nothing = Plan::Union { inputs: vec![Plan::Get(LEFT), negated] };
    assert_eq!(at(&model(), &reduce(Box::new(nothing)), 2), Contents::default());
}

#[test]
fn negation_leaves_errors_as_they_are_and_a_union_adds_them() {
    let failing = Plan::Map { input: get(LEFT), exprs: vec![divide(100, 1)] };
    let negated = Plan::Negate { input: Box::new(failing.clone()) };
    let plan = Plan::Union { inputs: vec![failing, negated] };
    assert_eq!(at(&model(), &plan, 2), Contents { oks: BTreeMap::new(), errs: zero_division(6) });
}

#[test]
fn a_threshold_keeps_positive_multiplicities_as_they_are() {
    let less_left = Plan::Project { input: get(LEFT), columns: vec![0] };
    let right = Plan::Project { input: get(RIGHT), columns: vec![0] };
    let difference =
        Plan::Union { inputs: vec![less_left, Plan::Negate { input: Box::new(right) }] };
    assert_eq!(at(&model(), &difference, 0).oks, oks([([1], 1), ([3], -1)]));
    let plan = Plan::Threshold { input: Box::new(difference) };
    assert_eq!(at(&model(), &plan, 0).oks, oks([([1], 1)]));
}

#[test]
fn a_read_answers_the_error_whatever_keys_it_is_about_and_rows_once_it_is_gone() {
    let model = indexed(Plan::Map { input: get(LEFT), exprs: vec![divide(100, 1)] });
    let keys = [row([1])];
    let error = Expected::Error(ReadError::Data(EvalError::DivisionByZero));
    assert_eq!(answer(&model, 4, Some(&keys), Finishing::default()), error);
    let rows = vec![(row([1, 10, 10]), 2), (row([1, 20, 5]), 1)];
    assert_eq!(answer(&model, 5, Some(&keys), Finishing::default()), Expected::Rows(rows));
}

#[test]
fn an_error_of_negative_multiplicity_is_no_error() {
    let negated = Plan::Negate { input: get(LEFT) };
    let failing = Plan::Map { input: Box::new(negated), exprs: vec![divide(100, 1)] };
    let plan = Plan::Filter { input: Box::new(failing), predicates: vec![less(1, 0)] };
    let model = indexed(plan);
    assert_eq!(model.contents(VIEW, 2).unwrap().errs, zero_division(-3));
    assert_eq!(answer(&model, 2, None, Finishing::default()), Expected::Rows(vec![]));
}

#[test]
fn a_read_takes_the_rows_of_its_keys_once_however_often_they_are_named() {
    let model = indexed(Plan::Get(LEFT));
    let keys = [row([2]), row([2]), row([8])];
    let rows = vec![(row([2, 0]), 3)];
    assert_eq!(answer(&model, 2, Some(&keys), Finishing::default()), Expected::Rows(rows));
    assert_eq!(answer(&model, 2, Some(&[]), Finishing::default()), Expected::Rows(vec![]));
}

#[test]
fn a_read_filters_then_projects_then_orders_then_cuts() {
    let model = indexed(Plan::Get(LEFT));
    let finishing = Finishing {
        filter: vec![less(1, 20)],
        project: Some(vec![1]),
        order_by: vec![OrderBy { column: 0, descending: true }],
        offset: 1,
        limit: Some(3),
    };
    let rows = vec![(row([10]), 1), (row([0]), 2)];
    assert_eq!(answer(&model, 2, None, finishing), Expected::Rows(rows));
}

#[test]
fn a_predicate_that_fails_on_a_row_read_is_an_error_of_the_read() {
    let model = indexed(Plan::Get(LEFT));
    let filter = vec![divide(100, 1).call(BinaryFunc::Lt, Expr::literal(7))];
    let finishing = Finishing { filter, ..Finishing::default() };
    let error = Expected::Error(ReadError::Predicate(EvalError::DivisionByZero));
    assert_eq!(answer(&model, 2, None, finishing.clone()), error);
    let rows = vec![(row([1, 20]), 1)];
    assert_eq!(answer(&model, 2, Some(&[row([1])]), finishing), Expected::Rows(rows));
}

#[test]
fn a_row_of_negative_multiplicity_is_an_error_of_the_read_that_meets_it() {
    let inputs = vec![Plan::Get(RIGHT), Plan::Negate { input: get(LEFT) }];
    let model = indexed(Plan::Union { inputs });
    let met = answer(&model, 0, None, Finishing::default());
    assert_eq!(met, Expected::Error(ReadError::Negative { row: row([1, 10]), diff: -2 }));
    let passed_by = answer(&model, 0, Some(&[row([3])]), Finishing::default());
    assert_eq!(passed_by, Expected::Rows(vec![(row([3, 9]), 1)]));
}

#[test]
fn an_answer_agrees_with_the_same_rows_and_with_the_error_it_names() {
    let rows = vec![(row([1]), 2)];
    let expected = Expected::Rows(rows.clone());
    assert!(expected.agrees(&PeekResponse::Rows(rows)));
    assert!(!expected.agrees(&PeekResponse::Rows(vec![(row([1]), 1)])));
    assert!(!expected.agrees(&PeekResponse::Canceled));
    let failed = Expected::Error(ReadError::Data(EvalError::DivisionByZero));
    assert!(failed.agrees(&PeekResponse::Error("division by zero".into())));
    assert!(!failed.agrees(&PeekResponse::Error("refused".into())));
}

#[test]
fn definitions_over_the_unknown_or_over_themselves_are_rejected() {
    let mut model = model();
    assert_eq!(model.define(VIEW, Plan::Get(INDEX)), Err(ModelError::Unknown(INDEX)));
    assert_eq!(model.define(LEFT, Plan::Get(RIGHT)), Err(ModelError::IsASource(LEFT)));
    model.define(VIEW, Plan::Get(LEFT)).unwrap();
    model.define(INDEX, Plan::Get(VIEW)).unwrap();
    assert_eq!(model.define(VIEW, Plan::Get(INDEX)), Err(ModelError::Cycle(VIEW)));
    assert_eq!(model.append(VIEW, []), Err(ModelError::NotASource(VIEW)));
    assert_eq!(
        model.answer(VIEW, 0, None, &Finishing::default()),
        Err(ModelError::NotAnIndex(VIEW))
    );
}

#[test]
fn a_new_definition_reaches_what_was_defined_over_the_old_one() {
    let mut model = model();
    model.define(VIEW, Plan::Get(LEFT)).unwrap();
    model.define(INDEX, Plan::Get(VIEW)).unwrap();
    assert_eq!(model.contents(INDEX, 0).unwrap().oks, oks([([1, 10], 2)]));
    model.define(VIEW, Plan::Get(RIGHT)).unwrap();
    assert_eq!(model.contents(INDEX, 3).unwrap().oks, oks([([1, 7], 1), ([1, 8], 2), ([3, 9], 1)]));
}
