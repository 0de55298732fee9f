//! Probabilistic concurrency testing, after Burckhardt, Kothari, Musuvathi and Nagarakatte
//! ("A randomized scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010).
//!
//! Each thread has a random priority and the highest runs, so threads run long and undisturbed. At
//! a few random moments the one that runs falls behind all others. A defect that needs `d` such
//! changes is found with a chance of at least `1 / (n * k^d)` for `n` threads and `k` decisions,
//! which for small `d` is far better than a random walk. Here the chance is approximate: a thread
//! that is too far ahead in virtual time lets the others catch up whatever its priority.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rand_core::RngCore;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Strategy;
use crate::sched::ThreadId;
use crate::sched::choice::Choice;

/// Runs the thread with the highest priority, and lowers priorities at a few random decisions.
#[derive(Clone, Debug)]
pub struct Pct {
    changes: u32,
    decisions_expected: u64,
    /// The decisions at which a priority changes, the next one last. Drawn at the first decision.
    moments: Option<Vec<u64>>,
    decisions: u64,
    /// Threads come with priorities in the upper half; each change gives the next lower one of the
    /// lower half.
    priorities: BTreeMap<ThreadId, u64>,
}

/// All priorities that threads come with are at least this.
const UPPER_HALF: u64 = 1 << 63;

impl Pct {
    /// Changes priorities at `changes` moments, drawn among the first `decisions_expected`
    /// decisions. Moments that a run does not reach are lost.
    pub fn new(changes: u32, decisions_expected: u64) -> Self {
        Pct {
            changes,
            decisions_expected,
            moments: None,
            decisions: 0,
            priorities: BTreeMap::new(),
        }
    }

    /// The candidate with the highest priority.
    fn highest(&mut self, random: &mut Xoshiro256PlusPlus, choice: &Choice<'_>) -> (u32, ThreadId) {
        let rank = |(index, candidate): (u32, crate::sched::Candidate)| {
            let thread = candidate.thread;
            let priority = self.priorities.entry(thread);
            let priority = *priority.or_insert_with(|| random.next_u64() | UPPER_HALF);
            (priority, Reverse(thread), index)
        };
        let highest = (0..).zip(choice.candidates()).map(rank).max();
        let (_, Reverse(thread), index) = highest.expect("a choice has at least one thread");
        (index, thread)
    }

    /// Whether the priority of the one that would run changes at this decision.
    fn is_change(&mut self, random: &mut Xoshiro256PlusPlus) -> bool {
        let (changes, decisions) = (self.changes, self.decisions_expected.max(1));
        let moments = self.moments.get_or_insert_with(|| {
            let mut moments: Vec<_> = (0..changes).map(|_| random.next_u64() % decisions).collect();
            moments.sort_by_key(|moment| Reverse(*moment));
            moments
        });
        let due = moments.pop_if(|moment| *moment <= self.decisions).is_some();
        self.decisions += 1;
        due
    }
}

impl Strategy for Pct {
    fn choose(&mut self, random: &mut Xoshiro256PlusPlus, choice: &Choice<'_>) -> u32 {
        let (index, thread) = self.highest(random, choice);
        if !self.is_change(random) {
            return index;
        }
        let lower_half = self.priorities.values().filter(|priority| **priority < UPPER_HALF);
        let lowest = lower_half.min().copied().unwrap_or(UPPER_HALF);
        self.priorities.insert(thread, lowest - 1);
        self.highest(random, choice).0
    }
}
