//! Conformance: the same scenarios on OS threads, against the same model.
//!
//! The client is the one of the simulation; the replica is [`tandem::replica::Replica`], which nobody schedules but the
//! operating system. What can be judged is what the controller sees: answers, responses, frontiers, convergence. Faults of
//! the scenario are left out, and its gaps only order what is done.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tandem::replica::{Layout, Replica, ReplicaConfig};
use tandem::repr::Frontier;

use super::CLOCK_NS;
use super::client::{Agenda, Client};
use super::judge::Judge;
use crate::report::{Oracle, RunReport};
use crate::scenario::Scenario;

/// How long the replica may take to converge. Generous: other tests may be running.
const PATIENCE: Duration = Duration::from_secs(60);

/// Carries out a scenario on threads, all workers of a runtime in one process.
///
/// # Panics
/// If threads cannot be started.
pub fn run(scenario: &Scenario) -> RunReport {
    let judge = Rc::new(Judge::new(scenario, None));
    let mut client = Client::new(scenario, &judge);
    let config = ReplicaConfig::new(Layout::Split, scenario.peers());
    let replica = Replica::start(config, &client.shards()).expect("equal peers");
    let mut system = System { replica, judge: Rc::clone(&judge) };
    let mut agenda = Agenda::new(scenario, 0);
    while let Some(next_ns) = agenda.next_ns(&client) {
        CLOCK_NS.set(next_ns);
        if let Some(due) = agenda.take(&mut client) {
            client.perform(due);
        }
        system.exchange(&mut client, Duration::ZERO);
    }
    let target = Frontier::from_elem(client.settle());
    system.until(&mut client, |client, judge| {
        let mut missing: Vec<_> =
            judge.unanswered().iter().map(|peek| format!("{peek} is not answered")).collect();
        let behind = client.indexes().into_iter();
        let behind = behind.filter(|id| client.controller().upper(*id) != Some(&target));
        missing.extend(behind.map(|id| format!("{id} is behind")));
        missing
    });
    client.drop_all();
    let sources = scenario.sources.len();
    system.until(&mut client, |client, _| {
        let left = client.controller().collections().skip(sources);
        left.map(|id| format!("{id} is not dropped")).collect()
    });
    let shape = (scenario.processes, scenario.workers);
    judge.report(scenario.seed, shape, 0, 0, 0)
}

struct System {
    replica: Replica,
    judge: Rc<Judge>,
}

impl System {
    /// Sends what the controller has to say, and takes what the replica has said within `wait`.
    fn exchange(&mut self, client: &mut Client, mut wait: Duration) {
        for command in client.take_commands() {
            if let Err(error) = self.replica.send(command) {
                self.judge.violated(Oracle::O8, 0, format!("the router: {error}"));
            }
        }
        while let Some(response) = self.replica.recv_timeout(wait) {
            client.response(response);
            wait = Duration::ZERO;
        }
    }

    /// Goes on until nothing is missing, or a violation.
    fn until(&mut self, client: &mut Client, missing: impl Fn(&Client, &Judge) -> Vec<String>) {
        let deadline = Instant::now() + PATIENCE;
        while !self.judge.failed() {
            self.judge.checked(Oracle::O7);
            let missing = missing(client, &self.judge);
            if missing.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                self.judge.violated(Oracle::O7, 0, missing.join("; "));
            }
            self.exchange(client, Duration::from_millis(5));
        }
    }
}
