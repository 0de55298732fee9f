//! The arrangements that one process shares between its two runtimes, by index and worker.
//!
//! Whoever comes first creates a [`Slot`]: the publisher, or a reader that is early and finds an unbacked placeholder
//! which the publisher later *adopts*, so that the reader need not look again (H11). The registry keeps no slot alive:
//! it refers to them weakly, publishers and readers hold them. A slot therefore goes when the last of both is gone, and
//! an index that nobody ever published leaves nothing behind.
//!
//! When an index is dropped, its publisher closes the points and [retires](Registry::retire) *its own* slot, never that of
//! a successor with the same name (H12). Readers that hold the old slot find it closed; those who ask later get a new one.
//!
//! Nothing here is polled. A read that is not ready registers the waker of its worker's [`Mailbox`] with both points of
//! the slot; a publication, a seal and a close put the index into that mailbox and wake that worker, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use crate::arrange::{Bounds, Judgement, NotReady, Point, Read, Refused, Snapshot, State};
use crate::env::sync::Mutex;
use crate::env::{self, Event, Half, PartName, Role};
use crate::protocol::PeekId;
use crate::repr::{Diff, EvalError, GlobalId, Row, Timestamp};

/// The point of an index' rows: key and whole row.
pub type OksPoint = Point<Row, Row, Timestamp, Diff>;
/// The point of an index' errors.
pub type ErrsPoint = Point<EvalError, (), Timestamp, Diff>;

/// What one worker shares of one index: rows and errors. Both are judged together, always.
pub struct Slot {
    /// The index.
    pub id: GlobalId,
    /// The worker, counted over all processes.
    pub worker: usize,
    /// The rows.
    pub oks: Arc<OksPoint>,
    /// The errors.
    pub errs: Arc<ErrsPoint>,
}

/// A snapshot of both halves of an index, at one time.
pub struct IndexSnapshot {
    /// The rows.
    pub oks: Snapshot<Row, Row, Timestamp, Diff>,
    /// The errors.
    pub errs: Snapshot<EvalError, (), Timestamp, Diff>,
}

impl Slot {
    /// A slot for a publisher.
    fn new(id: GlobalId, worker: usize) -> Arc<Slot> {
        let part = |half| PartName { id, half, worker };
        let (oks, errs) = (Point::new(part(Half::Oks)), Point::new(part(Half::Errs)));
        Arc::new(Slot { id, worker, oks: Arc::new(oks), errs: Arc::new(errs) })
    }

    /// A slot for a reader that comes before the publisher.
    fn placeholder(id: GlobalId, worker: usize) -> Arc<Slot> {
        let part = |half| PartName { id, half, worker };
        let oks = Point::placeholder(part(Half::Oks));
        let errs = Point::placeholder(part(Half::Errs));
        Arc::new(Slot { id, worker, oks: Arc::new(oks), errs: Arc::new(errs) })
    }

    /// Whether a publisher has attached to it, and has not closed it.
    pub fn is_published(&self) -> bool {
        self.oks.load().state() == State::Live
    }

    /// Whether its publisher has gone. It does not come back: a successor has a slot of its own.
    pub fn is_closed(&self) -> bool {
        let closed = |state| state == State::Closed;
        closed(self.oks.load().state()) || closed(self.errs.load().state())
    }

    /// A snapshot at `time`, if both halves are readable there. Takes no lock and holds back nothing.
    ///
    /// # Errors
    /// [`NotReady::Wait`] until both halves are sealed beyond `time`; [`NotReady::Refused`] once compaction of either has
    /// passed it, or when the index was closed.
    pub fn snapshot_at(
        &self,
        time: Timestamp,
        peek: Option<PeekId>,
    ) -> Result<IndexSnapshot, NotReady<Timestamp>> {
        let (oks, errs) = (self.oks.load(), self.errs.load());
        let (id, worker) = (self.id, self.worker);
        let bounds = oks.bounds().both(errs.bounds());
        let judgement = bounds.judge(Read::At(&time));
        let Bounds { since, upper, .. } = bounds;
        match judgement {
            Judgement::Ready => {
                env::event(|| Event::SnapshotTaken { id, worker, at: time, since, upper, peek });
                Ok(IndexSnapshot {
                    oks: Snapshot::of_view(oks, time),
                    errs: Snapshot::of_view(errs, time),
                })
            }
            Judgement::NotYet => Err(NotReady::Wait),
            // Whoever finds a closed slot looks for its successor: that is no refusal of the read.
            Judgement::Refused(closed @ Refused::Closed { .. }) => Err(NotReady::Refused(closed)),
            Judgement::Refused(refused) => {
                env::event(|| Event::SnapshotRefused { id, worker, at: time, since, peek });
                Err(NotReady::Refused(refused))
            }
        }
    }

    /// Takes back what [`Slot::register`] asked for.
    pub fn forget(&self, waker: &Waker) {
        self.oks.forget(waker);
        self.errs.forget(waker);
    }

    /// Asks to be woken by the next publication, seal or close of either half. Look again after this.
    pub fn register(&self, waker: &Waker) {
        self.oks.register(waker);
        self.errs.register(waker);
    }
}

/// Two runtimes that would not find each other's data: their keys are distributed over unequal numbers of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {joining:?} runtime has {peers} workers, but this process shares arrangements among {expected}: \
     keys would be looked for on the wrong worker"
)]
pub struct UnequalPeers {
    /// The runtime that does not fit.
    pub joining: Role,
    /// Its workers, over all processes.
    pub peers: usize,
    /// The workers of every runtime that shares here.
    pub expected: usize,
}

/// The slots of one process.
pub struct Registry {
    peers: usize,
    slots: Mutex<BTreeMap<(GlobalId, usize), Weak<Slot>>>,
}

impl Registry {
    /// An empty registry for runtimes of `peers` workers each, counted over all processes.
    pub fn new(peers: usize) -> Arc<Registry> {
        Arc::new(Registry { peers, slots: Mutex::new("registry", BTreeMap::new()) })
    }

    /// Admits a runtime.
    ///
    /// # Errors
    /// [`UnequalPeers`] (H21).
    pub fn admit(&self, joining: Role, peers: usize) -> Result<(), UnequalPeers> {
        if peers == self.peers {
            Ok(())
        } else {
            Err(UnequalPeers { joining, peers, expected: self.peers })
        }
    }

    /// The slot of an index, for reading: the published one, or a placeholder that will be.
    pub fn get_or_create(&self, id: GlobalId, worker: usize) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        let present = slots.get(&(id, worker)).and_then(Weak::upgrade);
        if let Some(slot) = present.filter(|slot| !slot.is_closed()) {
            return slot;
        }
        slots.retain(|_, slot| slot.strong_count() > 0);
        let slot = Slot::placeholder(id, worker);
        slots.insert((id, worker), Arc::downgrade(&slot));
        slot
    }

    /// The slot of an index, for publishing: a reader's placeholder if there is one, else a new one.
    ///
    /// A slot that is or was published by somebody else is replaced, not taken over.
    pub fn publish(&self, id: GlobalId, worker: usize) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        let present = slots.get(&(id, worker)).and_then(Weak::upgrade);
        let overwrite = crate::planted!(PlaceholderOverwritten);
        if let Some(slot) = present.filter(|slot| !slot.oks.is_adopted() && !overwrite) {
            return slot;
        }
        let slot = Slot::new(id, worker);
        slots.insert((id, worker), Arc::downgrade(&slot));
        slot
    }

    /// Takes `slot` out of the way of those who ask for its index from here on. A successor's slot stays.
    pub fn retire(&self, slot: &Arc<Slot>) {
        let mut slots = self.slots.lock();
        if slots
            .get(&(slot.id, slot.worker))
            .is_some_and(|present| present.as_ptr() == Arc::as_ptr(slot))
        {
            slots.remove(&(slot.id, slot.worker));
        }
    }

    /// The indexes and workers whose slots somebody still holds, and whether each is published.
    pub fn slots(&self) -> Vec<(GlobalId, usize, bool)> {
        let slots = self.slots.lock();
        let live = slots.iter().filter_map(|(key, slot)| Some((*key, slot.upgrade()?)));
        live.map(|((id, worker), slot)| (id, worker, slot.is_published())).collect()
    }
}

/// Which indexes one worker should look at again.
pub struct Mailbox {
    /// Whether anything may be marked, so that a worker with nothing to look at takes no lock. Set after the mark.
    marked: AtomicBool,
    dirty: Mutex<BTreeSet<GlobalId>>,
    unparker: env::Unparker,
}

impl Mailbox {
    /// An empty mailbox of the calling thread.
    pub fn new() -> Arc<Mailbox> {
        Arc::new(Mailbox {
            marked: AtomicBool::new(false),
            dirty: Mutex::new("mailbox", BTreeSet::new()),
            unparker: env::Unparker::current(),
        })
    }

    /// A waker that marks `id` and wakes this mailbox' worker.
    pub fn waker(self: &Arc<Self>, id: GlobalId) -> Waker {
        Waker::from(Arc::new(Dirty { mailbox: Arc::clone(self), id }))
    }

    /// Takes what is marked. Look at the marked indexes only after this, never before (H9).
    pub fn drain(&self) -> BTreeSet<GlobalId> {
        if !self.marked.swap(false, Ordering::SeqCst) {
            return BTreeSet::new();
        }
        std::mem::take(&mut *self.dirty.lock())
    }
}

struct Dirty {
    mailbox: Arc<Mailbox>,
    id: GlobalId,
}

impl Wake for Dirty {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mailbox.dirty.lock().insert(self.id);
        self.mailbox.marked.store(true, Ordering::SeqCst);
        self.mailbox.unparker.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: GlobalId = GlobalId::User(7);

    #[test]
    fn a_publisher_adopts_the_placeholder_of_an_early_reader() {
        let registry = Registry::new(1);
        let reader = registry.get_or_create(ID, 0);
        let publisher = registry.publish(ID, 0);
        assert!(Arc::ptr_eq(&reader, &publisher));
        assert!(Arc::ptr_eq(&reader, &registry.get_or_create(ID, 0)));
    }

    #[test]
    fn nothing_stays_of_an_index_that_nobody_holds() {
        let registry = Registry::new(1);
        let reader = registry.get_or_create(ID, 0);
        assert_eq!(registry.slots(), vec![(ID, 0, false)]);
        drop(reader);
        assert_eq!(registry.slots(), vec![]);
    }

    #[test]
    fn retiring_removes_only_its_own_slot() {
        let registry = Registry::new(1);
        let old = registry.publish(ID, 0);
        registry.retire(&old);
        let successor = registry.get_or_create(ID, 0);
        assert!(!Arc::ptr_eq(&old, &successor));
        registry.retire(&old);
        assert!(Arc::ptr_eq(&successor, &registry.get_or_create(ID, 0)));
    }

    #[test]
    fn an_unpublished_index_is_not_ready_rather_than_empty() {
        let registry = Registry::new(1);
        let slot = registry.get_or_create(ID, 0);
        for time in [0, 1, Timestamp::MAX] {
            assert!(matches!(slot.snapshot_at(time, None), Err(NotReady::Wait)));
        }
    }

    #[test]
    fn unequal_peers_are_refused_with_both_numbers() {
        let refused = Registry::new(4).admit(Role::Interactive, 2).expect_err("unequal");
        let message = refused.to_string();
        assert!(message.contains("2 workers") && message.contains("among 4"), "{message}");
    }

    #[test]
    fn a_mailbox_marks_an_index_once_until_drained() {
        let mailbox = Mailbox::new();
        let waker = mailbox.waker(ID);
        waker.wake_by_ref();
        waker.wake();
        assert_eq!(mailbox.drain(), BTreeSet::from([ID]));
        assert_eq!(mailbox.drain(), BTreeSet::new());
    }
}
