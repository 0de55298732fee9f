//! Who keeps a collection's `since` from advancing, and where.
//!
//! A hold is at a time: reads at this time and later must stay possible. What a collection may be
//! compacted to is the meet of its holds. The meet of none is `None`, deliberately not a frontier:
//! the empty frontier would release the collection for good, and whether nobody holding means that
//! is for its owner to say (H5).

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::PeekId;
use crate::repr::Timestamp;

/// Identifies a dataflow of one controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataflowKey(pub(super) u64);

/// Who holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// The collection's own read policy.
    Policy,
    /// A dataflow that imports the collection.
    Dataflow(DataflowKey),
    /// An outstanding peek of the collection.
    Peek(PeekId),
}

/// The holds on one collection; one for each holder.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    by_holder: BTreeMap<Holder, Timestamp>,
    by_time: BTreeSet<(Timestamp, Holder)>,
}

impl Holds {
    /// Places a hold, or moves the one that `holder` has. Says whether anything changed.
    pub(super) fn place(&mut self, holder: Holder, time: Timestamp) -> bool {
        let before = self.by_holder.insert(holder, time);
        if let Some(before) = before {
            self.by_time.remove(&(before, holder));
        }
        self.by_time.insert((time, holder));
        before != Some(time)
    }

    /// Releases the hold of `holder`, if there is one.
    pub(super) fn release(&mut self, holder: Holder) {
        if let Some(time) = self.by_holder.remove(&holder) {
            self.by_time.remove(&(time, holder));
        }
    }

    /// The earliest time that anyone holds.
    pub(super) fn meet(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// The time that `holder` holds.
    pub(super) fn get(&self, holder: Holder) -> Option<Timestamp> {
        self.by_holder.get(&holder).copied()
    }

    /// All holds, by holder.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Holder, Timestamp)> + '_ {
        self.by_holder.iter().map(|(holder, time)| (*holder, *time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_a_hold_leaves_nothing_where_it_was() {
        let mut holds = Holds::default();
        assert!(holds.place(Holder::Policy, 3));
        assert!(holds.place(Holder::Peek(PeekId(1)), 5));
        assert!(holds.place(Holder::Policy, 9));
        assert!(!holds.place(Holder::Policy, 9));
        assert_eq!(holds.meet(), Some(5));
        holds.release(Holder::Peek(PeekId(1)));
        assert_eq!(holds.meet(), Some(9));
        holds.release(Holder::Policy);
        assert_eq!(holds.meet(), None);
    }
}
