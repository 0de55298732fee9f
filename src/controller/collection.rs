//! One collection as the controller knows it.
//!
//! A collection is live until it is dropped; *dropping* while somebody still holds it; *dropped*
//! once its empty frontier was sent. It is forgotten, and its id free again, when it is dropped and
//! its last report has come in.

use timely::PartialOrder;
use timely::progress::Antichain;

use super::holds::{DataflowKey, Holder, Holds};
use crate::plan::IndexDescription;
use crate::protocol::progress::Progress;
use crate::repr::{Frontier, Timestamp};

/// How far a collection may be compacted when nobody else holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadPolicy {
    /// To this many times before the latest complete time, which itself always stays readable.
    LagBy(u64),
    /// No further than it is.
    Pinned,
}

impl Default for ReadPolicy {
    /// Only the latest complete time stays readable.
    fn default() -> Self {
        ReadPolicy::LagBy(0)
    }
}

impl ReadPolicy {
    /// What the policy lets go to, given up to where the collection is complete.
    ///
    /// `None` when it asks for no change: it is pinned, nothing is complete yet, or everything is
    /// and there is no latest complete time.
    fn target(self, write: &Frontier) -> Option<Timestamp> {
        let latest = write.as_option()?.checked_sub(1)?;
        match self {
            ReadPolicy::LagBy(lag) => Some(latest.saturating_sub(lag)),
            ReadPolicy::Pinned => None,
        }
    }
}

/// Where a collection comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// Outside of the replica.
    Source,
    /// A dataflow maintains it.
    Index { description: IndexDescription, dataflow: DataflowKey },
}

/// How far the end of a collection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It can be read.
    Live,
    /// It can no longer be read, but somebody still does.
    Dropping,
    /// Its empty compaction frontier was sent.
    Dropped,
}

/// One collection.
#[derive(Clone, Debug)]
pub(super) struct Collection {
    pub(super) origin: Origin,
    pub(super) arity: usize,
    pub(super) policy: ReadPolicy,
    pub(super) stage: Stage,
    pub(super) holds: Holds,
    /// From where on it can be read.
    pub(super) since: Frontier,
    /// The last compaction that was allowed, if any was.
    pub(super) allowed: Option<Frontier>,
    /// As reported in the current connection.
    pub(super) progress: Progress,
}

impl Collection {
    /// A collection that can be read from `since` on.
    pub(super) fn new(
        origin: Origin,
        arity: usize,
        since: Timestamp,
        policy: ReadPolicy,
    ) -> Collection {
        let mut holds = Holds::default();
        holds.place(Holder::Policy, since);
        Collection {
            origin,
            arity,
            policy,
            stage: Stage::Live,
            holds,
            since: Antichain::from_elem(since),
            allowed: None,
            progress: Progress::start(),
        }
    }

    /// The dataflow that maintains it.
    pub(super) fn dataflow(&self) -> Option<DataflowKey> {
        match &self.origin {
            Origin::Source => None,
            Origin::Index { dataflow, .. } => Some(*dataflow),
        }
    }

    /// Lets the policy's hold follow what is complete. It never goes back.
    pub(super) fn apply_policy(&mut self) {
        if let Some(held) = self.holds.get(Holder::Policy)
            && let Some(target) = self.policy.target(&self.progress.write)
        {
            self.holds.place(Holder::Policy, target.max(held));
        }
    }

    /// No new reads. Whoever reads already goes on.
    pub(super) fn start_drop(&mut self) {
        self.stage = Stage::Dropping;
        self.holds.release(Holder::Policy);
    }

    /// The compaction that may be allowed now, if it is further than what was allowed before.
    ///
    /// This is the only place where the empty frontier comes from, and only for a collection that
    /// is being dropped.
    pub(super) fn advance(&mut self) -> Option<Frontier> {
        let frontier = match (self.stage, self.holds.meet()) {
            (Stage::Dropped, _) | (Stage::Live, None) => return None,
            (Stage::Dropping, None) => {
                self.stage = Stage::Dropped;
                Frontier::new()
            }
            (Stage::Live | Stage::Dropping, Some(time)) => Antichain::from_elem(time),
        };
        let forward = PartialOrder::less_than(&self.since, &frontier);
        forward.then(|| {
            self.since = frontier.clone();
            self.allowed = Some(frontier.clone());
            frontier
        })
    }

    /// Whether it is dropped and nothing about it is to come.
    pub(super) fn is_over(&self) -> bool {
        let closed = matches!(self.origin, Origin::Source) || self.progress.is_final();
        self.stage == Stage::Dropped && closed
    }
}
