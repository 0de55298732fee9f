//! The sharing primitive: arrangements that threads read without a lock, and without holding back
//! their owner.
//!
//! An arrangement is maintained by one worker of one timely runtime. This module lets any other
//! thread of the process read it, zero-copy. It is generic in key, value, time and difference, and
//! of use to any differential program; the example `shared_arrangement` shows two runtimes in one
//! process.
//!
//! From the writer to the reader:
//!
//! * [`batch`]: immutable batches behind an `Arc`, and the window an import sees them through;
//! * [`spine`]: the trace that keeps and merges them;
//! * [`view`]: the state of an arrangement as one immutable value, and the judgement whether a read
//!   is possible;
//! * [`point`]: where the current view is found, and waited for;
//! * [`publish`]: derives views and swaps them in; compacts; frees what readers left;
//! * [`snapshot`]: the contents at one time, walked in slices;
//! * [`import`]: brings an arrangement into a dataflow, for joins and reduces;
//! * [`trace`]: the one trace type that local, locally imported and captured arrangements have in
//!   common.
//!
//! What must never be forgotten is that *since* and *upper* are both part of every read's
//! admission: below `since` data is coalesced, at and past `upper` it is incomplete. Both are
//! judged on one view, once. From then on the reader holds its batches and nothing else, and the
//! writer goes on as if nobody read.

pub mod batch;
pub mod import;
pub mod point;
pub mod publish;
pub mod snapshot;
pub mod spine;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod view;

pub use batch::{ArcBatch, SharedData, SharedDiff, SharedTime, Window};
pub(crate) use import::operator_waker;
pub use import::{ImportError, ImportGate, StartSignal, import_local};
pub use point::Point;
pub use publish::{Publisher, TraceState};
pub use snapshot::{NotReady, Snapshot, Walk};
pub use spine::{ArcAgent, ArcSpan, ArcSpine, EXERT_LOGIC, IDLE_EFFORT, arrange, idle_merging};
pub use trace::{CapturedTrace, SharedArranged, SharedTrace, local};
pub use view::{Bounds, Judgement, Read, Refused, State, View};

/// Everything that crosses threads is checked, once and for all types, to be allowed to.
#[allow(dead_code, reason = "compiling it is the check")]
fn crosses_threads<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff>() {
    fn check<X: Send + Sync>() {}
    check::<ArcBatch<K, V, T, R>>();
    check::<batch::ArcCursor<K, V, T, R>>();
    check::<View<K, V, T, R>>();
    check::<Point<K, V, T, R>>();
    check::<Snapshot<K, V, T, R>>();
    check::<Walk<K, V, T, R>>();
}
