//! The judges of a run: one oracle per file, each named for what it checks.
//!
//! Oracles read facts ([`tandem::env::Event`], what the client asked and was answered) and never touch the system. The
//! first violation ends the run. An oracle counts what it judged: one that judged nothing has shown nothing.

use std::collections::BTreeMap;

use tandem::protocol::PeekId;
use tandem::repr::{GlobalId, Timestamp};

use crate::report::{Oracle, Violation};

pub mod answers;
pub mod isolation;
pub mod memory;
pub mod once;
pub mod pins;
pub mod reads;
pub mod sometimes;

/// Collects what the oracles find.
#[derive(Default)]
pub struct Verdict {
    violation: Option<Violation>,
    checks: BTreeMap<Oracle, u64>,
}

impl Verdict {
    /// Counts that `oracle` judged something.
    pub fn checked(&mut self, oracle: Oracle) {
        *self.checks.entry(oracle).or_default() += 1;
    }

    /// Records a violation that is about nobody in particular, if it is the first.
    pub fn violated(&mut self, oracle: Oracle, at_ns: u64, message: String) {
        self.found(Violation::new(oracle, at_ns, message));
    }

    /// Records a violation, if it is the first.
    pub fn found(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// The first violation.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// How often each oracle judged something.
    pub fn checks(&self) -> &BTreeMap<Oracle, u64> {
        &self.checks
    }
}

/// A read as the client knows it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What is peeked: an index, or the transient output of a query.
    pub target: GlobalId,
    /// The indexes it reads: the target itself, or what the query imports.
    pub reads: Vec<GlobalId>,
    /// The time it reads at.
    pub at: Timestamp,
    /// The controller has given up on it: cancelled.
    pub given_up: bool,
    /// The controller has its answer.
    pub answered: bool,
}

/// The reads of a run, by name.
pub type Reads = BTreeMap<PeekId, Asked>;
