//! A panic on any thread of either runtime ends the process: the other must not go on serving what can no longer be
//! trusted.

use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use tandem::env::Role;
use tandem::replica::{Layout, Replica, ReplicaConfig};
use tandem::shard::Shards;

/// Set for the process that is to die: the runtime that panics.
const CHILD: &str = "TANDEM_TEST_PANIC_IN";

/// Runs this test again in a process of its own, in which a worker of `role` panics.
fn die_with(role: Role, test: &str) -> Output {
    let myself = std::env::current_exe().expect("a test knows its executable");
    let arguments = [test, "--exact", "--nocapture"];
    let child = Command::new(myself).args(arguments).env(CHILD, format!("{role:?}")).output();
    child.expect("the test can be started again")
}

/// In the child: starts a replica of which one worker panics, and outlives it if that is possible.
fn live_on(role: Role) {
    let mut config = ReplicaConfig::new(Layout::Split, 2);
    config.on_turn = Some(Arc::new(move |turning, worker| {
        assert!((turning, worker) != (role, 1), "a planted panic");
    }));
    let _replica = Replica::start(config, &Shards::new()).expect("equal peers");
    std::thread::sleep(Duration::from_secs(20));
    println!("outlived the panic");
}

fn check(role: Role, test: &str) {
    if std::env::var(CHILD).is_ok() {
        return live_on(role);
    }
    let child = die_with(role, test);
    let (out, err) =
        (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(err.contains("a planted panic"), "nothing panicked: {err}");
    assert!(err.contains("share fate"), "{err}");
    assert!(!child.status.success() && !out.contains("outlived the panic"), "{out}");
}

#[test]
fn a_panic_in_the_maintenance_runtime_ends_the_process() {
    check(Role::Maintenance, "a_panic_in_the_maintenance_runtime_ends_the_process");
}

#[test]
fn a_panic_in_the_interactive_runtime_ends_the_process() {
    check(Role::Interactive, "a_panic_in_the_interactive_runtime_ends_the_process");
}
