//! What a run shows to oracles, timelines and metrics while it happens.

use tandem::env::{Activity, Event};

use super::ThreadId;

/// A thread found a lock taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Who waits.
    pub waiter: ThreadId,
    /// What the lock protects.
    pub lock: &'static str,
    /// Who holds it; absent when it was taken without telling the surroundings.
    pub holder: Option<ThreadId>,
    /// What the holder is doing, outermost first.
    pub holder_activities: Vec<Activity>,
}

/// Activities in words, outermost first.
pub fn nested(activities: &[Activity]) -> String {
    match activities {
        [] => "nothing that it told".to_string(),
        _ => activities.iter().map(Activity::to_string).collect::<Vec<_>>().join(", in "),
    }
}

/// Watches a run. All times are nanoseconds of virtual time on the clock of the thread concerned:
/// they never decrease for one thread, but clocks of different threads are apart by up to the skew
/// and by stalls.
///
/// Methods may ask the scheduler for what it knows (clocks, names) but must not change it.
pub trait Observer {
    /// A fact about the system.
    fn event(&self, _now_ns: u64, _thread: ThreadId, _event: &Event) {}
    /// A thread begins an activity.
    fn begin(&self, _now_ns: u64, _thread: ThreadId, _activity: Activity) {}
    /// A thread ends an activity.
    fn end(&self, _now_ns: u64, _thread: ThreadId, _activity: Activity) {}
    /// Another thread runs than before. `from` is [`DRIVER`](super::DRIVER) at first.
    fn switch(&self, _now_ns: u64, _from: ThreadId, _to: ThreadId) {}
    /// A thread goes to sleep.
    fn parked(&self, _now_ns: u64, _thread: ThreadId) {}
    /// `by` woke a sleeping thread, or woke it earlier than somebody had before: it runs from `runs_ns` on. Wakes that
    /// let the next park return at once are not told.
    fn woken(&self, _now_ns: u64, _by: ThreadId, _thread: ThreadId, _runs_ns: u64) {}
    /// A thread found a lock taken.
    fn blocked(&self, _now_ns: u64, _blocked: &Blocked) {}
    /// A thread that was blocked may try again, after having waited this long.
    fn unblocked(&self, _now_ns: u64, _thread: ThreadId, _lock: &'static str, _waited_ns: u64) {}
    /// A thread was stalled, by a decision or by the driver, from `now_ns` on.
    fn stalled(&self, _now_ns: u64, _thread: ThreadId, _stall_ns: u64) {}
    /// A thread ended: its body returned or panicked, or it was killed.
    fn ended(&self, _now_ns: u64, _thread: ThreadId) {}
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blind;

impl Observer for Blind {}
