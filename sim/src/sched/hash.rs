//! The event hash: a fixed rolling hash of everything that happened.
//!
//! Two runs that differ in any decision, or in any event, differ in their hash (but for a chance of
//! one in 2^64 or so). It must not depend on addresses, on the hasher keys of a process or on the
//! version of a crate, and costs a few cycles a step, since every decision goes through it.

use std::hash::{Hash, Hasher};

use tandem::env::Event;
use tandem::repr::Frontier;

use crate::rng::mix;

/// A rolling hash: rotate, xor, multiply, as in rustc's FxHash; mixed once at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rolling(u64);

impl Rolling {
    /// The hash of nothing.
    pub fn new() -> Self {
        Rolling(0x5177_ed0a_3c6e_f372)
    }

    /// Folds in one word.
    #[inline]
    pub fn fold(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0xf135_7aea_2e62_a9c5);
    }

    /// Folds in an event.
    pub fn fold_event(&mut self, event: &Event) {
        hash_event(event, self);
    }
}

impl Default for Rolling {
    fn default() -> Self {
        Rolling::new()
    }
}

/// Integers are folded as 64-bit words whatever their width, so that the hash is the same on all
/// platforms.
impl Hasher for Rolling {
    fn finish(&self) -> u64 {
        mix(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
        self.fold(bytes.len() as u64);
    }

    fn write_u8(&mut self, value: u8) {
        self.fold(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.fold(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.fold(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.fold(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.fold(value as i64 as u64);
    }
}

/// [`Event`] cannot derive `Hash` because of its frontiers, so its fields are hashed here, under a
/// number for each kind. No `..`: a new field must not be forgotten.
fn hash_event(event: &Event, state: &mut Rolling) {
    match event {
        Event::PlaceholderCreated { part } => (0, part).hash(state),
        Event::Attached { part, adopted } => (1, part, adopted).hash(state),
        Event::Published { part, since, upper, spans } => {
            (2, part, elements(since), elements(upper), spans).hash(state);
        }
        Event::Closed { part } => (3, part).hash(state),
        Event::SnapshotTaken { id, worker, at, since, upper, peek } => {
            (4, id, worker, at, elements(since), elements(upper), peek).hash(state);
        }
        Event::SnapshotRefused { id, worker, at, since, peek } => {
            (5, id, worker, at, elements(since), peek).hash(state);
        }
        Event::ReadWaits { id, worker, peek, published } => {
            (6, id, worker, peek, published).hash(state);
        }
        Event::ImportCaptured { part, as_of, since, upper, over_placeholder } => {
            (7, part, as_of, elements(since), elements(upper), over_placeholder).hash(state);
        }
        Event::ImportRefused { part, as_of, since } => {
            (8, part, as_of, elements(since)).hash(state);
        }
        other => hash_runtime_event(other, state),
    }
}

/// The events of runtimes, batches and protocols.
fn hash_runtime_event(event: &Event, state: &mut Rolling) {
    match event {
        Event::CommandApplied { role, worker, command, id, peek } => {
            (20, role, worker, command, id, peek).hash(state);
        }
        Event::CompactionApplied { role, worker, id, frontier } => {
            (21, role, worker, id, elements(frontier)).hash(state);
        }
        Event::TraceState {
            part,
            logical,
            physical,
            upper,
            batches,
            spans,
            updates,
            published_spans,
        } => {
            (22, part, elements(logical), elements(physical), elements(upper)).hash(state);
            (batches, spans, updates, published_spans).hash(state);
        }
        Event::Turn { role, worker } => (23, role, worker).hash(state),
        Event::PeekAnswered { role, worker, peek, answer } => {
            (24, role, worker, peek, answer).hash(state);
        }
        Event::Rendered { role, worker, exports } => (25, role, worker, exports).hash(state),
        Event::Dropped { role, worker, id } => (26, role, worker, id).hash(state),
        Event::BatchAllocated { updates } => (27, updates).hash(state),
        Event::BatchFreed { updates } => (28, updates).hash(state),
        Event::Rejected { role, message } => (29, role, message).hash(state),
        // Kinds that came after this list: slower, and as fixed as their text.
        #[allow(unreachable_patterns)]
        other => (99, format!("{other:?}")).hash(state),
    }
}

/// A frontier's elements. They are totally ordered times, so there is at most one.
fn elements(frontier: &Frontier) -> &[u64] {
    frontier.elements()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem::env::Role;
    use tandem::repr::GlobalId;

    fn hash_of(event: &Event) -> u64 {
        let mut rolling = Rolling::new();
        rolling.fold_event(event);
        rolling.finish()
    }

    #[test]
    fn an_empty_frontier_and_the_least_frontier_differ() {
        let compaction = |frontier| Event::CompactionApplied {
            role: Role::Maintenance,
            worker: 0,
            id: GlobalId::User(1),
            frontier,
        };
        let least = compaction(Frontier::from_elem(0));
        assert_ne!(hash_of(&least), hash_of(&compaction(Frontier::new())));
        assert_eq!(hash_of(&least), hash_of(&least.clone()));
    }

    #[test]
    fn the_order_of_events_matters() {
        let [first, second] = [Event::BatchFreed { updates: 1 }, Event::BatchFreed { updates: 2 }];
        let hash_of_both = |left, right| {
            let mut rolling = Rolling::new();
            rolling.fold_event(left);
            rolling.fold_event(right);
            rolling.finish()
        };
        assert_ne!(hash_of_both(&first, &second), hash_of_both(&second, &first));
    }
}
