//! A runner without a world, for tests.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::Runner;
use crate::replay::{Case, Recording};
use crate::report::{Oracle, REQUIRED, RunReport, Violation};
use crate::story::{Chronicle, Class, Entry, Who};

/// Answers at once, and says of each seed what it was told to say.
#[derive(Default)]
pub(crate) struct Fake {
    /// Seeds that fail, and of which oracle.
    pub(crate) fails: Vec<(u64, Oracle)>,
    /// Seeds that take longer than others.
    pub(crate) slow: Vec<u64>,
    /// Seeds whose hash is another one the second time.
    pub(crate) wobbles: Vec<u64>,
    /// Seeds on which the tool itself panics.
    pub(crate) panics: Vec<u64>,
    /// The seeds that were run, in order.
    pub(crate) ran: Mutex<Vec<u64>>,
    /// The threads they were run on.
    pub(crate) threads: Mutex<Vec<ThreadId>>,
}

impl Runner for Fake {
    fn record(&self, case: &Case, watched: bool) -> Recording {
        let seed = case.scenario.seed;
        self.threads.lock().unwrap().push(thread::current().id());
        let before = {
            let mut ran = self.ran.lock().unwrap();
            ran.push(seed);
            ran.iter().filter(|other| **other == seed).count() as u64 - 1
        };
        if self.slow.contains(&seed) {
            thread::sleep(Duration::from_millis(30));
        }
        assert!(!self.panics.contains(&seed), "lost my way");
        let mut report = report(seed);
        if self.wobbles.contains(&seed) {
            report.hash += before;
        }
        let fails = self.fails.iter().find(|(failing, _)| *failing == seed);
        report.violation = fails.map(|(_, oracle)| violation(*oracle));
        let chronicle =
            watched.then(|| chronicle(before * u64::from(self.wobbles.contains(&seed))));
        Recording { chronicle, ..recording(report) }
    }
}

/// A run of which nothing but the report is known.
pub(crate) fn recording(report: RunReport) -> Recording {
    Recording { report, decisions: vec![0, 1], chronicle: None }
}

/// Two things that happened, the second of which is another one in each variant.
fn chronicle(variant: u64) -> Chronicle {
    let mut chronicle = Chronicle::default();
    for (at_ns, hash, line) in [(10, 1, "something happened"), (20, variant, "and then another")] {
        chronicle.push(Entry {
            at_ns,
            who: Who::Control,
            class: Class::Fault,
            ids: vec![],
            peek: None,
            worker: None,
            line: line.to_string(),
            hash,
        });
    }
    chronicle
}

/// So many jobs.
pub(crate) fn jobs(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).expect("tests ask for at least one")
}

/// The report of a run in which all went well.
pub(crate) fn report(seed: u64) -> RunReport {
    RunReport {
        seed,
        violation: None,
        decisions: 1_000 + seed,
        virtual_ns: 2_000_000,
        hash: seed.wrapping_mul(0x1234_5678_9abc_def1) + 7,
        sometimes: REQUIRED.into_iter().map(|name| (name, 1)).collect(),
        exercised: BTreeMap::from([("peeks", 50), ("ticks", 100 + seed)]),
        checks: Oracle::ALL
            .into_iter()
            .filter(|oracle| *oracle != Oracle::O11)
            .map(|oracle| (oracle, 3))
            .collect(),
        shape: (1 + seed as usize % 2, 2),
    }
}

/// What an oracle says when it fires.
pub(crate) fn violation(oracle: Oracle) -> Violation {
    let message = "since of u3 should be [9], but is [4]".to_string();
    Violation::new(oracle, 1_500_000, message)
}
