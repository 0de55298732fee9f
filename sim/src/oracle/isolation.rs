//! O10: a read that is ready waits for no maintenance step, merge or lock.
//!
//! An interactive thread that finds a lock taken by a maintenance thread may wait for as long as that thread needs to put
//! a list in order. When the holder is inside a merge or an operator, the read waits for maintenance after all.

use tandem::env::{Activity, Role};

use super::Verdict;
use crate::report::{Oracle, Violation};
use crate::sched::{ThreadId, nested};

/// A thread that waits, or that keeps another waiting.
#[derive(Clone, Copy)]
pub struct Party<'a> {
    /// The thread.
    pub thread: ThreadId,
    /// Its name.
    pub name: &'a str,
    /// The runtime it works for.
    pub role: Role,
}

/// Judges a wait of an interactive thread for a lock that a maintenance thread holds.
pub fn blocked(
    now: u64,
    waiter: Party<'_>,
    lock: &str,
    holder: Party<'_>,
    activities: &[Activity],
    verdict: &mut Verdict,
) {
    if waiter.role != Role::Interactive || holder.role != Role::Maintenance {
        return;
    }
    verdict.checked(Oracle::O10);
    let merges = activities
        .iter()
        .any(|activity| matches!(activity, Activity::Merge | Activity::Compact(_)));
    if !merges {
        return;
    }
    let message = format!(
        "{} waits for the lock of a {lock} that {} holds in {}: a read waits for maintenance",
        waiter.name,
        holder.name,
        nested(activities)
    );
    let violation = Violation::new(Oracle::O10, now, message);
    let violation = violation.of_thread(waiter.thread).of_thread(holder.thread);
    let parts = activities.iter().filter_map(|activity| match activity {
        Activity::Compact(part) => *part,
        _ => None,
    });
    verdict.found(parts.fold(violation, |violation, part| violation.of_id(part.id)));
}
