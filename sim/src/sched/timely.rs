//! Timely workers as simulated threads.
//!
//! Any timely program can run under the scheduler: [`spawn_workers`] is to it what
//! `timely::execute` is on threads, and `examples/word_count.rs` shows it.
//!
//! Two things do not come by themselves. Allocators of one cluster wait for each other while they
//! are built ([`Builders`]). And when a worker sends to a peer, timely wakes the OS thread on which
//! the peer's allocator was built, which here runs no worker: a [`Cluster`] wakes the peers
//! instead, after each step that [did something](active).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use ::timely::CommunicationConfig;
use ::timely::communication::Allocator;
use ::timely::communication::allocator::AllocatorBuilder;
use ::timely::worker::Worker;
use tandem::env::{self, Activity};

use super::{Scheduler, ThreadId};

/// The connected allocators of a cluster of `peers` workers, in the order of their indexes.
///
/// Starts `peers` short-lived OS threads (some 50 us each), so it must be called outside of a
/// madsim runtime, which refuses to start threads. Whoever needs many clusters, or one inside, has
/// [`Builders`].
///
/// # Panics
/// As [`Builders`] does.
pub fn allocators(peers: usize) -> Vec<Allocator> {
    Builders::new(peers).allocators(peers)
}

/// OS threads that build allocators.
///
/// Each allocator of a cluster waits for all others while it is built, so that as many threads must
/// build them as there are. Once started, they serve any number of clusters, inside of a madsim
/// runtime too: what they build does not depend on who is faster. Nothing simulated runs on them.
pub struct Builders {
    threads: Vec<Builder>,
}

struct Builder {
    orders: Sender<AllocatorBuilder>,
    built: Receiver<Moved>,
    thread: Option<JoinHandle<()>>,
}

impl Builders {
    /// Starts threads for clusters of up to `peers_max` workers, outside of a madsim runtime.
    ///
    /// # Panics
    /// If the operating system refuses a thread.
    pub fn new(peers_max: usize) -> Self {
        Builders { threads: (0..peers_max).map(|_| Builder::start()).collect() }
    }

    /// The connected allocators of a cluster of `peers` workers, in the order of their indexes.
    ///
    /// # Panics
    /// If `peers` is zero or more than there are threads.
    pub fn allocators(&self, peers: usize) -> Vec<Allocator> {
        let most = self.threads.len();
        assert!((1..=most).contains(&peers), "a cluster of {peers}, where at most {most} can be");
        let (orders, _guard) = CommunicationConfig::Process(peers)
            .try_build()
            .expect("a cluster of one process opens no sockets, so nothing can fail");
        for (builder, order) in self.threads.iter().zip(orders) {
            builder.orders.send(order).expect(ALIVE);
        }
        let threads = self.threads.iter().take(peers);
        threads.map(|builder| builder.built.recv().expect(ALIVE).0).collect()
    }
}

/// Why a builder answers.
const ALIVE: &str = "a builder thread lives as long as its builders, and building cannot panic";

impl Builder {
    fn start() -> Self {
        let (orders, ordered) = channel();
        let (finished, built) = channel();
        let work = move || {
            for order in ordered {
                if finished.send(build(order)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("allocator builder".to_string()).spawn(work);
        let thread = thread.unwrap_or_else(|error| panic!("no thread to build with: {error}"));
        Builder { orders, built, thread: Some(thread) }
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        // Without its orders it ends.
        self.orders = channel().0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An allocator on its way from the thread that built it to the one that uses it.
struct Moved(Allocator);

// SAFETY: an allocator is not `Send` because of `Rc`s inside. All clones of these live in the same
// allocator, which is moved whole, once, right after it was built and before any channel was
// allocated; the thread that built it keeps nothing of it. What else it holds (channel ends,
// thread handles, an `Arc<Mutex>`) is `Send`.
unsafe impl Send for Moved {}

fn build(builder: AllocatorBuilder) -> Moved {
    match builder {
        AllocatorBuilder::Process(builder) => Moved(Allocator::Process(builder.build())),
        _ => unreachable!("a cluster of one process is made of process builders"),
    }
}

/// Whether the worker's last step found something to do or left something to do.
///
/// If not, the worker may park: whatever reaches it later comes with a wake. If so, its peers may
/// have been sent something and must be unparked. A peer that is woken for nothing takes one idle
/// step and wakes nobody, so a cluster comes to rest.
pub fn active(worker: &Worker) -> bool {
    let active = std::cell::Cell::new(false);
    worker.activations().borrow().map_active(|_| active.set(true));
    active.get()
}

/// The threads of one cluster's workers.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    threads: Rc<RefCell<Vec<ThreadId>>>,
}

impl Cluster {
    /// A cluster without workers.
    pub fn new() -> Self {
        Cluster::default()
    }

    /// Adds the thread of one more worker. All must be added before any of them runs, so that none
    /// misses a wake.
    pub fn add(&self, thread: ThreadId) {
        self.threads.borrow_mut().push(thread);
    }

    /// To be called by a worker's thread after each of its steps: wakes the other workers if the
    /// step was [`active`], and says whether the calling worker may park.
    pub fn stepped(&self, worker: &Worker) -> bool {
        if !active(worker) {
            return true;
        }
        if let Some(surroundings) = env::surroundings() {
            let current = surroundings.current();
            let threads = self.threads.borrow();
            let peers = threads.iter().filter(|thread| thread.0 != current);
            peers.for_each(|thread| surroundings.unpark(thread.0));
        }
        false
    }
}

/// A timely worker on its simulated thread.
pub struct SimulatedWorker {
    /// The worker. It has no timer, since that would be a wall clock.
    pub worker: Worker,
    cluster: Cluster,
}

impl SimulatedWorker {
    /// Takes a step, and parks if there was nothing to do. Says whether dataflows remain.
    ///
    /// In place of `Worker::step_or_park`, which without a timer never parks.
    pub fn step_or_park(&mut self) -> bool {
        let remain = {
            let _step = env::enter(Activity::Step);
            self.worker.step()
        };
        if self.cluster.stepped(&self.worker) && remain {
            env::park();
        }
        remain
    }
}

/// Spawns a thread for each allocator of a cluster, that makes a worker and runs `body` with it,
/// then steps until all of the worker's dataflows are complete.
///
/// # Panics
/// As [`Scheduler::spawn`] does.
pub fn spawn_workers(
    scheduler: &Scheduler,
    name: &str,
    group: u32,
    allocators: Vec<Allocator>,
    body: impl Fn(&mut SimulatedWorker) + 'static,
) -> Vec<ThreadId> {
    let cluster = Cluster::new();
    let body = Rc::new(body);
    let spawn = |(index, allocator)| {
        let (body, its) = (Rc::clone(&body), cluster.clone());
        let thread = scheduler.spawn(format!("{name} {index}"), group, move || {
            let worker = Worker::new(::timely::WorkerConfig::default(), allocator, None);
            let mut worker = SimulatedWorker { worker, cluster: its };
            body(&mut worker);
            while worker.step_or_park() {}
        });
        cluster.add(thread);
        thread
    };
    allocators.into_iter().enumerate().map(spawn).collect()
}
