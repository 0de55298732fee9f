//! O4: exactly one response per peek.

use std::collections::BTreeMap;

use tandem::protocol::PeekId;

use super::Verdict;
use crate::report::{Oracle, Violation};

/// Counts responses.
#[derive(Default)]
pub struct OnceOracle {
    responses: BTreeMap<PeekId, u32>,
}

impl OnceOracle {
    /// A peek was asked.
    pub fn asked(&mut self, peek: PeekId) {
        self.responses.insert(peek, 0);
    }

    /// A response arrived at the controller.
    pub fn responded(&mut self, now: u64, peek: PeekId, verdict: &mut Verdict) {
        verdict.checked(Oracle::O4);
        match self.responses.get_mut(&peek) {
            None => {
                let message = format!("a response arrived for {peek}, which was never asked");
                let violation = Violation::new(Oracle::O4, now, message);
                verdict.found(violation.class("never asked").of_peek(peek));
            }
            Some(count) => {
                *count += 1;
                if *count > 1 {
                    let message =
                        format!("response number {count} arrived for {peek}: expected exactly one");
                    let violation = Violation::new(Oracle::O4, now, message);
                    verdict.found(violation.class("answered twice").of_peek(peek));
                }
            }
        }
    }

    /// The peeks that have no response yet.
    pub fn missing(&self) -> Vec<PeekId> {
        self.responses.iter().filter(|(_, count)| **count == 0).map(|(peek, _)| *peek).collect()
    }
}
