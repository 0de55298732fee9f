//! O9: after the world is gone, no batch lives.

use tandem::env::Event;

use super::Verdict;
use crate::report::Oracle;

/// Counts live batches.
#[derive(Default)]
pub struct MemoryOracle {
    live: i64,
    updates: i64,
    allocated: u64,
}

impl MemoryOracle {
    /// Takes note of an event.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::BatchAllocated { updates } => {
                self.live += 1;
                self.updates += *updates as i64;
                self.allocated += 1;
            }
            Event::BatchFreed { updates } => {
                self.live -= 1;
                self.updates -= *updates as i64;
            }
            _ => {}
        }
    }

    /// Judges what is left when everything was dropped.
    pub fn after_the_end(&self, now: u64, verdict: &mut Verdict) {
        if self.allocated > 0 {
            verdict.checked(Oracle::O9);
        }
        if self.live != 0 {
            verdict.violated(
                Oracle::O9,
                now,
                format!(
                    "{} batches of {} updates live on after all that held them was dropped",
                    self.live, self.updates
                ),
            );
        }
    }

    /// How many batches live.
    pub fn live(&self) -> i64 {
        self.live
    }
}
