//! One worker of one of a replica's runtimes.
//!
//! A [`Runtime`] is a state machine around a timely worker. Its one method, [`Runtime::turn`], applies queued commands in
//! order, steps timely once, serves what became readable, does maintenance, and says whether the worker may park.
//! Whoever runs it, a thread or a simulator, calls it in a loop and parks in between.
//!
//! The [`Role`] says what it does: a *maintenance* runtime owns maintained collections and publishes their indexes to the
//! [`Registry`]; an *interactive* one owns transient collections and reads maintained ones only through the registry; a
//! *solo* one owns everything and publishes nothing. Commands reach all workers of a runtime in one order, and dataflows
//! are rendered in that order, at once (H22).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use timely::PartialOrder;
use timely::worker::Worker;

pub use self::broadcast::Directive;
pub use self::inbox::Inbox;
pub use self::peek::DEFAULT_WALK_BUDGET;
pub use crate::env::Role;

use self::broadcast::Broadcast;
use self::collection::{Collection, Dataflow};
use self::peek::{Answer, Peeks, Waiting, Walking};
pub use crate::arrange::IDLE_EFFORT;
use crate::arrange::{EXERT_LOGIC, NotReady, Refused, idle_merging};
use crate::env::{self, Activity, Event, Point};
use crate::plan::{DataflowDescription, PlanError};
use crate::protocol::{Command, Nonce, Peek, PeekId, Response};
use crate::registry::{Mailbox, Registry, Slot, UnequalPeers};
use crate::repr::{Frontier, GlobalId, Timestamp, show};
use crate::shard::{ShardError, Shards};

mod broadcast;
mod collection;
mod inbox;
mod peek;
mod render;
mod source;

/// What one turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Timely ran an operator, so other workers of this runtime may have messages.
    pub stepped: bool,
    /// There is more to do at once: do not park.
    pub busy: bool,
    /// The worker was told to stop: do not call it again.
    pub shutdown: bool,
}

/// What a worker has: for those who look for leaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// Its collections.
    pub collections: usize,
    /// The peeks it has not answered.
    pub peeks: usize,
    /// The dataflows that timely runs for it.
    pub dataflows: usize,
}

/// A command that broke the protocol. It was not carried out and changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// A collection this runtime does not have.
    #[error("{command} of {id}, which this runtime does not have")]
    Unknown {
        /// The command's kind.
        command: &'static str,
        /// The collection.
        id: GlobalId,
    },
    /// A collection that exists already.
    #[error("{0} is created, but exists already")]
    Exists(GlobalId),
    /// A dataflow that cannot be rendered.
    #[error("the dataflow of {exports:?} is wrong: {error}")]
    Plan {
        /// What it would export.
        exports: Vec<GlobalId>,
        /// What is wrong.
        error: PlanError,
    },
    /// A dataflow over a source that is not there, or was compacted past it.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// A dataflow that expects other rows than there are.
    #[error("{id} is read as rows of {claimed} columns, but has {arity}")]
    Arity {
        /// The source or index.
        id: GlobalId,
        /// The columns expected.
        claimed: usize,
        /// The columns there are.
        arity: usize,
    },
    /// A dataflow over an index that was compacted past it.
    #[error("{id} is to be read from {as_of} on, but has been compacted to {}", show(.since))]
    Compacted {
        /// The imported index.
        id: GlobalId,
        /// The dataflow's first readable time.
        as_of: Timestamp,
        /// The index' since.
        since: Frontier,
    },
    /// A dataflow without an end over an index of the other runtime.
    #[error("the dataflow of {exports:?} has no end, but reads indexes of the other runtime")]
    Unbounded {
        /// What it would export.
        exports: Vec<GlobalId>,
    },
    /// Compaction that goes back.
    #[error("{id} is allowed to compact to {}, but was allowed {} before", show(.frontier), show(.since))]
    Regression {
        /// The collection.
        id: GlobalId,
        /// What is allowed now.
        frontier: Frontier,
        /// What was allowed before.
        since: Frontier,
    },
    /// Another number of workers than the instance has.
    #[error(transparent)]
    Peers(#[from] UnequalPeers),
    /// A peek that was sent before.
    #[error("{0} was sent before")]
    DuplicatePeek(PeekId),
}

/// Takes responses of a worker. The nonce is that of the last `Hello` it applied: what a connection was told must not
/// pass for what the next one asked (H19).
pub type Respond = Box<dyn FnMut(Nonce, Response)>;

/// What a runtime's worker is made with.
pub struct RuntimeConfig {
    /// What it does.
    pub role: Role,
    /// The arrangements that this process shares; absent for [`Role::Solo`].
    pub registry: Option<Arc<Registry>>,
    /// Where sources live.
    pub shards: Arc<Shards>,
    /// Where commands come from: for worker 0 of a runtime, and no other.
    pub inbox: Option<Inbox<Directive>>,
    /// Takes this worker's responses, and the connection they belong to.
    pub respond: Respond,
}

/// Configures timely for a runtime: arrangements go on merging when nothing happens, `idle_effort` updates (say,
/// [`IDLE_EFFORT`]) at a time; not at all without.
pub fn worker_config(idle_effort: Option<usize>) -> timely::WorkerConfig {
    let mut config = timely::WorkerConfig::default();
    if let Some(effort) = idle_effort {
        config.set(EXERT_LOGIC.to_string(), idle_merging(effort));
    }
    config
}

/// One worker of a runtime.
pub struct Runtime {
    role: Role,
    worker: Worker,
    index: usize,
    peers: usize,
    registry: Option<Arc<Registry>>,
    shards: Arc<Shards>,
    mailbox: Arc<Mailbox>,
    /// What the indexes that peeks wait for wake this worker with: one each, so that registering again is no second
    /// registration.
    wakers: BTreeMap<GlobalId, Waker>,
    broadcast: Broadcast,
    respond: Respond,
    nonce: Nonce,
    walk_budget: usize,
    collections: BTreeMap<GlobalId, Collection>,
    peeks: Peeks,
}

impl Runtime {
    /// A worker that has nothing yet. Must be called on the thread that will run it.
    ///
    /// # Errors
    /// [`UnequalPeers`] when the worker's runtime has another size than those it shares with.
    ///
    /// # Panics
    /// If a registry is missing for a role that shares, or given to one that does not.
    pub fn new(mut worker: Worker, config: RuntimeConfig) -> Result<Runtime, UnequalPeers> {
        let RuntimeConfig { role, registry, shards, inbox, respond } = config;
        let shares = role != Role::Solo;
        assert_eq!(registry.is_some(), shares, "a {role:?} runtime and a registry");
        let (index, peers) = (worker.index(), worker.peers());
        if let Some(registry) = &registry {
            registry.admit(role, peers)?;
        }
        let broadcast = Broadcast::new(&mut worker, inbox);
        Ok(Runtime {
            role,
            worker,
            index,
            peers,
            registry,
            shards,
            mailbox: Mailbox::new(),
            wakers: BTreeMap::new(),
            broadcast,
            respond,
            nonce: Nonce::default(),
            walk_budget: DEFAULT_WALK_BUDGET,
            collections: BTreeMap::new(),
            peeks: Peeks::default(),
        })
    }

    /// This worker, counted over all processes.
    pub fn index(&self) -> usize {
        self.index
    }

    /// What this worker has at the moment.
    pub fn population(&self) -> Population {
        // One dataflow carries commands.
        let dataflows = self.worker.installed_dataflows().len().saturating_sub(1);
        Population { collections: self.collections.len(), peeks: self.peeks.len(), dataflows }
    }

    /// Applies what commands have arrived, steps timely once, serves reads, and maintains what it owns.
    pub fn turn(&mut self) -> Turn {
        env::event(|| Event::Turn { role: self.role, worker: self.index });
        self.broadcast.send();
        let directives = self.broadcast.receive();
        let commanded = !directives.is_empty();
        if commanded {
            let _applying = env::enter(Activity::Commands);
            for directive in directives {
                match directive {
                    Directive::Command(command) => self.apply(command),
                    Directive::Shutdown => {
                        return Turn { stepped: true, busy: false, shutdown: true };
                    }
                }
            }
        }
        env::point(Point::Turn);
        let stepped = self.step();
        env::point(Point::Turn);
        self.serve();
        let maintained = stepped || commanded;
        if maintained {
            self.report();
            self.maintain();
        }
        let busy = commanded || stepped || self.peeks.is_walking();
        Turn { stepped, busy, shutdown: false }
    }

    /// Steps timely; whether it had anything to do.
    fn step(&mut self) -> bool {
        let _stepping = env::enter(Activity::Step);
        self.worker.step();
        let mut active = false;
        let activations = self.worker.activations();
        activations.borrow().map_active({
            let active = std::cell::Cell::from_mut(&mut active);
            move |_| active.set(true)
        });
        active
    }

    fn apply(&mut self, command: Command) {
        env::event(|| Event::CommandApplied {
            role: self.role,
            worker: self.index,
            command: command.kind(),
            id: command.collection(),
            peek: command.peek(),
        });
        let result = match command {
            Command::Hello { nonce } => {
                self.reset(nonce);
                Ok(())
            }
            Command::CreateInstance(config) => self.check_peers(config.peers),
            Command::UpdateConfiguration(parameters) => {
                self.walk_budget = parameters.walk_budget.unwrap_or(self.walk_budget).max(1);
                Ok(())
            }
            Command::InitializationComplete => Ok(()),
            Command::CreateDataflow(dataflow) => self.create_dataflow(*dataflow),
            Command::Schedule(id) => self.schedule(id),
            // No collection of this runtime writes to durable outputs, so there is nothing to hold back until then.
            Command::AllowWrites(id) => self.known("AllowWrites", id).map(|_| ()),
            Command::AllowCompaction { id, frontier } => self.allow_compaction(id, frontier),
            Command::Peek(peek) => self.peek(*peek),
            Command::CancelPeek { uuid } => {
                if self.peeks.stop(uuid) || self.stop_waiting(uuid).is_some() {
                    self.answer(uuid, Answer::canceled());
                }
                Ok(())
            }
        };
        if let Err(error) = result {
            self.reject(error);
        }
    }

    /// Tells, once for the runtime, that a command was not carried out.
    fn reject(&mut self, error: CommandError) {
        tracing::warn!(role = ?self.role, worker = self.index, %error, "rejected a command");
        env::event(|| Event::Rejected { role: self.role, message: error.to_string() });
        if self.index == 0 {
            self.send(Response::Status { message: error.to_string() });
        }
    }

    /// Forgets everything: what an earlier connection asked for is void.
    fn reset(&mut self, nonce: Nonce) {
        self.nonce = nonce;
        let waiting: Vec<_> = self.peeks.waiting.keys().copied().collect();
        for uuid in waiting {
            self.stop_waiting(uuid);
        }
        self.peeks.clear();
        let ids: Vec<_> = self.collections.keys().copied().collect();
        for id in ids {
            self.remove(id);
        }
    }

    fn check_peers(&self, expected: usize) -> Result<(), CommandError> {
        let (joining, peers) = (self.role, self.peers);
        if peers == expected {
            Ok(())
        } else {
            Err(UnequalPeers { joining, peers, expected }.into())
        }
    }

    fn known(
        &mut self,
        command: &'static str,
        id: GlobalId,
    ) -> Result<&mut Collection, CommandError> {
        self.collections.get_mut(&id).ok_or(CommandError::Unknown { command, id })
    }

    fn create_dataflow(&mut self, description: DataflowDescription) -> Result<(), CommandError> {
        let exports: Vec<_> = description.export_ids().collect();
        let arities = description
            .validate()
            .map_err(|error| CommandError::Plan { exports: exports.clone(), error })?;
        if let Some(id) = exports.iter().find(|id| self.collections.contains_key(id)) {
            return Err(CommandError::Exists(*id));
        }
        let dataflow = Dataflow::render(self, &description, &arities)?;
        env::event(|| Event::Rendered { role: self.role, worker: self.index, exports });
        self.collections.extend(dataflow);
        Ok(())
    }

    fn schedule(&mut self, id: GlobalId) -> Result<(), CommandError> {
        let collection = self.known("Schedule", id)?;
        collection.dataflow.start.fire();
        Ok(())
    }

    fn allow_compaction(&mut self, id: GlobalId, frontier: Frontier) -> Result<(), CommandError> {
        let collection = self.known("AllowCompaction", id)?;
        if !PartialOrder::less_equal(&collection.since, &frontier) {
            let since = collection.since.clone();
            return Err(CommandError::Regression { id, frontier, since });
        }
        if frontier.is_empty() {
            self.drop_collection(id);
            return Ok(());
        }
        collection.allow_compaction(&frontier);
        let (role, worker) = (self.role, self.index);
        env::event(|| Event::CompactionApplied { role, worker, id, frontier });
        Ok(())
    }

    fn drop_collection(&mut self, id: GlobalId) {
        // Those who wait for what is gone must not wait for ever.
        let waiting = self.peeks.waiting.values().filter(|waiting| waiting.peek.target == id);
        let orphans: Vec<_> = waiting.map(|waiting| waiting.peek.uuid).collect();
        for uuid in orphans {
            self.stop_waiting(uuid);
            self.answer(uuid, Answer::error(format!("{id} was dropped")));
        }
        if let Some(frontiers) = self.remove(id).and_then(|collection| collection.last_report()) {
            self.send(Response::Frontiers { id, frontiers });
        }
    }

    /// Takes a collection away from readers, and its dataflow from the worker if it was the last export.
    fn remove(&mut self, id: GlobalId) -> Option<Collection> {
        let collection = self.collections.remove(&id)?;
        collection.trace.close(self.registry.as_deref());
        if Rc::strong_count(&collection.dataflow) == 1 {
            self.worker.drop_dataflow(collection.dataflow.index);
        }
        env::event(|| Event::Dropped { role: self.role, worker: self.index, id });
        Some(collection)
    }

    fn send(&mut self, response: Response) {
        (self.respond)(self.nonce, response);
    }

    /// Reports the frontiers that moved.
    fn report(&mut self) {
        let mut failures = Vec::new();
        for (id, collection) in &mut self.collections {
            failures.extend(collection.dataflow.take_failure());
            if let Some(frontiers) = collection.progress() {
                (self.respond)(self.nonce, Response::Frontiers { id: *id, frontiers });
            }
        }
        // The controller may have given up on the dataflow while its commands were queued: no error of anybody's.
        for error in failures {
            tracing::warn!(role = ?self.role, worker = self.index, %error, "a source cannot be read");
        }
    }

    /// The maintenance tick: lets traces merge, and readers see it.
    fn maintain(&mut self) {
        let _ticking = env::enter(Activity::Tick);
        for (id, collection) in &mut self.collections {
            collection.tick(*id, self.index);
        }
    }

    fn peek(&mut self, peek: Peek) -> Result<(), CommandError> {
        if self.peeks.contains(peek.uuid) {
            return Err(CommandError::DuplicatePeek(peek.uuid));
        }
        let own = self.collections.contains_key(&peek.target);
        let slot = match &self.registry {
            Some(registry)
                if !own && self.role == Role::Interactive && !peek.target.is_transient() =>
            {
                Some(registry.get_or_create(peek.target, self.index))
            }
            _ if own => None,
            _ => {
                let error = CommandError::Unknown { command: "Peek", id: peek.target };
                self.answer(peek.uuid, Answer::error(&error));
                return Err(error);
            }
        };
        self.try_serve(Waiting { peek, slot });
        Ok(())
    }

    /// Begins to answer a peek if its index is readable, else lets it wait.
    fn try_serve(&mut self, mut waiting: Waiting) {
        let (uuid, id) = (waiting.peek.uuid, waiting.peek.target);
        let snapshot = match &mut waiting.slot {
            None => {
                let collection = self.collections.get_mut(&id);
                let collection = collection.expect("peeks of what is dropped are answered then");
                collection.snapshot_at(waiting.peek.timestamp, self.index, &waiting.peek)
            }
            Some(slot) => loop {
                let look = || slot.snapshot_at(waiting.peek.timestamp, Some(uuid));
                let served = match look() {
                    // Register, then look again: what happens in between must not be missed.
                    Err(NotReady::Wait) => {
                        let wakers = &mut self.wakers;
                        let waker = wakers.entry(id).or_insert_with(|| self.mailbox.waker(id));
                        slot.register(waker);
                        look()
                    }
                    served => served,
                };
                match served {
                    Err(NotReady::Refused(Refused::Closed { .. })) => {
                        *slot = renew(self.registry.as_deref(), slot);
                    }
                    served => break served,
                }
            },
        };
        match snapshot {
            Ok(snapshot) => self.peeks.walk(Walking::new(waiting.peek, snapshot)),
            Err(NotReady::Refused(refused)) => self.answer(uuid, Answer::refused(&refused)),
            Err(NotReady::Wait) => {
                env::event(|| Event::ReadWaits {
                    id,
                    worker: self.index,
                    peek: uuid,
                    published: waiting.slot.as_ref().is_none_or(|slot| slot.is_published()),
                });
                self.peeks.waiting.insert(uuid, waiting);
            }
        }
    }

    /// Takes a peek from those that wait. When it was the last that waits for its index, nobody is woken for it any more.
    fn stop_waiting(&mut self, uuid: PeekId) -> Option<Waiting> {
        let waiting = self.peeks.waiting.remove(&uuid)?;
        let id = waiting.peek.target;
        if !self.peeks.waits_for(id)
            && let Some(waker) = self.wakers.remove(&id)
            && let Some(slot) = &waiting.slot
        {
            slot.forget(&waker);
        }
        Some(waiting)
    }

    /// Looks at the peeks whose index may have become readable, and goes on with walks.
    fn serve(&mut self) {
        let dirty = self.mailbox.drain();
        let collections = &mut self.collections;
        let due = self.peeks.waiting.values().filter(|waiting| match &waiting.slot {
            Some(_) => dirty.contains(&waiting.peek.target),
            None => collections
                .get_mut(&waiting.peek.target)
                .is_some_and(|collection| collection.may_serve(waiting.peek.timestamp)),
        });
        let due: Vec<_> = due.map(|waiting| waiting.peek.uuid).collect();
        for uuid in due {
            if let Some(waiting) = self.stop_waiting(uuid) {
                self.try_serve(waiting);
            }
        }
        for (uuid, answer) in self.peeks.advance(self.walk_budget) {
            self.answer(uuid, answer);
        }
    }

    fn answer(&mut self, uuid: PeekId, answer: Answer) {
        let Answer { response, kind } = answer;
        let (role, worker) = (self.role, self.index);
        env::event(|| Event::PeekAnswered { role, worker, peek: uuid, answer: kind });
        self.send(Response::Peek { uuid, response });
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // A panic ends the process: nobody should hear from a dying worker that its indexes were dropped.
        if std::thread::panicking() {
            return;
        }
        // Traces and views must go before the worker that feeds them, and readers must not wait for what is gone.
        let collections = std::mem::take(&mut self.collections);
        for collection in collections.into_values() {
            collection.trace.close(self.registry.as_deref());
        }
    }
}

/// The slot to look at when the publisher of `slot` has gone. Either the index is created anew, in this connection or the
/// next, or its drop means that the controller gave up on whoever still reads it, and their cancel is on the way.
fn renew(registry: Option<&Registry>, slot: &Arc<Slot>) -> Arc<Slot> {
    match registry {
        Some(registry) => registry.get_or_create(slot.id, slot.worker),
        None => Arc::clone(slot),
    }
}
