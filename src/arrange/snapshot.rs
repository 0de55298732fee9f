//! Reading a published arrangement at one time.
//!
//! A [`Snapshot`] is a view and a time at which that view is readable. It pins nothing but the
//! view's batches: the owner compacts and merges on, into other batches. A [`Walk`] visits it in
//! slices, so that a reader can be parked, cancelled or passed by others between any two. What it
//! visits is filtered by time and never by batch (H10): a merged batch holds updates from both
//! sides of any time.

use std::fmt::Debug;
use std::sync::Arc;

use differential_dataflow::trace::cursor::{Cursor, CursorList, cursor_list};

use super::batch::{ArcBatch, ArcCursor, SharedData, SharedDiff, SharedTime};
use super::point::Point;
use super::view::{Judgement, Read, Refused, View};
use crate::env;

/// How many positions a walk visits between two places at which its thread may be preempted.
const WALK_SLICE: usize = 64;

/// The contents of an arrangement at one time.
pub struct Snapshot<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    view: Arc<View<K, V, T, R>>,
    at: T,
}

/// Why there is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady<T: Debug> {
    /// The time may become readable: register with the point, look again, and wait.
    #[error("not complete yet")]
    Wait,
    /// The time never becomes readable.
    #[error(transparent)]
    Refused(Refused<T>),
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Point<K, V, T, R> {
    /// The contents at `at`, if they are readable in the current view.
    ///
    /// # Errors
    /// [`NotReady::Wait`] when the time is not complete yet, [`NotReady::Refused`] when it will
    /// never be readable: rows never come from below `since`.
    pub fn snapshot_at(&self, at: &T) -> Result<Snapshot<K, V, T, R>, NotReady<T>> {
        let view = self.load();
        match view.judge(Read::At(at)) {
            Judgement::Ready => Ok(Snapshot { view, at: at.clone() }),
            Judgement::NotYet => Err(NotReady::Wait),
            Judgement::Refused(refused) => Err(NotReady::Refused(refused)),
        }
    }
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Snapshot<K, V, T, R> {
    /// The contents of `view` at `at`, for callers that judged several views together.
    pub fn of_view(view: Arc<View<K, V, T, R>>, at: T) -> Self {
        Snapshot { view, at }
    }

    /// The view read.
    pub fn view(&self) -> &View<K, V, T, R> {
        &self.view
    }

    /// The time read at.
    pub fn at(&self) -> &T {
        &self.at
    }

    /// A walk over the contents: of the given keys, in any order and repeated or not, or of all.
    pub fn walk(self, keys: Option<Vec<K>>) -> Walk<K, V, T, R> {
        let (cursor, batches) = cursor_list(self.view.batches().cloned().collect());
        let keys = keys.map(|mut keys| {
            keys.sort();
            keys.dedup();
            keys.into_iter().peekable()
        });
        Walk { cursor, batches, keys, at: self.at, seek: true, _view: self.view }
    }
}

/// A walk over a snapshot that can be left off and taken up again, on any thread.
pub struct Walk<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    cursor: CursorList<ArcCursor<K, V, T, R>>,
    batches: Vec<ArcBatch<K, V, T, R>>,
    /// The keys still to be visited; all of the cursor's when absent.
    keys: Option<std::iter::Peekable<std::vec::IntoIter<K>>>,
    at: T,
    /// Whether the cursor has yet to go to the first of `keys`.
    seek: bool,
    // Dropped after the batches, so that freeing them is left to the publisher.
    _view: Arc<View<K, V, T, R>>,
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Walk<K, V, T, R> {
    /// Goes on until `budget` positions are visited or none is left; says whether none is left.
    ///
    /// Each `(key, value)` whose differences at times not beyond the snapshot's sum to something is
    /// given to `on`, in order. The budget is charged for each key sought and for each update
    /// visited, whether or not it leads to a row, so that a selective read is as interruptible as
    /// one that returns everything. Only a single pair with a long history can overdraw it.
    pub fn step(&mut self, budget: &mut usize, mut on: impl FnMut(&K, &V, R)) -> bool {
        let mut reported = *budget;
        let mut done = !self.reach_pair(budget);
        while !done && *budget > 0 {
            self.visit(budget, &mut on);
            if reported - *budget >= WALK_SLICE {
                env::point(env::Point::Walked(reported - *budget));
                reported = *budget;
            }
            done = !self.reach_pair(budget);
        }
        if reported > *budget {
            env::point(env::Point::Walked(reported - *budget));
        }
        done
    }

    /// Moves the cursor to the next pair to visit, unless it is on one or the budget ends; says
    /// whether any may be left.
    fn reach_pair(&mut self, budget: &mut usize) -> bool {
        loop {
            if !self.reach_key(budget) {
                return false;
            }
            if self.seek || *budget == 0 || self.cursor.val_valid(&self.batches) {
                return true;
            }
            self.leave_key();
        }
    }

    /// Moves the cursor to the next key to visit, unless it is on one or the budget ends; says
    /// whether any may be left.
    fn reach_key(&mut self, budget: &mut usize) -> bool {
        if let Some(keys) = &mut self.keys {
            while self.seek {
                let Some(key) = keys.peek() else { return false };
                if *budget == 0 {
                    return true;
                }
                *budget -= 1;
                self.cursor.seek_key(&self.batches, key);
                match self.cursor.get_key(&self.batches) {
                    Some(found) if found == key => self.seek = false,
                    Some(_) => drop(keys.next()),
                    None => return false,
                }
            }
        } else {
            self.seek = false;
        }
        self.cursor.key_valid(&self.batches)
    }

    fn leave_key(&mut self) {
        match &mut self.keys {
            Some(keys) => {
                keys.next();
                self.seek = true;
            }
            None => self.cursor.step_key(&self.batches),
        }
    }

    fn visit(&mut self, budget: &mut usize, on: &mut impl FnMut(&K, &V, R)) {
        let mut sum: Option<R> = None;
        let mut visited = 0;
        self.cursor.map_times(&self.batches, |time, diff| {
            visited += 1;
            if time.less_equal(&self.at) {
                match &mut sum {
                    Some(sum) => sum.plus_equals(diff),
                    None => sum = Some(diff.clone()),
                }
            }
        });
        *budget = budget.saturating_sub(visited.max(1));
        if let Some(sum) = sum
            && !sum.is_zero()
        {
            let (key, val) = (self.cursor.key(&self.batches), self.cursor.val(&self.batches));
            on(key, val, sum);
        }
        self.cursor.step_val(&self.batches);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use timely::worker::Worker;

    use super::super::testing::*;
    use super::*;

    fn maintained(worker: &mut Worker) -> (Arc<TestPoint>, Maintained) {
        let point = Arc::new(TestPoint::new(name(1)));
        let maintained = Maintained::new(worker, &point);
        (point, maintained)
    }

    /// Walks in slices of `budget`; the rows, and the number of slices.
    fn walk(
        snapshot: Snapshot<u64, u64, u64, i64>,
        keys: Option<Vec<u64>>,
        budget: usize,
    ) -> (BTreeMap<(u64, u64), i64>, usize) {
        let (mut walk, mut rows, mut slices) = (snapshot.walk(keys), BTreeMap::new(), 0);
        loop {
            slices += 1;
            let mut left = budget;
            let before = rows.len();
            let done = walk.step(&mut left, |key, val, diff| {
                rows.insert((*key, *val), diff);
            });
            assert!(rows.len() - before <= budget, "each row costs a position at least");
            if done {
                return (rows, slices);
            }
            assert_eq!(left, 0, "a slice ends when its budget does");
        }
    }

    #[test]
    fn a_snapshot_is_the_contents_at_its_time_however_batches_were_merged() {
        timely::execute_directly(|worker| {
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 30);
            maintained.compact(worker, 12);
            let widest = point.load().chain().filter(|span| span.has_updates()).count();
            assert!(widest < 10, "batches of several rounds are one");
            for time in 12..30 {
                assert_eq!(read(&point, time), contents(&maintained.history, time), "{time}");
            }
            assert_eq!(point.snapshot_at(&30).err(), Some(NotReady::Wait));
            let refused = Refused::Compacted { as_of: at(11), since: at(12) };
            assert_eq!(point.snapshot_at(&11).err(), Some(NotReady::Refused(refused)));
        });
    }

    #[test]
    fn a_snapshot_stays_what_it_was_while_its_owner_compacts_past_it() {
        timely::execute_directly(|worker| {
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 10);
            let snapshot = point.snapshot_at(&5).expect("readable");
            let expected = contents(&maintained.history, 5);
            maintained.rounds(worker, 40);
            maintained.compact(worker, 39);
            assert!(point.snapshot_at(&5).is_err(), "compaction has passed it");
            assert_eq!(walk(snapshot, None, 7).0, expected);
        });
    }

    #[test]
    fn a_walk_sliced_anyhow_visits_the_same() {
        timely::execute_directly(|worker| {
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 20);
            let expected = contents(&maintained.history, 15);
            let snapshot = || point.snapshot_at(&15).expect("readable");
            let (rows, slices_of_one) = walk(snapshot(), None, 1);
            assert_eq!(rows, expected);
            assert!(slices_of_one > 2 * rows.len(), "cancelled updates are positions too");
            for budget in [2, 3, 64, usize::MAX] {
                assert_eq!(walk(snapshot(), None, budget).0, expected, "{budget}");
            }
        });
    }

    #[test]
    fn a_walk_of_keys_finds_those_there_are_and_is_charged_for_those_there_are_not() {
        timely::execute_directly(|worker| {
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 20);
            let keys = vec![100, 3, 77, 3, 0, 1000];
            let mut expected = contents(&maintained.history, 15);
            expected.retain(|(key, _), _| keys.contains(key));
            assert!(expected.len() >= 2);
            for budget in [1, 2, 5, usize::MAX] {
                let snapshot = point.snapshot_at(&15).expect("readable");
                assert_eq!(walk(snapshot, Some(keys.clone()), budget).0, expected, "{budget}");
            }
            let absent = Some((200..260).collect());
            let mut walk = point.snapshot_at(&15).expect("readable").walk(absent);
            let mut budget = 100;
            assert!(walk.step(&mut budget, |_, _, _| panic!("none of these keys is there")));
            assert_eq!(budget, 99, "past the last key there is nothing left to seek");
        });
    }

    #[test]
    fn a_walk_tells_its_surroundings_how_far_it_came() {
        timely::execute_directly(|worker| {
            let (counting, _installed) = Counting::install();
            let (point, mut maintained) = maintained(worker);
            maintained.rounds(worker, 60);
            let mut budget = 1_000_000;
            let mut walk = point.snapshot_at(&59).expect("readable").walk(None);
            assert!(walk.step(&mut budget, |_, _, _| {}));
            assert_eq!(counting.walked.get(), 1_000_000 - budget);
            assert!(counting.walked.get() > 2 * WALK_SLICE);
        });
    }
}
