//! What work costs in virtual time.
//!
//! The machine that is simulated has a core for every thread, and no other noise: a thread's clock
//! advances only by what it is charged here, by stalls, and by waiting for others. That makes a
//! read's virtual latency a result of what the read waited for. The figures are of the order of
//! what a current core needs; only their proportions matter.

use tandem::env::{Activity, Point};

/// Costs in nanoseconds of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostModel {
    /// Taking a lock.
    pub lock_ns: u64,
    /// Releasing a lock.
    pub unlock_ns: u64,
    /// Swapping in a view.
    pub swap_ns: u64,
    /// Loading a view.
    pub load_ns: u64,
    /// Each update that goes through a merge. Subject to [`slow`](super::Scheduler::set_slow).
    pub merged_update_ns: u64,
    /// Each record that goes through an operator.
    pub record_ns: u64,
    /// Each position that a peek walk visits.
    pub walked_position_ns: u64,
    /// Each stage of a worker's turn.
    pub turn_ns: u64,
    /// Each step of a timely worker, beside the records in it.
    pub step_ns: u64,
    /// Each command batch, compaction call, walk slice and tick, beside what happens in it.
    pub activity_ns: u64,
    /// Deciding to park.
    pub park_ns: u64,
    /// From a wake to the moment the sleeper runs.
    pub wake_ns: u64,
}

impl Default for CostModel {
    fn default() -> Self {
        CostModel {
            lock_ns: 20,
            unlock_ns: 10,
            swap_ns: 40,
            load_ns: 15,
            merged_update_ns: 25,
            record_ns: 50,
            walked_position_ns: 20,
            turn_ns: 100,
            step_ns: 1_000,
            activity_ns: 100,
            park_ns: 500,
            wake_ns: 5_000,
        }
    }
}

/// The kinds of points, without their details. What strategies look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// [`Point::Lock`].
    Lock,
    /// [`Point::Locked`].
    Locked,
    /// [`Point::Unlocked`].
    Unlocked,
    /// [`Point::Swap`].
    Swap,
    /// [`Point::Swapped`].
    Swapped,
    /// [`Point::Load`].
    Load,
    /// [`Point::Merge`].
    Merge,
    /// [`Point::Records`].
    Records,
    /// [`Point::Walked`].
    Walked,
    /// [`Point::Turn`].
    Turn,
    /// [`Point::BeforePark`].
    BeforePark,
    /// The thread that ran went to sleep.
    Parked,
    /// The thread that ran waits for a lock.
    Blocked,
    /// The thread that ran has ended.
    Ended,
    /// The driver lets the machine go on.
    Resumed,
}

impl Kind {
    /// The number of kinds.
    pub const COUNT: usize = 15;
}

impl CostModel {
    /// The kind of `point` and what it costs a thread whose merges are `slow` times as expensive.
    ///
    /// Never zero, so that a thread that spins lets others catch up.
    #[inline]
    pub(super) fn of(&self, point: &Point, slow: u32) -> (Kind, u64) {
        let (kind, cost) = match *point {
            Point::Lock(_) => (Kind::Lock, self.lock_ns),
            Point::Locked(_) => (Kind::Locked, 0),
            Point::Unlocked(_) => (Kind::Unlocked, self.unlock_ns),
            Point::Swap => (Kind::Swap, self.swap_ns),
            Point::Swapped => (Kind::Swapped, self.swap_ns),
            Point::Load => (Kind::Load, self.load_ns),
            Point::Merge { updates } => {
                let each = self.merged_update_ns.saturating_mul(u64::from(slow));
                (Kind::Merge, each.saturating_mul(updates as u64))
            }
            Point::Records(records) => {
                (Kind::Records, self.record_ns.saturating_mul(records as u64))
            }
            Point::Walked(positions) => {
                (Kind::Walked, self.walked_position_ns.saturating_mul(positions as u64))
            }
            Point::Turn => (Kind::Turn, self.turn_ns),
            Point::BeforePark => (Kind::BeforePark, self.park_ns),
        };
        (kind, cost.max(1))
    }

    /// What beginning an activity costs.
    #[inline]
    pub(super) fn of_activity(&self, activity: Activity) -> u64 {
        match activity {
            Activity::Step => self.step_ns,
            _ => self.activity_ns,
        }
    }
}
