//! The whole on threads: the same runtimes that the testbed simulates, run for real.

use tandem::controller::ReadPolicy;
use tandem::plan::{
    Aggregate, BinaryFunc, DataflowDescription, Expr, Finishing, IndexDescription, Plan,
};
use tandem::protocol::{Command, Peek, PeekId, PeekResponse, Response};
use tandem::replica::{Layout, Replica, ReplicaConfig, StartError};
use tandem::repr::{GlobalId, Row};
use tandem::shard::Shards;

mod common;
use common::{World, held_by, rows};

const ORDERS: GlobalId = GlobalId::User(1);
const ITEMS: GlobalId = GlobalId::User(2);
const ORDERS_INDEX: GlobalId = GlobalId::User(3);
const ITEMS_INDEX: GlobalId = GlobalId::User(4);
const TOTALS_INDEX: GlobalId = GlobalId::User(5);

/// Every layout, with several workers each.
const LAYOUTS: [(Layout, usize); 3] = [(Layout::Solo, 2), (Layout::Split, 1), (Layout::Split, 3)];

fn get(id: GlobalId) -> Plan {
    Plan::Get(id)
}

fn two_indexes(layout: Layout, workers: usize) -> World {
    let mut world = World::start(layout, workers);
    world.source(ORDERS, 2);
    world.source(ITEMS, 2);
    world.append(ORDERS, &[(&[1, 10], 1), (&[2, 20], 1), (&[3, 30], 1)]);
    world.append(ITEMS, &[(&[1, 100], 1), (&[1, 101], 1), (&[3, 300], 1)]);
    world.index(ORDERS_INDEX, get(ORDERS), &[0], &[(ORDERS, 2)]);
    world.index(ITEMS_INDEX, get(ITEMS), &[0], &[(ITEMS, 2)]);
    world
}

#[test]
fn a_peek_answers_what_an_index_holds_at_its_time() {
    for (layout, workers) in LAYOUTS {
        let mut world = two_indexes(layout, workers);
        world.append(ORDERS, &[(&[2, 20], -1), (&[2, 21], 1)]);
        let before = world.peek(ORDERS_INDEX, 0, None);
        let after = world.peek(ORDERS_INDEX, 1, None);
        let lookup = world.peek(ORDERS_INDEX, 1, Some(vec![Row::new([2]), Row::new([7])]));
        assert_eq!(world.answer(before), rows(&[&[1, 10], &[2, 20], &[3, 30]]));
        assert_eq!(world.answer(after), rows(&[&[1, 10], &[2, 21], &[3, 30]]));
        assert_eq!(world.answer(lookup), rows(&[&[2, 21]]));
    }
}

#[test]
fn a_peek_waits_for_its_time_to_be_complete() {
    for (layout, workers) in LAYOUTS {
        let mut world = two_indexes(layout, workers);
        let future = world.peek(ORDERS_INDEX, 1, None);
        world.complete(ORDERS_INDEX, 1);
        world.append(ORDERS, &[(&[4, 40], 1)]);
        assert_eq!(world.answer(future), rows(&[&[1, 10], &[2, 20], &[3, 30], &[4, 40]]));
    }
}

#[test]
fn a_query_joins_and_reduces_indexes() {
    for (layout, workers) in LAYOUTS {
        let mut world = two_indexes(layout, workers);
        let join = Plan::Join {
            inputs: vec![get(held_by(ORDERS_INDEX)), get(held_by(ITEMS_INDEX))],
            keys: vec![vec![0], vec![0]],
        };
        let sums = Plan::Reduce {
            input: Box::new(join.clone()),
            key: vec![0],
            aggregates: vec![Aggregate::Count, Aggregate::Sum(3)],
        };
        let join = world.query(join, vec![ORDERS_INDEX, ITEMS_INDEX], 0);
        let sums = world.query(sums, vec![ORDERS_INDEX, ITEMS_INDEX], 0);
        assert_eq!(
            world.answer(join),
            rows(&[&[1, 10, 1, 100], &[1, 10, 1, 101], &[3, 30, 3, 300]])
        );
        assert_eq!(world.answer(sums), rows(&[&[1, 2, 201], &[3, 1, 300]]));
    }
}

#[test]
fn an_index_over_indexes_follows_them() {
    for (layout, workers) in LAYOUTS {
        let mut world = two_indexes(layout, workers);
        let totals = Plan::Reduce {
            input: Box::new(get(held_by(ITEMS_INDEX))),
            key: vec![0],
            aggregates: vec![Aggregate::Max(1)],
        };
        world.index(TOTALS_INDEX, totals, &[0], &[(ITEMS_INDEX, 2)]);
        world.append(ITEMS, &[(&[1, 101], -1), (&[3, 301], 1)]);
        let before = world.peek(TOTALS_INDEX, 0, None);
        let after = world.peek(TOTALS_INDEX, 1, None);
        assert_eq!(world.answer(before), rows(&[&[1, 101], &[3, 300]]));
        assert_eq!(world.answer(after), rows(&[&[1, 100], &[3, 301]]));
    }
}

#[test]
fn an_error_in_the_data_is_the_answer_until_it_is_retracted() {
    for (layout, workers) in LAYOUTS {
        let mut world = two_indexes(layout, workers);
        let ratio = Plan::Map {
            input: Box::new(get(ORDERS)),
            exprs: vec![Expr::column(1).call(BinaryFunc::Div, Expr::column(0))],
        };
        world.index(TOTALS_INDEX, ratio, &[0], &[(ORDERS, 2)]);
        world.append(ORDERS, &[(&[0, 5], 1)]);
        world.append(ORDERS, &[(&[0, 5], -1)]);
        let during = world.peek(TOTALS_INDEX, 1, None);
        let after = world.peek(TOTALS_INDEX, 2, None);
        assert_eq!(world.answer(during), PeekResponse::Error("division by zero".to_string()));
        assert_eq!(world.answer(after), rows(&[&[1, 10, 10], &[2, 20, 10], &[3, 30, 10]]));
    }
}

#[test]
fn a_cancelled_peek_is_answered_once_as_cancelled() {
    for (layout, workers) in LAYOUTS {
        let mut world = two_indexes(layout, workers);
        let never = world.peek(ORDERS_INDEX, 1_000, None);
        assert!(world.controller.cancel(never));
        assert_eq!(world.answer(never), PeekResponse::Canceled);
        let query = world.query(get(held_by(ORDERS_INDEX)), vec![ORDERS_INDEX], 1_000);
        assert!(world.controller.cancel(query));
        assert_eq!(world.answer(query), PeekResponse::Canceled);
    }
}

#[test]
fn compaction_moves_on_and_reads_below_it_are_refused_by_the_controller() {
    for (layout, workers) in LAYOUTS {
        let mut world = two_indexes(layout, workers);
        world.controller.set_read_policy(ORDERS_INDEX, ReadPolicy::LagBy(2)).expect("an index");
        for round in 0..50 {
            world.append(ORDERS, &[(&[100 + round, 1], 1)]);
        }
        world.complete(ORDERS_INDEX, 51);
        world.until("compaction", |world| {
            world.controller.since(ORDERS_INDEX).is_some_and(|since| since.as_option() == Some(&48))
        });
        let request = tandem::controller::PeekRequest {
            target: ORDERS_INDEX,
            timestamp: 47,
            keys: None,
            finishing: Default::default(),
        };
        let refused = world.controller.peek(request).expect_err("below since").to_string();
        assert!(refused.contains("47") && refused.contains("48"), "{refused}");
        let readable = world.peek(ORDERS_INDEX, 48, Some(vec![Row::new([2])]));
        assert_eq!(world.answer(readable), rows(&[&[2, 20]]));
    }
}

#[test]
fn a_dropped_index_is_gone_and_its_name_can_be_used_again() {
    for (layout, workers) in LAYOUTS {
        let mut world = two_indexes(layout, workers);
        world.complete(ITEMS_INDEX, 1);
        world.controller.drop_collection(ITEMS_INDEX).expect("an index");
        world.until("the drop", |world| world.controller.since(ITEMS_INDEX).is_none());
        world.index(ITEMS_INDEX, get(ORDERS), &[1], &[(ORDERS, 2)]);
        let again = world.peek(ITEMS_INDEX, 0, Some(vec![Row::new([20])]));
        assert_eq!(world.answer(again), rows(&[&[2, 20]]));
        assert_eq!(world.statuses, Vec::<String>::new());
    }
}

#[test]
fn what_does_not_fit_the_data_is_a_typed_error_and_the_replica_lives_on() {
    for (layout, workers) in LAYOUTS {
        let mut world = two_indexes(layout, workers);
        // What the controller would refuse, sent past it.
        let peek = Peek {
            uuid: PeekId(1_000),
            target: ORDERS_INDEX,
            timestamp: 0,
            keys: None,
            finishing: Finishing { project: Some(vec![7]), ..Finishing::default() },
        };
        world.replica.send(Command::Peek(Box::new(peek))).expect("routed");
        let wrong = Plan::Project { input: Box::new(get(ORDERS)), columns: vec![4] };
        let mut dataflow = DataflowDescription {
            source_imports: [(ORDERS, 5)].into(),
            index_imports: Default::default(),
            objects_to_build: vec![(GlobalId::User(900), wrong)],
            index_exports: [(
                GlobalId::User(901),
                IndexDescription { on: GlobalId::User(900), key: vec![0] },
            )]
            .into(),
            as_of: 0,
            until: Default::default(),
        };
        world.replica.send(Command::CreateDataflow(Box::new(dataflow.clone()))).expect("routed");
        dataflow.source_imports = [(ORDERS, 2)].into();
        let other = IndexDescription { on: GlobalId::User(900), key: vec![0] };
        dataflow.index_exports = [(GlobalId::User(902), other)].into();
        world.replica.send(Command::CreateDataflow(Box::new(dataflow))).expect("routed");
        let (mut answer, mut statuses) = (None, Vec::new());
        while answer.is_none() || statuses.len() < 2 {
            match world.replica.recv_timeout(std::time::Duration::from_secs(30)) {
                Some(Response::Peek { uuid: PeekId(1_000), response }) => answer = Some(response),
                Some(Response::Status { message }) => statuses.push(message),
                Some(_) => {}
                None => panic!("{answer:?}, {statuses:?} is all that came"),
            }
        }
        let PeekResponse::Error(message) = answer.expect("just seen") else { panic!("answered") };
        assert!(message.contains("column 7 of rows that have 2"), "{message}");
        assert!(statuses[0].contains("u1") && statuses[0].contains('5'), "{statuses:?}");
        assert!(statuses[1].contains("column 4 of rows that have 2"), "{statuses:?}");
        let alive = world.peek(ITEMS_INDEX, 0, Some(vec![Row::new([3])]));
        assert_eq!(world.answer(alive), rows(&[&[3, 300]]));
    }
}

#[test]
fn unequal_peers_are_refused_with_both_numbers() {
    let mut config = ReplicaConfig::new(Layout::Split, 2);
    config.workers[1] = 3;
    let error = Replica::start(config, &Shards::new()).err().expect("unequal peers");
    assert!(matches!(error, StartError::Peers(_)));
    let message = error.to_string();
    assert!(message.contains("3 workers") && message.contains("among 2"), "{message}");
}

#[test]
fn a_second_connection_rebuilds_everything_and_answers_what_is_outstanding() {
    for (layout, workers) in LAYOUTS {
        let mut world = two_indexes(layout, workers);
        let first = world.peek(ORDERS_INDEX, 0, Some(vec![Row::new([2])]));
        assert_eq!(world.answer(first), rows(&[&[2, 20]]));
        let outstanding = world.peek(ORDERS_INDEX, 1, None);
        let canceled = world.peek(ORDERS_INDEX, 1_000, None);
        world.controller.cancel(canceled);
        world.reconnect(2);
        world.append(ORDERS, &[(&[4, 40], 1)]);
        world.append(ITEMS, &[]);
        assert_eq!(world.answer(outstanding), rows(&[&[1, 10], &[2, 20], &[3, 30], &[4, 40]]));
        assert_eq!(world.answer(canceled), PeekResponse::Canceled);
        // Reported in the new connection, so built in it.
        world.complete(ITEMS_INDEX, 2);
        let again = world.query(get(held_by(ITEMS_INDEX)), vec![ITEMS_INDEX], 1);
        assert_eq!(world.answer(again), rows(&[&[1, 100], &[1, 101], &[3, 300]]));
        assert_eq!(world.statuses, Vec::<String>::new());
    }
}
