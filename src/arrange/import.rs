//! The reading side of sharing, as dataflows: brings arrangements into a scope as ordinary
//! [`Arranged`]s.
//!
//! # From a point
//!
//! An [`ImportGate`] imports points for one bounded read, from its `as_of` up to its `until`. It
//! captures the current views of all its points together or not at all: both halves of an index,
//! and all the indexes of a query, are judged as one. What it holds from then on is the batches it
//! captured. It never holds back compaction of the arrangements, and it asks nothing of their
//! owners any more. A read that compaction has passed is [refused](ImportGate::refused).
//!
//! Capture happens only when an import's operator runs, never at construction. An import of a point
//! that nobody publishes yet is therefore built like any other and its trace is filled in place,
//! which is sound because operators tolerate a trace that runs ahead of their input:
//!
//! * at construction a join preloads what the trace holds: nothing. All that is captured later
//!   arrives on the stream;
//! * it cuts the trace only at bounds of spans that it has received, or that hold no updates and
//!   follow such a bound; the chain never changes, so these cuts stay;
//! * a reduce asks first for what lies before the minimum: nothing.
//!
//! Waiting costs nothing: the operator registers a waker with every point and is activated by the
//! next publication.
//!
//! # From this worker
//!
//! [`import_local`] imports an arrangement that another dataflow of the same worker maintains. It
//! follows the arrangement, and holds back its compaction like any local reader.
//!
//! Either way times are advanced to `as_of`, so that a partly compacted past never shows; updates
//! at or past `until` are not emitted, however late the capability is dropped; and nothing is
//! emitted before the [`StartSignal`] fires.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};

use differential_dataflow::lattice::Lattice;
use differential_dataflow::operators::arrange::{Arranged, TraceReplayInstruction};
use differential_dataflow::trace::TraceReader;
use timely::PartialOrder;
use timely::container::CapacityContainerBuilder;
use timely::dataflow::Scope;
use timely::dataflow::operators::CapabilitySet;
use timely::dataflow::operators::generic::{OperatorInfo, source};
use timely::progress::Antichain;
use timely::scheduling::{Activator, SyncActivator};

use super::batch::{SharedData, SharedDiff, SharedTime, Window};
use super::point::{Point, known};
use super::spine::{ArcAgent, ArcSpan};
use super::trace::{CapturedTrace, SharedArranged, SharedTrace, through_window};
use super::view::{Bounds, Judgement, Read, Refused, View, show};
use crate::env::{self, Event};

/// Lets the imports of a dataflow begin to emit. Clones are the same signal.
#[derive(Clone, Default)]
pub struct StartSignal {
    fired: Rc<Cell<bool>>,
    listeners: Rc<RefCell<Vec<Activator>>>,
}

impl StartSignal {
    /// A signal that has not fired.
    pub fn new() -> Self {
        StartSignal::default()
    }

    /// A signal that has fired.
    pub fn started() -> Self {
        let start = StartSignal::new();
        start.fire();
        start
    }

    /// Lets them begin. Once is enough.
    pub fn fire(&self) {
        self.fired.set(true);
        self.listeners.take().iter().for_each(Activator::activate);
    }

    /// Whether they may begin.
    pub fn fired(&self) -> bool {
        self.fired.get()
    }

    pub(crate) fn listen(&self, activator: Activator) {
        if self.fired() {
            activator.activate();
        } else {
            self.listeners.borrow_mut().push(activator);
        }
    }
}

/// Why an import cannot be asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError<T: Debug> {
    /// Points serve bounded reads only.
    #[error("an import as of {} from a point must have an end", show(.as_of))]
    Unbounded {
        /// The first readable times asked for.
        as_of: Antichain<T>,
    },
    /// The read would end before it begins.
    #[error("an import as of {} cannot end at {}", show(.as_of), show(.until))]
    Interval {
        /// The first readable times asked for.
        as_of: Antichain<T>,
        /// The times at which it would stop.
        until: Antichain<T>,
    },
}

/// Captures several points together for one bounded read. Clones are the same gate.
pub struct ImportGate<T: SharedTime> {
    shared: Rc<Gate<T>>,
}

impl<T: SharedTime> Clone for ImportGate<T> {
    fn clone(&self) -> Self {
        ImportGate { shared: Rc::clone(&self.shared) }
    }
}

struct Gate<T: SharedTime> {
    as_of: Antichain<T>,
    until: Antichain<T>,
    start: StartSignal,
    outcome: RefCell<Outcome<T>>,
    /// What is to be captured; empty once it is decided.
    parts: RefCell<Vec<Rc<dyn GatedPart<T>>>>,
}

#[derive(Clone)]
enum Outcome<T: Debug> {
    Waiting,
    Captured,
    Refused(Refused<T>),
}

/// One point of a gate, whatever its keys and values.
trait GatedPart<T: SharedTime> {
    /// Loads the current view and keeps it until it is captured or looked at again.
    fn look(&self) -> Bounds<T>;
    /// Has the operator woken by the next publication.
    fn wait(&self);
    /// Forgets what [`GatedPart::look`] loaded last.
    fn let_go(&self);
    /// Takes what [`GatedPart::look`] loaded last.
    fn capture(&self, until: &Antichain<T>);
    /// Takes nothing, ever.
    fn refuse(&self);
    /// Undoes [`GatedPart::wait`].
    fn forget(&self);
    /// Has the operator run.
    fn activate(&self);
}

impl<T: SharedTime> ImportGate<T> {
    /// A gate for a read from `as_of` up to `until`.
    ///
    /// # Errors
    /// [`ImportError`] unless `as_of` is before `until`, and `until` is not empty.
    pub fn new(
        as_of: Antichain<T>,
        until: Antichain<T>,
        start: StartSignal,
    ) -> Result<Self, ImportError<T>> {
        if until.is_empty() {
            return Err(ImportError::Unbounded { as_of });
        }
        if !PartialOrder::less_than(&as_of, &until) {
            return Err(ImportError::Interval { as_of, until });
        }
        let (outcome, parts) = (RefCell::new(Outcome::Waiting), RefCell::default());
        Ok(ImportGate { shared: Rc::new(Gate { as_of, until, start, outcome, parts }) })
    }

    /// Brings the arrangement published at `point` into `scope`.
    ///
    /// # Panics
    /// If the gate has captured already: all its imports belong into the construction of one
    /// dataflow.
    pub fn import<'scope, K: SharedData, V: SharedData, R: SharedDiff>(
        &self,
        scope: Scope<'scope, T>,
        point: Arc<Point<K, V, T, R>>,
    ) -> SharedArranged<'scope, K, V, T, R> {
        let gate = Rc::clone(&self.shared);
        assert!(matches!(*gate.outcome.borrow(), Outcome::Waiting), "the gate is decided already");
        let trace = CapturedTrace::new(gate.as_of.clone());
        let captured = trace.clone();
        let stream = source(scope, "ImportPoint", move |capability, info| {
            let mut capabilities = CapabilitySet::from_elem(capability);
            capabilities.downgrade(gate.as_of.iter());
            let part = PointPart::new(scope, &info, point, captured.clone());
            gate.admit(Rc::new(part));
            gate.start.listen(scope.activator_for(Rc::clone(&info.address)));
            let membership = Membership { gate };
            let mut captured = Some(captured);
            move |output| {
                let gate = &membership.gate;
                gate.decide();
                let emitting = match &*gate.outcome.borrow() {
                    Outcome::Waiting => false,
                    Outcome::Captured => gate.start.fired(),
                    Outcome::Refused(_) => {
                        captured = None;
                        capabilities = CapabilitySet::new();
                        false
                    }
                };
                if emitting && let Some(captured) = captured.take() {
                    emit(output, &capabilities, captured.spans());
                    capabilities = CapabilitySet::new();
                }
            }
        });
        Arranged { stream, trace: SharedTrace::Imported(trace) }
    }

    /// Why the read was refused, if it was. Known before the import's output ends.
    pub fn refused(&self) -> Option<Refused<T>> {
        match &*self.shared.outcome.borrow() {
            Outcome::Refused(refused) => Some(refused.clone()),
            Outcome::Waiting | Outcome::Captured => None,
        }
    }

    /// Whether all points were captured.
    pub fn captured(&self) -> bool {
        matches!(*self.shared.outcome.borrow(), Outcome::Captured)
    }
}

type Output<'a, K, V, T, R> = timely::dataflow::operators::generic::OutputBuilderSession<
    'a,
    T,
    CapacityContainerBuilder<Vec<ArcSpan<K, V, T, R>>>,
>;

fn emit<K, V, T, R>(
    output: &mut Output<'_, K, V, T, R>,
    capabilities: &CapabilitySet<T>,
    spans: &[ArcSpan<K, V, T, R>],
) where
    K: SharedData,
    V: SharedData,
    T: SharedTime,
    R: SharedDiff,
{
    let mut session = output.session(capabilities);
    for span in spans.iter().filter(|span| span.has_updates()) {
        session.give(span.clone());
    }
}

impl<T: SharedTime> Gate<T> {
    fn admit(&self, part: Rc<dyn GatedPart<T>>) {
        part.activate();
        self.parts.borrow_mut().push(part);
    }

    /// Captures all or refuses all, if that can be told by now.
    fn decide(&self) {
        if !matches!(*self.outcome.borrow(), Outcome::Waiting) {
            return;
        }
        let mut judgement = self.look();
        if judgement == Judgement::NotYet {
            self.parts.borrow().iter().for_each(|part| part.wait());
            // A publication between the look and the registration woke nobody.
            judgement = self.look();
        }
        let outcome = match judgement {
            Judgement::NotYet => {
                // A reader that cannot be served yet pins nothing.
                self.parts.borrow().iter().for_each(|part| part.let_go());
                return;
            }
            Judgement::Ready => Outcome::Captured,
            Judgement::Refused(refused) => Outcome::Refused(refused),
        };
        *self.outcome.borrow_mut() = outcome.clone();
        for part in self.parts.take() {
            part.forget();
            match outcome {
                Outcome::Captured => part.capture(&self.until),
                _ => part.refuse(),
            }
            part.activate();
        }
    }

    fn look(&self) -> Judgement<T> {
        let parts = self.parts.borrow();
        let bounds = Bounds::together(parts.iter().map(|part| part.look()));
        let bounds = bounds.expect("an undecided gate has the part whose operator runs");
        bounds.judge(Read::Between { as_of: &self.as_of, until: &self.until })
    }
}

/// Held by an import's operator: when the dataflow is dropped undecided, nothing is waited for any
/// more.
struct Membership<T: SharedTime> {
    gate: Rc<Gate<T>>,
}

impl<T: SharedTime> Drop for Membership<T> {
    fn drop(&mut self) {
        let parts = self.gate.parts.take();
        if !std::thread::panicking() {
            parts.iter().for_each(|part| part.forget());
        }
    }
}

type SeenView<K, V, T, R> = Arc<View<K, V, T, R>>;

/// One imported point.
struct PointPart<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    point: Arc<Point<K, V, T, R>>,
    seen: RefCell<Option<SeenView<K, V, T, R>>>,
    trace: CapturedTrace<K, V, T, R>,
    waker: Waker,
    waiting: Cell<bool>,
    activator: Activator,
    over_placeholder: bool,
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> PointPart<K, V, T, R> {
    fn new(
        scope: Scope<'_, T>,
        info: &OperatorInfo,
        point: Arc<Point<K, V, T, R>>,
        trace: CapturedTrace<K, V, T, R>,
    ) -> Self {
        let operator = scope.worker().sync_activator_for(info.address.to_vec());
        PointPart {
            over_placeholder: !point.is_adopted(),
            point,
            seen: RefCell::new(None),
            trace,
            waker: operator_waker(operator),
            waiting: Cell::new(false),
            activator: scope.activator_for(Rc::clone(&info.address)),
        }
    }
}

impl<K, V, T, R> GatedPart<T> for PointPart<K, V, T, R>
where
    K: SharedData,
    V: SharedData,
    T: SharedTime,
    R: SharedDiff,
{
    fn look(&self) -> Bounds<T> {
        let view = self.point.load();
        let bounds = view.bounds().clone();
        self.seen.replace(Some(view));
        bounds
    }

    fn wait(&self) {
        self.waiting.set(true);
        self.point.register(&self.waker);
    }

    fn let_go(&self) {
        self.seen.replace(None);
    }

    fn capture(&self, until: &Antichain<T>) {
        let view = self.seen.take().expect("looked at before it is captured");
        let part = self.point.name();
        let over_placeholder = self.over_placeholder;
        let as_of = known(self.trace.as_of()).and_then(|as_of| as_of.as_option().copied());
        if let (Some(as_of), Some(since), Some(upper)) =
            (as_of, known(view.since()), known(view.upper()))
        {
            env::event(|| Event::ImportCaptured { part, as_of, since, upper, over_placeholder });
        }
        self.trace.fill(view, until);
    }

    fn refuse(&self) {
        let view = self.seen.take().expect("looked at before it is refused");
        let part = self.point.name();
        let as_of = known(self.trace.as_of()).and_then(|as_of| as_of.as_option().copied());
        if let (Some(as_of), Some(since)) = (as_of, known(view.since())) {
            env::event(|| Event::ImportRefused { part, as_of, since });
        }
    }

    fn forget(&self) {
        if self.waiting.replace(false) {
            self.point.forget(&self.waker);
        }
    }

    fn activate(&self) {
        self.activator.activate();
    }
}

/// A waker for an operator of the calling thread's worker.
pub(crate) fn operator_waker(operator: SyncActivator) -> Waker {
    Waker::from(Arc::new(OperatorWaker { operator, worker: env::Unparker::current() }))
}

/// Wakes an operator on another thread, and the thread.
struct OperatorWaker {
    operator: SyncActivator,
    worker: env::Unparker,
}

impl Wake for OperatorWaker {
    fn wake(self: Arc<Self>) {
        // Fails only when the worker is gone, and with it whoever waited.
        if self.operator.activate().is_ok() {
            self.worker.unpark();
        }
    }
}

/// Brings an arrangement that this worker maintains into another dataflow, from `as_of` up to
/// `until`; the empty `until` follows it for ever.
///
/// # Errors
/// [`Refused`] when the handle allows compaction past `as_of`.
pub fn import_local<'scope, K, V, T, R>(
    agent: &mut ArcAgent<K, V, T, R>,
    scope: Scope<'scope, T>,
    as_of: Antichain<T>,
    until: Antichain<T>,
    start: StartSignal,
) -> Result<SharedArranged<'scope, K, V, T, R>, Refused<T>>
where
    K: SharedData,
    V: SharedData,
    T: SharedTime,
    R: SharedDiff,
{
    let since = agent.get_logical_compaction().to_owned();
    if !PartialOrder::less_equal(&since, &as_of) {
        return Err(Refused::Compacted { as_of, since });
    }
    let mut reader = agent.clone();
    reader.set_logical_compaction(as_of.borrow());
    let window = Arc::new(Window::new(as_of, until));
    let trace = SharedTrace::LocalImport { agent: reader, window: Arc::clone(&window) };

    let stream = source(scope, "ImportLocal", |capability, info| {
        let mut capabilities = CapabilitySet::from_elem(capability);
        capabilities.downgrade(window.since().iter());
        start.listen(scope.activator_for(Rc::clone(&info.address)));
        let mut queue = Some(agent.new_listener(scope.activator_for(info.address)));
        move |output| {
            let Some(listener) = queue.as_ref().filter(|_| start.fired()) else { return };
            for instruction in listener.1.borrow_mut().drain(..) {
                match instruction {
                    TraceReplayInstruction::Span(span, _) if !capabilities.is_empty() => {
                        emit(output, &capabilities, &[through_window(&span, &window)]);
                    }
                    TraceReplayInstruction::Span(..) => {}
                    TraceReplayInstruction::Frontier(frontier) => {
                        if PartialOrder::less_equal(window.until(), &frontier) {
                            capabilities = CapabilitySet::new();
                        } else {
                            capabilities.downgrade(frontier.join(window.since()).iter());
                        }
                    }
                }
            }
            if capabilities.is_empty() {
                // Its end is reached: what the arrangement still does must not pile up here (H17).
                queue = None;
            }
        }
    });
    Ok(Arranged { stream, trace })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use differential_dataflow::VecCollection;
    use differential_dataflow::trace::implementations::{ValBuilder, ValSpine};
    use timely::dataflow::ProbeHandle;
    use timely::dataflow::operators::{Inspect, Probe};
    use timely::worker::Worker;

    use super::super::testing::*;
    use super::super::{arrange, local};
    use super::*;

    type Joined = (u64, u64, u64);
    type Emitted<D> = Rc<RefCell<Vec<(D, u64, i64)>>>;

    /// Collects what a dataflow emits.
    fn collect<D: differential_dataflow::ExchangeData>(
        collection: VecCollection<'_, u64, D, i64>,
        probe: &ProbeHandle<u64>,
    ) -> Emitted<D> {
        let emitted = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&emitted);
        let inspected =
            collection.inner.inspect(move |update| sink.borrow_mut().push(update.clone()));
        inspected.probe_with(probe);
        emitted
    }

    fn accumulate<D: Ord + Clone>(emitted: &Emitted<D>, time: u64) -> BTreeMap<D, i64> {
        let mut sums = BTreeMap::new();
        for (data, moment, diff) in emitted.borrow().iter().cloned() {
            if moment <= time {
                *sums.entry(data).or_insert(0) += diff;
            }
        }
        sums.retain(|_, diff| *diff != 0);
        sums
    }

    fn reference_join(left: &[Update], right: &[Update], time: u64) -> BTreeMap<Joined, i64> {
        let mut rows = BTreeMap::new();
        for ((key, first), one) in contents(left, time) {
            for ((_, second), two) in contents(right, time).range((key, 0)..=(key, u64::MAX)) {
                *rows.entry((key, first, *second)).or_insert(0) += one * two;
            }
        }
        rows
    }

    /// A dataflow that joins two points, each imported through one gate.
    struct Query {
        gate: ImportGate<u64>,
        start: StartSignal,
        probe: ProbeHandle<u64>,
        joined: Emitted<Joined>,
        dataflow: usize,
    }

    impl Query {
        fn new(
            worker: &mut Worker,
            (left, right): (&Arc<TestPoint>, &Arc<TestPoint>),
            as_of: u64,
            until: u64,
        ) -> Self {
            let (start, probe) = (StartSignal::new(), ProbeHandle::new());
            let gate = ImportGate::new(at(as_of), at(until), start.clone()).expect("an interval");
            let dataflow = worker.next_dataflow_index();
            let joined = worker.dataflow(|scope| {
                let left = gate.import(scope, Arc::clone(left));
                let right = gate.import(scope, Arc::clone(right));
                let joined = left.join_core(right, |key, one, two| Some((*key, *one, *two)));
                collect(joined, &probe)
            });
            Query { gate, start, probe, joined, dataflow }
        }

        fn finish(&self, worker: &mut Worker) {
            self.start.fire();
            step_until(worker, || self.probe.done());
        }

        fn assert_equals(&self, left: &Maintained, right: &Maintained, as_of: u64, until: u64) {
            for (data, time, diff) in self.joined.borrow().iter() {
                assert!(as_of <= *time && *time < until, "{data:?} at {time} by {diff}");
            }
            for time in as_of..until {
                let expected = reference_join(&left.history, &right.history, time);
                assert!(!expected.is_empty(), "the read has something to show");
                assert_eq!(accumulate(&self.joined, time), expected, "at {time}");
            }
        }
    }

    fn points() -> (Arc<TestPoint>, Arc<TestPoint>) {
        (Arc::new(TestPoint::new(name(1))), Arc::new(TestPoint::new(name(2))))
    }

    #[test]
    fn a_join_of_imports_is_right_at_every_time_of_its_interval_within_merged_batches() {
        timely::execute_directly(|worker| {
            let (one, two) = points();
            let mut left = Maintained::new(worker, &one);
            let mut right = Maintained::new(worker, &two);
            left.rounds(worker, 24);
            right.rounds(worker, 20);
            left.compact(worker, 7);
            right.compact(worker, 10);
            let straddles = |point: &TestPoint| {
                let view = point.load();
                view.chain().any(|span| {
                    span.has_updates()
                        && span.lower().less_equal(&9)
                        && !span.upper().less_equal(&14)
                })
            };
            assert!(straddles(&one) && straddles(&two), "a batch holds both ends of the interval");

            let query = Query::new(worker, (&one, &two), 10, 14);
            query.finish(worker);
            assert!(query.gate.captured());
            query.assert_equals(&left, &right, 10, 14);
        });
    }

    #[test]
    fn imports_built_over_placeholders_are_filled_in_place_and_captured_together() {
        timely::execute_directly(|worker| {
            let one = Arc::new(TestPoint::placeholder(name(1)));
            let two = Arc::new(TestPoint::placeholder(name(2)));
            let query = Query::new(worker, (&one, &two), 4, 8);
            query.start.fire();
            step_some(worker);
            assert!(!query.gate.captured());
            assert_eq!((one.waiters(), two.waiters()), (1, 1));

            let mut left = Maintained::new(worker, &one);
            left.rounds(worker, 12);
            step_some(worker);
            assert!(!query.gate.captured(), "one half alone is not captured");
            let mut right = Maintained::new(worker, &two);
            right.rounds(worker, 7);
            step_some(worker);
            assert!(!query.gate.captured(), "nor is what is not complete");
            right.rounds(worker, 8);
            query.finish(worker);
            query.assert_equals(&left, &right, 4, 8);
            assert_eq!((one.waiters(), two.waiters()), (0, 0));
        });
    }

    #[test]
    fn a_capture_before_the_start_signal_survives_compaction_past_it() {
        timely::execute_directly(|worker| {
            let (one, two) = points();
            let mut left = Maintained::new(worker, &one);
            let mut right = Maintained::new(worker, &two);
            left.rounds(worker, 10);
            right.rounds(worker, 10);
            let query = Query::new(worker, (&one, &two), 5, 10);
            step_until(worker, || query.gate.captured());
            left.rounds(worker, 20);
            right.rounds(worker, 20);
            left.compact(worker, 19);
            right.compact(worker, 19);
            assert!(query.joined.borrow().is_empty(), "nothing is emitted before it starts");
            query.finish(worker);
            query.assert_equals(&left, &right, 5, 10);
        });
    }

    #[test]
    fn compaction_past_either_half_refuses_both_before_their_output_ends() {
        timely::execute_directly(|worker| {
            let (one, two) = points();
            let mut left = Maintained::new(worker, &one);
            let mut right = Maintained::new(worker, &two);
            left.rounds(worker, 10);
            right.rounds(worker, 10);
            right.compact(worker, 6);
            let query = Query::new(worker, (&one, &two), 5, 8);
            query.start.fire();
            step_until(worker, || {
                assert!(!query.probe.done() || query.gate.refused().is_some());
                query.probe.done()
            });
            let expected = Refused::Compacted { as_of: at(5), since: at(6) };
            assert_eq!(query.gate.refused(), Some(expected.clone()));
            assert_eq!(expected.to_string(), "cannot read as of {5}: compacted up to {6}");
            assert!(query.joined.borrow().is_empty());
        });
    }

    #[test]
    fn closing_a_point_refuses_those_who_wait_for_it() {
        timely::execute_directly(|worker| {
            let (one, two) = points();
            let left = Maintained::new(worker, &one);
            let right = Maintained::new(worker, &two);
            let query = Query::new(worker, (&one, &two), 5, 8);
            query.start.fire();
            step_some(worker);
            assert_eq!(two.waiters(), 1);
            right.publisher.close();
            step_until(worker, || query.probe.done());
            assert_eq!(query.gate.refused(), Some(Refused::Closed { as_of: at(5) }));
            drop(left);
        });
    }

    #[test]
    fn a_dataflow_dropped_while_it_waits_leaves_no_registration() {
        timely::execute_directly(|worker| {
            let (one, two) = points();
            let query = Query::new(worker, (&one, &two), 5, 8);
            step_some(worker);
            assert_eq!((one.waiters(), two.waiters()), (1, 1));
            worker.drop_dataflow(query.dataflow);
            assert_eq!((one.waiters(), two.waiters()), (0, 0));
        });
    }

    #[test]
    fn a_reduce_over_an_import_counts_right_at_every_time() {
        timely::execute_directly(|worker| {
            let point = Arc::new(TestPoint::placeholder(name(1)));
            let (start, probe) = (StartSignal::started(), ProbeHandle::new());
            let gate = ImportGate::new(at(6), at(12), start).expect("an interval");
            let counts = worker.dataflow(|scope| {
                let counts = gate
                    .import(scope, Arc::clone(&point))
                    .reduce_abelian::<_, ValBuilder<_, _, _, _>, ValSpine<u64, i64, u64, i64>, _, _>(
                        "Count",
                        |_, input, output| {
                            output.push((input.iter().map(|(_, diff)| *diff).sum(), 1));
                        },
                        |vec, key, updates| {
                            vec.clear();
                            vec.extend(updates.drain(..).map(|(v, t, r)| ((*key, v), t, r)));
                        },
                    )
                    .as_collection(|key, count| (*key, *count));
                collect(counts, &probe)
            });
            let mut maintained = Maintained::new(worker, &point);
            // Silence at first: the captured chain begins with spans that hold no updates.
            maintained.seal(worker, 2);
            maintained.rounds(worker, 14);
            maintained.compact(worker, 5);
            step_until(worker, || probe.done());
            assert!(gate.captured());
            for time in 6..12 {
                let mut expected = BTreeMap::new();
                for ((key, _), diff) in contents(&maintained.history, time) {
                    *expected.entry(key).or_insert(0) += diff;
                }
                let expected: BTreeMap<_, _> = expected.into_iter().map(|row| (row, 1)).collect();
                assert_eq!(accumulate(&counts, time), expected, "at {time}");
            }
        });
    }

    #[test]
    fn an_import_that_is_held_for_long_costs_its_owner_nothing() {
        let after = |held: bool| {
            timely::execute_directly(move |worker| {
                let (one, two) = points();
                let mut left = Maintained::new(worker, &one);
                left.rounds(worker, 10);
                let query = held.then(|| Query::new(worker, (&one, &one), 9, 10));
                if let Some(query) = &query {
                    step_until(worker, || query.gate.captured());
                }
                for time in 11..200 {
                    left.rounds(worker, time);
                    left.compact(worker, time - 1);
                }
                let state = left.publisher.state().expect("open");
                if let Some(query) = query {
                    assert!(!query.probe.done(), "it was held all the time");
                    query.finish(worker);
                    query.assert_equals(&left, &left, 9, 10);
                }
                drop(two);
                state
            })
        };
        let (without, with) = (after(false), after(true));
        assert_eq!(with.retired, 1, "the view that the import captured");
        assert_eq!(TraceStateWithoutRetired::from(with), without.clone().into());
        assert_eq!((&without.logical, &without.physical), (&at(198), &at(199)));
        assert!(without.batches < 10, "{without:?}");
    }

    /// A trace's state but for what depends on readers.
    #[derive(Debug, PartialEq)]
    struct TraceStateWithoutRetired(super::super::TraceState<u64>);

    impl From<super::super::TraceState<u64>> for TraceStateWithoutRetired {
        fn from(state: super::super::TraceState<u64>) -> Self {
            TraceStateWithoutRetired(super::super::TraceState { retired: 0, ..state })
        }
    }

    #[test]
    fn what_an_import_captured_is_freed_by_its_owner_once_the_dataflow_is_gone() {
        timely::execute_directly(|worker| {
            let (counting, _installed) = Counting::install();
            let (one, two) = points();
            let mut left = Maintained::new(worker, &one);
            let mut right = Maintained::new(worker, &two);
            left.rounds(worker, 10);
            right.rounds(worker, 10);
            let query = Query::new(worker, (&one, &two), 9, 10);
            step_until(worker, || query.gate.captured());
            left.rounds(worker, 40);
            left.compact(worker, 39);
            right.compact(worker, 5);
            let own = || {
                let (left, right) = (left.publisher.state(), right.publisher.state());
                (left.expect("open").batches + right.expect("open").batches) as i64
            };
            assert!(counting.live_batches.get() > own(), "the query holds what was merged since");
            let before = counting.live_batches.get();
            worker.drop_dataflow(query.dataflow);
            assert_eq!(counting.live_batches.get(), before, "the reader does not pay for freeing");
            left.publisher.tick();
            right.publisher.tick();
            // The queries' output is not arranged, so what is left is the traces' own, and what
            // their unfinished merges have yet to release.
            assert_eq!(counting.live_batches.get(), own());
            assert!(counting.saw(|event| matches!(event, Event::ImportCaptured { as_of: 9, .. })));
        });
    }

    #[test]
    fn the_interval_of_an_import_is_checked() {
        let start = StartSignal::new();
        let unbounded = ImportGate::new(at(3), Antichain::new(), start.clone()).err();
        assert_eq!(unbounded, Some(ImportError::Unbounded { as_of: at(3) }));
        let backwards = ImportGate::new(at(3), at(3), start).err().map(|error| error.to_string());
        assert_eq!(backwards.as_deref(), Some("an import as of {3} cannot end at {3}"));
    }

    #[test]
    fn a_local_import_shows_its_interval_and_nothing_that_comes_after() {
        timely::execute_directly(|worker| {
            let point = Arc::new(TestPoint::new(name(1)));
            let mut maintained = Maintained::new(worker, &point);
            maintained.rounds(worker, 8);
            maintained.compact(worker, 4);
            let mut agent = maintained.publisher.trace().expect("open");
            let (start, probe) = (StartSignal::new(), ProbeHandle::new());
            let emitted = worker.dataflow(|scope| {
                let imported = import_local(&mut agent, scope, at(6), at(12), start.clone())
                    .expect("readable");
                let joined =
                    imported.clone().join_core(imported, |k, one, two| Some((*k, *one, *two)));
                collect(joined, &probe)
            });
            drop(agent);
            maintained.rounds(worker, 10);
            start.fire();
            // Several seals at once, the last of them past the end.
            while *maintained.input.time() < 20 {
                maintained.round();
                let next = *maintained.input.time() + 1;
                maintained.input.advance_to(next);
            }
            maintained.seal(worker, 20);
            step_until(worker, || probe.done());
            for time in 6..12 {
                let expected = reference_join(&maintained.history, &maintained.history, time);
                assert_eq!(accumulate(&emitted, time), expected, "at {time}");
            }
            assert!(emitted.borrow().iter().all(|(_, time, _)| (6..12).contains(time)));
            maintained.compact(worker, 19);
            let state = maintained.publisher.state().expect("open");
            assert_eq!(state.logical, at(19), "an import that reached its end holds nothing back");
        });
    }

    #[test]
    fn a_local_import_below_since_is_refused() {
        timely::execute_directly(|worker| {
            let point = Arc::new(TestPoint::new(name(1)));
            let mut maintained = Maintained::new(worker, &point);
            maintained.rounds(worker, 8);
            maintained.compact(worker, 4);
            let mut agent = maintained.publisher.trace().expect("open");
            worker.dataflow(|scope| {
                let import =
                    import_local(&mut agent, scope, at(3), Antichain::new(), StartSignal::new());
                let expected = Refused::Compacted { as_of: at(3), since: at(4) };
                assert_eq!(import.err(), Some(expected));
            });
        });
    }

    #[test]
    fn imported_and_local_arrangements_join_in_one_dataflow() {
        timely::execute_directly(|worker| {
            let point = Arc::new(TestPoint::new(name(1)));
            let mut maintained = Maintained::new(worker, &point);
            maintained.rounds(worker, 12);
            let probe = ProbeHandle::new();
            let gate = ImportGate::new(at(8), at(12), StartSignal::started()).expect("an interval");
            let emitted = worker.dataflow(|scope| {
                let imported = gate.import(scope, Arc::clone(&point));
                let again = imported.clone().as_collection(|key, val| (*key, *val));
                let again = local(arrange(again, "Again"));
                collect(imported.join_core(again, |k, one, two| Some((*k, *one, *two))), &probe)
            });
            step_until(worker, || probe.done());
            for time in 8..12 {
                let expected = reference_join(&maintained.history, &maintained.history, time);
                assert_eq!(accumulate(&emitted, time), expected, "at {time}");
            }
        });
    }
}
