//! The writing side of sharing: derives views of an arrangement and publishes them.
//!
//! A [`Publisher`] owns one trace handle and takes everything from it (H2). It publishes on each
//! activation of an operator that listens to the arrangement's stream (also when a seal brought no
//! updates: the frontier moves all the same), and on each [tick](Publisher::tick), because merges
//! finish when the stream is silent (H15).
//!
//! It adds no compaction floor. Its handle goes where [`Publisher::allow_compaction`] says (H1) and
//! its physical frontier trails at the upper it last published. Compaction is announced before it
//! happens: a reader never holds a view that claims more than its batches can tell (H6). And the
//! call that may merge for as long as it likes comes between two publications, under no lock (H7).
//!
//! Freeing a big batch takes long, and whoever drops the last reference pays. A view that is
//! swapped out is therefore kept until only its publisher holds it, and freed on the publisher's
//! time.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use differential_dataflow::lattice::Lattice;
use differential_dataflow::operators::arrange::Arranged;
use differential_dataflow::trace::TraceReader;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::Operator;
use timely::progress::Antichain;

use super::batch::{SharedData, SharedDiff, SharedTime};
use super::point::Point;
use super::spine::ArcAgent;
use super::view::View;
use crate::planted;

/// Publishes one worker's part of one arrangement. Clones are the same publisher.
///
/// The point is closed when the last clone is dropped, when [`Publisher::close`] is called, and
/// when the dataflow that maintains the arrangement is dropped before its inputs have ended.
pub struct Publisher<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    shared: Rc<Shared<K, V, T, R>>,
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Clone for Publisher<K, V, T, R> {
    fn clone(&self) -> Self {
        Publisher { shared: Rc::clone(&self.shared) }
    }
}

/// How a published trace really is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceState<T> {
    /// The real logical compaction frontier, the meet over all handles.
    pub logical: Antichain<T>,
    /// The real physical compaction frontier, the meet over all handles.
    pub physical: Antichain<T>,
    /// Up to where the trace is complete.
    pub upper: Antichain<T>,
    /// The number of spans that carry updates.
    pub batches: usize,
    /// The number of spans, those without updates included.
    pub spans: usize,
    /// The number of updates in all spans.
    pub updates: usize,
    /// The number of spans that the published view refers to.
    pub published_spans: usize,
    /// The number of views that were swapped out and that some reader still holds.
    pub retired: usize,
}

/// What the clones of a publisher and its operator share.
struct Shared<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    point: Arc<Point<K, V, T, R>>,
    /// Absent once closed.
    source: RefCell<Option<Source<K, V, T, R>>>,
}

/// The arrangement, and what was last published of it.
struct Source<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    agent: ArcAgent<K, V, T, R>,
    /// How far compaction was allowed: at or beyond the handle's own logical frontier.
    allowed: Antichain<T>,
    current: Arc<View<K, V, T, R>>,
    /// The trace's version when `current` was derived.
    version: u64,
    retired: Vec<Arc<View<K, V, T, R>>>,
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Publisher<K, V, T, R> {
    /// Publishes `arranged` at `point` from now on.
    ///
    /// The published `since` starts at the logical compaction frontier of the arrangement's trace
    /// handle. If the arrangement is only accurate from some `as_of` on, advance that handle to it
    /// before.
    ///
    /// # Panics
    /// If the point has, or had, a publisher.
    pub fn attach(
        arranged: &Arranged<'_, ArcAgent<K, V, T, R>>,
        point: Arc<Point<K, V, T, R>>,
    ) -> Self {
        point.adopt();
        let mut agent = arranged.trace.clone();
        agent.trace_box_unstable().borrow().trace().label(point.name());
        let allowed = agent.get_logical_compaction().to_owned();
        let current = Arc::new(View::of_trace(&mut agent, &allowed));
        let version = version(&agent);
        point.publish(Arc::clone(&current));
        let source = Source { agent, allowed, current, version, retired: Vec::new() };
        let shared = Rc::new(Shared { point, source: RefCell::new(Some(source)) });

        let mut watch = Watch { shared: Rc::downgrade(&shared), ended: false };
        arranged.stream.clone().sink(Pipeline, "Publish", move |(input, frontier)| {
            input.for_each(|_, spans| spans.clear());
            watch.ended = frontier.is_empty();
            if let Some(shared) = watch.shared.upgrade() {
                shared.with_source((), |source| source.refresh(&shared.point));
            }
        });
        Publisher { shared }
    }

    /// Where this publishes.
    pub fn point(&self) -> &Arc<Point<K, V, T, R>> {
        &self.shared.point
    }

    /// Publishes a new view if the trace has changed since the last.
    pub fn refresh(&self) {
        self.shared.with_source((), |source| source.refresh(&self.shared.point));
    }

    /// Lets the arrangement forget distinctions between times not beyond `frontier`, and tells
    /// readers first.
    ///
    /// A frontier that is not beyond the one before changes nothing. The empty frontier
    /// [closes](Publisher::close).
    pub fn allow_compaction(&self, frontier: &Antichain<T>) {
        if frontier.is_empty() {
            return self.close();
        }
        self.shared.with_source((), |source| source.allow(&self.shared.point, frontier));
    }

    /// Maintenance: lets the trace merge what is published, publishes what came of it, and frees
    /// what readers left.
    ///
    /// May merge for as long as the trace likes.
    pub fn tick(&self) {
        self.shared.with_source((), |source| {
            let point = &self.shared.point;
            source.refresh(point);
            source.let_merge(point);
            source.refresh(point);
            source.free_retired();
        });
    }

    /// A handle for dataflows of this worker, at the compaction frontiers of the publisher's; none
    /// once closed.
    pub fn trace(&self) -> Option<ArcAgent<K, V, T, R>> {
        self.shared.with_source(None, |source| Some(source.agent.clone()))
    }

    /// How the trace really is; none once closed.
    pub fn state(&self) -> Option<TraceState<T>> {
        self.shared.with_source(None, |source| Some(source.state()))
    }

    /// Ends publication: readers that come now are refused, those that wait are told, and the trace
    /// is released.
    ///
    /// Readers that hold a view keep it.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Shared<K, V, T, R> {
    fn with_source<O>(&self, closed: O, logic: impl FnOnce(&mut Source<K, V, T, R>) -> O) -> O {
        self.source.borrow_mut().as_mut().map_or(closed, logic)
    }

    fn close(&self) {
        // Taken out first: nothing is borrowed while waiters are woken and the trace is dropped.
        let source = self.source.borrow_mut().take();
        if let Some(source) = source {
            self.point.publish(Arc::new(View::closed()));
            drop(source);
        }
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Drop for Shared<K, V, T, R> {
    fn drop(&mut self) {
        // A panic ends the process: nobody should hear from a half-dead worker that its index was
        // dropped.
        if !std::thread::panicking() {
            self.close();
        }
    }
}

/// Tells an arrangement whose inputs have ended, which stays readable, from one whose dataflow was
/// dropped.
///
/// A dropped dataflow leaves its trace sealed to the empty frontier, as if it were complete for all
/// times.
struct Watch<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    shared: Weak<Shared<K, V, T, R>>,
    ended: bool,
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Drop for Watch<K, V, T, R> {
    fn drop(&mut self) {
        if !self.ended
            && !std::thread::panicking()
            && let Some(shared) = self.shared.upgrade()
        {
            shared.close();
        }
    }
}

fn version<K, V, T, R>(agent: &ArcAgent<K, V, T, R>) -> u64
where
    K: SharedData,
    V: SharedData,
    T: SharedTime,
    R: SharedDiff,
{
    agent.trace_box_unstable().borrow().trace().version()
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Source<K, V, T, R> {
    fn refresh(&mut self, point: &Point<K, V, T, R>) {
        let version = version(&self.agent);
        if version != self.version {
            self.version = version;
            self.republish(point);
        }
    }

    fn republish(&mut self, point: &Point<K, V, T, R>) {
        if let Some(view) = self.current.successor(&mut self.agent, &self.allowed) {
            let before = std::mem::replace(&mut self.current, Arc::new(view));
            point.publish(Arc::clone(&self.current));
            self.retired.push(before);
            self.free_retired();
        }
    }

    fn allow(&mut self, point: &Point<K, V, T, R>, frontier: &Antichain<T>) {
        let allowed = self.allowed.join(frontier);
        if allowed == self.allowed {
            return;
        }
        self.allowed = allowed;
        self.version = version(&self.agent);
        self.republish(point);
        if !planted!(FrozenPublisher) {
            self.agent.set_logical_compaction(self.allowed.borrow());
        }
    }

    fn let_merge(&mut self, point: &Point<K, V, T, R>) {
        let upper = self.current.upper();
        if self.agent.get_physical_compaction() != upper.borrow() {
            let _locked = planted!(MergeUnderLock).then(|| point.lock());
            self.agent.set_physical_compaction(upper.borrow());
        }
    }

    fn free_retired(&mut self) {
        // Nobody can clone a view that is out of its point and that only we hold.
        self.retired.retain(|view| Arc::strong_count(view) > 1);
    }

    fn state(&mut self) -> TraceState<T> {
        self.free_retired();
        let shared = self.agent.trace_box_unstable();
        let shared = shared.borrow();
        let trace = shared.trace();
        let mut state = TraceState {
            logical: trace.logical().clone(),
            physical: trace.physical().clone(),
            upper: Antichain::from_elem(T::minimum()),
            batches: 0,
            spans: 0,
            updates: 0,
            published_spans: self.current.chain().len(),
            retired: self.retired.len(),
        };
        trace.map_spans(|span| {
            state.upper.clone_from(span.upper());
            state.spans += 1;
            state.batches += usize::from(span.has_updates());
            state.updates += span.inner.as_ref().map_or(0, |batch| batch.updates());
        });
        state
    }
}
