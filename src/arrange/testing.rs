//! What the tests of this module share: a maintained arrangement that steps by hand, a sequential
//! reference model of its contents, and surroundings that count.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use differential_dataflow::input::InputSession;
use timely::progress::Antichain;
use timely::worker::Worker;

use super::{Point, Publisher, arrange};
use crate::env::{self, Activity, Event, Half, LockKey, PartName, Surroundings};
use crate::repr::GlobalId;

pub type TestPoint = Point<u64, u64, u64, i64>;
pub type Update = ((u64, u64), u64, i64);

pub fn name(id: u64) -> PartName {
    PartName { id: GlobalId::User(id), half: Half::Oks, worker: 0 }
}

pub fn at(time: u64) -> Antichain<u64> {
    Antichain::from_elem(time)
}

/// An arrangement maintained and published by a dataflow of one worker, with its history.
pub struct Maintained {
    pub input: InputSession<u64, (u64, u64), i64>,
    pub publisher: Publisher<u64, u64, u64, i64>,
    pub history: Vec<Update>,
    pub dataflow: usize,
}

impl Maintained {
    pub fn new(worker: &mut Worker, point: &Arc<TestPoint>) -> Self {
        let mut input = InputSession::new();
        let dataflow = worker.next_dataflow_index();
        let publisher = worker.dataflow(|scope| {
            let arranged = arrange(input.to_collection(scope), "Maintained");
            Publisher::attach(&arranged, Arc::clone(point))
        });
        Maintained { input, publisher, history: Vec::new(), dataflow }
    }

    /// Makes an update at the current time.
    pub fn update(&mut self, key: u64, val: u64, diff: i64) {
        let time = *self.input.time();
        self.input.update((key, val), diff);
        self.history.push(((key, val), time, diff));
    }

    /// A busy round: one pair comes, one that came before goes, and one changes its value.
    pub fn round(&mut self) {
        let time = *self.input.time();
        self.update(time % 5, time, 1);
        if time >= 3 {
            self.update((time - 3) % 5, time - 3, -1);
        }
        self.update(100, time, 1);
        if time >= 1 {
            self.update(100, time - 1, -1);
        }
    }

    /// Seals everything before `time`, and steps until that is published.
    pub fn seal(&mut self, worker: &mut Worker, time: u64) {
        self.input.advance_to(time);
        self.input.flush();
        while *self.publisher.point().load().upper() != at(time) {
            worker.step();
        }
    }

    /// Busy rounds up to `time`, each sealed.
    pub fn rounds(&mut self, worker: &mut Worker, time: u64) {
        while *self.input.time() < time {
            self.round();
            let next = *self.input.time() + 1;
            self.seal(worker, next);
        }
    }

    /// Allows compaction, lets the trace do what it is allowed, and publishes what came of it.
    pub fn compact(&self, worker: &mut Worker, time: u64) {
        self.publisher.allow_compaction(&at(time));
        self.publisher.tick();
        worker.step();
        self.publisher.tick();
    }
}

/// The contents at `time`.
pub fn contents(history: &[Update], time: u64) -> BTreeMap<(u64, u64), i64> {
    let mut contents = BTreeMap::new();
    for (pair, _, diff) in history.iter().filter(|(_, moment, _)| *moment <= time) {
        *contents.entry(*pair).or_insert(0) += diff;
    }
    contents.retain(|_, diff| *diff != 0);
    contents
}

/// The contents of a point at `time`, by a snapshot walked in slices.
pub fn read(point: &TestPoint, time: u64) -> BTreeMap<(u64, u64), i64> {
    let mut walk = point.snapshot_at(&time).unwrap_or_else(|e| panic!("{time}: {e}")).walk(None);
    let mut rows = BTreeMap::new();
    while !walk.step(&mut 3, |key, val, diff| {
        assert!(rows.insert((*key, *val), diff).is_none(), "a pair is reported once");
    }) {}
    rows
}

/// Steps long enough for whatever is not waiting for something to have happened.
pub fn step_some(worker: &mut Worker) {
    for _ in 0..10 {
        worker.step();
    }
}

/// Steps until `done`.
pub fn step_until(worker: &mut Worker, mut done: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if done() {
            return;
        }
        worker.step();
    }
    panic!("stepping does not lead there");
}

/// Surroundings that count batches and merge slices, and keep events.
#[derive(Default)]
pub struct Counting {
    pub live_updates: Cell<i64>,
    pub live_batches: Cell<i64>,
    pub merge_points: Cell<usize>,
    pub walked: Cell<usize>,
    /// Called at each point.
    #[allow(clippy::type_complexity, reason = "a test hook")]
    pub hook: RefCell<Option<Box<dyn Fn(env::Point)>>>,
    pub events: RefCell<Vec<Event>>,
}

impl Counting {
    pub fn install() -> (Rc<Self>, env::Installed) {
        let counting = Rc::new(Counting::default());
        (Rc::clone(&counting), env::install(counting))
    }

    pub fn saw(&self, matches: impl Fn(&Event) -> bool) -> bool {
        self.events.borrow().iter().any(matches)
    }
}

impl Surroundings for Counting {
    fn point(&self, point: env::Point) {
        match point {
            env::Point::Merge { .. } => self.merge_points.set(self.merge_points.get() + 1),
            env::Point::Walked(positions) => self.walked.set(self.walked.get() + positions),
            _ => {}
        }
        // Taken out while it runs: what it does may lead here again.
        let hook = self.hook.take();
        if let Some(hook) = &hook {
            hook(point);
        }
        self.hook.replace(hook);
    }
    fn begin(&self, _: Activity) {}
    fn end(&self, _: Activity) {}
    fn event(&self, event: Event) {
        let count = match event {
            Event::BatchAllocated { updates } => (1, updates as i64),
            Event::BatchFreed { updates } => (-1, -(updates as i64)),
            _ => (0, 0),
        };
        self.live_batches.set(self.live_batches.get() + count.0);
        self.live_updates.set(self.live_updates.get() + count.1);
        self.events.borrow_mut().push(event);
    }
    fn current(&self) -> u64 {
        0
    }
    fn park(&self) {}
    fn unpark(&self, _: u64) {}
    fn blocked(&self, lock: LockKey) {
        panic!("one thread cannot wait for itself on {}", lock.name);
    }
    fn locked(&self, _: LockKey) {}
    fn unlocked(&self, _: LockKey) {}
}
