//! The one seam between the system and whoever runs it.
//!
//! The system never reads a clock, blocks, spawns or draws randomness on its own. Here it tells its [`Surroundings`]
//! three things:
//!
//! * *points* ([`point`], [`enter`]): where a thread could be preempted, and what it is doing there;
//! * *waiting and waking* ([`park`], [`Unparker`], [`sync::Mutex`]);
//! * *events* ([`event`]): typed facts for oracles, timelines and hashes.
//!
//! On threads nothing is installed, and each of these is a look at one thread-local: parking is
//! [`std::thread::park`], a lock is a [`parking_lot`] lock, and events are not even built. A simulator installs its
//! surroundings on the one OS thread that carries all its simulated threads.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::thread::Thread;

use serde::{Deserialize, Serialize};

use crate::protocol::PeekId;
use crate::repr::{Frontier, GlobalId, Timestamp};

pub mod sync;

/// One of the two runtimes of a replica, or the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// One runtime does everything and publishes nothing.
    Solo,
    /// Builds and maintains what is not transient, and publishes every index.
    Maintenance,
    /// Answers peeks and renders query dataflows over what the other publishes.
    Interactive,
}

/// The two halves of every index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Half {
    /// The rows.
    Oks,
    /// The errors.
    Errs,
}

/// Names one worker's part of one half of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartName {
    /// The index.
    pub id: GlobalId,
    /// Which of its halves.
    pub half: Half,
    /// The worker, counted over all processes.
    pub worker: usize,
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} of worker {}", self.id, self.half, self.worker)
    }
}

/// What a thread is doing, for as long as the guard of [`enter`] lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activity {
    /// Applying commands.
    Commands,
    /// One step of a timely worker.
    Step,
    /// Inside a call that may merge batches for as long as it likes.
    Compact(Option<PartName>),
    /// Merging two batches.
    Merge,
    /// Walking a snapshot for a peek.
    Walk(PeekId),
    /// The maintenance tick.
    Tick,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Activity::Commands => write!(f, "commands"),
            Activity::Step => write!(f, "a step"),
            Activity::Compact(Some(part)) => write!(f, "compaction of {part}"),
            Activity::Compact(None) => write!(f, "compaction"),
            Activity::Merge => write!(f, "a merge"),
            Activity::Walk(peek) => write!(f, "a walk for {peek}"),
            Activity::Tick => write!(f, "the tick"),
        }
    }
}

/// A place where a thread may be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// About to take the named lock.
    Lock(&'static str),
    /// The named lock was just taken: whoever wants it now must wait.
    Locked(&'static str),
    /// The named lock was just released.
    Unlocked(&'static str),
    /// About to swap in a new view.
    Swap,
    /// A view was just swapped in and its waiters are not yet told.
    Swapped,
    /// About to load a view.
    Load,
    /// Inside a merge, after this many updates.
    Merge {
        /// Updates merged since the last such point.
        updates: usize,
    },
    /// Inside an operator, after this many records.
    Records(usize),
    /// A peek walk visited this many positions.
    Walked(usize),
    /// Between two stages of a worker's turn.
    Turn,
    /// Between deciding to wait for something and waiting for it.
    BeforePark,
}

/// A fact about the system. Oracles, timelines and hashes read these; nothing in the system does.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A reader created a point before its publisher.
    PlaceholderCreated {
        /// The part.
        part: PartName,
    },
    /// A publisher attached to a point.
    Attached {
        /// The part.
        part: PartName,
        /// Whether a reader had created the point before.
        adopted: bool,
    },
    /// A new view was swapped in.
    Published {
        /// The part.
        part: PartName,
        /// From where on the view is accurate.
        since: Frontier,
        /// Up to where the view is complete.
        upper: Frontier,
        /// The number of spans of its chain.
        spans: usize,
    },
    /// The publisher closed the point.
    Closed {
        /// The part.
        part: PartName,
    },
    /// A snapshot was taken: the captured view had these frontiers.
    SnapshotTaken {
        /// The index.
        id: GlobalId,
        /// The worker, counted over all processes.
        worker: usize,
        /// The time it reads at.
        at: Timestamp,
        /// The later of both halves' since.
        since: Frontier,
        /// The earlier of both halves' upper.
        upper: Frontier,
        /// The peek it is for, if any.
        peek: Option<PeekId>,
    },
    /// A snapshot was refused: compaction had passed the time, or the index was closed.
    SnapshotRefused {
        /// The index.
        id: GlobalId,
        /// The worker, counted over all processes.
        worker: usize,
        /// The time it would read at.
        at: Timestamp,
        /// The later of both halves' since.
        since: Frontier,
        /// The peek it was for, if any.
        peek: Option<PeekId>,
    },
    /// A read cannot be served yet and waits to be woken.
    ReadWaits {
        /// The index.
        id: GlobalId,
        /// The worker, counted over all processes.
        worker: usize,
        /// The peek that waits.
        peek: PeekId,
        /// Whether the index has a publisher.
        published: bool,
    },
    /// An import captured its chain.
    ImportCaptured {
        /// The part.
        part: PartName,
        /// The dataflow's first readable time.
        as_of: Timestamp,
        /// The captured view's since.
        since: Frontier,
        /// The captured view's upper.
        upper: Frontier,
        /// Whether the import was built over a placeholder.
        over_placeholder: bool,
    },
    /// An import was refused: compaction had passed its `as_of`, or the index was closed.
    ImportRefused {
        /// The part.
        part: PartName,
        /// The dataflow's first readable time.
        as_of: Timestamp,
        /// The view's since.
        since: Frontier,
    },
    /// A runtime's worker applied a command.
    CommandApplied {
        /// Which runtime.
        role: Role,
        /// The worker, counted over all processes.
        worker: usize,
        /// The command's kind.
        command: &'static str,
        /// The collection it is about, if any.
        id: Option<GlobalId>,
        /// The peek it is about, if any.
        peek: Option<PeekId>,
    },
    /// A worker was allowed to compact a collection it owns, and passed it on to the trace.
    CompactionApplied {
        /// Which runtime.
        role: Role,
        /// The worker, counted over all processes.
        worker: usize,
        /// The collection.
        id: GlobalId,
        /// The frontier.
        frontier: Frontier,
    },
    /// The state of a maintained trace, at the end of a turn.
    TraceState {
        /// The part.
        part: PartName,
        /// The real logical compaction frontier, the meet over all handles.
        logical: Frontier,
        /// The real physical compaction frontier, the meet over all handles.
        physical: Frontier,
        /// Up to where it is complete.
        upper: Frontier,
        /// The number of spans that carry updates.
        batches: usize,
        /// The number of spans, those without updates included.
        spans: usize,
        /// The number of updates in all spans.
        updates: usize,
        /// The number of spans that the published view refers to.
        published_spans: usize,
    },
    /// A worker of a runtime began a turn.
    Turn {
        /// Which runtime.
        role: Role,
        /// The worker, counted over all processes.
        worker: usize,
    },
    /// A worker answered its part of a peek.
    PeekAnswered {
        /// Which runtime.
        role: Role,
        /// The worker, counted over all processes.
        worker: usize,
        /// The peek.
        peek: PeekId,
        /// `rows`, `error`, `refused` or `canceled`.
        answer: &'static str,
    },
    /// A dataflow was rendered.
    Rendered {
        /// Which runtime.
        role: Role,
        /// The worker, counted over all processes.
        worker: usize,
        /// What it exports.
        exports: Vec<GlobalId>,
    },
    /// A dataflow was dropped.
    Dropped {
        /// Which runtime.
        role: Role,
        /// The worker, counted over all processes.
        worker: usize,
        /// What it exported.
        id: GlobalId,
    },
    /// A batch came to life.
    BatchAllocated {
        /// Its updates.
        updates: usize,
    },
    /// A batch was freed.
    BatchFreed {
        /// Its updates.
        updates: usize,
    },
    /// A command broke the protocol and was not carried out.
    Rejected {
        /// Which runtime.
        role: Role,
        /// What was wrong.
        message: String,
    },
}

/// Whoever runs the system.
///
/// All methods are called on the thread that does what they tell. They may switch to another simulated thread only where
/// they say so.
pub trait Surroundings {
    /// A place where the calling thread may be preempted. May switch.
    fn point(&self, point: Point);
    /// The calling thread begins an activity. Does not switch.
    fn begin(&self, activity: Activity);
    /// The calling thread ends the activity it began last. Does not switch.
    fn end(&self, activity: Activity);
    /// A fact. Does not switch.
    fn event(&self, event: Event);
    /// The calling thread.
    fn current(&self) -> u64;
    /// Waits until [`Surroundings::unpark`], which may have come before. Switches.
    fn park(&self);
    /// Wakes a thread, or lets its next [`Surroundings::park`] return at once.
    fn unpark(&self, thread: u64);
    /// The calling thread found the lock taken and tries again when this returns. Switches, except while unwinding.
    fn blocked(&self, lock: LockKey);
    /// The calling thread took a lock. Does not switch.
    fn locked(&self, lock: LockKey);
    /// The calling thread released a lock. Does not switch.
    fn unlocked(&self, lock: LockKey);
}

/// Identifies a lock within one run.
#[derive(Clone, Copy, Debug)]
pub struct LockKey {
    /// What it protects.
    pub name: &'static str,
    /// Tells it from others of its name. An address: never let it reach a hash or an order.
    pub address: usize,
}

thread_local! {
    static SURROUNDINGS: RefCell<Option<Rc<dyn Surroundings>>> = const { RefCell::new(None) };
}

/// Installs surroundings on the calling OS thread; the guard takes them away again.
///
/// # Panics
/// If some are installed already.
pub fn install(surroundings: Rc<dyn Surroundings>) -> Installed {
    SURROUNDINGS.with(|slot| {
        let before = slot.borrow_mut().replace(surroundings);
        assert!(before.is_none(), "surroundings are already installed on this thread");
    });
    Installed { _not_send: std::marker::PhantomData }
}

/// Keeps surroundings installed.
pub struct Installed {
    _not_send: std::marker::PhantomData<Rc<()>>,
}

impl Drop for Installed {
    fn drop(&mut self) {
        // Thread-locals may be gone at thread exit.
        let _ = SURROUNDINGS.try_with(|slot| slot.borrow_mut().take());
    }
}

/// The installed surroundings, if any.
#[inline]
pub fn surroundings() -> Option<Rc<dyn Surroundings>> {
    SURROUNDINGS.try_with(|slot| slot.borrow().clone()).ok().flatten()
}

/// Whether anyone listens. For guarding work that only serves [`event`].
#[inline]
pub fn listening() -> bool {
    SURROUNDINGS.try_with(|slot| slot.borrow().is_some()).unwrap_or(false)
}

/// Reports a place where the calling thread may be preempted.
#[inline]
pub fn point(point: Point) {
    if let Some(surroundings) = surroundings() {
        surroundings.point(point);
    }
}

/// Reports a fact, built only when someone listens.
#[inline]
pub fn event(event: impl FnOnce() -> Event) {
    if let Some(surroundings) = surroundings() {
        surroundings.event(event());
    }
}

/// Reports what the calling thread does until the guard is dropped.
#[inline]
pub fn enter(activity: Activity) -> Entered {
    let surroundings = surroundings();
    if let Some(surroundings) = &surroundings {
        surroundings.begin(activity);
    }
    Entered { surroundings, activity }
}

/// Ends an activity when dropped.
pub struct Entered {
    surroundings: Option<Rc<dyn Surroundings>>,
    activity: Activity,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(surroundings) = &self.surroundings {
            surroundings.end(self.activity);
        }
    }
}

/// Waits until the calling thread is unparked, which may have happened before.
pub fn park() {
    match surroundings() {
        Some(surroundings) => {
            surroundings.point(Point::BeforePark);
            surroundings.park();
        }
        None => std::thread::park(),
    }
}

/// Wakes one thread. Wakes are never lost: one that comes early lets the next [`park`] return at once.
#[derive(Clone, Debug)]
pub struct Unparker(Target);

#[derive(Clone, Debug)]
enum Target {
    Thread(Thread),
    Simulated(u64),
}

impl Unparker {
    /// An unparker for the calling thread.
    pub fn current() -> Unparker {
        Unparker(match surroundings() {
            Some(surroundings) => Target::Simulated(surroundings.current()),
            None => Target::Thread(std::thread::current()),
        })
    }

    /// Wakes the thread.
    pub fn unpark(&self) {
        match &self.0 {
            Target::Thread(thread) => thread.unpark(),
            Target::Simulated(id) => {
                if let Some(surroundings) = surroundings() {
                    surroundings.unpark(*id);
                }
            }
        }
    }
}
