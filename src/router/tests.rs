use std::collections::BTreeMap;

use timely::progress::Antichain;

use super::*;
use crate::plan::{Finishing, IndexDescription, Plan};
use crate::protocol::{Frontiers, InstanceConfig, Parameters, Peek, PeekId, PeekResponse};
use crate::repr::{Frontier, step_forward};

const INDEX: GlobalId = GlobalId::User(1);
const QUERY: GlobalId = GlobalId::Transient(1);

fn create(id: GlobalId, until: Frontier) -> Command {
    let on = GlobalId::User(100);
    Command::CreateDataflow(Box::new(DataflowDescription {
        source_imports: BTreeMap::from([(on, 1)]),
        index_imports: BTreeMap::new(),
        objects_to_build: vec![(GlobalId::User(101), Plan::Get(on))],
        index_exports: BTreeMap::from([(id, IndexDescription { on, key: vec![0] })]),
        as_of: 5,
        until,
    }))
}

fn compact(id: GlobalId, frontier: Frontier) -> Command {
    Command::AllowCompaction { id, frontier }
}

fn report(id: GlobalId, frontier: Frontier) -> Response {
    let write = Some(frontier.clone());
    let frontiers = Frontiers { write, input: Some(frontier.clone()), output: Some(frontier) };
    Response::Frontiers { id, frontiers }
}

fn at(time: u64) -> Frontier {
    Antichain::from_elem(time)
}

/// A router with one index and one query.
fn router() -> Router {
    let mut router = Router::new();
    goes_to(&mut router, Command::Hello { nonce: Nonce(1) }, &BOTH);
    goes_to(&mut router, create(INDEX, Frontier::new()), &[Role::Maintenance]);
    goes_to(&mut router, create(QUERY, step_forward(5)), &[Role::Interactive]);
    router
}

const BOTH: [Role; 2] = [Role::Maintenance, Role::Interactive];

fn goes_to(router: &mut Router, command: Command, roles: &[Role]) {
    let expected: Vec<(Role, Command)> =
        roles.iter().map(|role| (*role, command.clone())).collect();
    assert_eq!(router.command(command), Ok(expected));
}

#[test]
fn every_command_goes_where_the_table_says() {
    let mut router = router();
    goes_to(&mut router, Command::CreateInstance(InstanceConfig { peers: 1 }), &BOTH);
    goes_to(&mut router, Command::UpdateConfiguration(Parameters::default()), &BOTH);
    goes_to(&mut router, Command::InitializationComplete, &BOTH);
    goes_to(&mut router, peek(INDEX), &[Role::Interactive]);
    goes_to(&mut router, Command::CancelPeek { uuid: PeekId(1) }, &[Role::Interactive]);
    for (id, role) in [(INDEX, Role::Maintenance), (QUERY, Role::Interactive)] {
        goes_to(&mut router, Command::Schedule(id), &[role]);
        goes_to(&mut router, Command::AllowWrites(id), &[role]);
        goes_to(&mut router, compact(id, at(6)), &[role]);
        goes_to(&mut router, compact(id, Frontier::new()), &[role]);
    }
    let dropped = RouteError::Dropped { command: "Peek", id: INDEX };
    assert_eq!(router.command(peek(INDEX)), Err(dropped));
    let unknown = GlobalId::User(404);
    let error = RouteError::Unknown { command: "Peek", id: unknown };
    assert_eq!(router.command(peek(unknown)), Err(error));
}

fn peek(target: GlobalId) -> Command {
    let finishing = Finishing::default();
    let peek = Peek { uuid: PeekId(1), target, timestamp: 6, keys: None, finishing };
    Command::Peek(Box::new(peek))
}

#[test]
fn only_a_bounded_read_is_interactive() {
    let mut router = Router::new();
    let maintained_until = create(GlobalId::User(2), step_forward(9));
    goes_to(&mut router, maintained_until, &[Role::Maintenance]);
    let unbounded = create(GlobalId::Transient(2), Frontier::new());
    goes_to(&mut router, unbounded, &[Role::Maintenance]);
}

#[test]
fn frontiers_pass_from_the_owner_and_answers_from_the_interactive_runtime_only() {
    let mut router = router();
    let passes = |router: &mut Router, from, response: Response| {
        let passed = router.response(from, response.clone());
        assert!(passed.is_none() || passed == Some(response));
        passed.is_some()
    };
    assert!(passes(&mut router, Role::Maintenance, report(INDEX, at(7))));
    assert!(!passes(&mut router, Role::Interactive, report(INDEX, at(8))));
    assert!(passes(&mut router, Role::Interactive, report(QUERY, at(7))));
    assert!(!passes(&mut router, Role::Maintenance, report(QUERY, at(8))));
    let answer = Response::Peek { uuid: PeekId(1), response: PeekResponse::Canceled };
    assert!(passes(&mut router, Role::Interactive, answer.clone()));
    assert!(!passes(&mut router, Role::Maintenance, answer));
    let status = Response::Status { message: "no".to_string() };
    assert!(passes(&mut router, Role::Maintenance, status.clone()));
    assert!(passes(&mut router, Role::Interactive, status));
}

#[test]
fn the_foreign_runtime_cannot_end_a_collection() {
    let mut router = router();
    goes_to(&mut router, compact(INDEX, Frontier::new()), &[Role::Maintenance]);
    assert_eq!(router.response(Role::Interactive, report(INDEX, Frontier::new())), None);
    assert_eq!(router.owner(INDEX), Some(Role::Maintenance));
}

#[test]
fn the_last_report_of_a_dropped_collection_passes_and_ends_its_route() {
    let mut router = router();
    goes_to(&mut router, compact(QUERY, Frontier::new()), &[Role::Interactive]);
    let closing = Response::Frontiers {
        id: QUERY,
        frontiers: Frontiers { write: Some(Frontier::new()), ..Frontiers::default() },
    };
    assert_eq!(router.response(Role::Interactive, closing.clone()), Some(closing));
    assert_eq!(router.owner(QUERY), Some(Role::Interactive), "its output is still open");
    let last = report(QUERY, Frontier::new());
    assert_eq!(router.response(Role::Interactive, last.clone()), Some(last));
    assert_eq!(router.owner(QUERY), None);
}

#[test]
fn a_collection_that_closes_before_its_drop_is_forgotten_with_the_drop() {
    let mut router = router();
    let last = report(QUERY, Frontier::new());
    assert_eq!(router.response(Role::Interactive, last.clone()), Some(last));
    assert_eq!(router.owner(QUERY), Some(Role::Interactive));
    goes_to(&mut router, compact(QUERY, Frontier::new()), &[Role::Interactive]);
    assert_eq!(router.owner(QUERY), None);
    assert_eq!(router.len(), 1);
}

#[test]
fn an_id_is_created_again_only_after_the_last_report_of_its_predecessor() {
    let mut router = router();
    let again = || create(INDEX, Frontier::new());
    let owner = Role::Maintenance;
    assert_eq!(router.command(again()), Err(RouteError::Exists { id: INDEX, owner }));
    goes_to(&mut router, compact(INDEX, Frontier::new()), &[owner]);
    assert_eq!(router.command(again()), Err(RouteError::Draining { id: INDEX, owner }));
    assert!(router.response(owner, report(INDEX, Frontier::new())).is_some());
    goes_to(&mut router, again(), &[owner]);
    let first = report(INDEX, at(5));
    assert_eq!(router.response(owner, first.clone()), Some(first), "the successor starts afresh");
}

#[test]
fn a_command_about_an_unknown_or_dropped_collection_names_it_and_changes_nothing() {
    let mut router = router();
    goes_to(&mut router, compact(INDEX, Frontier::new()), &[Role::Maintenance]);
    let unknown = GlobalId::User(77);
    for id in [unknown, INDEX] {
        let commands = [
            ("Schedule", Command::Schedule(id)),
            ("AllowWrites", Command::AllowWrites(id)),
            ("AllowCompaction", compact(id, at(9))),
        ];
        for (kind, command) in commands {
            let error = router.command(command).expect_err("nobody owns it");
            let expected = match id == unknown {
                true => RouteError::Unknown { command: kind, id },
                false => RouteError::Dropped { command: kind, id },
            };
            assert_eq!(error, expected);
            assert!(error.to_string().contains(&id.to_string()));
        }
    }
    assert_eq!((router.owner(unknown), router.len()), (None, 2));
}

#[test]
fn a_new_connection_forgets_all_routes_and_an_old_one_cannot_come_back() {
    let mut router = router();
    goes_to(&mut router, Command::Hello { nonce: Nonce(2) }, &BOTH);
    assert!(router.is_empty());
    assert_eq!(router.response(Role::Maintenance, report(INDEX, at(6))), None);
    goes_to(&mut router, create(INDEX, Frontier::new()), &[Role::Maintenance]);
    let stale = router.command(Command::Hello { nonce: Nonce(2) });
    assert_eq!(stale, Err(RouteError::Stale { current: Nonce(2), nonce: Nonce(2) }));
    assert_eq!(router.owner(INDEX), Some(Role::Maintenance));
}
