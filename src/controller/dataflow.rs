//! What the controller remembers of a dataflow: what it needs to hold its imports.
//!
//! A dataflow may have to be built again, on a replica that restarted, and then from what its
//! exports are compacted to: so it holds its imports at the meet of its exports' `since`. But it
//! also may not be built *yet*: after a reconnection its exports may be allowed to compact to where
//! they were before, while the replica still reads the imports at the replayed `as_of`. So the hold
//! also waits for the progress reported in the current connection.

use crate::repr::{Frontier, GlobalId, Timestamp};

/// One dataflow.
#[derive(Clone, Debug)]
pub(super) struct Dataflow {
    pub(super) imports: Vec<GlobalId>,
    pub(super) exports: Vec<GlobalId>,
    /// As said to the replica in the current connection.
    pub(super) as_of: Timestamp,
    pub(super) until: Frontier,
}

impl Dataflow {
    /// Where it holds its imports, given the `since` and the write frontier of each live export.
    ///
    /// `None` if it has no live exports and holds nothing.
    pub(super) fn hold<'a>(
        &self,
        exports: impl Iterator<Item = (&'a Frontier, &'a Frontier)>,
    ) -> Option<Timestamp> {
        let need = |(since, write): (&Frontier, &Frontier)| {
            // A closed export needs no more input, in this connection; a replay starts at its
            // since.
            let progress = write.as_option().map_or(Timestamp::MAX, |time| time.saturating_sub(1));
            since.as_option().map_or(progress, |since| progress.min(*since))
        };
        let last = self.until.as_option().map_or(Timestamp::MAX, |until| until.saturating_sub(1));
        exports.map(need).min().map(|time| time.min(last).max(self.as_of))
    }
}
