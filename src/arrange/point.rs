//! Where one worker publishes one arrangement.
//!
//! A [`Point`] holds the current [`View`]. Loading it takes no lock, copies one `Arc` and never
//! waits for the publisher; the publisher swaps views and never waits for readers. Either side may
//! create the point: a reader that comes first makes a *placeholder*, which the publisher later
//! adopts, so that everyone who waits on it is served (H11).
//!
//! # Waiting
//!
//! A reader that finds its time not readable yet [registers](Point::register) a waker and then
//! *looks again*. The publisher swaps the view and then looks whether anyone waits. Each side
//! writes first and reads the other's write second, with a sequentially consistent fence between,
//! so that at least one of them sees the other (H9). A registration lasts until the next
//! publication; whoever is woken too early looks, and registers anew.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Waker;

use arc_swap::ArcSwap;
use timely::progress::Antichain;

use super::batch::{SharedData, SharedDiff, SharedTime};
use super::view::{State, View};
use crate::env::sync::{Mutex, MutexGuard};
use crate::env::{self, Event, PartName};
use crate::repr::Frontier;

/// Where one worker publishes one arrangement, and readers on any thread find its current view.
pub struct Point<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    name: PartName,
    placeholder: bool,
    attached: AtomicBool,
    view: ArcSwap<View<K, V, T, R>>,
    /// Whether `waiters` may hold any, so that publishing takes the lock only then. Written under
    /// the lock.
    waiting: AtomicBool,
    waiters: Mutex<Vec<Waker>>,
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> Point<K, V, T, R> {
    /// A point that its publisher creates.
    pub fn new(name: PartName) -> Self {
        Point {
            name,
            placeholder: false,
            attached: AtomicBool::new(false),
            view: ArcSwap::from_pointee(View::unbacked()),
            waiting: AtomicBool::new(false),
            waiters: Mutex::new("point", Vec::new()),
        }
    }

    /// A point that a reader creates before its publisher has come.
    pub fn placeholder(name: PartName) -> Self {
        env::event(|| Event::PlaceholderCreated { part: name });
        Point { placeholder: true, ..Point::new(name) }
    }

    /// What is published here.
    pub fn name(&self) -> PartName {
        self.name
    }

    /// Whether it has, or had, a publisher.
    pub fn is_adopted(&self) -> bool {
        self.attached.load(Ordering::SeqCst)
    }

    /// The current view.
    pub fn load(&self) -> Arc<View<K, V, T, R>> {
        env::point(env::Point::Load);
        self.view.load_full()
    }

    /// Has `waker` woken by the next publication. Look again after this: that publication may be
    /// over.
    pub fn register(&self, waker: &Waker) {
        let mut waiters = self.waiters.lock();
        if !waiters.iter().any(|waiter| waiter.will_wake(waker)) {
            waiters.push(waker.clone());
        }
        self.waiting.store(true, Ordering::SeqCst);
        drop(waiters);
        fence(Ordering::SeqCst);
    }

    /// Takes back a registration, if it still stands: for readers that leave without having been
    /// served (H17).
    pub fn forget(&self, waker: &Waker) {
        let mut waiters = self.waiters.lock();
        waiters.retain(|waiter| !waiter.will_wake(waker));
        self.waiting.store(!waiters.is_empty(), Ordering::SeqCst);
    }

    /// How many wait for the next publication.
    pub fn waiters(&self) -> usize {
        self.waiters.lock().len()
    }

    /// Marks the point as having a publisher.
    ///
    /// # Panics
    /// If it has, or had, one: a successor of the same name gets a point of its own.
    pub(super) fn adopt(&self) {
        let before = self.attached.swap(true, Ordering::SeqCst);
        assert!(!before, "{:?} has a publisher already", self.name);
        env::event(|| Event::Attached { part: self.name, adopted: self.placeholder });
    }

    /// Swaps in a view, then wakes whoever waits.
    pub(super) fn publish(&self, view: Arc<View<K, V, T, R>>) {
        env::point(env::Point::Swap);
        self.report(&view);
        self.view.store(view);
        env::point(env::Point::Swapped);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// The lock that registrations take.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiters.lock()
    }

    fn wake(&self) {
        // Taking the waiters and clearing the flag are one step, so that a registration falls
        // before both or after both.
        let woken = {
            let mut waiters = self.waiters.lock();
            self.waiting.store(false, Ordering::SeqCst);
            std::mem::take(&mut *waiters)
        };
        woken.into_iter().for_each(Waker::wake);
    }

    fn report(&self, view: &View<K, V, T, R>) {
        if !env::listening() {
            return;
        }
        if view.state() == State::Closed {
            env::event(|| Event::Closed { part: self.name });
        } else if let (Some(since), Some(upper)) = (known(view.since()), known(view.upper())) {
            let spans = view.chain().len();
            env::event(|| Event::Published { part: self.name, since, upper, spans });
        }
    }
}

/// A frontier as events carry it, when its times are the system's.
pub(super) fn known<T: 'static>(frontier: &Antichain<T>) -> Option<Frontier> {
    (frontier as &dyn Any).downcast_ref::<Frontier>().cloned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::super::testing::{TestPoint, name};
    use super::*;

    #[derive(Default)]
    struct Alarm(AtomicUsize);

    impl Wake for Alarm {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_publication_wakes_each_waiter_once() {
        let point = TestPoint::new(name(1));
        let (one, two) = (Arc::new(Alarm::default()), Arc::new(Alarm::default()));
        let wakers = [Waker::from(Arc::clone(&one)), Waker::from(Arc::clone(&two))];
        point.register(&wakers[0]);
        point.register(&wakers[0].clone());
        point.register(&wakers[1]);
        assert_eq!(point.waiters(), 2);
        point.publish(Arc::new(View::unbacked()));
        point.publish(Arc::new(View::unbacked()));
        assert_eq!((one.0.load(Ordering::SeqCst), two.0.load(Ordering::SeqCst)), (1, 1));
    }

    #[test]
    fn who_takes_back_a_registration_is_not_woken_and_others_are() {
        let point = TestPoint::new(name(1));
        let (one, two) = (Arc::new(Alarm::default()), Arc::new(Alarm::default()));
        let wakers = [Waker::from(Arc::clone(&one)), Waker::from(Arc::clone(&two))];
        wakers.iter().for_each(|waker| point.register(waker));
        point.forget(&wakers[0]);
        point.publish(Arc::new(View::unbacked()));
        assert_eq!((one.0.load(Ordering::SeqCst), two.0.load(Ordering::SeqCst)), (0, 1));
    }

    #[test]
    fn a_waiter_that_looks_again_after_registering_misses_no_publication() {
        // Each round the reader waits for a closed view, which the writer publishes once. A lost
        // wakeup leaves the reader parked for ever.
        let mut waited = 0;
        for _ in 0..2000 {
            let point = TestPoint::new(name(1));
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| point.publish(Arc::new(View::closed())));
                let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                while point.load().state() != State::Closed {
                    point.register(&waker);
                    if point.load().state() == State::Closed {
                        break;
                    }
                    waited += 1;
                    std::thread::park();
                }
                writer.join().expect("publishing does not panic");
            });
        }
        assert!(waited > 0, "no round ever waited");
    }

    struct Unpark(std::thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[test]
    #[should_panic(expected = "has a publisher already")]
    fn a_point_has_one_publisher_ever() {
        let point = TestPoint::new(name(1));
        point.adopt();
        point.adopt();
    }
}
