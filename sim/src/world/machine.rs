//! The replica's threads, and the endpoint in front of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use tandem::env::{self, Role};
use tandem::protocol::{Command, Nonce, Response};
use tandem::registry::Registry;
use tandem::replica::Layout;
use tandem::router::endpoint::Endpoint;
use tandem::runtime::{Directive, Inbox, Population, Runtime, RuntimeConfig, worker_config};
use timely::communication::Allocator;
use timely::worker::Worker;

use super::judge::Judge;
use super::witness::Fact;
use super::{SharedShards, now_ns};
use crate::report::Oracle;
use crate::scenario::Scenario;
use crate::sched::{self, Scheduler, ThreadId};

const LAYOUT: Layout = Layout::Split;

/// A worker's response on its way to process 0.
pub(super) type FromWorker = (Role, usize, Nonce, Response);

/// The replica: threads, the registry of each process, and the endpoint in process 0.
pub(super) struct Machine {
    scheduler: Scheduler,
    workers: usize,
    idle_effort: Option<usize>,
    threads: Vec<ThreadId>,
    inboxes: Vec<(Role, Inbox<Directive>)>,
    registries: Vec<Arc<Registry>>,
    endpoint: RefCell<Endpoint>,
    /// What the workers of each process have said.
    outboxes: Rc<Vec<RefCell<VecDeque<FromWorker>>>>,
    populations: Vec<Rc<Cell<Population>>>,
}

/// The scheduler's group of a runtime's threads.
pub(super) fn group(role: Role) -> u32 {
    match role {
        Role::Solo => 0,
        Role::Maintenance => 1,
        Role::Interactive => 2,
    }
}

/// The thread of a worker, counted over all processes.
pub(super) fn thread(scenario: &Scenario, role: Role, worker: usize) -> ThreadId {
    let runtime = LAYOUT.roles().iter().position(|known| *known == role).unwrap_or(0);
    ThreadId((runtime * scenario.peers() + worker % scenario.peers()) as u64)
}

/// The allocators of every runtime. To be called outside of the simulation.
pub(super) fn clusters(scenario: &Scenario) -> Vec<(Role, Vec<Allocator>)> {
    let roles = LAYOUT.roles().iter();
    roles.map(|role| (*role, sched::timely::allocators(scenario.peers()))).collect()
}

impl Machine {
    /// Spawns the workers.
    pub(super) fn start(
        scheduler: Scheduler,
        scenario: &Scenario,
        clusters: Vec<(Role, Vec<Allocator>)>,
        shards: SharedShards,
        judge: &Judge,
    ) -> Machine {
        let (peers, workers) = (scenario.peers(), scenario.workers);
        let registries: Vec<_> = (0..scenario.processes).map(|_| Registry::new(peers)).collect();
        let outboxes = (0..scenario.processes).map(|_| RefCell::default()).collect();
        let mut machine = Machine {
            scheduler,
            workers,
            idle_effort: scenario.idle_effort,
            threads: Vec::new(),
            inboxes: Vec::new(),
            registries,
            endpoint: RefCell::new(Endpoint::new(LAYOUT, peers)),
            outboxes: Rc::new(outboxes),
            populations: Vec::new(),
        };
        for (role, allocators) in clusters {
            let inbox = Inbox::default();
            machine.inboxes.push((role, inbox.clone()));
            let first = thread(scenario, role, 0).0;
            for (index, allocator) in allocators.into_iter().enumerate() {
                let peers = Peers { first, own: first + index as u64, count: peers as u64 };
                let inbox = (index == 0).then(|| inbox.clone());
                machine.spawn(role, index, allocator, inbox, &shards, peers, judge);
            }
        }
        machine
    }

    #[allow(clippy::too_many_arguments)]
    fn spawn(
        &mut self,
        role: Role,
        index: usize,
        allocator: Allocator,
        inbox: Option<Inbox<Directive>>,
        shards: &SharedShards,
        peers: Peers,
        judge: &Judge,
    ) {
        let process = index / self.workers;
        let (outboxes, population) = (Rc::clone(&self.outboxes), Rc::new(Cell::default()));
        self.populations.push(Rc::clone(&population));
        let config = RuntimeConfig {
            role,
            registry: Some(Arc::clone(&self.registries[process])),
            shards: Arc::clone(shards),
            inbox,
            respond: Box::new(move |nonce, response| {
                outboxes[process].borrow_mut().push_back((role, index, nonce, response));
            }),
        };
        let idle_effort = self.idle_effort;
        let name = format!("p{process}.{}{}", short(role), index % self.workers);
        judge.thread(peers.own, name.clone(), role, process);
        let body = move || run_worker(allocator, config, idle_effort, peers, &population);
        let id = self.scheduler.spawn(name, group(role), body);
        assert_eq!(id.0, peers.own, "threads are numbered in the order they are spawned");
        self.threads.push(id);
    }

    pub(super) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The threads of a process, or all.
    pub(super) fn threads_of(&self, process: Option<usize>) -> Vec<ThreadId> {
        let peers = self.workers * self.registries.len();
        let inside =
            |index: usize| process.is_none_or(|process| index % peers / self.workers == process);
        let threads = self.threads.iter().enumerate().filter(|(index, _)| inside(*index));
        threads.map(|(_, thread)| *thread).collect()
    }

    /// Hands a command to the runtimes it concerns.
    pub(super) fn command(&self, command: Command, judge: &Judge) {
        judge.exercised(command.kind());
        judge.fact(&Fact::Delivered(&command));
        match self.endpoint.borrow_mut().command(command) {
            Ok(routed) => {
                for (role, command) in routed {
                    let inbox = self.inboxes.iter().find(|(known, _)| *known == role);
                    let inbox = &inbox.expect("routed to a runtime of this replica").1;
                    inbox.push(Directive::Command(command));
                }
            }
            Err(error) => judge.violated(Oracle::O8, now_ns(), format!("the router: {error}")),
        }
    }

    /// What the replica has to say once a worker's response has reached process 0.
    pub(super) fn merge(&self, from: FromWorker, judge: &Judge) -> Option<Response> {
        let (role, worker, nonce, response) = from;
        match self.endpoint.borrow_mut().response(role, worker, nonce, response) {
            Ok(response) => response,
            Err(error) => {
                judge.violated(
                    Oracle::O5,
                    now_ns(),
                    format!("a worker contradicts itself: {error}"),
                );
                None
            }
        }
    }

    /// Takes what the workers of a process have said.
    pub(super) fn take_said(&self, process: usize) -> VecDeque<FromWorker> {
        std::mem::take(&mut *self.outboxes[process].borrow_mut())
    }

    /// Tells the network that there is something to carry.
    pub(super) fn flush(&self) {
        for (process, outbox) in self.outboxes.iter().enumerate() {
            if !outbox.borrow().is_empty() {
                super::network::said(process);
            }
        }
    }

    /// What every worker has.
    pub(super) fn populations(&self) -> Vec<Population> {
        self.populations.iter().map(|population| population.get()).collect()
    }

    /// The registry of each process.
    pub(super) fn registries(&self) -> &[Arc<Registry>] {
        &self.registries
    }
}

fn short(role: Role) -> &'static str {
    match role {
        Role::Solo => "s",
        Role::Maintenance => "m",
        Role::Interactive => "i",
    }
}

/// The threads of a runtime's workers.
#[derive(Clone, Copy)]
struct Peers {
    first: u64,
    own: u64,
    count: u64,
}

/// What an OS thread does in `tandem::replica`, and one thing more: timely wakes OS threads when a worker sends to
/// another, so here whoever did something wakes its peers.
fn run_worker(
    allocator: Allocator,
    config: RuntimeConfig,
    idle_effort: Option<usize>,
    peers: Peers,
    population: &Cell<Population>,
) {
    let worker = Worker::new(worker_config(idle_effort), allocator, None);
    let mut runtime = Runtime::new(worker, config).expect("all runtimes have the same size");
    let surroundings = env::surroundings().expect("threads are simulated");
    loop {
        let turn = runtime.turn();
        if turn.stepped {
            let all = peers.first..peers.first + peers.count;
            all.filter(|peer| *peer != peers.own).for_each(|peer| surroundings.unpark(peer));
        }
        if turn.shutdown {
            return;
        }
        if !turn.busy {
            population.set(runtime.population());
            env::park();
        }
    }
}
