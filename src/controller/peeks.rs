//! The peeks that are not answered yet.
//!
//! A peek is entered when it is asked and leaves with its one answer. Cancelling does not take it
//! out: its hold goes at once, but it is answered all the same.

use std::collections::BTreeMap;

use crate::plan::Finishing;
use crate::protocol::{PeekId, PeekResponse};
use crate::repr::{GlobalId, Timestamp};

/// A peek that is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Outstanding {
    pub(super) target: GlobalId,
    pub(super) timestamp: Timestamp,
    pub(super) finishing: Finishing,
    /// Whether the controller gave up on it.
    pub(super) canceled: bool,
    /// Whether its target is there for this peek only.
    pub(super) owns_target: bool,
}

impl Outstanding {
    /// The replica's answer, with what only the whole answer can be subjected to.
    pub(super) fn finish(&self, response: PeekResponse) -> PeekResponse {
        match response {
            PeekResponse::Rows(rows) => PeekResponse::Rows(self.finishing.finish(rows)),
            other => other,
        }
    }
}

/// All of them, and the names of those to come.
#[derive(Clone, Debug, Default)]
pub(super) struct Peeks {
    next: u64,
    outstanding: BTreeMap<PeekId, Outstanding>,
}

impl Peeks {
    /// Enters a peek under a name that was never used.
    pub(super) fn enter(&mut self, peek: Outstanding) -> PeekId {
        let uuid = PeekId(self.next);
        self.next += 1;
        self.outstanding.insert(uuid, peek);
        uuid
    }

    /// Marks a peek as cancelled. `None` if there is nothing left to cancel.
    pub(super) fn cancel(&mut self, uuid: PeekId) -> Option<Outstanding> {
        let peek = self.outstanding.get_mut(&uuid).filter(|peek| !peek.canceled)?;
        let before = peek.clone();
        peek.canceled = true;
        Some(before)
    }

    /// Takes out a peek that is answered.
    pub(super) fn answer(&mut self, uuid: PeekId) -> Option<Outstanding> {
        self.outstanding.remove(&uuid)
    }

    /// Takes out the cancelled ones.
    pub(super) fn take_canceled(&mut self) -> Vec<PeekId> {
        let canceled: Vec<PeekId> =
            self.iter().filter(|(_, peek)| peek.canceled).map(|(uuid, _)| uuid).collect();
        for uuid in &canceled {
            self.outstanding.remove(uuid);
        }
        canceled
    }

    /// Every outstanding peek, in the order they were asked.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PeekId, &Outstanding)> + '_ {
        self.outstanding.iter().map(|(uuid, peek)| (*uuid, peek))
    }
}
