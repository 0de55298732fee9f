//! One trace type for rendering: arrangements of this dataflow, of this worker, and of another
//! runtime.
//!
//! All of them carry the same batches, so an `enum` is all it takes for joins and reduces to have
//! one code path.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use differential_dataflow::lattice::Lattice;
use differential_dataflow::operators::arrange::Arranged;
use differential_dataflow::trace::{Description, Span, TraceReader};
use timely::PartialOrder;
use timely::progress::Antichain;
use timely::progress::frontier::AntichainRef;

use super::batch::{ArcBatch, SharedData, SharedDiff, SharedTime, Window};
use super::spine::{ArcAgent, ArcSpan};
use super::view::View;

/// An arrangement in a scope, wherever it is maintained.
pub type SharedArranged<'scope, K, V, T, R> = Arranged<'scope, SharedTrace<K, V, T, R>>;

type Chain<K, V, T, R> = Vec<ArcSpan<K, V, T, R>>;

/// A readable arrangement, wherever it is maintained.
pub enum SharedTrace<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    /// Built by this dataflow.
    Local(ArcAgent<K, V, T, R>),
    /// Maintained by another dataflow of this worker, and shown through a window. Holds back its
    /// compaction.
    LocalImport {
        /// The handle on the arrangement.
        agent: ArcAgent<K, V, T, R>,
        /// The times shown.
        window: Arc<Window<T>>,
    },
    /// Captured from a point. Holds back nothing.
    Imported(CapturedTrace<K, V, T, R>),
}

/// The chain that an import captured: nothing before that, and the same for ever after.
///
/// Operators take clones at construction. They see it filled in place, so that an import of a point
/// that has no publisher yet is built exactly like any other. Compaction is a matter of who
/// maintains the arrangement: setting frontiers here does nothing, and every cut between two spans
/// stays available.
pub struct CapturedTrace<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    spans: Rc<OnceCell<Chain<K, V, T, R>>>,
    logical: Antichain<T>,
    physical: Antichain<T>,
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> CapturedTrace<K, V, T, R> {
    /// A trace to be filled, of an import as of `as_of`.
    pub(super) fn new(as_of: Antichain<T>) -> Self {
        let physical = Antichain::from_elem(T::minimum());
        CapturedTrace { spans: Rc::default(), logical: as_of, physical }
    }

    /// The first readable times.
    pub(super) fn as_of(&self) -> &Antichain<T> {
        &self.logical
    }

    /// Shows what `view` holds below `until`, from now on.
    ///
    /// # Panics
    /// If it is filled already.
    pub(super) fn fill(&self, view: Arc<View<K, V, T, R>>, until: &Antichain<T>) {
        let source = Arc::clone(&view);
        let window = Arc::new(Window::over(self.logical.clone(), until.clone(), source));
        let spans = view.chain().filter_map(|span| clip(span, &window)).collect();
        assert!(self.spans.set(spans).is_ok(), "an import captures once");
    }

    /// What was captured; nothing before.
    pub(super) fn spans(&self) -> &[ArcSpan<K, V, T, R>] {
        self.spans.get().map_or(&[], Vec::as_slice)
    }

    /// The spans whose updates are all before `upper`.
    ///
    /// # Panics
    /// If `upper` cuts through a batch: readers ask only for bounds of spans they have seen.
    fn through(&self, upper: AntichainRef<T>) -> Vec<ArcSpan<K, V, T, R>> {
        let mut spans = Vec::new();
        for span in self.spans().iter().filter(|span| span.has_updates()) {
            if PartialOrder::less_equal(&span.upper().borrow(), &upper) {
                spans.push(span.clone());
            } else {
                let beyond = PartialOrder::less_equal(&upper, &span.lower().borrow());
                assert!(beyond, "{upper:?} cuts through {:?}", span.desc);
            }
        }
        spans
    }
}

/// What the window shows of a span, if it shows any of its times.
fn clip<K, V, T, R>(
    span: &ArcSpan<K, V, T, R>,
    window: &Arc<Window<T>>,
) -> Option<ArcSpan<K, V, T, R>>
where
    K: SharedData,
    V: SharedData,
    T: SharedTime,
    R: SharedDiff,
{
    let lower = span.lower().meet(window.until());
    let upper = span.upper().meet(window.until());
    (lower != upper).then(|| {
        let desc = Description::new(lower, upper, window.since().clone());
        Span::new(desc, span.inner.as_ref().map(|batch| batch.through(window)))
    })
}

/// A span of a local arrangement, its batch seen through the window.
pub(super) fn through_window<K, V, T, R>(
    span: &ArcSpan<K, V, T, R>,
    window: &Arc<Window<T>>,
) -> ArcSpan<K, V, T, R>
where
    K: SharedData,
    V: SharedData,
    T: SharedTime,
    R: SharedDiff,
{
    Span::new(span.desc.clone(), span.inner.as_ref().map(|batch| batch.through(window)))
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Clone
    for CapturedTrace<K, V, T, R>
{
    fn clone(&self) -> Self {
        CapturedTrace {
            spans: Rc::clone(&self.spans),
            logical: self.logical.clone(),
            physical: self.physical.clone(),
        }
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Clone for SharedTrace<K, V, T, R> {
    fn clone(&self) -> Self {
        match self {
            SharedTrace::Local(agent) => SharedTrace::Local(agent.clone()),
            SharedTrace::LocalImport { agent, window } => {
                SharedTrace::LocalImport { agent: agent.clone(), window: Arc::clone(window) }
            }
            SharedTrace::Imported(captured) => SharedTrace::Imported(captured.clone()),
        }
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> TraceReader
    for SharedTrace<K, V, T, R>
{
    type Time = T;
    type Batch = ArcBatch<K, V, T, R>;

    fn spans_through(&mut self, upper: AntichainRef<T>) -> Option<Vec<ArcSpan<K, V, T, R>>> {
        match self {
            SharedTrace::Local(agent) => agent.spans_through(upper),
            SharedTrace::LocalImport { agent, window } => {
                let spans = agent.spans_through(upper)?;
                Some(spans.iter().map(|span| through_window(span, window)).collect())
            }
            SharedTrace::Imported(captured) => Some(captured.through(upper)),
        }
    }

    fn set_logical_compaction(&mut self, frontier: AntichainRef<T>) {
        match self {
            SharedTrace::Local(agent) | SharedTrace::LocalImport { agent, .. } => {
                agent.set_logical_compaction(frontier);
            }
            SharedTrace::Imported(_) => {}
        }
    }

    fn get_logical_compaction(&mut self) -> AntichainRef<'_, T> {
        match self {
            SharedTrace::Local(agent) | SharedTrace::LocalImport { agent, .. } => {
                agent.get_logical_compaction()
            }
            SharedTrace::Imported(captured) => captured.logical.borrow(),
        }
    }

    fn set_physical_compaction(&mut self, frontier: AntichainRef<'_, T>) {
        match self {
            SharedTrace::Local(agent) | SharedTrace::LocalImport { agent, .. } => {
                agent.set_physical_compaction(frontier);
            }
            SharedTrace::Imported(_) => {}
        }
    }

    fn get_physical_compaction(&mut self) -> AntichainRef<'_, T> {
        match self {
            SharedTrace::Local(agent) | SharedTrace::LocalImport { agent, .. } => {
                agent.get_physical_compaction()
            }
            SharedTrace::Imported(captured) => captured.physical.borrow(),
        }
    }

    fn map_spans<F: FnMut(&ArcSpan<K, V, T, R>)>(&self, mut logic: F) {
        match self {
            SharedTrace::Local(agent) => agent.map_spans(logic),
            SharedTrace::LocalImport { agent, window } => {
                agent.map_spans(|span| logic(&through_window(span, window)));
            }
            SharedTrace::Imported(captured) => captured.spans().iter().for_each(logic),
        }
    }
}

/// An arrangement that this dataflow built, as one of the kind that imports are.
pub fn local<'scope, K, V, T, R>(
    arranged: Arranged<'scope, ArcAgent<K, V, T, R>>,
) -> SharedArranged<'scope, K, V, T, R>
where
    K: SharedData,
    V: SharedData,
    T: SharedTime,
    R: SharedDiff,
{
    Arranged { stream: arranged.stream, trace: SharedTrace::Local(arranged.trace) }
}
