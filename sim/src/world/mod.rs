//! The simulated world: a controller and a replica of two runtimes, talking over a simulated network.
//!
//! A [`run`] is drawn from a seed. The replica's workers are threads of the [scheduler](crate::sched), running the very
//! [`tandem::runtime::Runtime`] that OS threads run; [`machine`] owns them. The controller and whoever uses it are in
//! [`client`]. Between them are madsim's nodes and its TCP, carrying the protocol's own frames ([`network`]). All of it
//! shares one virtual clock: the scheduler's threads run ahead of madsim's timers by at most [`LOOKAHEAD_NS`].
//!
//! A run has two phases. First the scenario's operations and faults; then faults stop, sources are advanced to one
//! common time, and everything must converge, be dropped, and leave nothing behind ([`converge`]).
//!
//! One run must have its OS thread for itself, and be the first on it: thread-locals carry the world, and hash seeds are
//! drawn once per thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rand_core::RngCore;
use tandem::env::Role;
use tandem::zoo::{self, Defect};
use tokio::sync::Notify;

use crate::report::{Oracle, RunReport, Violation};
use crate::rng::Streams;
use crate::scenario::{Fault, Scenario, StrategyChoice, Victim};
use crate::sched::strategy::{Random, Starvation};
use crate::sched::{
    Choice, Config, Kind, Outcome, Recorded, Scheduler, Seeded, Source, ThreadId, Whom,
};

mod client;
mod converge;
mod judge;
mod machine;
mod network;
pub mod threads;
mod witness;

pub use witness::{Fact, Witness};

use client::Client;
use judge::Judge;
use machine::Machine;

/// How far the replica's threads may run ahead of the network, in nanoseconds of virtual time.
const LOOKAHEAD_NS: u64 = 20_000;

/// How long the second phase may take, in nanoseconds of virtual time after the last fault.
const CONVERGENCE_NS: u64 = 5_000_000_000;

/// Everything of one run that its tasks share.
struct World {
    scenario: Scenario,
    judge: Rc<Judge>,
    machine: Machine,
    client: RefCell<Client>,
    /// Wakes the task that runs the machine.
    pump: Notify,
    /// Wakes the task that writes commands to the replica.
    outgoing: Notify,
    /// The scheduler makes calm choices from now on.
    healed: Rc<Cell<bool>>,
    finished: Cell<bool>,
}

thread_local! {
    /// Tasks on madsim's nodes are `Send`, so they find their world here rather than carry it.
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// The world of the run on this OS thread.
fn world() -> Rc<World> {
    WORLD.with(|world| world.borrow().clone()).expect("tasks live inside a run")
}

thread_local! {
    /// What time it is where no simulation keeps it.
    static CLOCK_NS: Cell<u64> = const { Cell::new(0) };
}

/// How much of madsim's time passes in one nanosecond of virtual time, in nanoseconds.
///
/// Madsim makes every sleep last at least a millisecond, as tokio does, and its connections deliver by sleeping: no more
/// than one message a millisecond. Commands, steps and merges take microseconds. So its clock runs faster by so much that
/// its millisecond is one microsecond here.
const SCALE: u64 = 1_000;

/// A span of virtual time as madsim keeps it.
fn scaled(ns: u64) -> Duration {
    Duration::from_nanos(ns.saturating_mul(SCALE))
}

/// Virtual time since the run began, in nanoseconds.
fn now_ns() -> u64 {
    match madsim::time::TimeHandle::try_current() {
        Some(time) => {
            let elapsed = time.elapsed().as_nanos() / u128::from(SCALE);
            u64::try_from(elapsed).expect("a run is shorter than centuries")
        }
        None => CLOCK_NS.get(),
    }
}

/// Sleeps until a moment of virtual time, in nanoseconds since the run began.
async fn sleep_until_ns(at_ns: u64) {
    madsim::time::sleep(scaled(at_ns.saturating_sub(now_ns()))).await;
}

/// Where a run's decisions come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The scenario's strategy, with the numbers of its seed.
    Drawn,
    /// This list, and the calm choice after its end.
    Recorded(Vec<u32>),
}

/// A run to be carried out.
pub struct Plan {
    /// Everything that is done and goes wrong. It must be [valid](Scenario::validate).
    pub scenario: Scenario,
    /// The defect to put back into the system, if any.
    pub plant: Option<Defect>,
    /// Where decisions come from.
    pub schedule: Schedule,
    /// Sees everything that happens, if anybody. Changes nothing.
    pub witness: Option<Rc<dyn Witness>>,
}

/// What a run came to, and the decisions that led there.
pub struct Carried {
    /// What the oracles say.
    pub report: RunReport,
    /// The decisions, as [`Schedule::Recorded`] takes them.
    pub decisions: Vec<u32>,
}

/// Carries out one run. It must be the first on its OS thread.
pub fn carry_out(plan: Plan) -> Carried {
    zoo::plant(plan.plant);
    let streams = Streams::new(plan.scenario.seed);
    let mut config = madsim::Config::default();
    let network = plan.scenario.network;
    config.net.send_latency =
        scaled(network.latency_ns_min)..scaled(network.latency_ns_max.saturating_add(1));
    let seed = streams.stream("network").next_u64();
    let runtime = madsim::runtime::Runtime::with_seed_and_config(seed, config);
    // After the runtime, which seeds this thread's hash maps: allocators are the first to make one.
    let clusters = machine::clusters(&plan.scenario);
    let carried = runtime.block_on(simulate(plan, &streams, clusters));
    zoo::plant(None);
    carried
}

async fn simulate(
    plan: Plan,
    streams: &Streams,
    clusters: Vec<(Role, Vec<timely::communication::Allocator>)>,
) -> Carried {
    let Plan { scenario, schedule, witness, .. } = plan;
    let judge = Rc::new(Judge::new(witness));
    let healed = Rc::new(Cell::new(false));
    let source = match schedule {
        Schedule::Drawn => decisions(&scenario, streams, &healed),
        Schedule::Recorded(decisions) => {
            let (inner, healed) = (Recorded::new(decisions), Rc::clone(&healed));
            Box::new(UntilHealed { inner, healed })
        }
    };
    let scheduler = Scheduler::new(Config::default(), source, judge.clone());
    let installed = scheduler.install();
    let client = Client::new(&scenario, &judge);
    let machine = Machine::start(scheduler, &scenario, clusters, client.shards(), &judge);
    let world = Rc::new(World {
        scenario,
        judge: Rc::clone(&judge),
        machine,
        client: RefCell::new(client),
        pump: Notify::new(),
        outgoing: Notify::new(),
        healed,
        finished: Cell::new(false),
    });
    WORLD.set(Some(Rc::clone(&world)));
    let nodes = network::start(&world.scenario).await;
    let pump = madsim::task::spawn_local(pump(Rc::clone(&world)));
    let faults = madsim::task::spawn_local(faults(Rc::clone(&world)));
    client::operate(&world).await;
    if !world.judge.failed() {
        heal(&world);
        converge::converge(&world).await;
    }
    faults.abort();
    pump.abort();
    for node in nodes {
        madsim::runtime::Handle::current().kill(node);
    }
    finish(world, installed, judge)
}

/// Drops the world and judges what is left of it.
fn finish(world: Rc<World>, installed: tandem::env::Installed, judge: Rc<Judge>) -> Carried {
    WORLD.set(None);
    let scheduler = world.machine.scheduler();
    let at_ns = now_ns();
    let (count, decisions, hash) =
        (scheduler.decision_count(), scheduler.decisions(), scheduler.hash());
    let threads = scheduler.threads();
    world.judge.fact(&Fact::Over);
    scheduler.kill(&threads);
    let (seed, shape) = (world.scenario.seed, (world.scenario.processes, world.scenario.workers));
    judge.ended();
    // What the killed threads held is gone; what is left belongs to somebody who leaks.
    judge.check_memory(at_ns);
    drop(world);
    drop(installed);
    Carried { report: judge.report(seed, shape, at_ns, count, hash), decisions }
}

/// Where decisions come from: the scenario's strategy, until everything is healed.
fn decisions(scenario: &Scenario, streams: &Streams, healed: &Rc<Cell<bool>>) -> Box<dyn Source> {
    let random = streams.stream("schedule");
    let healed = Rc::clone(healed);
    match scenario.strategy {
        StrategyChoice::Random { switch_per_mille, stall_per_myriad, stall_ns_max } => {
            let stalls = (u64::from(stall_per_myriad) << 24) / 10_000;
            let stalls = u32::try_from(stalls).unwrap_or(1 << 24);
            let walk = walk(switch_per_mille);
            let strategy = walk.with_stalls(stalls).with_stalls_up_to(stall_ns_max);
            Box::new(UntilHealed { inner: Seeded::new(random, strategy), healed })
        }
        StrategyChoice::Starvation { victim, switch_per_mille, starve_ns, relief_ns } => {
            let victim = match victim {
                Victim::Runtime(role) => Whom::Group(machine::group(role)),
                Victim::Worker { role, worker } => {
                    Whom::Thread(machine::thread(scenario, role, worker))
                }
            };
            let walk = walk(switch_per_mille);
            let strategy = Starvation::new(walk, relief_ns, starve_ns).of(victim);
            Box::new(UntilHealed { inner: Seeded::new(random, strategy), healed })
        }
    }
}

/// A random walk that leaves a thread so many times in a thousand points, and less often inside long work.
fn walk(switch_per_mille: u32) -> Random {
    let chance = |per_mille: u32| u16::try_from((per_mille << 16) / 1_000).unwrap_or(u16::MAX);
    let often = [
        Kind::Lock,
        Kind::Locked,
        Kind::Unlocked,
        Kind::Swap,
        Kind::Swapped,
        Kind::Load,
        Kind::Merge,
        Kind::Turn,
        Kind::BeforePark,
    ];
    let seldom = [Kind::Records, Kind::Walked];
    let walk = often
        .into_iter()
        .fold(Random::default(), |walk, kind| walk.with_switch(kind, chance(switch_per_mille)));
    seldom.into_iter().fold(walk, |walk, kind| walk.with_switch(kind, chance(switch_per_mille) / 4))
}

/// Makes the calm choice once everything is healed.
struct UntilHealed<S> {
    inner: S,
    healed: Rc<Cell<bool>>,
}

impl<S: Source> Source for UntilHealed<S> {
    fn next(&mut self, choice: &Choice<'_>) -> u32 {
        if self.healed.get() { 0 } else { self.inner.next(choice) }
    }
}

/// Runs the machine's threads whenever they can run, and carries what they have to say.
async fn pump(world: Rc<World>) {
    loop {
        let scheduler = world.machine.scheduler();
        scheduler.advance_to(now_ns());
        let outcome = scheduler.run_until(now_ns() + LOOKAHEAD_NS);
        world.machine.flush();
        match outcome {
            Outcome::Idle => world.pump.notified().await,
            Outcome::Interrupted { .. } => madsim::task::yield_now().await,
            Outcome::Limit { next_ns } => {
                sleep_until_ns(next_ns.saturating_sub(LOOKAHEAD_NS / 2).max(now_ns() + 1)).await;
            }
            Outcome::Deadlock(deadlock) => {
                world.judge.deadlocked(now_ns(), &deadlock);
            }
            Outcome::Panicked(panicked) => {
                let message = format!("{} panicked: {}", panicked.name, panicked.message);
                let violation = Violation::new(Oracle::O8, panicked.at_ns, message);
                world.judge.found(violation.class("panic").of_thread(panicked.thread));
            }
        }
        if world.judge.failed() {
            world.finished.set(true);
            return;
        }
    }
}

/// Carries out the scenario's faults.
async fn faults(world: Rc<World>) {
    let mut moments: BTreeMap<u64, Vec<(usize, bool)>> = BTreeMap::new();
    for (index, fault) in world.scenario.faults.iter().enumerate() {
        let (from_ns, to_ns) = fault.window_ns();
        moments.entry(from_ns).or_default().push((index, true));
        moments.entry(to_ns).or_default().push((index, false));
    }
    for (at_ns, changes) in moments {
        sleep_until_ns(at_ns).await;
        for (index, begins) in changes {
            inject(&world, &world.scenario.faults[index], begins, at_ns);
        }
    }
}

fn inject(world: &World, fault: &Fault, begins: bool, at_ns: u64) {
    if begins {
        world.judge.exercised(fault.kind());
    }
    world.judge.fact(&Fact::Fault { fault, begins });
    let scheduler = world.machine.scheduler();
    let (from_ns, to_ns) = fault.window_ns();
    match fault {
        Fault::SlowMerge { factor, process, .. } => {
            let factor = if begins { u32::try_from(*factor).unwrap_or(u32::MAX) } else { 1 };
            for thread in world.machine.threads_of(*process) {
                scheduler.set_slow(Whom::Thread(thread), factor);
            }
        }
        Fault::StallWorker { role, worker, .. } if begins => {
            let thread: ThreadId = machine::thread(&world.scenario, *role, *worker);
            scheduler.stall(Whom::Thread(thread), at_ns, to_ns - from_ns);
        }
        Fault::StallRuntime { role, .. } if begins => {
            scheduler.stall(Whom::Group(machine::group(*role)), at_ns, to_ns - from_ns);
        }
        Fault::StallWorker { .. } | Fault::StallRuntime { .. } => {}
    }
    world.pump.notify_one();
}

/// Ends all faults.
fn heal(world: &World) {
    world.healed.set(true);
    world.judge.fact(&Fact::Healed);
    for thread in world.machine.threads_of(None) {
        world.machine.scheduler().set_slow(Whom::Thread(thread), 1);
    }
}

/// The shards of a run, for whoever needs them beside the client.
type SharedShards = Arc<tandem::shard::Shards>;
