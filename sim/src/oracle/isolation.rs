//! O10: a read that is ready waits for no maintenance step, merge or lock.
//!
//! An interactive thread that finds a lock taken by a maintenance thread may wait for as long as that thread needs to put
//! a list in order. When the holder is inside a merge or an operator, the read waits for maintenance after all.

use tandem::env::{Activity, Role};

use super::Verdict;
use crate::report::Oracle;

/// Judges a wait of an interactive thread for a lock that a maintenance thread holds.
pub fn blocked(
    now: u64,
    waiter: (&str, Role),
    lock: &str,
    holder: (&str, Role),
    activities: &[Activity],
    verdict: &mut Verdict,
) {
    if waiter.1 != Role::Interactive || holder.1 != Role::Maintenance {
        return;
    }
    verdict.checked(Oracle::O10);
    let merges = activities
        .iter()
        .any(|activity| matches!(activity, Activity::Merge | Activity::Compact(_)));
    if merges {
        verdict.violated(
            Oracle::O10,
            now,
            format!(
                "{} waits for the lock of a {lock} that {} holds while it does {activities:?}: \
                 a read waits for maintenance",
                waiter.0, holder.0
            ),
        );
    }
}
