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

    fn listen(&self, activator: Activator) {
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
            Judgement::NotYet => return,
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
        let waker = OperatorWaker { operator, worker: env::Unparker::current() };
        PointPart {
            over_placeholder: !point.is_adopted(),
            point,
            seen: RefCell::new(None),
            trace,
            waker: Waker::from(Arc::new(waker)),
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
        // Not kept while waiting: a reader that cannot be served yet pins nothing.
        self.seen.replace(None);
        self.point.register(&self.waker);
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
