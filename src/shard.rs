//! Durable append-only collections outside the replica: where sources live, and where they survive its crash.
//!
//! A shard is a history of updates with a `since` and an `upper`. Writers extend it with [`Shard::compare_and_append`],
//! which succeeds for exactly one of those who expect the same upper; readers take a snapshot at their `as_of` and then
//! follow, each worker its own part of the rows. Nothing here knows how the bytes are kept: this is the in-memory stand-in
//! that both the threads and the testbed read from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use differential_dataflow::Hashable;
use differential_dataflow::consolidation::consolidate;
use timely::progress::Antichain;
use timely::progress::Timestamp as _;

use crate::env::sync::Mutex;
use crate::repr::{Diff, Frontier, GlobalId, Row, Timestamp, show};

/// Rows that come or go, each at a time.
pub type Updates = Vec<(Row, Timestamp, Diff)>;

/// What can be wrong with a request to a shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// No shard of this name.
    #[error("there is no shard {0}")]
    Unknown(GlobalId),
    /// A shard of this name exists.
    #[error("shard {0} exists already")]
    Exists(GlobalId),
    /// Somebody else has appended.
    #[error("append to {id} expects upper {}, but it is {}", show(.expected), show(.upper))]
    UpperMismatch {
        /// The shard.
        id: GlobalId,
        /// What the writer expected.
        expected: Frontier,
        /// What it is.
        upper: Frontier,
    },
    /// An append that does not move the upper forward, or holds an update outside of what it seals.
    #[error("append to {id} of [{}, {}) is not an interval that holds its update times", show(.lower), show(.upper))]
    Interval {
        /// The shard.
        id: GlobalId,
        /// The upper before.
        lower: Frontier,
        /// The upper after.
        upper: Frontier,
    },
    /// A row with another number of columns.
    #[error("append to {id} of a row of {columns} columns, it has {arity}")]
    Arity {
        /// The shard.
        id: GlobalId,
        /// The columns of the row.
        columns: usize,
        /// The columns of the shard.
        arity: usize,
    },
    /// A read below since.
    #[error("{id} cannot be read from {as_of} on: it has been compacted to {}", show(.since))]
    Compacted {
        /// The shard.
        id: GlobalId,
        /// Where the read would begin.
        as_of: Timestamp,
        /// How far the shard has been compacted.
        since: Frontier,
    },
}

struct State {
    since: Frontier,
    upper: Frontier,
    updates: BTreeMap<Timestamp, Vec<(Row, Diff)>>,
    waiters: Vec<Waker>,
}

/// One durable collection.
pub struct Shard {
    id: GlobalId,
    arity: usize,
    state: Mutex<State>,
}

impl Shard {
    fn new(id: GlobalId, arity: usize) -> Self {
        let start = Antichain::from_elem(Timestamp::minimum());
        let state = State {
            since: start.clone(),
            upper: start,
            updates: BTreeMap::new(),
            waiters: Vec::new(),
        };
        Shard { id, arity, state: Mutex::new("shard", state) }
    }

    /// The number of columns of its rows.
    pub fn arity(&self) -> usize {
        self.arity
    }

    /// Times not beyond it are complete.
    pub fn upper(&self) -> Frontier {
        self.state.lock().upper.clone()
    }

    /// Times not beyond it may have been coalesced.
    pub fn since(&self) -> Frontier {
        self.state.lock().since.clone()
    }

    /// Adds `updates`, all at times in `[expected, upper)`, and seals that interval. Wakes all readers.
    ///
    /// # Errors
    /// When the shard's upper is not `expected`, when the interval is empty or does not hold an update's time, or when a
    /// row has the wrong number of columns. Nothing is appended then.
    pub fn compare_and_append(
        &self,
        updates: Updates,
        expected: &Frontier,
        upper: Frontier,
    ) -> Result<(), ShardError> {
        let id = self.id;
        if let Some((row, _, _)) = updates.iter().find(|(row, _, _)| row.0.len() != self.arity) {
            return Err(ShardError::Arity { id, columns: row.0.len(), arity: self.arity });
        }
        let waiters = {
            let mut state = self.state.lock();
            if state.upper != *expected {
                let (expected, upper) = (expected.clone(), state.upper.clone());
                return Err(ShardError::UpperMismatch { id, expected, upper });
            }
            let inside = |time: &Timestamp| expected.less_equal(time) && !upper.less_equal(time);
            let forward = timely::PartialOrder::less_than(expected, &upper);
            if !forward || updates.iter().any(|(_, time, _)| !inside(time)) {
                return Err(ShardError::Interval { id, lower: expected.clone(), upper });
            }
            for (row, time, diff) in updates {
                state.updates.entry(time).or_default().push((row, diff));
            }
            state.upper = upper;
            std::mem::take(&mut state.waiters)
        };
        waiters.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Allows times not beyond `since` to be coalesced. A frontier that is not ahead changes nothing.
    pub fn downgrade_since(&self, since: &Frontier) {
        let mut state = self.state.lock();
        if !timely::PartialOrder::less_than(&state.since, since) {
            return;
        }
        state.since = since.clone();
        let Some(&since) = since.as_option() else {
            state.updates.clear();
            return;
        };
        let later = state.updates.split_off(&since);
        let mut coalesced: Vec<_> =
            std::mem::replace(&mut state.updates, later).into_values().flatten().collect();
        if !coalesced.is_empty() {
            let first = state.updates.entry(since).or_default();
            coalesced.append(first);
            consolidate(&mut coalesced);
            *first = coalesced;
        }
    }

    /// Reads one of `parts` parts of the rows, from `as_of` on.
    pub fn reader(self: &Arc<Self>, part: usize, parts: usize, as_of: Timestamp) -> ShardReader {
        let position = Antichain::from_elem(Timestamp::minimum());
        ShardReader {
            shard: Arc::clone(self),
            part: part as u64,
            parts: parts as u64,
            as_of,
            position,
        }
    }
}

/// Follows one part of a shard.
pub struct ShardReader {
    shard: Arc<Shard>,
    part: u64,
    parts: u64,
    as_of: Timestamp,
    position: Frontier,
}

impl ShardReader {
    /// Everything not read before, at times advanced to `as_of`, and the frontier up to where that is everything.
    ///
    /// `waker` is woken by the next append, whether or not there was anything new.
    ///
    /// # Errors
    /// [`ShardError::Compacted`] when the first read comes after compaction passed `as_of`.
    pub fn poll(&mut self, waker: &Waker) -> Result<(Updates, Frontier), ShardError> {
        let mut state = self.shard.state.lock();
        let started = !self.position.less_equal(&Timestamp::minimum());
        if !started && !state.since.less_equal(&self.as_of) {
            let (id, as_of, since) = (self.shard.id, self.as_of, state.since.clone());
            return Err(ShardError::Compacted { id, as_of, since });
        }
        if !state.waiters.iter().any(|waiter| waiter.will_wake(waker)) {
            state.waiters.push(waker.clone());
        }
        // A reader begins when its first time is complete: until then there is nothing to say.
        if !started && state.upper.less_equal(&self.as_of) {
            return Ok((Vec::new(), Antichain::from_elem(self.as_of)));
        }
        let mut updates = Vec::new();
        if let Some(&from) = self.position.as_option() {
            for (time, rows) in state.updates.range(from..) {
                for (row, diff) in rows {
                    if row.hashed() % self.parts == self.part {
                        updates.push((row.clone(), (*time).max(self.as_of), *diff));
                    }
                }
            }
        }
        self.position.clone_from(&state.upper);
        Ok((updates, self.position.clone()))
    }
}

/// All shards of an instance, by name.
#[derive(Default)]
pub struct Shards {
    shards: parking_lot::RwLock<BTreeMap<GlobalId, Arc<Shard>>>,
}

impl Shards {
    /// No shards.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Creates an empty shard whose rows have `arity` columns.
    ///
    /// # Errors
    /// [`ShardError::Exists`].
    pub fn create(&self, id: GlobalId, arity: usize) -> Result<Arc<Shard>, ShardError> {
        let mut shards = self.shards.write();
        if shards.contains_key(&id) {
            return Err(ShardError::Exists(id));
        }
        let shard = Arc::new(Shard::new(id, arity));
        shards.insert(id, Arc::clone(&shard));
        Ok(shard)
    }

    /// The shard of this name.
    ///
    /// # Errors
    /// [`ShardError::Unknown`].
    pub fn get(&self, id: GlobalId) -> Result<Arc<Shard>, ShardError> {
        self.shards.read().get(&id).cloned().ok_or(ShardError::Unknown(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: GlobalId = GlobalId::User(1);

    fn at(time: Timestamp) -> Frontier {
        Antichain::from_elem(time)
    }

    fn row(value: i64) -> Row {
        Row::new([value])
    }

    fn shard() -> Arc<Shard> {
        let shard = Shards::new().create(ID, 1).expect("no other");
        shard
            .compare_and_append(vec![(row(1), 0, 1), (row(2), 1, 1)], &at(0), at(2))
            .expect("fits");
        shard
    }

    #[test]
    fn only_one_of_two_appends_at_an_upper_succeeds() {
        let shard = shard();
        assert_eq!(shard.compare_and_append(vec![(row(3), 2, 1)], &at(2), at(3)), Ok(()));
        let late = shard.compare_and_append(vec![(row(4), 2, 1)], &at(2), at(3));
        assert_eq!(late, Err(ShardError::UpperMismatch { id: ID, expected: at(2), upper: at(3) }));
        let outside = shard.compare_and_append(vec![(row(4), 9, 1)], &at(3), at(4));
        assert!(matches!(outside, Err(ShardError::Interval { .. })));
        assert_eq!(shard.upper(), at(3));
    }

    #[test]
    fn parts_add_up_and_times_are_advanced_to_as_of() {
        let shard = shard();
        let mut all = Vec::new();
        for part in 0..3 {
            let (rows, upper) =
                shard.reader(part, 3, 1).poll(Waker::noop()).expect("not compacted");
            assert_eq!(upper, at(2));
            all.extend(rows);
        }
        all.sort();
        assert_eq!(all, vec![(row(1), 1, 1), (row(2), 1, 1)]);
    }

    #[test]
    fn a_reader_follows_what_is_appended_later_and_is_woken() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let (shard, count) = (shard(), Arc::new(Count(AtomicUsize::new(0))));
        let waker = Waker::from(Arc::clone(&count));
        let mut reader = shard.reader(0, 1, 0);
        assert_eq!(reader.poll(&waker).expect("not compacted").0.len(), 2);
        assert_eq!(reader.poll(&waker), Ok((vec![], at(2))));
        shard.compare_and_append(vec![(row(1), 2, -1)], &at(2), at(5)).expect("fits");
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(reader.poll(&waker), Ok((vec![(row(1), 2, -1)], at(5))));
    }

    #[test]
    fn compaction_coalesces_and_refuses_reads_below() {
        let shard = shard();
        shard.compare_and_append(vec![(row(1), 2, -1)], &at(2), at(3)).expect("fits");
        shard.downgrade_since(&at(2));
        let refused = shard.reader(0, 1, 1).poll(Waker::noop());
        assert_eq!(refused, Err(ShardError::Compacted { id: ID, as_of: 1, since: at(2) }));
        let (rows, _) = shard.reader(0, 1, 2).poll(Waker::noop()).expect("at since");
        assert_eq!(rows, vec![(row(2), 2, 1)]);
    }
}
