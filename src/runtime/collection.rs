//! What one worker has of a collection: the dataflow that computes it and the trace that holds it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use differential_dataflow::operators::arrange::agent::trace_box::TraceBox;
use differential_dataflow::trace::TraceReader;
use timely::PartialOrder;
use timely::progress::{Antichain, Timestamp as _};

use super::render::{Context, OksSpine};
use super::source::{Failure, SourceState, shard_source};
use super::{CommandError, Role, Runtime};
use crate::arrange::{
    ArcAgent, Bounds, ImportError, ImportGate, Judgement, NotReady, Publisher, Read, SharedData,
    Snapshot, StartSignal, TraceState, View, import_local,
};
use crate::env::{self, Event, Half, PartName};
use crate::plan::DataflowDescription;
use crate::protocol::{Frontiers, Peek};
use crate::registry::{IndexSnapshot, Registry, Slot};
use crate::repr::{Diff, EvalError, Frontier, GlobalId, Row, Timestamp};
use crate::shard::ShardError;

type OksAgent = ArcAgent<Row, Row, Timestamp, Diff>;
type ErrsAgent = ArcAgent<EvalError, (), Timestamp, Diff>;

/// A rendered dataflow, shared by the collections it exports.
pub(super) struct Dataflow {
    /// Timely's name for it.
    pub(super) index: usize,
    pub(super) start: StartSignal,
    as_of: Timestamp,
    gate: Option<ImportGate<Timestamp>>,
    /// The slots imported from. The registry keeps none alive: as long as this waits for a publisher, the publisher
    /// must find what this waits at.
    _slots: Vec<Arc<Slot>>,
    sources: Vec<SourceState>,
    /// Handles on imported indexes of this worker, to see how far they have come.
    imports: Vec<OksUpper>,
}

/// Looks at the upper of an index of the same worker, without holding back its compaction.
struct OksUpper {
    trace: Weak<RefCell<TraceBox<OksSpine>>>,
    /// What was seen last, and the version of the trace then.
    seen: RefCell<(Option<u64>, Frontier)>,
}

impl OksUpper {
    fn new(trace: Weak<RefCell<TraceBox<OksSpine>>>) -> Self {
        OksUpper { trace, seen: RefCell::default() }
    }

    fn upper(&self) -> Frontier {
        let Some(trace) = self.trace.upgrade() else { return Antichain::new() };
        let (trace, mut seen) = (trace.borrow(), self.seen.borrow_mut());
        let (version, upper) = &mut *seen;
        if *version != Some(trace.trace().version()) {
            *version = Some(trace.trace().version());
            *upper = Antichain::from_elem(Timestamp::minimum());
            trace.trace().map_spans(|span| upper.clone_from(span.upper()));
        }
        upper.clone()
    }
}

impl Dataflow {
    /// Builds what `description` says and returns what it exports. `arities` is what validating it gave.
    ///
    /// # Errors
    /// When something it reads is not there or not readable at its `as_of`. Nothing is built then.
    pub(super) fn render(
        runtime: &mut Runtime,
        description: &DataflowDescription,
        arities: &BTreeMap<GlobalId, usize>,
    ) -> Result<Vec<(GlobalId, Collection)>, CommandError> {
        let (as_of, until) = (description.as_of, &description.until);
        let (start, since) = (StartSignal::new(), Antichain::from_elem(as_of));
        let imports = Imports::find(runtime, description, &start)?;
        let (part, parts) = (runtime.index, runtime.peers);
        let index = runtime.worker.next_dataflow_index();
        let registry = runtime.registry.clone().filter(|_| runtime.role == Role::Maintenance);

        let (built, dataflow) = runtime.worker.dataflow_named("dataflow", |scope| {
            let mut context = Context::new(scope);
            let mut sources = Vec::new();
            for (id, shard) in imports.shards {
                let reader = shard.reader(part, parts, as_of);
                let (oks, state) = shard_source(scope, reader, as_of, until.clone(), &start);
                sources.push(state);
                context.import_source(id, oks);
            }
            let mut uppers = Vec::new();
            for (index, mut oks, mut errs) in imports.local {
                uppers.push(OksUpper::new(Rc::downgrade(&oks.trace_box_unstable())));
                let checked = "since was compared with as_of before";
                let oks =
                    import_local(&mut oks, scope, since.clone(), until.clone(), start.clone())
                        .expect(checked);
                let errs =
                    import_local(&mut errs, scope, since.clone(), until.clone(), start.clone())
                        .expect(checked);
                context.import_index(&index, oks, errs);
            }
            for (index, slot) in &imports.shared {
                let gate = imports.gate.as_ref().expect("made for shared imports");
                let oks = gate.import(scope, Arc::clone(&slot.oks));
                let errs = gate.import(scope, Arc::clone(&slot.errs));
                context.import_index(index, oks, errs);
            }
            for (id, plan) in &description.objects_to_build {
                context.build(*id, plan);
            }
            let built: Vec<_> = description
                .index_exports
                .iter()
                .map(|(id, index)| {
                    let (mut oks, mut errs) = context.export(index);
                    // Nothing below as_of is ever accurate here.
                    oks.trace.set_logical_compaction(since.borrow());
                    errs.trace.set_logical_compaction(since.borrow());
                    let trace = match &registry {
                        Some(registry) => {
                            let slot = registry.publish(*id, part);
                            let oks = Publisher::attach(&oks, Arc::clone(&slot.oks));
                            let errs = Publisher::attach(&errs, Arc::clone(&slot.errs));
                            Trace::Published { slot, oks, errs }
                        }
                        None => {
                            Trace::Local { oks: Box::new(oks.trace), errs: Box::new(errs.trace) }
                        }
                    };
                    (*id, trace)
                })
                .collect();
            let gate = imports.gate;
            let slots = imports.shared.into_iter().map(|(_, slot)| slot).collect();
            let imports = uppers;
            (built, Dataflow { index, start, as_of, gate, _slots: slots, sources, imports })
        });

        let dataflow = Rc::new(dataflow);
        let collection = |id, trace| {
            let arity = arities[&description.index_exports[&id].on];
            Collection::new(Rc::clone(&dataflow), trace, arity, since.clone())
        };
        Ok(built.into_iter().map(|(id, trace)| (id, collection(id, trace))).collect())
    }

    /// Why this dataflow cannot say anything true, if so. A source that cannot be read is no such reason: nothing of it
    /// is ever complete.
    fn failure(&self) -> Option<NotReady<Timestamp>> {
        let refused = self.gate.as_ref().and_then(ImportGate::refused);
        refused.map(NotReady::Refused)
    }

    /// Why a source cannot be read, the first time that is asked.
    pub(super) fn take_failure(&self) -> Option<ShardError> {
        self.sources.iter().find_map(|source| {
            let mut failed = source.failed.borrow_mut();
            match std::mem::replace(&mut *failed, Failure::None) {
                Failure::None => None,
                Failure::Told => {
                    *failed = Failure::Told;
                    None
                }
                Failure::New(error) => {
                    *failed = Failure::Told;
                    Some(error)
                }
            }
        })
    }

    /// Up to where inputs have been read.
    fn input(&self) -> Frontier {
        let mut input = Frontier::new();
        for source in &self.sources {
            input.extend(source.frontier.borrow().iter().copied());
        }
        for import in &self.imports {
            input.extend(import.upper());
        }
        if self.gate.as_ref().is_some_and(|gate| !gate.captured()) {
            input.insert(self.as_of);
        }
        input
    }
}

/// What a dataflow reads, found before anything is built.
struct Imports {
    shards: Vec<(GlobalId, Arc<crate::shard::Shard>)>,
    local: Vec<(crate::plan::IndexDescription, OksAgent, ErrsAgent)>,
    shared: Vec<(crate::plan::IndexDescription, Arc<Slot>)>,
    gate: Option<ImportGate<Timestamp>>,
}

impl Imports {
    fn find(
        runtime: &Runtime,
        description: &DataflowDescription,
        start: &StartSignal,
    ) -> Result<Imports, CommandError> {
        let as_of = description.as_of;
        let mut found = Imports { shards: vec![], local: vec![], shared: vec![], gate: None };
        for (id, arity) in &description.source_imports {
            let shard = runtime.shards.get(*id)?;
            check_arity(*id, *arity, shard.arity())?;
            found.shards.push((*id, shard));
        }
        for (id, import) in &description.index_imports {
            if let Some(collection) = runtime.collections.get(id) {
                check_arity(*id, import.arity, collection.arity)?;
                let since = &collection.since;
                if !since.less_equal(&as_of) {
                    return Err(CommandError::Compacted { id: *id, as_of, since: since.clone() });
                }
                let (oks, errs) = collection.trace.agents();
                found.local.push((import.index.clone(), oks, errs));
            } else if let Some(registry) = &runtime.registry
                && runtime.role == Role::Interactive
                && !id.is_transient()
            {
                found
                    .shared
                    .push((import.index.clone(), registry.get_or_create(*id, runtime.index)));
            } else {
                return Err(CommandError::Unknown {
                    command: "CreateDataflow over an index",
                    id: *id,
                });
            }
        }
        if !found.shared.is_empty() {
            let as_of_frontier = Antichain::from_elem(as_of);
            let gate = ImportGate::new(as_of_frontier, description.until.clone(), start.clone());
            let unbounded = |_: ImportError<Timestamp>| CommandError::Unbounded {
                exports: description.export_ids().collect(),
            };
            found.gate = Some(gate.map_err(unbounded)?);
        }
        Ok(found)
    }
}

fn check_arity(id: GlobalId, claimed: usize, arity: usize) -> Result<(), CommandError> {
    if claimed == arity { Ok(()) } else { Err(CommandError::Arity { id, claimed, arity }) }
}

/// Where the updates of an index are.
pub(super) enum Trace {
    /// In a trace that others may read.
    Published {
        slot: Arc<Slot>,
        oks: Publisher<Row, Row, Timestamp, Diff>,
        errs: Publisher<EvalError, (), Timestamp, Diff>,
    },
    /// In a trace of this worker alone.
    Local { oks: Box<OksAgent>, errs: Box<ErrsAgent> },
}

impl Trace {
    /// Handles for dataflows of this worker.
    fn agents(&self) -> (OksAgent, ErrsAgent) {
        match self {
            Trace::Local { oks, errs } => (OksAgent::clone(oks), ErrsAgent::clone(errs)),
            Trace::Published { oks, errs, .. } => {
                let open = "a collection that is dropped is no longer listed";
                (oks.trace().expect(open), errs.trace().expect(open))
            }
        }
    }

    /// Tells readers that this index is gone.
    pub(super) fn close(&self, registry: Option<&Registry>) {
        if let Trace::Published { slot, oks, errs } = self {
            if let Some(registry) = registry {
                registry.retire(slot);
            }
            oks.close();
            errs.close();
        }
    }
}

/// One worker's part of an index.
pub(super) struct Collection {
    pub(super) dataflow: Rc<Dataflow>,
    pub(super) trace: Trace,
    /// The number of columns of its rows.
    arity: usize,
    /// How far compaction was allowed.
    pub(super) since: Frontier,
    reported: Frontiers,
    /// The states of both halves, as last told to whoever listens.
    told: [Option<TraceState<Timestamp>>; 2],
}

impl Collection {
    fn new(dataflow: Rc<Dataflow>, trace: Trace, arity: usize, since: Frontier) -> Self {
        let (reported, told) = (Frontiers::default(), [None, None]);
        Collection { dataflow, trace, arity, since, reported, told }
    }

    pub(super) fn allow_compaction(&mut self, frontier: &Frontier) {
        self.since.clone_from(frontier);
        match &mut self.trace {
            Trace::Published { oks, errs, .. } => {
                oks.allow_compaction(frontier);
                errs.allow_compaction(frontier);
            }
            Trace::Local { oks, errs } => {
                oks.set_logical_compaction(frontier.borrow());
                errs.set_logical_compaction(frontier.borrow());
            }
        }
    }

    /// Up to where both halves are complete.
    fn upper(&mut self) -> Frontier {
        fn of<K: SharedData, V: SharedData>(
            agent: &mut ArcAgent<K, V, Timestamp, Diff>,
            upper: &mut Frontier,
        ) {
            let mut half = Antichain::new();
            agent.read_upper(&mut half);
            upper.extend(half);
        }
        let mut upper = Antichain::new();
        match &mut self.trace {
            Trace::Published { oks, errs, .. } => {
                for half in [oks.upper(), errs.upper()].into_iter().flatten() {
                    upper.extend(half);
                }
            }
            Trace::Local { oks, errs } => {
                of(oks, &mut upper);
                of(errs, &mut upper);
            }
        }
        upper
    }

    /// What to report: the frontiers that moved since the last report. Never anything below `as_of`.
    pub(super) fn progress(&mut self) -> Option<Frontiers> {
        if self.dataflow.failure().is_some() || self.is_closed() {
            return None;
        }
        let as_of = self.dataflow.as_of;
        let moved = |seen: &Frontier, reported: &mut Option<Frontier>| {
            let moved = match reported {
                Some(before) => before != seen && PartialOrder::less_equal(before, seen),
                None => !seen.less_equal(&as_of),
            };
            moved.then(|| reported.insert(seen.clone()).clone())
        };
        let (upper, input) = (self.upper(), self.dataflow.input());
        let write = moved(&upper, &mut self.reported.write);
        let output = moved(&upper, &mut self.reported.output);
        let input = moved(&input, &mut self.reported.input);
        let news = write.is_some() || input.is_some() || output.is_some();
        news.then_some(Frontiers { write, input, output })
    }

    /// Whether it was reported to be complete for all times. That report is the last.
    fn is_closed(&self) -> bool {
        let closed = |frontier: &Option<Frontier>| {
            frontier.as_ref().is_some_and(|frontier| frontier.is_empty())
        };
        closed(&self.reported.write) && closed(&self.reported.output)
    }

    /// The report of a collection that is dropped, unless it was made before.
    pub(super) fn last_report(&self) -> Option<Frontiers> {
        let closed = Some(Antichain::new());
        let last = Frontiers { write: closed.clone(), input: closed.clone(), output: closed };
        (!self.is_closed()).then_some(last)
    }

    /// Whether a peek of this worker's own trace could be served now that could not before.
    pub(super) fn may_serve(&mut self, time: Timestamp) -> bool {
        self.dataflow.failure().is_some() || !self.upper().less_equal(&time)
    }

    /// A snapshot of this worker's own trace.
    pub(super) fn snapshot_at(
        &mut self,
        time: Timestamp,
        worker: usize,
        peek: &Peek,
    ) -> Result<IndexSnapshot, NotReady<Timestamp>> {
        if let Some(failure) = self.dataflow.failure() {
            return Err(failure);
        }
        let (mut oks, mut errs) = self.trace.agents();
        let oks = View::of_trace(&mut oks, &self.since);
        let errs = View::of_trace(&mut errs, &self.since);
        let Bounds { since, upper, .. } = oks.bounds().both(errs.bounds());
        match oks.bounds().both(errs.bounds()).judge(Read::At(&time)) {
            Judgement::Ready => {
                let (id, peek) = (peek.target, Some(peek.uuid));
                env::event(|| Event::SnapshotTaken { id, worker, at: time, since, upper, peek });
                let oks = Snapshot::of_view(Arc::new(oks), time);
                Ok(IndexSnapshot { oks, errs: Snapshot::of_view(Arc::new(errs), time) })
            }
            Judgement::NotYet => Err(NotReady::Wait),
            Judgement::Refused(refused) => Err(NotReady::Refused(refused)),
        }
    }

    /// Lets the traces merge, and tells how they are.
    pub(super) fn tick(&mut self, id: GlobalId, worker: usize) {
        match &mut self.trace {
            Trace::Published { oks, errs, .. } => {
                let [told_oks, told_errs] = &mut self.told;
                if oks.tick() {
                    tell(PartName { id, half: Half::Oks, worker }, oks, told_oks);
                }
                if errs.tick() {
                    tell(PartName { id, half: Half::Errs, worker }, errs, told_errs);
                }
            }
            Trace::Local { oks, errs } => {
                let mut upper = Antichain::new();
                oks.read_upper(&mut upper);
                oks.set_physical_compaction(upper.borrow());
                errs.read_upper(&mut upper);
                errs.set_physical_compaction(upper.borrow());
            }
        }
    }
}

/// Tells how a published trace is, when that has changed.
fn tell<K: SharedData, V: SharedData>(
    part: PartName,
    publisher: &Publisher<K, V, Timestamp, Diff>,
    told: &mut Option<TraceState<Timestamp>>,
) {
    if !env::listening() {
        return;
    }
    let state = publisher.state();
    if state == *told {
        return;
    }
    told.clone_from(&state);
    let Some(state) = state else { return };
    env::event(|| Event::TraceState {
        part,
        logical: state.logical,
        physical: state.physical,
        upper: state.upper,
        batches: state.batches,
        spans: state.spans,
        updates: state.updates,
        published_spans: state.published_spans,
    });
}
