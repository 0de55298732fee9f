//! A replica on threads: its runtimes, each worker a thread, behind one endpoint.
//!
//! The runtimes share fate: a panic on any of their threads ends the process, because what the other would go on to
//! serve could no longer be trusted (DESIGN 4.8).

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use timely::communication::{Allocator, AllocatorBuilder};
use timely::worker::Worker;

pub use crate::router::endpoint::Layout;

use crate::env::{self, Role};
use crate::protocol::{Command, Nonce, Response};
use crate::registry::{Registry, UnequalPeers};
use crate::router::RouteError;
use crate::router::endpoint::Endpoint;
use crate::runtime::{Directive, IDLE_EFFORT, Inbox, Runtime, RuntimeConfig, worker_config};
use crate::shard::Shards;

/// Called at the beginning of every turn of every worker, on its thread.
pub type TurnHook = Arc<dyn Fn(Role, usize) + Send + Sync>;

/// A response on its way: the runtime, the worker, and the connection it belongs to.
type FromWorker = (Role, usize, Nonce, Response);

/// How a replica is made.
#[derive(Clone)]
pub struct ReplicaConfig {
    /// Which runtimes it has.
    pub layout: Layout,
    /// The workers of each runtime, in the order of [`Layout::roles`]. All the same.
    pub workers: Vec<usize>,
    /// For whoever watches the workers, if anybody.
    pub on_turn: Option<TurnHook>,
}

impl ReplicaConfig {
    /// Runtimes of `workers` workers each.
    pub fn new(layout: Layout, workers: usize) -> Self {
        ReplicaConfig { layout, workers: vec![workers; layout.roles().len()], on_turn: None }
    }
}

/// Why a replica cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A number of workers for each runtime is needed.
    #[error(
        "a {layout:?} replica has {expected} runtimes, but {given} numbers of workers are given"
    )]
    Runtimes {
        /// The layout.
        layout: Layout,
        /// Its runtimes.
        expected: usize,
        /// The numbers given.
        given: usize,
    },
    /// A runtime without workers.
    #[error("the {0:?} runtime has no workers")]
    NoWorkers(Role),
    /// Runtimes of unequal size.
    #[error(transparent)]
    Peers(#[from] UnequalPeers),
    /// Timely did not make its allocators, or a thread did not start.
    #[error("workers cannot be started: {0}")]
    Workers(String),
}

/// A running replica. Dropping it stops its threads.
pub struct Replica {
    endpoint: Endpoint,
    inboxes: Vec<(Role, Inbox<Directive>)>,
    responses: Receiver<FromWorker>,
    threads: Vec<JoinHandle<()>>,
}

impl Replica {
    /// Starts the threads of a replica that reads `shards`.
    ///
    /// # Errors
    /// [`StartError`]; no thread is running then.
    pub fn start(config: ReplicaConfig, shards: &Arc<Shards>) -> Result<Replica, StartError> {
        let ReplicaConfig { layout, workers, on_turn } = config;
        let roles = layout.roles();
        if workers.len() != roles.len() {
            let (expected, given) = (roles.len(), workers.len());
            return Err(StartError::Runtimes { layout, expected, given });
        }
        let peers = workers[0];
        let registry = Registry::new(peers);
        for (role, workers) in roles.iter().zip(&workers) {
            if *workers == 0 {
                return Err(StartError::NoWorkers(*role));
            }
            registry.admit(*role, *workers)?;
        }
        let (sender, responses) = mpsc::channel();
        let endpoint = Endpoint::new(layout, peers);
        let mut replica = Replica { endpoint, inboxes: Vec::new(), responses, threads: Vec::new() };
        for role in roles {
            let inbox = Inbox::default();
            replica.inboxes.push((*role, inbox.clone()));
            let registry = (layout == Layout::Split).then(|| Arc::clone(&registry));
            let start = Start { role: *role, registry, shards: Arc::clone(shards), inbox };
            replica.start_runtime(start, peers, &sender, &on_turn)?;
        }
        Ok(replica)
    }

    fn start_runtime(
        &mut self,
        start: Start,
        peers: usize,
        sender: &Sender<FromWorker>,
        on_turn: &Option<TurnHook>,
    ) -> Result<(), StartError> {
        let (builders, _) =
            timely::CommunicationConfig::Process(peers).try_build().map_err(StartError::Workers)?;
        for (index, builder) in builders.into_iter().enumerate() {
            let (start, sender, on_turn) = (start.clone(), sender.clone(), on_turn.clone());
            let thread = std::thread::Builder::new()
                .name(format!("{:?}-{index}", start.role).to_lowercase())
                .spawn(move || share_fate(|| run_worker(start, index, builder, sender, on_turn)))
                .map_err(|error| StartError::Workers(error.to_string()))?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Sends a command to the runtimes it concerns.
    ///
    /// # Errors
    /// [`RouteError`] when it breaks the protocol; no runtime has seen it then.
    pub fn send(&mut self, command: Command) -> Result<(), RouteError> {
        for (to, command) in self.endpoint.command(command)? {
            self.push(to, Directive::Command(command));
        }
        Ok(())
    }

    /// The next response, unless none comes within `timeout`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Option<Response> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.responses.recv_timeout(left) {
                Ok((role, worker, nonce, response)) => {
                    match self.endpoint.response(role, worker, nonce, response) {
                        Ok(Some(response)) => return Some(response),
                        Ok(None) => {}
                        Err(error) => tracing::error!(%error, "a worker contradicts itself"),
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn push(&self, to: Role, directive: Directive) {
        let inbox = self.inboxes.iter().find(|(role, _)| *role == to);
        inbox.expect("routed to a runtime of this replica").1.push(directive);
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        for (_, inbox) in &self.inboxes {
            inbox.push(Directive::Shutdown);
        }
        for thread in self.threads.drain(..) {
            // A worker that panicked has ended the process: there is nobody to tell.
            let _ = thread.join();
        }
    }
}

#[derive(Clone)]
struct Start {
    role: Role,
    registry: Option<Arc<Registry>>,
    shards: Arc<Shards>,
    inbox: Inbox<Directive>,
}

fn run_worker(
    start: Start,
    index: usize,
    builder: AllocatorBuilder,
    sender: Sender<FromWorker>,
    on_turn: Option<TurnHook>,
) {
    let allocator = match builder {
        AllocatorBuilder::Process(process) => Allocator::Process(process.build()),
        _ => unreachable!("a process configuration makes process allocators"),
    };
    let Start { role, registry, shards, inbox } = start;
    let config = RuntimeConfig {
        role,
        registry,
        shards,
        inbox: (index == 0).then_some(inbox),
        // Nobody listens any more once the replica is being dropped.
        respond: Box::new(move |nonce, response| drop(sender.send((role, index, nonce, response)))),
    };
    let worker = Worker::new(worker_config(Some(IDLE_EFFORT)), allocator, None);
    let mut runtime = Runtime::new(worker, config).expect("peers were checked before any thread");
    loop {
        if let Some(hook) = &on_turn {
            hook(role, index);
        }
        let turn = runtime.turn();
        if turn.shutdown {
            return;
        }
        if !turn.busy {
            env::park();
        }
    }
}

/// Ends the process when `body` panics: the other runtime must not live on.
fn share_fate(body: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a worker");
        eprintln!("{name} panicked: the runtimes of a replica share fate, so the process ends");
        std::process::abort();
    }
}
