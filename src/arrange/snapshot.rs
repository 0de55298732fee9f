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
