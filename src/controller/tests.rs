use std::collections::BTreeMap;

use timely::progress::Antichain;

use super::*;
use crate::plan::{
    DataflowDescription, Finishing, IndexDescription, IndexImport, OrderBy, Plan, PlanError,
};
use crate::protocol::progress::{FrontierKind, Regression};
use crate::repr::{Row, step_forward};

mod world;

const SOURCE: GlobalId = GlobalId::User(1);
const INDEX: GlobalId = GlobalId::User(2);
const DEPENDENT: GlobalId = GlobalId::User(3);
const OBJECT: GlobalId = GlobalId::User(100);

fn at(time: Timestamp) -> Frontier {
    Antichain::from_elem(time)
}

fn source_index() -> IndexDescription {
    IndexDescription { on: SOURCE, key: vec![0] }
}

/// An index on the source.
fn index(id: GlobalId, as_of: Timestamp) -> DataflowDescription {
    DataflowDescription {
        source_imports: BTreeMap::from([(SOURCE, 2)]),
        index_imports: BTreeMap::new(),
        objects_to_build: vec![],
        index_exports: BTreeMap::from([(id, source_index())]),
        as_of,
        until: Frontier::new(),
    }
}

/// An index of what an index on the source holds.
fn dependent(id: GlobalId, import: GlobalId, as_of: Timestamp) -> DataflowDescription {
    let imported = IndexImport { index: source_index(), arity: 2 };
    DataflowDescription {
        source_imports: BTreeMap::new(),
        index_imports: BTreeMap::from([(import, imported)]),
        objects_to_build: vec![(OBJECT, Plan::Get(SOURCE))],
        index_exports: BTreeMap::from([(id, IndexDescription { on: OBJECT, key: vec![1] })]),
        as_of,
        until: Frontier::new(),
    }
}

fn compact(id: GlobalId, frontier: Frontier) -> Command {
    Command::AllowCompaction { id, frontier }
}

fn report(id: GlobalId, frontier: Frontier) -> Response {
    let write = Some(frontier.clone());
    let frontiers = Frontiers { write, input: Some(frontier.clone()), output: Some(frontier) };
    Response::Frontiers { id, frontiers }
}

fn peek_request(target: GlobalId, timestamp: Timestamp) -> PeekRequest {
    PeekRequest { target, timestamp, keys: None, finishing: Finishing::default() }
}

fn query_request(timestamp: Timestamp) -> QueryRequest {
    QueryRequest {
        plan: Plan::Project { input: Box::new(Plan::Get(SOURCE)), columns: vec![1] },
        index_imports: vec![INDEX],
        timestamp,
        finishing: Finishing::default(),
    }
}

fn answer(uuid: PeekId, response: PeekResponse) -> Response {
    Response::Peek { uuid, response }
}

fn rows(values: &[i64]) -> PeekResponse {
    PeekResponse::Rows(values.iter().map(|value| (Row::new([*value]), 1)).collect())
}

/// A connected controller of a source and an index on it, both readable from 0 on.
fn controller() -> Controller {
    let mut controller = Controller::new(InstanceConfig { peers: 2 });
    controller.connect(Nonce(1)).expect("the first connection");
    controller.create_source(SOURCE, 2).expect("free");
    controller.create_dataflow(index(INDEX, 0)).expect("readable");
    controller.take_commands();
    controller
}

/// The same with the index complete up to `upper`, compacted to before it.
fn hydrated(upper: Timestamp) -> Controller {
    let mut controller = controller();
    controller.source_upper(SOURCE, at(upper)).expect("forward");
    controller.response(report(INDEX, at(upper)));
    controller.take_commands();
    controller.take_source_compaction();
    controller
}

/// Drops a collection that nobody reads, as far as the replica's last report.
fn drop_for_good(controller: &mut Controller, id: GlobalId) {
    controller.drop_collection(id).expect("live");
    controller.response(report(id, Frontier::new()));
    assert!(!controller.collections().any(|other| other == id), "{id} is gone");
}

#[test]
fn the_first_connection_says_hello_and_what_was_asked_before() {
    let mut controller = Controller::new(InstanceConfig { peers: 2 });
    controller.create_source(SOURCE, 2).expect("free");
    controller.create_dataflow(index(INDEX, 0)).expect("readable");
    controller.update_configuration(Parameters { walk_budget: Some(3) });
    assert_eq!(controller.take_commands(), [], "there is nobody to say it to");
    controller.connect(Nonce(1)).expect("the first connection");
    let expected = [
        Command::Hello { nonce: Nonce(1) },
        Command::CreateInstance(InstanceConfig { peers: 2 }),
        Command::UpdateConfiguration(Parameters { walk_budget: Some(3) }),
        Command::CreateDataflow(Box::new(index(INDEX, 0))),
        Command::Schedule(INDEX),
        Command::InitializationComplete,
    ];
    assert_eq!(controller.take_commands(), expected);
}

#[test]
fn a_connection_needs_a_greater_nonce_than_the_one_before() {
    let mut controller = controller();
    let stale = ControllerError::Stale { last: Nonce(1), nonce: Nonce(1) };
    assert_eq!(controller.connect(Nonce(1)), Err(stale));
    assert_eq!(controller.take_commands(), []);
    assert_eq!(controller.nonce(), Some(Nonce(1)));
}

#[test]
fn compaction_follows_the_write_frontier_at_the_policys_lag_and_only_forward() {
    let mut controller = controller();
    controller.set_read_policy(INDEX, ReadPolicy::LagBy(2)).expect("live");
    controller.response(report(INDEX, at(3)));
    assert_eq!(controller.take_commands(), [], "2 - 2 is where it was");
    controller.response(report(INDEX, at(8)));
    assert_eq!(controller.take_commands(), [compact(INDEX, at(5))]);
    controller.set_read_policy(INDEX, ReadPolicy::LagBy(4)).expect("live");
    controller.response(report(INDEX, at(9)));
    assert_eq!(controller.take_commands(), [], "what was compacted stays so");
    controller.set_read_policy(INDEX, ReadPolicy::LagBy(0)).expect("live");
    assert_eq!(controller.take_commands(), [compact(INDEX, at(8))]);
    controller.set_read_policy(INDEX, ReadPolicy::Pinned).expect("live");
    controller.response(report(INDEX, at(20)));
    assert_eq!(controller.take_commands(), []);
    assert_eq!(controller.allowed(INDEX), Some(&at(8)));
}

#[test]
fn the_latest_complete_time_stays_readable_even_at_the_ends_of_time() {
    let mut controller = controller();
    controller.response(report(INDEX, at(0)));
    assert_eq!(controller.since(INDEX), Some(&at(0)));
    controller.response(report(INDEX, at(u64::MAX)));
    assert_eq!(controller.since(INDEX), Some(&at(u64::MAX - 1)));
    controller.response(report(INDEX, Frontier::new()));
    assert_eq!(controller.since(INDEX), Some(&at(u64::MAX - 1)));
    controller.peek(peek_request(INDEX, u64::MAX)).expect("closed is complete, not gone");
}

#[test]
fn an_export_that_closes_is_not_dropped() {
    let mut controller = hydrated(5);
    controller.response(report(INDEX, Frontier::new()));
    assert_eq!(controller.take_commands(), []);
    assert!(controller.is_live(INDEX));
}

#[test]
fn a_source_is_held_where_its_dataflow_could_be_built_again() {
    let mut controller = controller();
    controller.source_upper(SOURCE, at(10)).expect("forward");
    assert_eq!(controller.take_source_compaction(), [], "the index holds it at its as_of");
    controller.set_read_policy(INDEX, ReadPolicy::LagBy(3)).expect("live");
    controller.response(report(INDEX, at(10)));
    assert_eq!(controller.take_source_compaction(), [(SOURCE, at(6))]);
    drop_for_good(&mut controller, INDEX);
    assert_eq!(controller.take_source_compaction(), [(SOURCE, at(9))]);
    controller.drop_collection(SOURCE).expect("live");
    assert_eq!(controller.take_source_compaction(), [(SOURCE, Frontier::new())]);
    assert_eq!(controller.collections().count(), 0);
}

#[test]
fn a_source_does_not_become_incomplete() {
    let mut controller = hydrated(5);
    let regression = Regression { kind: FrontierKind::Write, from: at(5), to: at(4) };
    let error = controller.source_upper(SOURCE, at(4));
    assert_eq!(error, Err(ControllerError::Regressed { id: SOURCE, regression }));
    let error = controller.source_upper(INDEX, at(9));
    assert_eq!(error, Err(ControllerError::NotASource(INDEX)));
}

#[test]
fn a_dependent_holds_its_import_until_it_is_dropped() {
    let mut controller = hydrated(5);
    controller.create_dataflow(dependent(DEPENDENT, INDEX, 4)).expect("readable");
    controller.take_commands();
    controller.response(report(INDEX, at(20)));
    assert_eq!(controller.take_commands(), [], "held at the dependent's as_of");
    controller.response(report(DEPENDENT, at(11)));
    let expected = [compact(DEPENDENT, at(10)), compact(INDEX, at(10))];
    assert_eq!(controller.take_commands(), expected, "the dependent first");
    controller.drop_collection(DEPENDENT).expect("live");
    let expected = [compact(DEPENDENT, Frontier::new()), compact(INDEX, at(19))];
    assert_eq!(controller.take_commands(), expected);
}

#[test]
fn a_dropped_collection_goes_when_its_dependents_and_peeks_are_gone() {
    let mut controller = hydrated(5);
    controller.create_dataflow(dependent(DEPENDENT, INDEX, 4)).expect("readable");
    let peek = controller.peek(peek_request(INDEX, 9)).expect("readable");
    controller.take_commands();
    controller.drop_collection(INDEX).expect("live");
    assert_eq!(controller.take_commands(), [], "a dependent and a peek hold it");
    assert_eq!(controller.drop_collection(INDEX), Err(ControllerError::Dropped(INDEX)));
    let read = controller.peek(peek_request(INDEX, 9));
    assert_eq!(read, Err(ControllerError::Dropped(INDEX)));
    controller.drop_collection(DEPENDENT).expect("live");
    let expected = [compact(DEPENDENT, Frontier::new()), compact(INDEX, at(9))];
    assert_eq!(controller.take_commands(), expected, "the peek is left");
    controller.response(answer(peek, rows(&[])));
    assert_eq!(controller.take_commands(), [compact(INDEX, Frontier::new())]);
    assert_eq!(controller.holds_len(), 0);
}

#[test]
fn an_id_is_free_again_after_the_last_report() {
    let mut controller = hydrated(5);
    let again = || index(INDEX, 4);
    assert_eq!(controller.create_dataflow(again()), Err(ControllerError::Exists(INDEX)));
    controller.drop_collection(INDEX).expect("live");
    assert_eq!(controller.create_dataflow(again()), Err(ControllerError::Draining(INDEX)));
    let write = Frontiers { write: Some(Frontier::new()), ..Frontiers::default() };
    controller.response(Response::Frontiers { id: INDEX, frontiers: write });
    assert_eq!(controller.create_dataflow(again()), Err(ControllerError::Draining(INDEX)));
    controller.response(report(INDEX, Frontier::new()));
    assert_eq!(controller.create_dataflow(again()), Ok(()));
    assert_eq!(controller.upper(INDEX), Some(&at(0)), "the successor starts afresh");
}

#[test]
fn the_id_of_one_of_several_exports_stays_taken_as_long_as_the_others_live() {
    let mut controller = controller();
    let other = GlobalId::User(9);
    let mut both = index(other, 0);
    both.index_exports.insert(DEPENDENT, source_index());
    controller.create_dataflow(both).expect("readable");
    controller.drop_collection(other).expect("live");
    controller.response(report(other, Frontier::new()));
    let again = controller.create_dataflow(index(other, 0));
    assert_eq!(again, Err(ControllerError::Draining(other)), "a replay would create it");
    controller.drop_collection(DEPENDENT).expect("live");
    assert_eq!(controller.create_dataflow(index(other, 0)), Ok(()));
}

#[test]
fn a_peek_holds_its_time_until_it_is_answered() {
    let mut controller = hydrated(5);
    let uuid = controller.peek(peek_request(INDEX, 6)).expect("readable");
    let outstanding: Vec<_> = controller.outstanding().collect();
    assert_eq!(outstanding, [(uuid, INDEX, 6, false)]);
    controller.response(report(INDEX, at(9)));
    assert_eq!(controller.allowed(INDEX), Some(&at(6)));
    let events = controller.response(answer(uuid, rows(&[1])));
    let answered = ControllerEvent::PeekAnswered { uuid, response: rows(&[1]), canceled: false };
    assert_eq!(events, [answered]);
    assert_eq!(controller.allowed(INDEX), Some(&at(8)));
    let second = controller.response(answer(uuid, rows(&[1])));
    let violation = ProtocolViolation::UnknownPeek { uuid };
    assert_eq!(second, [ControllerEvent::Violation(violation)]);
}

#[test]
fn a_cancelled_peek_lets_go_at_once_and_is_answered_all_the_same() {
    let mut controller = hydrated(5);
    let uuid = controller.peek(peek_request(INDEX, 4)).expect("readable");
    controller.response(report(INDEX, at(9)));
    controller.take_commands();
    assert!(controller.cancel(uuid));
    let expected = [Command::CancelPeek { uuid }, compact(INDEX, at(8))];
    assert_eq!(controller.take_commands(), expected, "the cancellation first");
    assert!(!controller.cancel(uuid), "there is nothing left to cancel");
    assert_eq!(controller.outstanding().collect::<Vec<_>>(), [(uuid, INDEX, 4, true)]);
    let events = controller.response(answer(uuid, PeekResponse::Canceled));
    let response = PeekResponse::Canceled;
    assert_eq!(events, [ControllerEvent::PeekAnswered { uuid, response, canceled: true }]);
    assert!(!controller.cancel(uuid));
    assert_eq!((controller.outstanding().count(), controller.holds_len()), (0, 1));
}

#[test]
fn cancelling_what_was_never_asked_does_nothing() {
    let mut controller = hydrated(5);
    assert!(!controller.cancel(PeekId(77)));
    assert_eq!(controller.take_commands(), []);
}

#[test]
fn an_answer_is_ordered_and_cut_off_here() {
    let mut controller = hydrated(5);
    let finishing = Finishing {
        order_by: vec![OrderBy { column: 0, descending: true }],
        offset: 1,
        limit: Some(2),
        ..Finishing::default()
    };
    let request = PeekRequest { finishing, ..peek_request(INDEX, 5) };
    let uuid = controller.peek(request).expect("readable");
    let events = controller.response(answer(uuid, rows(&[1, 2, 3, 4])));
    let response = rows(&[3, 2]);
    assert_eq!(events, [ControllerEvent::PeekAnswered { uuid, response, canceled: false }]);
}

#[test]
fn a_peek_that_cannot_be_served_is_refused_by_name() {
    let mut controller = hydrated(5);
    let unknown = GlobalId::User(77);
    let read = controller.peek(peek_request(unknown, 5));
    assert_eq!(read, Err(ControllerError::Unknown(unknown)));
    let read = controller.peek(peek_request(SOURCE, 5));
    assert_eq!(read, Err(ControllerError::NotAnIndex(SOURCE)));
    let read = controller.peek(peek_request(INDEX, 3)).expect_err("compacted");
    assert_eq!(read, ControllerError::Compacted { id: INDEX, time: 3, since: at(4) });
    assert_eq!(read.to_string(), "u2 cannot be read at 3: its since is {4}");
    let keys = Some(vec![Row::new([1, 2])]);
    let read = controller.peek(PeekRequest { keys, ..peek_request(INDEX, 5) });
    assert_eq!(read, Err(ControllerError::KeyLength { id: INDEX, expected: 1, found: 2 }));
    let finishing = Finishing { project: Some(vec![2]), ..Finishing::default() };
    let read = controller.peek(PeekRequest { finishing, ..peek_request(INDEX, 5) });
    assert_eq!(read, Err(PlanError::Column { column: 2, arity: 2 }.into()));
    assert_eq!((controller.take_commands(), controller.outstanding().count()), (vec![], 0));
}

#[test]
fn a_dataflow_that_does_not_fit_its_imports_is_refused_by_name() {
    let mut controller = hydrated(5);
    let created = controller.create_dataflow(index(DEPENDENT, 3));
    let compacted = ControllerError::Compacted { id: SOURCE, time: 3, since: at(4) };
    assert_eq!(created, Err(compacted));
    let created = controller.create_dataflow(dependent(DEPENDENT, SOURCE, 4));
    assert_eq!(created, Err(ControllerError::NotAnIndex(SOURCE)));
    let mut wrong = dependent(DEPENDENT, INDEX, 4);
    let imported = IndexDescription { on: SOURCE, key: vec![1] };
    let import = IndexImport { index: imported.clone(), arity: 2 };
    wrong.index_imports.insert(INDEX, import);
    let expected = ControllerError::Index { id: INDEX, index: source_index(), imported };
    assert_eq!(controller.create_dataflow(wrong), Err(expected));
    let mut wrong = index(DEPENDENT, 4);
    wrong.source_imports.insert(SOURCE, 3);
    let expected = ControllerError::Arity { id: SOURCE, arity: 2, imported: 3 };
    assert_eq!(controller.create_dataflow(wrong), Err(expected));
    let mut empty = index(DEPENDENT, 4);
    empty.index_exports.clear();
    assert_eq!(controller.create_dataflow(empty), Err(PlanError::NoExports.into()));
    assert_eq!(controller.take_commands(), []);
    assert_eq!((controller.collections().count(), controller.holds_len()), (2, 1));
}

#[test]
fn a_query_is_a_dataflow_for_one_time_and_goes_with_its_answer() {
    let mut controller = hydrated(5);
    let uuid = controller.query(query_request(7)).expect("readable");
    let commands = controller.take_commands();
    let [Command::CreateDataflow(dataflow), Command::Schedule(id), Command::Peek(peek)] =
        &commands[..]
    else {
        panic!("{commands:?}");
    };
    assert!(dataflow.is_bounded_read());
    assert_eq!((dataflow.as_of, &dataflow.until), (7, &step_forward(7)));
    assert_eq!((*id, peek.target, peek.timestamp, peek.uuid), (*id, *id, 7, uuid));
    controller.response(report(INDEX, at(20)));
    assert_eq!(controller.take_commands(), [compact(INDEX, at(7))]);
    controller.response(report(*id, Frontier::new()));
    assert_eq!(controller.take_commands(), [], "complete, and not yet read");
    controller.response(answer(uuid, rows(&[1])));
    let expected = [compact(*id, Frontier::new()), compact(INDEX, at(19))];
    assert_eq!(controller.take_commands(), expected);
    assert_eq!(controller.collections().collect::<Vec<_>>(), [SOURCE, INDEX]);
}

#[test]
fn a_cancelled_query_is_dropped_at_once() {
    let mut controller = hydrated(5);
    let uuid = controller.query(query_request(7)).expect("readable");
    let (_, id, ..) = controller.outstanding().next().expect("asked");
    controller.response(report(INDEX, at(20)));
    controller.take_commands();
    assert!(controller.cancel(uuid));
    let expected =
        [Command::CancelPeek { uuid }, compact(id, Frontier::new()), compact(INDEX, at(19))];
    assert_eq!(controller.take_commands(), expected);
    assert_eq!(controller.outstanding().count(), 1, "its answer is to come");
}

#[test]
fn a_query_at_the_last_time_or_with_a_wrong_plan_is_refused_and_leaves_nothing() {
    let mut controller = hydrated(5);
    let query = controller.query(query_request(u64::MAX));
    assert_eq!(query, Err(ControllerError::LastTime(u64::MAX)));
    let query = controller.query(query_request(3));
    let compacted = ControllerError::Compacted { id: INDEX, time: 3, since: at(4) };
    assert_eq!(query, Err(compacted));
    let unread = QueryRequest { index_imports: vec![], ..query_request(5) };
    assert_eq!(controller.query(unread), Err(PlanError::Unknown(SOURCE).into()));
    let finishing = Finishing { project: Some(vec![1]), ..Finishing::default() };
    let wrong = QueryRequest { finishing, ..query_request(5) };
    let error = PlanError::Column { column: 1, arity: 1 };
    assert_eq!(controller.query(wrong), Err(error.into()));
    assert_eq!((controller.take_commands(), controller.collections().count()), (vec![], 2));
}

#[test]
fn frontiers_that_go_back_or_belong_to_nobody_are_violations_and_change_nothing() {
    let mut controller = hydrated(5);
    let regression = Regression { kind: FrontierKind::Write, from: at(5), to: at(4) };
    let violation = ProtocolViolation::Regressed { id: INDEX, regression };
    let events = controller.response(report(INDEX, at(4)));
    assert_eq!(events, [ControllerEvent::Violation(violation)]);
    assert_eq!(controller.upper(INDEX), Some(&at(5)));
    for id in [SOURCE, GlobalId::User(77)] {
        let violation = ProtocolViolation::UnknownCollection { id };
        let events = controller.response(report(id, at(9)));
        assert_eq!(events, [ControllerEvent::Violation(violation)]);
    }
    assert_eq!(controller.take_commands(), []);
}

#[test]
fn an_advance_is_told_once() {
    let mut controller = controller();
    let advanced = ControllerEvent::FrontierAdvanced { id: INDEX, write: at(6) };
    assert_eq!(controller.response(report(INDEX, at(6))), [advanced]);
    assert_eq!(controller.response(report(INDEX, at(6))), []);
}

#[test]
fn a_new_connection_replays_what_is_outstanding_and_answers_what_was_cancelled() {
    let mut controller = hydrated(5);
    let asked = controller.peek(peek_request(INDEX, 6)).expect("readable");
    let cancelled = controller.peek(peek_request(INDEX, 5)).expect("readable");
    let answered = controller.peek(peek_request(INDEX, 5)).expect("readable");
    controller.response(answer(answered, rows(&[])));
    controller.disconnect();
    assert!(controller.cancel(cancelled));
    let events = controller.connect(Nonce(2)).expect("greater");
    let response = PeekResponse::Canceled;
    let expected = ControllerEvent::PeekAnswered { uuid: cancelled, response, canceled: true };
    assert_eq!(events, [expected]);
    let commands = controller.take_commands();
    let replayed: Vec<PeekId> = commands
        .iter()
        .filter_map(|command| match command {
            Command::Peek(peek) => Some(peek.uuid),
            _ => None,
        })
        .collect();
    assert_eq!(replayed, [asked]);
    assert_eq!(commands[0], Command::Hello { nonce: Nonce(2) });
    assert_eq!(commands.last(), Some(&compact(INDEX, at(4))));
    assert_eq!(controller.upper(INDEX), Some(&at(0)), "the new connection has said nothing yet");
}

#[test]
fn what_a_replayed_dataflow_still_reads_is_not_compacted_away() {
    let mut controller = hydrated(20);
    let hold = |controller: &Controller| {
        let holds = controller.holds(SOURCE).into_iter();
        holds.filter(|(holder, _)| *holder != Holder::Policy).map(|(_, time)| time).next()
    };
    controller.source_upper(SOURCE, at(30)).expect("forward");
    let uuid = controller.peek(peek_request(INDEX, 19)).expect("readable");
    controller.response(report(INDEX, at(30)));
    assert_eq!(controller.since(INDEX), Some(&at(19)), "the peek holds it");
    controller.connect(Nonce(2)).expect("greater");
    controller.cancel(uuid);
    assert_eq!(controller.since(INDEX), Some(&at(29)));
    assert_eq!(hold(&controller), Some(19), "it is created at 19 and has not reported yet");
    assert_eq!(controller.since(SOURCE), Some(&at(19)));
    controller.response(report(INDEX, at(25)));
    assert_eq!(hold(&controller), Some(24));
    controller.response(report(INDEX, at(30)));
    assert_eq!(hold(&controller), Some(29));
}

#[test]
fn a_drop_that_was_on_its_way_is_done_with_the_new_connection() {
    let mut controller = hydrated(5);
    controller.drop_collection(INDEX).expect("live");
    assert_eq!(controller.create_dataflow(index(INDEX, 4)), Err(ControllerError::Draining(INDEX)));
    controller.connect(Nonce(2)).expect("greater");
    let commands = controller.take_commands();
    assert!(!commands.iter().any(|command| matches!(command, Command::CreateDataflow(_))));
    assert_eq!(controller.create_dataflow(index(INDEX, 4)), Ok(()));
}
