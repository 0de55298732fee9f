//! Situations that a sweep must reach at least sometimes: a green run that tested nothing is a failure.

use std::collections::{BTreeMap, BTreeSet};

use tandem::env::{Activity, Event, Role};
use tandem::protocol::PeekId;
use tandem::repr::GlobalId;

use super::Reads;

/// Every situation that is counted, with what it means.
pub const SITUATIONS: &[(&str, &str)] = &[
    ("peek before publication", "a peek waited for an index that nobody had published"),
    ("peek waits for a seal", "a peek waited for a published index to complete its time"),
    ("read during a merge", "a snapshot was taken while maintenance was inside a merge"),
    ("import during a merge", "an import captured while maintenance was inside a merge"),
    ("cancel before the answer", "a cancelled peek was answered as cancelled"),
    ("cancel during the answer", "some workers had answered a peek when its cancel reached others"),
    ("cancel after the answer", "a cancel reached the replica after the peek was answered"),
    ("refusal after the controller gave up", "a snapshot or an import was refused"),
    ("import refused", "an import was refused at capture"),
    ("compaction past a queued read", "compaction passed a read whose command was still queued"),
    ("drop with readers queued", "an index was dropped while a read of it was not yet served"),
    ("query over a placeholder", "a query was rendered over an index that was not yet published"),
    ("adoption of a placeholder", "a publisher adopted the point that a reader had created"),
    ("index over an index", "an index imported another of the same runtime"),
    ("index re-created", "a dropped index was created again under its name"),
    ("error answer", "a peek was answered with an error of the data"),
    ("non-empty answer", "a peek was answered with rows"),
    ("answer bounded by a limit", "a peek with a limit was answered"),
    ("key lookup", "a peek with keys was answered with rows"),
    ("read at since", "a read was captured exactly at since"),
    ("read at the last complete time", "a read was captured at the last complete time"),
    ("interactive blocked on a lock", "an interactive thread waited for a lock"),
    ("maintenance blocked on a lock", "a maintenance thread waited for a lock"),
    ("merge inside the tick", "a worker merged because it let its trace compact physically"),
    ("preempted inside a merge", "another thread ran while one was inside a merge"),
    ("idle time advanced", "the upper of a source moved without data"),
];

/// Counts situations.
#[derive(Debug)]
pub struct Sometimes {
    counts: BTreeMap<&'static str, u64>,
    merging: BTreeSet<u64>,
    ticking: BTreeSet<u64>,
    /// Peeks whose command was applied, by worker.
    applied: BTreeMap<PeekId, BTreeSet<usize>>,
    /// The kinds of answers that a peek's workers have given.
    kinds: BTreeMap<PeekId, BTreeSet<&'static str>>,
    dropped: BTreeSet<GlobalId>,
}

impl Default for Sometimes {
    /// Nothing counted yet.
    fn default() -> Self {
        Sometimes {
            counts: SITUATIONS.iter().map(|(name, _)| (*name, 0)).collect(),
            merging: BTreeSet::new(),
            ticking: BTreeSet::new(),
            applied: BTreeMap::new(),
            kinds: BTreeMap::new(),
            dropped: BTreeSet::new(),
        }
    }
}

impl Sometimes {
    /// Counts a situation.
    ///
    /// # Panics
    /// If it is not listed in [`SITUATIONS`].
    pub fn count(&mut self, situation: &'static str) {
        *self.counts.get_mut(situation).expect("a listed situation") += 1;
    }

    /// How often each situation occurred.
    pub fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// A thread began an activity.
    pub fn begin(&mut self, thread: u64, activity: Activity) {
        match activity {
            Activity::Tick => {
                self.ticking.insert(thread);
            }
            Activity::Merge => {
                self.merging.insert(thread);
                if self.ticking.contains(&thread) {
                    self.count("merge inside the tick");
                }
            }
            _ => {}
        }
    }

    /// A thread ended an activity.
    pub fn end(&mut self, thread: u64, activity: Activity) {
        match activity {
            Activity::Tick => self.ticking.remove(&thread),
            Activity::Merge => self.merging.remove(&thread),
            _ => false,
        };
    }

    /// Another thread was chosen.
    pub fn switch(&mut self, from: u64) {
        if self.merging.contains(&from) {
            self.count("preempted inside a merge");
        }
    }

    /// Takes note of an event.
    pub fn event(&mut self, thread: u64, event: &Event, reads: &Reads) {
        match event {
            Event::ReadWaits { published: false, .. } => self.count("peek before publication"),
            Event::ReadWaits { published: true, .. } => self.count("peek waits for a seal"),
            Event::SnapshotTaken { at, since, upper, .. } => {
                if self.others_merge(thread) {
                    self.count("read during a merge");
                }
                if since.as_option() == Some(at) {
                    self.count("read at since");
                }
                if upper.as_option().is_some_and(|upper| at.checked_add(1) == Some(*upper)) {
                    self.count("read at the last complete time");
                }
            }
            Event::ImportCaptured { over_placeholder, .. } => {
                if *over_placeholder {
                    self.count("query over a placeholder");
                }
                if self.others_merge(thread) {
                    self.count("import during a merge");
                }
            }
            Event::SnapshotRefused { .. } => self.count("refusal after the controller gave up"),
            Event::ImportRefused { .. } => {
                self.count("import refused");
                self.count("refusal after the controller gave up");
            }
            Event::Attached { adopted: true, .. } => self.count("adoption of a placeholder"),
            Event::CommandApplied {
                role: Role::Interactive,
                worker,
                command: "Peek",
                peek,
                ..
            } => {
                let peek = peek.expect("a peek command names its peek");
                self.applied.entry(peek).or_default().insert(*worker);
            }
            Event::PeekAnswered { role: Role::Interactive, peek, answer, .. } => {
                let kinds = self.kinds.entry(*peek).or_default();
                kinds.insert(answer);
                if kinds.len() == 2 && kinds.contains("canceled") && *answer == "canceled" {
                    self.count("cancel during the answer");
                }
            }
            Event::CompactionApplied { role: Role::Maintenance, worker, id, frontier } => {
                let passed = reads.iter().any(|(peek, read)| {
                    read.reads.contains(id)
                        && !frontier.less_equal(&read.at)
                        && !self.applied.get(peek).is_some_and(|workers| workers.contains(worker))
                });
                if passed {
                    self.count("compaction past a queued read");
                }
            }
            Event::Dropped { role: Role::Maintenance, id, worker } => {
                self.dropped.insert(*id);
                let queued = reads.iter().any(|(peek, read)| {
                    read.reads.contains(id)
                        && !read.answered
                        && !self.applied.get(peek).is_some_and(|workers| workers.contains(worker))
                });
                if queued {
                    self.count("drop with readers queued");
                }
            }
            Event::Rendered { role: Role::Maintenance, worker: 0, exports }
                if exports.iter().any(|id| self.dropped.contains(id)) =>
            {
                self.count("index re-created");
            }
            _ => {}
        }
    }

    fn others_merge(&self, thread: u64) -> bool {
        self.merging.iter().any(|merging| *merging != thread)
    }
}
