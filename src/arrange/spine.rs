//! The trace that maintained arrangements keep: differential's spine over shared batches.
//!
//! [`ArcSpine`] adds what a publisher and an oracle need and differential's spine keeps to itself:
//! the real compaction frontiers (the meet over all handles, not what one handle asked for),
//! readable through `&self`, and a version by which a publisher sees that nothing has changed since
//! it looked last.

use std::cell::Cell;
use std::sync::Arc;

use differential_dataflow::Hashable;
use differential_dataflow::VecCollection;
use differential_dataflow::logging::Logger;
use differential_dataflow::operators::arrange::{Arranged, TraceAgent};
use differential_dataflow::trace::implementations::ValBatcher;
use differential_dataflow::trace::implementations::spine_fueled::Spine;
use differential_dataflow::trace::{ExertionLogic, Span, Trace, TraceReader};
use timely::dataflow::operators::generic::OperatorInfo;
use timely::progress::Antichain;
use timely::progress::frontier::AntichainRef;
use timely::scheduling::Activator;

use super::batch::{ArcBatch, SharedData, SharedDiff, SharedTime};
use crate::env::{self, Activity, PartName};

/// A span of an arrangement: a description, and the batch within it unless it brought no updates.
pub type ArcSpan<K, V, T, R> = Span<T, ArcBatch<K, V, T, R>>;

/// A handle on an [`ArcSpine`], as `arrange` makes them.
pub type ArcAgent<K, V, T, R> = TraceAgent<ArcSpine<K, V, T, R>>;

/// How many updates' worth of merging one idle activation does, unless somebody knows better.
pub const IDLE_EFFORT: usize = 1024;

/// How many times as many updates as the next smaller layer one holds when an idle trace is at rest.
const LAYER_GROWTH: usize = 4;

/// Differential's spine over [`ArcBatch`]es, which also tells its real frontiers.
pub struct ArcSpine<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    spine: Spine<ArcBatch<K, V, T, R>>,
    logical: Antichain<T>,
    physical: Antichain<T>,
    version: u64,
    moves: u64,
    part: Cell<Option<PartName>>,
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> ArcSpine<K, V, T, R> {
    /// The real logical compaction frontier: the meet over all handles, empty when there are none.
    pub fn logical(&self) -> &Antichain<T> {
        &self.logical
    }

    /// The real physical compaction frontier: the meet over all handles, empty when there are none.
    pub fn physical(&self) -> &Antichain<T> {
        &self.physical
    }

    /// Grows whenever the spans may have changed: on insertion, and on every call that may merge.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Counts how often the logical frontier moved.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Says which part this is the trace of. Only for telling the surroundings.
    pub fn label(&self, part: PartName) {
        self.part.set(Some(part));
    }

    fn may_merge(&mut self) -> env::Entered {
        self.version += 1;
        env::enter(Activity::Compact(self.part.get()))
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> TraceReader
    for ArcSpine<K, V, T, R>
{
    type Time = T;
    type Batch = ArcBatch<K, V, T, R>;

    fn spans_through(&mut self, upper: AntichainRef<T>) -> Option<Vec<ArcSpan<K, V, T, R>>> {
        self.spine.spans_through(upper)
    }
    fn set_logical_compaction(&mut self, frontier: AntichainRef<T>) {
        self.moves += u64::from(self.logical.borrow() != frontier);
        assign(&mut self.logical, frontier);
        self.spine.set_logical_compaction(frontier);
    }
    fn get_logical_compaction(&mut self) -> AntichainRef<'_, T> {
        self.spine.get_logical_compaction()
    }
    fn set_physical_compaction(&mut self, frontier: AntichainRef<'_, T>) {
        // Handles come and go without moving the meet; only a move lets pending spans merge.
        if self.physical.borrow() == frontier {
            return;
        }
        assign(&mut self.physical, frontier);
        let _compacting = self.may_merge();
        self.spine.set_physical_compaction(frontier);
    }
    fn get_physical_compaction(&mut self) -> AntichainRef<'_, T> {
        self.spine.get_physical_compaction()
    }
    fn map_spans<F: FnMut(&ArcSpan<K, V, T, R>)>(&self, logic: F) {
        self.spine.map_spans(logic);
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Trace for ArcSpine<K, V, T, R> {
    fn new(info: OperatorInfo, logging: Option<Logger>, activator: Option<Activator>) -> Self {
        ArcSpine {
            spine: Spine::new(info, logging, activator),
            logical: Antichain::from_elem(T::minimum()),
            physical: Antichain::from_elem(T::minimum()),
            version: 0,
            moves: 0,
            part: Cell::new(None),
        }
    }
    fn exert(&mut self) {
        let _compacting = self.may_merge();
        self.spine.exert();
    }
    fn set_exert_logic(&mut self, logic: ExertionLogic) {
        self.spine.set_exert_logic(logic);
    }
    fn insert(&mut self, span: ArcSpan<K, V, T, R>) {
        let _compacting = self.may_merge();
        self.spine.insert(span);
    }
    fn close(&mut self) {
        let _compacting = self.may_merge();
        self.spine.close();
    }
}

fn assign<T: SharedTime>(target: &mut Antichain<T>, frontier: AntichainRef<T>) {
    target.clear();
    target.extend(frontier.iter().cloned());
}

/// Arranges `(key, value)` updates by key into an [`ArcSpine`], exchanged by the hash of the key as
/// differential does.
pub fn arrange<'scope, K, V, T, R>(
    collection: VecCollection<'scope, T, (K, V), R>,
    name: &str,
) -> Arranged<'scope, ArcAgent<K, V, T, R>>
where
    K: SharedData + differential_dataflow::ExchangeData + Hashable,
    V: SharedData + differential_dataflow::ExchangeData,
    T: SharedTime,
    R: SharedDiff + differential_dataflow::ExchangeData,
{
    collection.arrange_named::<ValBatcher<K, V, T, R>, ArcSpine<K, V, T, R>>(name, ValBatcher::new)
}

/// The name under which a worker's configuration carries the [`ExertionLogic`] of all its traces.
pub const EXERT_LOGIC: &str = "differential/default_exert_logic";

/// Keeps merging an idle trace until each layer holds several times as many updates as the next.
///
/// So an idle trace of `n` updates comes to rest with at most some `log(n)` spans, and a busy one
/// merges each update into as many: to go on until one layer holds everything would merge the whole
/// trace again for every small batch.
///
/// To be set in a worker's configuration under [`EXERT_LOGIC`], as an [`ExertionLogic`]. Without it
/// an arrangement whose input falls silent keeps whatever half-finished merges it had. `effort` is
/// how many updates one activation merges: [`IDLE_EFFORT`], or less where an operator should return
/// sooner.
pub fn idle_merging(effort: usize) -> ExertionLogic {
    Arc::new(move |layers| {
        let merging = layers.iter().any(|(_, spans, _)| *spans > 1);
        // From the largest layer to the smallest.
        let mut held = layers.iter().map(|(_, _, updates)| *updates).filter(|updates| *updates > 0);
        let mut larger = held.next().unwrap_or(0);
        let crowded = held.any(|updates| {
            let crowded = updates.saturating_mul(LAYER_GROWTH) > larger;
            larger = updates;
            crowded
        });
        (merging || crowded).then_some(effort)
    })
}
