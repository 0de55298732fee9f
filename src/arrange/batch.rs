//! Batches that threads can share.
//!
//! Differential's own batches are reference counted with `Rc`, which keeps them on one thread. An
//! [`ArcBatch`] is the same immutable data behind an `Arc`. The orphan rule forbids implementing
//! differential's traits for `Arc` itself, hence the newtype.
//!
//! One batch type serves every arrangement, maintained here or imported from elsewhere, so that
//! joins and reduces are compiled once and not once per combination. What an import adds is a
//! [`Window`]: the times of an imported batch are advanced to the import's `as_of`, and those at or
//! past its `until` are not shown. That makes an import independent of how far the owner happened
//! to compact and to merge (H10). Batches that live in a spine never carry a window.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use differential_dataflow::difference::Semigroup;
use differential_dataflow::lattice::Lattice;
use differential_dataflow::trace::Navigable;
use differential_dataflow::trace::cursor::Cursor;
use differential_dataflow::trace::implementations::Vector;
use differential_dataflow::trace::implementations::ord_neu::OrdValBatch;
use differential_dataflow::trace::implementations::spine_fueled::{Merger, SpineBatch};
use timely::progress::frontier::AntichainRef;
use timely::progress::{Antichain, Timestamp};

use crate::env::{self, Activity, Event, Point};

/// Keys and values that threads can share.
pub trait SharedData: Ord + Clone + Debug + Send + Sync + 'static {}
impl<D: Ord + Clone + Debug + Send + Sync + 'static> SharedData for D {}

/// Times that threads can share.
pub trait SharedTime: Timestamp + Lattice + Send + Sync {}
impl<T: Timestamp + Lattice + Send + Sync> SharedTime for T {}

/// Differences that threads can share.
pub trait SharedDiff: Semigroup + Ord + Debug + Send + Sync + 'static {}
impl<R: Semigroup + Ord + Debug + Send + Sync + 'static> SharedDiff for R {}

type Layout<K, V, T, R> = Vector<((K, V), T, R)>;

/// The plain batch that an [`ArcBatch`] shares.
pub type PlainBatch<K, V, T, R> = OrdValBatch<Layout<K, V, T, R>>;
type PlainCursor<K, V, T, R> = <PlainBatch<K, V, T, R> as Navigable>::Cursor;
type PlainMerger<K, V, T, R> = <PlainBatch<K, V, T, R> as SpineBatch>::Merger;

/// How many updates a merge produces between two places at which its thread may be preempted.
const MERGE_SLICE: isize = 64;

/// A plain batch that reports when it comes to life and when it is freed.
struct Updates<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    plain: PlainBatch<K, V, T, R>,
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Updates<K, V, T, R> {
    fn new(plain: PlainBatch<K, V, T, R>) -> Self {
        env::event(|| Event::BatchAllocated { updates: plain.updates });
        Updates { plain }
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Drop for Updates<K, V, T, R> {
    fn drop(&mut self) {
        env::event(|| Event::BatchFreed { updates: self.plain.updates });
    }
}

/// The interval of times that an import shows of the batches it captured.
pub struct Window<T> {
    since: Antichain<T>,
    until: Antichain<T>,
    // Keeps what the batches were captured from, so that freeing them is left to its owner.
    _source: Option<Arc<dyn Any + Send + Sync>>,
}

impl<T: SharedTime> Window<T> {
    /// Shows times advanced to `since` that are not at or past `until`.
    pub fn new(since: Antichain<T>, until: Antichain<T>) -> Self {
        Window { since, until, _source: None }
    }

    /// As [`Window::new`], and keeps `source` alive for as long as a batch is read through this
    /// window.
    pub fn over(
        since: Antichain<T>,
        until: Antichain<T>,
        source: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Window { since, until, _source: Some(source) }
    }

    /// The frontier to which times are advanced.
    pub fn since(&self) -> &Antichain<T> {
        &self.since
    }

    /// The frontier at and past which times are not shown.
    pub fn until(&self) -> &Antichain<T> {
        &self.until
    }

    /// Advances `time`; says whether it is shown at all.
    #[inline]
    fn admit(&self, time: &mut T) -> bool {
        time.advance_by(self.since.borrow());
        !self.until.less_equal(time)
    }
}

/// An immutable batch of updates behind an `Arc`, shown whole or through a [`Window`].
///
/// Cloning copies pointers. Whoever drops the last clone pays for freeing the updates.
pub struct ArcBatch<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    // Declared, and so dropped, before the window, which may keep the owner's reference to the same
    // updates alive.
    updates: Arc<Updates<K, V, T, R>>,
    window: Option<Arc<Window<T>>>,
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> ArcBatch<K, V, T, R> {
    /// The same updates, shown through `window` in place of the window there was, if any.
    pub fn through(&self, window: &Arc<Window<T>>) -> Self {
        ArcBatch { updates: Arc::clone(&self.updates), window: Some(Arc::clone(window)) }
    }

    /// The number of updates, those that a window hides included.
    pub fn updates(&self) -> usize {
        self.updates.plain.updates
    }

    /// Whether both share the very same updates.
    pub fn same_updates(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.updates, &other.updates)
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Clone for ArcBatch<K, V, T, R> {
    fn clone(&self) -> Self {
        ArcBatch { updates: Arc::clone(&self.updates), window: self.window.clone() }
    }
}

impl<K, V, T, R> From<PlainBatch<K, V, T, R>> for ArcBatch<K, V, T, R>
where
    K: SharedData,
    V: SharedData,
    T: SharedTime,
    R: SharedDiff,
{
    fn from(plain: PlainBatch<K, V, T, R>) -> Self {
        ArcBatch { updates: Arc::new(Updates::new(plain)), window: None }
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> SpineBatch
    for ArcBatch<K, V, T, R>
{
    type Time = T;
    type Merger = ArcMerger<K, V, T, R>;
    fn len(&self) -> usize {
        self.updates()
    }
}

/// Merges two [`ArcBatch`]es without a window.
pub struct ArcMerger<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff>(
    PlainMerger<K, V, T, R>,
);

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Merger<ArcBatch<K, V, T, R>>
    for ArcMerger<K, V, T, R>
{
    fn new(
        first: &ArcBatch<K, V, T, R>,
        second: &ArcBatch<K, V, T, R>,
        since: AntichainRef<T>,
    ) -> Self {
        debug_assert!(first.window.is_none() && second.window.is_none(), "a window in a spine");
        ArcMerger(Merger::new(&first.updates.plain, &second.updates.plain, since))
    }

    fn work(
        &mut self,
        first: &ArcBatch<K, V, T, R>,
        second: &ArcBatch<K, V, T, R>,
        fuel: &mut isize,
    ) {
        let (first, second) = (&first.updates.plain, &second.updates.plain);
        if env::listening() && !std::thread::panicking() {
            self.work_in_slices(first, second, fuel);
        } else {
            self.0.work(first, second, fuel);
        }
    }

    fn done(self) -> Option<ArcBatch<K, V, T, R>> {
        self.0.done().map(ArcBatch::from)
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> ArcMerger<K, V, T, R> {
    /// As the plain merger, with a point after each slice.
    ///
    /// Fuel that is left over says that the merge is complete, for the plain merger about each
    /// slice and for the caller about the whole. A slice that ends exactly when the merge does
    /// leaves none; the next one then finds nothing to do and leaves all of its own.
    fn work_in_slices(
        &mut self,
        first: &PlainBatch<K, V, T, R>,
        second: &PlainBatch<K, V, T, R>,
        fuel: &mut isize,
    ) {
        let _merging = env::enter(Activity::Merge);
        while *fuel > 0 {
            let slice = MERGE_SLICE.min(*fuel);
            let mut left = slice;
            self.0.work(first, second, &mut left);
            let spent = slice - left;
            *fuel -= spent;
            env::point(Point::Merge { updates: spent.unsigned_abs() });
            if left > 0 {
                return;
            }
        }
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Navigable
    for ArcBatch<K, V, T, R>
{
    type Cursor = ArcCursor<K, V, T, R>;
    fn cursor(&self) -> Self::Cursor {
        ArcCursor(self.updates.plain.cursor())
    }
}

/// Navigates an [`ArcBatch`], through its window if it has one.
///
/// A window hides times, not keys or values: a value may be shown without any time.
pub struct ArcCursor<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff>(
    PlainCursor<K, V, T, R>,
);

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Cursor for ArcCursor<K, V, T, R> {
    type Storage = ArcBatch<K, V, T, R>;

    type Key<'a> = &'a K;
    type ValOwn = V;
    type Val<'a> = &'a V;
    type Time = T;
    type TimeGat<'a> = &'a T;
    type Diff = R;
    type DiffGat<'a> = &'a R;
    type KeyContainer = Vec<K>;
    type ValContainer = Vec<V>;
    type TimeContainer = Vec<T>;
    type DiffContainer = Vec<R>;

    #[inline]
    fn key_valid(&self, batch: &Self::Storage) -> bool {
        self.0.key_valid(&batch.updates.plain)
    }
    #[inline]
    fn val_valid(&self, batch: &Self::Storage) -> bool {
        self.0.val_valid(&batch.updates.plain)
    }
    #[inline]
    fn key<'a>(&self, batch: &'a Self::Storage) -> &'a K {
        self.0.key(&batch.updates.plain)
    }
    #[inline]
    fn val<'a>(&self, batch: &'a Self::Storage) -> &'a V {
        self.0.val(&batch.updates.plain)
    }
    #[inline]
    fn get_key<'a>(&self, batch: &'a Self::Storage) -> Option<&'a K> {
        self.0.get_key(&batch.updates.plain)
    }
    #[inline]
    fn get_val<'a>(&self, batch: &'a Self::Storage) -> Option<&'a V> {
        self.0.get_val(&batch.updates.plain)
    }

    #[inline]
    fn map_times<L: FnMut(&T, &R)>(&mut self, batch: &Self::Storage, mut logic: L) {
        let plain = &batch.updates.plain;
        match &batch.window {
            None => self.0.map_times(plain, logic),
            Some(window) => {
                let mut shown = T::minimum();
                self.0.map_times(plain, |time, diff| {
                    shown.clone_from(time);
                    if window.admit(&mut shown) {
                        logic(&shown, diff);
                    }
                });
            }
        }
    }

    #[inline]
    fn step_key(&mut self, batch: &Self::Storage) {
        self.0.step_key(&batch.updates.plain);
    }
    #[inline]
    fn seek_key(&mut self, batch: &Self::Storage, key: &K) {
        self.0.seek_key(&batch.updates.plain, key);
    }
    #[inline]
    fn step_val(&mut self, batch: &Self::Storage) {
        self.0.step_val(&batch.updates.plain);
    }
    #[inline]
    fn seek_val(&mut self, batch: &Self::Storage, val: &V) {
        self.0.seek_val(&batch.updates.plain, val);
    }
    #[inline]
    fn rewind_keys(&mut self, batch: &Self::Storage) {
        self.0.rewind_keys(&batch.updates.plain);
    }
    #[inline]
    fn rewind_vals(&mut self, batch: &Self::Storage) {
        self.0.rewind_vals(&batch.updates.plain);
    }
}
