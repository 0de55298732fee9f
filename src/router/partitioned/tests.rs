use proptest::prelude::*;
use timely::progress::Antichain;

use super::*;
use crate::protocol::progress::FrontierKind;
use crate::repr::Frontier;

const ID: GlobalId = GlobalId::User(1);
const UUID: PeekId = PeekId(1);

fn at(time: u64) -> Frontier {
    Antichain::from_elem(time)
}

fn write(frontier: Frontier) -> Response {
    let frontiers = Frontiers { write: Some(frontier), ..Frontiers::default() };
    Response::Frontiers { id: ID, frontiers }
}

fn all(frontier: Frontier) -> Response {
    let write = Some(frontier.clone());
    let frontiers = Frontiers { write, input: Some(frontier.clone()), output: Some(frontier) };
    Response::Frontiers { id: ID, frontiers }
}

fn answer(response: PeekResponse) -> Response {
    Response::Peek { uuid: UUID, response }
}

fn rows(counts: &[(i64, u64)]) -> PeekResponse {
    PeekResponse::Rows(counts.iter().map(|(value, count)| (Row::new([*value]), *count)).collect())
}

fn error(message: &str) -> PeekResponse {
    PeekResponse::Error(message.to_string())
}

/// The one answer to a peek whose parts are `parts`.
fn answer_of(parts: &[PeekResponse]) -> PeekResponse {
    let mut merge = Partitioned::new(parts.len());
    for (worker, part) in parts.iter().enumerate() {
        let response = merge.absorb(worker, answer(part.clone())).expect("legal");
        match response {
            None => assert!(worker + 1 < parts.len(), "all parts are answered"),
            Some(Response::Peek { uuid: UUID, response }) => {
                assert_eq!(worker + 1, parts.len(), "answered before the last part");
                assert_eq!(merge.peeks_len(), 0);
                return response;
            }
            Some(other) => panic!("{other:?}"),
        }
    }
    panic!("never answered");
}

#[test]
fn rows_are_united_and_their_multiplicities_added() {
    let parts = [rows(&[(1, 2), (3, 1)]), rows(&[]), rows(&[(3, 4), (2, 1)])];
    assert_eq!(answer_of(&parts), rows(&[(1, 2), (2, 1), (3, 5)]));
}

#[test]
fn an_error_beats_a_cancellation_which_beats_rows() {
    let canceled = PeekResponse::Canceled;
    assert_eq!(answer_of(&[rows(&[(1, 1)]), canceled.clone()]), canceled);
    assert_eq!(answer_of(&[error("b"), canceled, error("a"), rows(&[])]), error("a"));
}

#[test]
fn a_second_answer_of_a_worker_is_an_error_and_does_not_count() {
    let mut merge = Partitioned::new(2);
    assert_eq!(merge.absorb(0, answer(rows(&[(1, 1)]))), Ok(None));
    let twice = merge.absorb(0, answer(rows(&[(1, 1)])));
    assert_eq!(twice, Err(MergeError::AnsweredTwice { worker: 0, uuid: UUID }));
    assert_eq!(merge.absorb(1, answer(rows(&[]))), Ok(Some(answer(rows(&[(1, 1)])))));
}

#[test]
fn a_worker_that_has_not_reported_holds_the_meet_at_the_minimum() {
    let mut merge = Partitioned::new(2);
    assert_eq!(merge.absorb(0, all(at(9))), Ok(None));
    assert_eq!(merge.absorb(1, write(at(4))), Ok(Some(write(at(4)))));
    assert_eq!(merge.absorb(1, write(at(4))), Ok(None), "no news");
    assert_eq!(merge.absorb(1, write(Frontier::new())), Ok(Some(write(at(9)))));
}

#[test]
fn a_collection_is_closed_once_by_all_and_its_successor_starts_afresh() {
    let mut merge = Partitioned::new(2);
    assert_eq!(merge.absorb(0, all(Frontier::new())), Ok(None));
    assert_eq!(merge.absorb(1, all(at(3))), Ok(Some(all(at(3)))));
    assert_eq!(merge.absorb(1, all(Frontier::new())), Ok(Some(all(Frontier::new()))));
    assert_eq!(merge.collections_len(), 0);
    assert_eq!(merge.absorb(0, write(at(1))), Ok(None), "the other worker is at the minimum");
    assert_eq!(merge.absorb(1, write(at(2))), Ok(Some(write(at(1)))));
}

#[test]
fn a_regression_names_worker_collection_and_frontiers_and_changes_nothing() {
    let mut merge = Partitioned::new(1);
    assert_eq!(merge.absorb(0, write(at(7))), Ok(Some(write(at(7)))));
    let error = merge.absorb(0, all(at(3))).expect_err("write goes back");
    let regression = Regression { kind: FrontierKind::Write, from: at(7), to: at(3) };
    assert_eq!(error, MergeError::Regressed { worker: 0, id: ID, regression });
    assert_eq!(error.to_string(), "worker 0 on u1: the write frontier goes back from {7} to {3}");
    let report = Frontiers { input: Some(at(1)), ..Frontiers::default() };
    let report = Response::Frontiers { id: ID, frontiers: report };
    assert_eq!(merge.absorb(0, report.clone()), Ok(Some(report)), "input is still at 0");
}

#[test]
fn a_worker_out_of_range_is_an_error() {
    let mut merge = Partitioned::new(2);
    let expected = MergeError::Worker { worker: 2, parts: 2 };
    assert_eq!(merge.absorb(2, write(at(1))), Err(expected.clone()));
    assert_eq!(merge.opened(2, Nonce(1)), Err(expected));
}

#[test]
fn what_a_worker_says_about_an_older_connection_is_void() {
    let mut merge = Partitioned::new(2);
    assert_eq!(merge.absorb(0, answer(rows(&[(1, 1)]))), Ok(None));
    assert_eq!(merge.absorb(0, write(at(8))), Ok(None));
    merge.opened(0, Nonce(1)).expect("a worker");
    assert_eq!((merge.peeks_len(), merge.collections_len()), (0, 0));
    assert_eq!(merge.absorb(0, write(at(3))), Ok(None), "no regression: it starts over");
    assert_eq!(merge.absorb(1, answer(error("old"))), Ok(None));
    assert_eq!(merge.absorb(1, write(at(9))), Ok(None));
    merge.opened(1, Nonce(1)).expect("a worker");
    assert_eq!(merge.absorb(1, write(at(2))), Ok(Some(write(at(2)))));
    assert_eq!(merge.peeks_len(), 0);
}

#[cfg(feature = "zoo")]
#[test]
fn cancel_twice_answers_at_once_and_again() {
    use crate::zoo::{Defect, plant};
    plant(Some(Defect::CancelTwice));
    let mut merge = Partitioned::new(2);
    let canceled = answer(PeekResponse::Canceled);
    let first = merge.absorb(0, canceled.clone());
    let second = merge.absorb(1, canceled.clone());
    plant(None);
    assert_eq!((first, second), (Ok(Some(canceled.clone())), Ok(Some(canceled))));
}

fn part() -> impl Strategy<Value = PeekResponse> {
    prop_oneof![
        6 => prop::collection::vec((0..5i64, 1..4u64), 0..5).prop_map(|counts| rows(&counts)),
        1 => Just(PeekResponse::Canceled),
        1 => "[ab]{1}".prop_map(PeekResponse::Error),
    ]
}

/// The reports of one worker: frontiers that advance and close in the end.
fn reports() -> impl Strategy<Value = Vec<Frontier>> {
    prop::collection::btree_set(1..20u64, 0..6)
        .prop_map(|times| times.into_iter().map(at).chain([Frontier::new()]).collect())
}

proptest! {
    #[test]
    fn the_answer_does_not_depend_on_the_order_of_the_parts(
        (parts, shuffled) in prop::collection::vec(part(), 1..6)
            .prop_flat_map(|parts| (Just(parts.clone()), Just(parts).prop_shuffle())),
    ) {
        let merged = answer_of(&parts);
        prop_assert_eq!(&merged, &answer_of(&shuffled));
        if let PeekResponse::Rows(merged) = merged {
            prop_assert!(merged.is_sorted_by(|left, right| left.0 < right.0));
            let count = |rows: &[(Row, u64)]| rows.iter().map(|(_, count)| count).sum::<u64>();
            let total = parts.iter().map(|part| match part {
                PeekResponse::Rows(rows) => count(rows),
                other => panic!("{other:?} was lost"),
            }).sum::<u64>();
            prop_assert_eq!(count(&merged), total);
        }
    }

    #[test]
    fn frontiers_only_advance_stay_at_the_slowest_worker_and_close_once(
        workers in prop::collection::vec(reports(), 1..4),
        schedule in prop::collection::vec(any::<prop::sample::Index>(), 32),
    ) {
        let mut merge = Partitioned::new(workers.len());
        let mut queues: Vec<_> = workers.into_iter().map(|reports| reports.into_iter()).collect();
        let mut said = vec![at(0); queues.len()];
        let mut merged = at(0);
        let mut closed = 0;
        // A closing report comes last of its worker; whoever is left after the schedule follows.
        let parts = said.len();
        let chosen = schedule.iter().map(|index| index.index(parts));
        for worker in chosen.chain((0..parts).flat_map(|worker| [worker; 8])) {
            let Some(frontier) = queues[worker].next() else { continue };
            said[worker] = frontier.clone();
            let least = said.iter().filter_map(|frontier| frontier.as_option().copied()).min();
            let expected = least.map(at).unwrap_or_default();
            let response = merge.absorb(worker, all(frontier)).expect("legal");
            prop_assert_eq!(response, (expected != merged).then(|| all(expected.clone())));
            closed += usize::from(expected.is_empty());
            merged = expected;
        }
        prop_assert_eq!((closed, merge.collections_len()), (1, 0));
    }
}
