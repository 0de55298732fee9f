//! The writing side of sharing: derives views of an arrangement and publishes them.
//!
//! A [`Publisher`] owns one trace handle and takes everything from it (H2). It publishes on each
//! activation of an operator that listens to the arrangement's stream (also when a seal brought no
//! updates: the frontier moves all the same), and on each [tick](Publisher::tick), because merges
//! finish when the stream is silent (H15).
//!
//! It adds no compaction floor. Its handle goes where [`Publisher::allow_compaction`] says (H1) and
//! its physical frontier trails at the upper it last published. Compaction is announced before it
//! happens: the handle goes only where the published `since` is already, so that a reader never
//! holds a view that claims more than its batches can tell (H6). And the call that may merge for as
//! long as it likes comes between two publications, under no lock (H7).
//!
//! A busy arrangement is published once a round: an allowed compaction waits for the next view, and
//! so does what a tick merged. When the arrangement falls silent, the tick has the operator run
//! once more.
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
use timely::PartialOrder;
use timely::dataflow::Stream;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::Antichain;
use timely::scheduling::Activator;

use super::batch::{SharedData, SharedDiff, SharedTime};
use super::point::Point;
use super::spine::{ArcAgent, ArcSpan};
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
    /// Runs the publishing operator; absent once that has gone.
    operator: RefCell<Option<Activator>>,
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
    /// The [changes](Source::changes) that the last tick left, unless there was something to publish since.
    ticked: Option<(u64, u64)>,
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
        let source = Source { agent, allowed, current, version, retired: Vec::new(), ticked: None };
        let shared = Rc::new(Shared {
            point,
            source: RefCell::new(Some(source)),
            operator: RefCell::new(None),
        });
        publish_along(arranged.stream.clone(), &shared);
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
        self.shared.with_source((), |source| source.allowed = source.allowed.join(frontier));
    }

    /// Maintenance: lets the trace compact and merge as far as was published, and frees what
    /// readers left.
    ///
    /// May merge for as long as the trace likes. What comes of it is published with the next view,
    /// at the latest in the worker's next step, for which this activates the publishing operator.
    ///
    /// Cheap when nothing has changed. Gives whether [`Publisher::state`] may have changed since the tick before.
    pub fn tick(&self) -> bool {
        self.shared.with_source(false, |source| {
            if source.is_quiet() {
                return false;
            }
            let point = &self.shared.point;
            source.refresh(point);
            source.compact(point);
            if source.is_stale() && !self.shared.activate() {
                source.refresh(point);
            }
            source.free_retired();
            source.ticked = Some(source.changes());
            true
        })
    }

    /// A handle for dataflows of this worker, at the compaction frontiers of the publisher's; none
    /// once closed.
    pub fn trace(&self) -> Option<ArcAgent<K, V, T, R>> {
        self.shared.with_source(None, |source| Some(source.agent.clone()))
    }

    /// Up to where what was last published is complete; none once closed.
    pub fn upper(&self) -> Option<Antichain<T>> {
        self.shared.with_source(None, |source| Some(source.current.upper().clone()))
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
    /// Has the publishing operator run in the worker's next step, if it still exists.
    fn activate(&self) -> bool {
        let operator = self.operator.borrow();
        operator.as_ref().map(Activator::activate).is_some()
    }

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

/// Publishes whenever `stream` moves, and whenever its operator is activated.
fn publish_along<K, V, T, R>(
    stream: Stream<'_, T, Vec<ArcSpan<K, V, T, R>>>,
    shared: &Rc<Shared<K, V, T, R>>,
) where
    K: SharedData,
    V: SharedData,
    T: SharedTime,
    R: SharedDiff,
{
    let mut builder = OperatorBuilder::new("Publish".to_string(), stream.scope());
    let address = builder.operator_info().address;
    *shared.operator.borrow_mut() = Some(stream.scope().activator_for(address));
    let mut input = builder.new_input(stream, Pipeline);
    let mut watch = Watch { shared: Rc::downgrade(shared), ended: false };
    builder.build(move |_| {
        move |frontiers| {
            input.for_each(|_, spans| spans.clear());
            watch.ended = frontiers[0].is_empty();
            if let Some(shared) = watch.shared.upgrade() {
                shared.with_source((), |source| source.refresh(&shared.point));
            }
        }
    });
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
        if let Some(shared) = self.shared.upgrade() {
            shared.operator.take();
            if !self.ended && !std::thread::panicking() {
                shared.close();
            }
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
    /// What changes whenever the trace does: its spans, or a frontier of it.
    fn changes(&self) -> (u64, u64) {
        let shared = self.agent.trace_box_unstable();
        let shared = shared.borrow();
        (shared.trace().version(), shared.trace().moves())
    }

    /// Whether a tick would find what the last one left: nothing to publish, to compact or to free.
    fn is_quiet(&self) -> bool {
        self.retired.is_empty() && self.ticked == Some(self.changes()) && !self.is_stale()
    }

    /// Whether there is something to publish, or may be.
    fn is_stale(&self) -> bool {
        version(&self.agent) != self.version
            || !PartialOrder::less_equal(&self.allowed, self.current.since())
    }

    fn refresh(&mut self, point: &Point<K, V, T, R>) {
        if !self.is_stale() {
            return;
        }
        self.version = version(&self.agent);
        self.ticked = None;
        if let Some(view) = self.current.successor(&mut self.agent, &self.allowed) {
            let before = std::mem::replace(&mut self.current, Arc::new(view));
            point.publish(Arc::clone(&self.current));
            self.retired.push(before);
            self.free_retired();
        }
    }

    /// Lets the trace go where the current view is.
    fn compact(&mut self, point: &Point<K, V, T, R>) {
        let (since, upper) = (self.current.since(), self.current.upper());
        if self.agent.get_logical_compaction() != since.borrow() && !planted!(FrozenPublisher) {
            self.agent.set_logical_compaction(since.borrow());
        }
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use differential_dataflow::input::InputSession;
    use timely::worker::Worker;

    use super::super::testing::*;
    use super::super::view::{Judgement, Read, Refused, State};
    use super::super::{EXERT_LOGIC, IDLE_EFFORT, NotReady, arrange, idle_merging};
    use super::*;
    use crate::env::{self, Event};

    fn maintained(worker: &mut Worker) -> (Arc<TestPoint>, Maintained) {
        let point = Arc::new(TestPoint::new(name(1)));
        let maintained = Maintained::new(worker, &point);
        (point, maintained)
    }

    #[test]
    fn publishing_adds_no_compaction_floor() {
        timely::execute_directly(|worker| {
            let (_point, mut maintained) = maintained(worker);
            for time in 1..200 {
                maintained.rounds(worker, time);
                maintained.compact(worker, time - 1);
                let state = maintained.publisher.state().expect("open");
                assert_eq!((state.logical, state.physical), (at(time - 1), at(time)));
                assert_eq!(state.upper, at(time));
                assert_eq!(state.published_spans, state.spans);
                assert!(state.batches <= 10, "{} batches at {time}", state.batches);
                assert_eq!(state.retired, 0);
            }
        });
    }

    #[cfg(feature = "zoo")]
    #[test]
    fn a_frozen_publisher_keeps_all_history() {
        use crate::zoo::{Defect, plant};
        timely::execute_directly(|worker| {
            plant(Some(Defect::FrozenPublisher));
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 20);
            maintained.compact(worker, 19);
            plant(None);
            assert_eq!(maintained.publisher.state().expect("open").logical, at(0));
            assert_eq!(point.load().since(), &at(19));
        });
    }

    #[test]
    fn nothing_is_swapped_when_nothing_has_changed() {
        timely::execute_directly(|worker| {
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 5);
            maintained.compact(worker, 3);
            let before = point.load();
            maintained.compact(worker, 3);
            maintained.compact(worker, 2);
            maintained.publisher.refresh();
            step_some(worker);
            assert!(Arc::ptr_eq(&before, &point.load()));
            assert_eq!(before.since(), &at(3));
        });
    }

    #[test]
    fn a_seal_without_updates_is_published_too() {
        timely::execute_directly(|worker| {
            let (point, mut maintained) = maintained(worker);
            for time in 1..100 {
                maintained.seal(worker, time);
                maintained.compact(worker, time - 1);
            }
            assert_eq!(point.load().upper(), &at(99));
            assert!(point.load().chain().len() < 5, "empty spans merge");
        });
    }

    #[test]
    fn what_a_tick_merged_is_published_by_the_next_step_or_at_once_when_the_operator_has_gone() {
        timely::execute_directly(|worker| {
            let (point, mut maintained) = maintained(worker);
            let batches = |point: &TestPoint| point.load().batches().count();
            maintained.rounds(worker, 8);
            assert_eq!(batches(&point), 8, "nothing may merge before a tick");
            maintained.publisher.tick();
            assert_eq!(batches(&point), 8);
            worker.step();
            let merged = batches(&point);
            assert!(merged < 8);

            maintained.round();
            maintained.input.close();
            while worker.has_dataflows() {
                worker.step();
            }
            assert_eq!(batches(&point), merged + 1);
            maintained.publisher.tick();
            assert!(batches(&point) <= merged, "no step would publish it");
        });
    }

    #[test]
    fn a_silent_arrangement_is_published_and_activated_no_more() {
        timely::execute_directly(|worker| {
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 8);
            maintained.compact(worker, 7);
            let view = point.load();
            for _ in 0..10 {
                worker.step();
                maintained.publisher.tick();
                let active = Cell::new(false);
                let activations = worker.activations();
                activations.borrow_mut().advance();
                activations.borrow().map_active(|_| active.set(true));
                assert!(!active.get(), "a worker with nothing to do may park");
            }
            assert!(Arc::ptr_eq(&view, &point.load()));
        });
    }

    #[test]
    fn merges_on_an_idle_arrangement_reach_the_view() {
        let mut config = timely::Config::thread();
        config.worker.set(EXERT_LOGIC.to_string(), idle_merging(IDLE_EFFORT));
        let guards = timely::execute(config, |worker| {
            let (point, mut maintained) = maintained(worker);
            for time in 1..40 {
                (0..time % 7 * 50).for_each(|val| maintained.update(val, time, 1));
                maintained.seal(worker, time);
            }
            let burst = point.load().chain().len();
            let seen = point.load();
            for _ in 0..200 {
                worker.step();
                maintained.publisher.tick();
            }
            let state = maintained.publisher.state().expect("open");
            assert!(state.spans < burst, "{} spans came of {burst}", state.spans);
            assert_eq!(state.published_spans, state.spans);
            assert_eq!(state.retired, 1, "only what is held here");
            drop(seen);
            maintained.publisher.tick();
            assert_eq!(maintained.publisher.state().expect("open").retired, 0);
            assert_eq!(read(&point, 38), contents(&maintained.history, 38));
        });
        guards.expect("starts").join().into_iter().for_each(|done| done.expect("no panic"));
    }

    #[test]
    fn since_is_published_before_it_is_compacted_to() {
        timely::execute_directly(|worker| {
            let (counting, _installed) = Counting::install();
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 10);
            let trace = maintained.publisher.trace().expect("open").trace_box_unstable();
            let swaps = Rc::new(Cell::new(0));
            let (seen, hooked) = (Rc::clone(&swaps), Arc::clone(&point));
            counting.hook.replace(Some(Box::new(move |place| {
                if place == env::Point::Swapped && hooked.load().since() == &at(7) {
                    assert_eq!(trace.borrow().trace().logical(), &at(0));
                    seen.set(seen.get() + 1);
                }
            })));
            maintained.publisher.allow_compaction(&at(7));
            maintained.publisher.tick();
            counting.hook.replace(None);
            assert_eq!(swaps.get(), 1);
            assert_eq!(maintained.publisher.state().expect("open").logical, at(7));
        });
    }

    fn register_while_merging() {
        timely::execute_directly(|worker| {
            let (counting, _installed) = Counting::install();
            let (point, mut maintained) = maintained(worker);
            for time in 1..4 {
                (0..500).for_each(|key| maintained.update(key, time, 1));
                maintained.seal(worker, time);
            }
            let read = Rc::new(Cell::new(0));
            let (reads, hooked) = (Rc::clone(&read), Arc::clone(&point));
            counting.hook.replace(Some(Box::new(move |place| {
                if let env::Point::Merge { .. } = place {
                    assert_eq!(hooked.load().judge(Read::At(&2)), Judgement::Ready);
                    hooked.register(std::task::Waker::noop());
                    reads.set(reads.get() + 1);
                }
            })));
            maintained.compact(worker, 1);
            counting.hook.replace(None);
            assert!(read.get() > 5, "the tick merges in slices");
        });
    }

    #[test]
    fn readers_register_and_load_while_a_merge_goes_on() {
        register_while_merging();
    }

    #[cfg(feature = "zoo")]
    #[test]
    #[should_panic(expected = "one thread cannot wait for itself on point")]
    fn readers_wait_for_a_merge_under_the_lock() {
        crate::zoo::plant(Some(crate::zoo::Defect::MergeUnderLock));
        register_while_merging();
    }

    #[test]
    fn batches_are_freed_when_they_are_merged_unless_a_reader_holds_them() {
        timely::execute_directly(|worker| {
            let (counting, _installed) = Counting::install();
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 64);
            let held = point.load();
            let batches = held.batches().count() as i64;
            maintained.rounds(worker, 128);
            maintained.compact(worker, 127);
            let state = maintained.publisher.state().expect("open");
            assert!(counting.live_batches.get() > state.batches as i64);
            assert!(counting.live_batches.get() <= state.batches as i64 + batches);
            let before = counting.live_batches.get();
            drop(held);
            assert_eq!(counting.live_batches.get(), before, "not at the reader's cost");
            maintained.publisher.tick();
            assert_eq!(counting.live_batches.get(), state.batches as i64);
            assert_eq!(counting.live_updates.get(), state.updates as i64);
            assert!(counting.merge_points.get() > 0);
        });
    }

    #[test]
    fn merging_in_slices_gives_the_same_trace_as_merging_at_once() {
        let run = |sliced: bool| {
            timely::execute_directly(move |worker| {
                let counting = sliced.then(Counting::install);
                let (_point, mut maintained) = maintained(worker);
                for time in 1..60u64 {
                    (0..time * 37 % 211).for_each(|key| maintained.update(key, time, 1));
                    maintained.seal(worker, time);
                    maintained.compact(worker, time / 2);
                }
                if let Some((counting, _)) = &counting {
                    assert!(counting.merge_points.get() > 100);
                }
                maintained.publisher.state().expect("open")
            })
        };
        assert_eq!(run(false), run(true));
    }

    #[test]
    fn a_closed_point_refuses_and_what_was_taken_before_stays() {
        timely::execute_directly(|worker| {
            let (counting, _installed) = Counting::install();
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 10);
            let view = point.load();
            maintained.publisher.close();
            assert_eq!(point.load().state(), State::Closed);
            assert_eq!(point.load().chain().len(), 0);
            let refused = NotReady::Refused(Refused::Closed { as_of: at(9) });
            assert_eq!(point.snapshot_at(&9).err(), Some(refused));
            assert_eq!(maintained.publisher.state(), None);
            assert!(maintained.publisher.trace().is_none());
            assert_eq!(view.judge(Read::At(&9)), Judgement::Ready);
            maintained.publisher.close();
            maintained.publisher.tick();
            let closed = |event: &Event| matches!(event, Event::Closed { .. });
            assert_eq!(counting.events.borrow().iter().filter(|event| closed(event)).count(), 1);
        });
    }

    #[test]
    fn dropping_the_last_publisher_closes_its_point() {
        timely::execute_directly(|worker| {
            let (point, maintained) = maintained(worker);
            let clone = maintained.publisher.clone();
            drop(maintained);
            assert_eq!(point.load().state(), State::Live);
            drop(clone);
            assert_eq!(point.load().state(), State::Closed);
        });
    }

    #[test]
    fn dropping_the_dataflow_closes_the_point_and_ending_its_input_does_not() {
        timely::execute_directly(|worker| {
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 5);
            worker.drop_dataflow(maintained.dataflow);
            assert_eq!(point.load().state(), State::Closed, "it is not complete for all times");
        });
        timely::execute_directly(|worker| {
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 5);
            maintained.input.close();
            while worker.has_dataflows() {
                worker.step();
            }
            maintained.publisher.tick();
            assert_eq!(point.load().state(), State::Live);
            assert!(point.load().upper().is_empty(), "it is complete for all times");
            assert_eq!(read(&point, u64::MAX), contents(&maintained.history, u64::MAX));
        });
    }

    #[test]
    fn a_point_begins_at_the_since_of_the_arrangement_it_is_attached_to() {
        timely::execute_directly(|worker| {
            let point = Arc::new(TestPoint::placeholder(name(1)));
            let (counting, _installed) = Counting::install();
            let mut input = InputSession::<u64, (u64, u64), i64>::new();
            let publisher = worker.dataflow(|scope| {
                let mut arranged = arrange(input.to_collection(scope), "Maintained");
                arranged.trace.set_logical_compaction(at(5).borrow());
                Publisher::attach(&arranged, Arc::clone(&point))
            });
            assert!(counting.saw(|event| matches!(event, Event::Attached { adopted: true, .. })));
            input.advance_to(10);
            input.flush();
            step_some(worker);
            assert!(matches!(point.snapshot_at(&4), Err(NotReady::Refused(_))));
            assert!(point.snapshot_at(&5).is_ok());
            drop(publisher);
        });
    }

    #[test]
    fn readers_on_another_thread_see_consistent_views_while_the_writer_runs() {
        const TIMES: usize = 100;
        let point = Arc::new(TestPoint::placeholder(name(1)));
        let distinct = Arc::new(AtomicUsize::new(0));
        let reader = std::thread::spawn({
            let (point, distinct) = (Arc::clone(&point), Arc::clone(&distinct));
            move || {
                let mut last = 0;
                while distinct.load(Ordering::SeqCst) < TIMES {
                    let upper = *point.load().upper().as_option().expect("the input does not end");
                    // Between the two loads compaction may pass the time: then it is refused.
                    let time = upper.saturating_sub(1);
                    let Ok(snapshot) = point.snapshot_at(&time) else { continue };
                    let (mut rows, mut budget) = (Vec::new(), usize::MAX);
                    let mut walk = snapshot.walk(Some(vec![100]));
                    assert!(walk.step(&mut budget, |_, val, diff| rows.push((*val, diff))));
                    // Key 100 has exactly one value at each time: the time.
                    assert_eq!(rows, vec![(time, 1)]);
                    distinct.fetch_add(usize::from(time != last), Ordering::SeqCst);
                    last = time;
                }
            }
        });
        timely::execute_directly({
            let point = Arc::clone(&point);
            move |worker| {
                let mut maintained = Maintained::new(worker, &point);
                while distinct.load(Ordering::SeqCst) < TIMES {
                    let time = *maintained.input.time() + 1;
                    maintained.rounds(worker, time);
                    maintained.compact(worker, time - 1);
                    if time.is_multiple_of(64) {
                        std::thread::yield_now();
                    }
                }
            }
        });
        reader.join().expect("every read was consistent");
    }
}
