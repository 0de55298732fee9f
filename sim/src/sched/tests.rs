//! What the scheduler promises. Families: determinism and replay; legality of every list; locks,
//! parking and deadlock; clocks, stalls and starvation; panics, kills and leaks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rand_core::RngCore;
use tandem::env::sync::Mutex;
use tandem::env::{self, Activity, Event, Point, Unparker};

use super::strategy::{Random, Starvation};
use super::*;
use crate::rng::Streams;

/// Keeps what it is shown.
#[derive(Default)]
struct Diary {
    blocked: RefCell<Vec<Blocked>>,
    switches: RefCell<Vec<(u64, ThreadId)>>,
    stalled: RefCell<Vec<(u64, ThreadId, u64)>>,
    events: RefCell<Vec<(u64, ThreadId, Event)>>,
    ended: RefCell<Vec<ThreadId>>,
    parked: RefCell<Vec<ThreadId>>,
}

impl Observer for Diary {
    fn event(&self, now_ns: u64, thread: ThreadId, event: &Event) {
        self.events.borrow_mut().push((now_ns, thread, event.clone()));
    }
    fn switch(&self, now_ns: u64, _from: ThreadId, to: ThreadId) {
        self.switches.borrow_mut().push((now_ns, to));
    }
    fn parked(&self, _now_ns: u64, thread: ThreadId) {
        self.parked.borrow_mut().push(thread);
    }
    fn blocked(&self, _now_ns: u64, blocked: &Blocked) {
        self.blocked.borrow_mut().push(blocked.clone());
    }
    fn stalled(&self, now_ns: u64, thread: ThreadId, stall_ns: u64) {
        self.stalled.borrow_mut().push((now_ns, thread, stall_ns));
    }
    fn ended(&self, _now_ns: u64, thread: ThreadId) {
        self.ended.borrow_mut().push(thread);
    }
}

fn world(source: impl Source + 'static) -> (Scheduler, Rc<Diary>) {
    let diary = Rc::new(Diary::default());
    let scheduler = Scheduler::new(Config::default(), Box::new(source), diary.clone());
    (scheduler, diary)
}

fn calm() -> Recorded {
    Recorded::new(Vec::new())
}

fn uniform(seed: u64) -> Seeded<Random> {
    Seeded::new(Streams::new(seed).stream("schedule"), Random::uniform())
}

fn eager(seed: u64) -> Seeded<Random> {
    Seeded::new(Streams::new(seed).stream("schedule"), Random::default().with_stalls(1 << 16))
}

/// Threads that hand a counter to each other under a lock, preempted inside it, and park between.
/// Returns hash, decisions and the final count.
fn bustle(source: impl Source + 'static) -> (u64, Vec<u32>, u64) {
    let (scheduler, _) = world(source);
    let _installed = scheduler.install();
    let count = Rc::new(Mutex::new("count", 0));
    let peers = Rc::new(RefCell::new(Vec::<Unparker>::new()));
    for index in 0..4 {
        let (count, peers) = (Rc::clone(&count), Rc::clone(&peers));
        scheduler.spawn(format!("worker {index}"), index, move || {
            peers.borrow_mut().push(Unparker::current());
            for round in 0..20 {
                let mut guard = count.lock();
                let before = *guard;
                env::point(Point::Merge { updates: 10 });
                *guard = before + 1;
                drop(guard);
                env::event(|| Event::BatchFreed { updates: round });
                let wakes = peers.borrow().clone();
                wakes.iter().for_each(Unparker::unpark);
                env::park();
            }
        });
    }
    // Whoever parks last of all is woken by the driver.
    while !scheduler.threads().is_empty() {
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        for thread in scheduler.threads() {
            scheduler.unpark_at(thread, scheduler.now_ns());
        }
    }
    let count = *count.lock();
    (scheduler.hash(), scheduler.decisions(), count)
}

#[test]
fn one_seed_gives_one_hash_and_one_log() {
    let first = bustle(eager(3));
    assert_eq!(first, bustle(eager(3)));
    assert_ne!(first.0, bustle(eager(4)).0);
    assert!(first.1.iter().any(|decision| *decision != 0), "nothing was decided");
}

#[test]
fn a_recorded_log_replays_to_the_same_hash() {
    for seed in 0..20 {
        let (hash, decisions, count) = bustle(eager(seed));
        assert_eq!(bustle(Recorded::new(decisions.clone())), (hash, decisions, count));
    }
}

#[test]
fn every_list_is_legal_and_so_is_every_beginning_of_it() {
    let mut random = Streams::new(1).stream("lists");
    for _ in 0..50 {
        let mut list: Vec<u32> = (0..random.next_u32() % 300)
            .map(|_| match random.next_u32() % 4 {
                0 => random.next_u32(),
                _ => random.next_u32() % 8,
            })
            .collect();
        assert_eq!(bustle(Recorded::new(list.clone())).2, 80);
        list.truncate(list.len() / 2);
        assert_eq!(bustle(Recorded::new(list.clone())).2, 80);
        let bytes = list.iter().map(|number| *number as u8).collect();
        assert_eq!(bustle(Bytes::new(bytes)).2, 80);
    }
}

#[test]
fn past_the_end_of_a_list_only_calm_choices_are_made() {
    let (_, decisions, _) = bustle(Recorded::new(vec![1, 2, 3]));
    assert!(decisions.len() > 100);
    assert!(decisions[3..].iter().all(|decision| *decision == 0));
}

#[test]
fn a_lock_excludes_under_preemption_and_blocking_is_seen() {
    let mut blocked = 0;
    for seed in 0..50 {
        let (scheduler, diary) = world(uniform(seed));
        let _installed = scheduler.install();
        let lock = Rc::new(Mutex::new("account", 0));
        let inside = Rc::new(Cell::new(false));
        for index in 0..3 {
            let (lock, inside) = (Rc::clone(&lock), Rc::clone(&inside));
            scheduler.spawn(format!("teller {index}"), 0, move || {
                for _ in 0..10 {
                    let mut account = lock.lock();
                    assert!(!inside.replace(true), "two at once");
                    let _merging = env::enter(Activity::Merge);
                    env::point(Point::Records(1));
                    *account += 1;
                    inside.set(false);
                }
            });
        }
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        assert_eq!(*lock.lock(), 30);
        let seen = diary.blocked.borrow();
        for block in seen.iter() {
            assert_eq!(block.lock, "account");
            assert!(block.holder.is_some_and(|holder| holder != block.waiter));
        }
        blocked += seen.iter().filter(|it| it.holder_activities == [Activity::Merge]).count();
    }
    assert!(blocked > 0, "nobody was ever blocked by a merge: nothing was tested");
}

#[test]
fn no_wakeup_is_lost_however_early() {
    // Runs in which the wake came between the sleeper's look at the flag and its sleep, and runs in
    // which it slept.
    let (early, late) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for seed in 0..200 {
        let (scheduler, diary) = world(uniform(seed));
        let _installed = scheduler.install();
        let (flag, looked) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let (flag_seen, has_looked) = (Rc::clone(&flag), Rc::clone(&looked));
        let sleeper = scheduler.spawn("sleeper".to_string(), 0, move || {
            while !flag_seen.get() {
                has_looked.set(true);
                env::point(Point::Turn);
                env::park();
            }
        });
        let surroundings = scheduler.surroundings();
        let (early, late, parked) = (Rc::clone(&early), Rc::clone(&late), diary);
        scheduler.spawn("waker".to_string(), 0, move || {
            env::point(Point::Turn);
            flag.set(true);
            surroundings.unpark(sleeper.0);
            let asleep = !parked.parked.borrow().is_empty();
            let counter = if asleep { late } else { early };
            counter.set(counter.get() + u32::from(looked.get()));
        });
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        assert!(scheduler.threads().is_empty(), "seed {seed}: the sleeper sleeps on");
    }
    assert!(early.get() > 10 && late.get() > 10, "{} early, {} late", early.get(), late.get());
}

#[test]
fn an_unpark_before_the_park_lets_it_return_at_once_and_only_once() {
    let (scheduler, _) = world(calm());
    let _installed = scheduler.install();
    let returns = Rc::new(Cell::new(0));
    let counted = Rc::clone(&returns);
    let thread = scheduler.spawn("sleeper".to_string(), 0, move || {
        Unparker::current().unpark();
        Unparker::current().unpark();
        for _ in 0..2 {
            env::park();
            counted.set(counted.get() + 1);
        }
    });
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    assert_eq!(returns.get(), 1);
    assert!(scheduler.is_parked(thread));
    scheduler.unpark_at(thread, 1_000_000);
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    assert_eq!(returns.get(), 2);
    assert!(scheduler.now_ns() >= 1_000_000);
}

#[test]
fn a_deadlock_says_who_waits_for_what_held_by_whom() {
    let mut deadlocks = 0;
    for seed in 0..50 {
        let (scheduler, _) = world(uniform(seed));
        let _installed = scheduler.install();
        let locks = Rc::new([Mutex::new("fork", ()), Mutex::new("knife", ())]);
        for index in 0..2 {
            let locks = Rc::clone(&locks);
            scheduler.spawn(format!("diner {index}"), 0, move || {
                let _walking = env::enter(Activity::Tick);
                let _first = locks[index].lock();
                let _second = locks[1 - index].lock();
            });
        }
        match scheduler.run_until(u64::MAX) {
            Outcome::Idle => (),
            Outcome::Deadlock(deadlock) => {
                deadlocks += 1;
                assert_eq!(deadlock.blocked.len(), 2);
                assert_eq!(deadlock.blocked[0].lock, "knife");
                assert_eq!(deadlock.blocked[0].holder, Some(ThreadId(1)));
                assert_eq!(
                    deadlock.to_string(),
                    "thread 0 waits for \"knife\" held by thread 1 in the tick; \
                     thread 1 waits for \"fork\" held by thread 0 in the tick"
                );
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(deadlocks > 0 && deadlocks < 50, "{deadlocks} of 50 runs were deadlocks");
}

/// Spawns a thread that reaches `points` points of one turn each and notes its clock at each.
fn walker(scheduler: &Scheduler, group: u32, points: usize) -> (ThreadId, Rc<RefCell<Vec<u64>>>) {
    let times = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&times);
    let thread = scheduler.spawn(format!("walker in {group}"), group, move || {
        for round in 0..points {
            env::point(Point::Turn);
            env::event(|| Event::BatchFreed { updates: round });
            noted.borrow_mut().push(round as u64);
        }
    });
    (thread, times)
}

#[test]
fn a_stalled_thread_waits_until_the_others_have_passed() {
    for seed in 0..20 {
        let (scheduler, diary) = world(uniform(seed));
        let _installed = scheduler.install();
        let (stalled, _) = walker(&scheduler, 0, 100);
        let (other, _) = walker(&scheduler, 1, 20_000);
        scheduler.stall(Whom::Thread(stalled), 0, 1_000_000);
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        let events = diary.events.borrow();
        let first = events.iter().position(|(_, thread, _)| *thread == stalled);
        let first = first.expect("the stalled thread ran in the end");
        let passed = &events[..first];
        assert!(passed.iter().all(|(_, thread, _)| *thread == other));
        let (clock_ns, ..) = *passed.last().expect("the other ran before");
        assert!(clock_ns >= 1_000_000 - Config::default().skew_ns, "only at {clock_ns}");
        assert!(events[first].0 >= 1_000_000);
    }
}

#[test]
fn ready_threads_never_drift_apart_by_more_than_the_skew() {
    let (scheduler, diary) = world(Seeded::new(
        Streams::new(5).stream("schedule"),
        Random::default().with_switch(Kind::Turn, 1),
    ));
    let _installed = scheduler.install();
    walker(&scheduler, 0, 20_000);
    walker(&scheduler, 1, 20_000);
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    let mut clocks = [0_u64; 2];
    let mut apart = 0;
    for (now_ns, thread, _) in diary.events.borrow().iter() {
        clocks[thread.0 as usize] = *now_ns;
        if *now_ns < 1_000_000 {
            apart = apart.max(clocks[0].abs_diff(clocks[1]));
        }
    }
    let skew_ns = Config::default().skew_ns;
    assert!(apart > skew_ns / 2, "they kept close by themselves: {apart}");
    assert!(apart <= skew_ns + 2 * CostModel::default().turn_ns, "{apart}");
}

#[test]
fn the_limit_ends_a_run_and_the_next_goes_on() {
    let (scheduler, _) = world(uniform(1));
    let _installed = scheduler.install();
    let (thread, times) = walker(&scheduler, 0, 100);
    let Outcome::Limit { next_ns } = scheduler.run_until(5_000) else { panic!("no limit") };
    assert!(next_ns > 5_000 && next_ns <= 5_000 + CostModel::default().turn_ns);
    assert_eq!(scheduler.clock_ns(thread), Some(next_ns));
    assert!(times.borrow().len() >= 49);
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    assert_eq!(times.borrow().len(), 100);
}

#[test]
fn starvation_starves() {
    let mut windows = 0;
    for seed in 0..20 {
        let strategy = Starvation::new(Random::uniform(), 100_000, 5_000_000);
        let source = Seeded::new(Streams::new(seed).stream("schedule"), strategy);
        let (scheduler, diary) = world(source);
        let _installed = scheduler.install();
        walker(&scheduler, 0, 20_000);
        walker(&scheduler, 1, 20_000);
        walker(&scheduler, 1, 20_000);
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        let mut times = [const { Vec::new() }; 3];
        for (now_ns, thread, _) in diary.events.borrow().iter() {
            times[thread.0 as usize].push(*now_ns);
        }
        for (from_ns, victim, stall_ns) in diary.stalled.borrow().iter() {
            // The times of one thread are ordered.
            let inside = |thread: usize| {
                let before = times[thread].partition_point(|time| time <= from_ns);
                times[thread].partition_point(|time| *time < from_ns + stall_ns) - before
            };
            assert_eq!(inside(victim.0 as usize), 0, "the victim ran");
            windows += u32::from((0..3).map(inside).sum::<usize>() > 1000);
        }
    }
    assert!(windows > 20, "others ran through only {windows} windows");
}

#[test]
fn a_wake_never_moves_a_clock_back_and_never_ends_a_stall() {
    let (scheduler, _) = world(calm());
    let thread = scheduler.spawn("sleeper".to_string(), 0, || {
        env::point(Point::Records(100_000));
        env::park();
        env::park();
    });
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    let slept_ns = scheduler.clock_ns(thread).expect("it lives");
    assert!(slept_ns > 5_000_000);
    scheduler.unpark_at(thread, 1_000);
    assert_eq!(scheduler.clock_ns(thread), Some(slept_ns));
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);

    assert!(scheduler.is_parked(thread));
    scheduler.stall(Whom::Group(0), 10_000_000, 3_000_000);
    scheduler.unpark_at(thread, 11_000_000);
    assert_eq!(scheduler.clock_ns(thread), Some(13_000_000));
}

#[test]
fn a_wake_announced_for_later_is_not_taken_before() {
    let (scheduler, diary) = world(calm());
    let thread = scheduler.spawn("sleeper".to_string(), 0, || {
        env::park();
        env::event(|| Event::BatchFreed { updates: 1 });
    });
    scheduler.unpark_at(thread, 5_000_000);
    assert!(matches!(scheduler.run_until(4_000_000), Outcome::Limit { next_ns: 5_000_000 }));
    assert!(diary.events.borrow().is_empty());
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    assert_eq!(diary.events.borrow()[0].0, 5_000_000);
}

#[test]
fn of_several_wakes_the_earliest_counts() {
    let (scheduler, _) = world(calm());
    let wake_ns = CostModel::default().wake_ns;
    let thread = scheduler.spawn("sleeper".to_string(), 0, env::park);
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    scheduler.unpark_at(thread, 9_000_000);
    assert_eq!(scheduler.clock_ns(thread), Some(9_000_000 + wake_ns));
    scheduler.unpark_at(thread, 2_000_000);
    scheduler.unpark_at(thread, 5_000_000);
    assert_eq!(scheduler.clock_ns(thread), Some(2_000_000 + wake_ns));
}

#[test]
fn who_waited_for_a_lock_has_waited_until_its_release() {
    let (scheduler, diary) = world(calm());
    let lock = Rc::new(Mutex::new("shared", ()));
    for records in [100_000, 1] {
        let lock = Rc::clone(&lock);
        scheduler.spawn(format!("holder for {records}"), 0, move || {
            let _guard = lock.lock();
            env::point(Point::Records(records));
            env::event(|| Event::BatchFreed { updates: records });
        });
    }
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    assert_eq!(diary.blocked.borrow().len(), 1);
    let times: Vec<_> = diary.events.borrow().iter().map(|event| event.0).collect();
    let held_ns = 100_000 * CostModel::default().record_ns;
    assert!(times[0] >= held_ns && times[1] > times[0], "{times:?}");
}

#[test]
fn the_hash_covers_what_events_say() {
    let hash = |updates| {
        let (scheduler, _) = world(calm());
        scheduler.spawn("teller".to_string(), 0, move || {
            env::event(|| Event::BatchFreed { updates });
        });
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        scheduler.hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

/// Threads that add one without a lock, preemptible between reading and writing. Says whether an
/// update was lost.
fn loses_an_update(source: impl Source + 'static, threads: u32) -> bool {
    let (scheduler, _) = world(source);
    let _installed = scheduler.install();
    let count = Rc::new(Cell::new(0));
    for index in 0..threads {
        let count = Rc::clone(&count);
        scheduler.spawn(format!("adder {index}"), 0, move || {
            let read = count.get();
            env::point(Point::Load);
            count.set(read + 1);
        });
    }
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    count.get() != threads
}

#[test]
fn the_explorer_tries_each_schedule_once_and_keeps_to_its_preemptions() {
    let explore = |preemptions, threads| {
        let mut explorer = explore::Explorer::new(preemptions);
        let mut lost = 0;
        while let Some(source) = explorer.next_source() {
            let (counted, counts) = Counted::new(source);
            lost += u32::from(loses_an_update(counted, threads));
            assert!(counts.get().preemptions <= u64::from(preemptions));
        }
        (explorer.schedules(), lost)
    };
    // Without preemptions: the orders of the threads.
    assert_eq!(explore(0, 2), (2, 0));
    assert_eq!(explore(0, 3), (6, 0));
    // Two threads of two stages interleave in 4! / (2! 2!) ways, of which 2 do not overlap.
    assert_eq!(explore(9, 2), (6, 4));
    // Three: 6! / (2! 2! 2!) ways, of which 3! do not overlap.
    assert_eq!(explore(9, 3), (90, 84));
}

#[test]
fn priorities_alone_never_preempt_and_one_change_finds_a_lost_update() {
    let mut found = [0; 2];
    for seed in 0..100 {
        for (changes, found) in found.iter_mut().enumerate() {
            let strategy = strategy::Pct::new(changes as u32, 4);
            let source = Seeded::new(Streams::new(seed).stream("schedule"), strategy);
            let (counted, counts) = Counted::new(source);
            *found += u32::from(loses_an_update(counted, 2));
            assert!(counts.get().preemptions <= changes as u64);
        }
    }
    assert_eq!(found[0], 0);
    assert!(found[1] > 20, "found {} times in 100", found[1]);
}

#[test]
fn slow_merges_cost_more_and_other_work_does_not() {
    let time = |factor| {
        let (scheduler, _) = world(calm());
        let _installed = scheduler.install();
        scheduler.spawn("merger".to_string(), 7, || {
            env::point(Point::Merge { updates: 1000 });
            env::point(Point::Records(1));
        });
        scheduler.set_slow(Whom::Group(7), factor);
        scheduler.run_until(u64::MAX);
        scheduler.now_ns()
    };
    let each_ns = CostModel::default().merged_update_ns;
    assert_eq!(time(1), 1000 * each_ns + CostModel::default().record_ns);
    assert_eq!(time(10) - time(1), 9 * 1000 * each_ns);
}

#[test]
fn a_panic_is_reported_and_the_others_go_on() {
    let (scheduler, diary) = world(calm());
    let _installed = scheduler.install();
    let lock = Rc::new(Mutex::new("shared", 1));
    let held = Rc::clone(&lock);
    let thread = scheduler.spawn("unlucky".to_string(), 0, move || {
        let _guard = held.lock();
        panic!("lost {}", "everything");
    });
    let (other, times) = walker(&scheduler, 0, 10);
    let Outcome::Panicked(panicked) = scheduler.run_until(u64::MAX) else { panic!("no panic") };
    assert_eq!((panicked.thread, panicked.name.as_str()), (thread, "unlucky"));
    assert!(panicked.message.starts_with("lost everything, at "), "{}", panicked.message);
    assert!(panicked.message.contains("tests.rs"));
    assert_eq!(scheduler.threads(), [other]);
    assert_eq!(*lock.lock(), 1);
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    assert_eq!(times.borrow().len(), 10);
    assert_eq!(*diary.ended.borrow(), [thread, other]);
}

/// Counts itself among the living.
struct Living(Rc<Cell<i64>>);

impl Living {
    fn new(alive: &Rc<Cell<i64>>) -> Self {
        alive.set(alive.get() + 1);
        Living(Rc::clone(alive))
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[test]
fn kill_drops_everything_and_releases_locks() {
    let (scheduler, _) = world(calm());
    let _installed = scheduler.install();
    let alive = Rc::new(Cell::new(0));
    let lock = Rc::new(Mutex::new("shared", 0));
    let threads: Vec<_> = (0..3)
        .map(|index| {
            let (lock, captured) = (Rc::clone(&lock), Living::new(&alive));
            scheduler.spawn(format!("doomed {index}"), 0, move || {
                let _captured = captured;
                let _local = Living::new(&_captured.0);
                let _guard = (index == 0).then(|| lock.lock());
                env::park();
            })
        })
        .collect();
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    let (unstarted, captured) = (Living::new(&alive), Living::new(&alive));
    let late = scheduler.spawn("never started".to_string(), 0, move || drop(captured));
    assert_eq!(alive.get(), 8);
    scheduler.kill(&[threads[0], threads[1], late]);
    assert_eq!(alive.get(), 3);
    assert_eq!(*lock.lock(), 0);
    assert_eq!(scheduler.threads(), [threads[2]]);
    drop(scheduler);
    assert_eq!(alive.get(), 1);
    drop(unstarted);
}

#[test]
fn a_destructor_that_needs_a_lock_of_another_killed_thread_gets_it() {
    struct Deregisters(Rc<Mutex<Vec<u32>>>);
    impl Drop for Deregisters {
        fn drop(&mut self) {
            self.0.lock().clear();
        }
    }
    let (scheduler, _) = world(calm());
    let _installed = scheduler.install();
    let registry = Rc::new(Mutex::new("registry", vec![1]));
    let registered = Deregisters(Rc::clone(&registry));
    let reader = scheduler.spawn("reader".to_string(), 0, move || {
        let _registered = registered;
        env::park();
    });
    let held = Rc::clone(&registry);
    let writer = scheduler.spawn("writer".to_string(), 0, move || {
        let _guard = held.lock();
        env::park();
    });
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    scheduler.kill(&[reader, writer]);
    assert!(registry.lock().is_empty());
    assert!(scheduler.threads().is_empty());
}

#[test]
fn a_thread_that_never_began_is_dropped_without_a_switch() {
    struct Locks(Rc<Mutex<u32>>);
    impl Drop for Locks {
        fn drop(&mut self) {
            *self.0.lock() += 1;
            env::park();
        }
    }
    // A list of choices that leaves at every point, if there were any.
    let (scheduler, _) = world(Recorded::new(vec![1; 100]));
    let _installed = scheduler.install();
    let (lock, ran) = (Rc::new(Mutex::new("shared", 0)), Rc::new(Cell::new(false)));
    let has_run = Rc::clone(&ran);
    scheduler.spawn("other".to_string(), 0, move || has_run.set(true));
    let captured = Locks(Rc::clone(&lock));
    let thread = scheduler.spawn("never began".to_string(), 0, move || drop(captured));
    scheduler.kill(&[thread]);
    assert_eq!(*lock.lock(), 1);
    assert!(!ran.get() && scheduler.decisions().is_empty());
}

#[test]
fn a_destructor_of_a_panicking_thread_gets_the_lock_of_a_suspended_one() {
    struct Locks(Rc<Mutex<u32>>);
    impl Drop for Locks {
        fn drop(&mut self) {
            *self.0.lock() += 1;
        }
    }
    let (scheduler, _) = world(calm());
    let _installed = scheduler.install();
    let lock = Rc::new(Mutex::new("shared", 0));
    let held = Rc::clone(&lock);
    let holder = scheduler.spawn("holder".to_string(), 0, move || {
        let _guard = held.lock();
        env::park();
    });
    let locks = Locks(Rc::clone(&lock));
    let unlucky = scheduler.spawn("unlucky".to_string(), 0, move || {
        let _locks = locks;
        env::point(Point::Turn);
        panic!("at last");
    });
    let outcome = scheduler.run_until(u64::MAX);
    let Outcome::Panicked(panicked) = outcome else { panic!("{outcome:?}") };
    assert_eq!(panicked.thread, unlucky);
    assert!(!scheduler.threads().contains(&holder), "the holder shares the fate");
    assert_eq!(*lock.lock(), 1);
}

#[test]
fn the_driver_is_told_when_it_is_unparked() {
    let (scheduler, _) = world(calm());
    let _installed = scheduler.install();
    let surroundings = scheduler.surroundings();
    let done = Rc::new(Cell::new(false));
    let finished = Rc::clone(&done);
    scheduler.spawn("teller".to_string(), 0, move || {
        env::point(Point::Turn);
        surroundings.unpark(DRIVER.0);
        env::point(Point::Turn);
        finished.set(true);
    });
    let turn_ns = CostModel::default().turn_ns;
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Interrupted { at_ns: turn_ns });
    assert!(!done.get());
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    assert!(done.get());
}

#[test]
fn after_an_interruption_the_calm_choice_is_to_go_on_where_it_was() {
    // The second list first leaves the interrupting thread's predecessor for it, at a point.
    for (list, expected) in [(vec![], [0, 1]), (vec![0, 1], [1, 0])] {
        let (scheduler, diary) = world(Recorded::new(list));
        let _installed = scheduler.install();
        for index in 0..2 {
            scheduler.spawn(format!("teller {index}"), 0, move || {
                env::point(Point::Turn);
                if expected[0] == index {
                    env::surroundings().expect("installed").unpark(DRIVER.0);
                    env::point(Point::Turn);
                }
                env::event(|| Event::BatchFreed { updates: index });
            });
        }
        assert!(matches!(scheduler.run_until(u64::MAX), Outcome::Interrupted { .. }));
        assert!(diary.events.borrow().is_empty());
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        let order: Vec<_> = diary.events.borrow().iter().map(|event| event.1.0 as usize).collect();
        assert_eq!(order, expected);
    }
}

#[test]
fn a_thread_stalled_while_it_waits_for_a_lock_stays_stalled_when_it_gets_it() {
    for seed in 0..20 {
        let (scheduler, diary) = world(uniform(seed));
        let _installed = scheduler.install();
        let lock = Rc::new(Mutex::new("shared", ()));
        let its = Rc::clone(&lock);
        let holder = scheduler.spawn("holder".to_string(), 0, move || {
            let guard = its.lock();
            env::park();
            drop(guard);
            for _ in 0..20_000 {
                env::point(Point::Turn);
                env::event(|| Event::BatchFreed { updates: 0 });
            }
        });
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        let waiter = scheduler.spawn("waiter".to_string(), 0, move || {
            let _guard = lock.lock();
            env::event(|| Event::BatchFreed { updates: 1 });
        });
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        assert_eq!(scheduler.blocked()[0].waiter, waiter);
        scheduler.stall(Whom::Thread(waiter), 0, 1_000_000);
        scheduler.unpark_at(holder, 0);
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        let events = diary.events.borrow();
        let got = events.iter().position(|(_, thread, _)| *thread == waiter);
        let got = got.expect("the waiter got the lock in the end");
        assert!(events[got].0 >= 1_000_000);
        let holder_ns = events[..got].last().map_or(0, |event| event.0);
        assert!(holder_ns >= 1_000_000 - Config::default().skew_ns, "only at {holder_ns}");
    }
}

#[test]
fn the_driver_acts_at_its_own_time() {
    let (scheduler, diary) = world(calm());
    let _installed = scheduler.install();
    let thread = scheduler.spawn("sleeper".to_string(), 0, env::park);
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    scheduler.advance_to(7_000_000);
    env::event(|| Event::BatchFreed { updates: 1 });
    scheduler.surroundings().unpark(thread.0);
    let wake_ns = CostModel::default().wake_ns;
    assert_eq!(scheduler.clock_ns(thread), Some(7_000_000 + wake_ns));
    let events = diary.events.borrow();
    assert_eq!(*events, [(7_000_000, DRIVER, Event::BatchFreed { updates: 1 })]);
}

#[test]
fn a_driver_that_panics_still_tears_its_threads_down() {
    let alive = Rc::new(Cell::new(0));
    let counted = Rc::clone(&alive);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let (scheduler, _) = world(calm());
        let captured = Living::new(&counted);
        scheduler.spawn("sleeper".to_string(), 0, move || {
            let _captured = captured;
            env::park();
        });
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        assert_eq!(counted.get(), 1);
        // Without the noise of the hook.
        std::panic::resume_unwind(Box::new("an oracle failed"));
    }));
    assert!(panicked.is_err());
    assert_eq!(alive.get(), 0);
}

#[test]
fn without_installed_surroundings_a_scheduler_installs_itself_while_it_runs() {
    let (scheduler, _) = world(calm());
    let lock = Rc::new(Mutex::new("shared", 0));
    for _ in 0..2 {
        let lock = Rc::clone(&lock);
        scheduler.spawn("holder".to_string(), 0, move || {
            let mut guard = lock.lock();
            *guard += 1;
            env::park();
        });
    }
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    assert_eq!(scheduler.blocked().len(), 1);
    assert!(!env::listening());
    drop(scheduler);
    assert_eq!(*lock.lock(), 1);
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second number is resident pages") * 4096
}

#[test]
fn many_worlds_leave_nothing_behind() {
    let alive = Rc::new(Cell::new(0));
    let mut before = 0;
    for world_index in 0..5000 {
        if world_index == 200 {
            before = resident();
        }
        let (scheduler, _) = world(eager(world_index));
        let _installed = scheduler.install();
        let lock = Rc::new(Mutex::new("shared", 0));
        for index in 0..4 {
            let (lock, captured) = (Rc::clone(&lock), Living::new(&alive));
            scheduler.spawn(format!("thread {index}"), 0, move || {
                let _captured = captured;
                for _ in 0..5 {
                    let mut guard = lock.lock();
                    env::point(Point::Turn);
                    *guard += 1;
                }
                env::park();
            });
        }
        // Cut off anywhere, in critical sections too.
        scheduler.run_until(world_index);
        drop(scheduler);
        assert_eq!(alive.get(), 0, "world {world_index}");
        assert_eq!(Rc::strong_count(&lock), 1);
    }
    let grown = resident().saturating_sub(before);
    // Other tests run beside this one and take memory too. Leaking the stacks, two touched pages
    // for each of 19200 threads, would come to 150 MB at least.
    assert!(grown < 75 << 20, "{grown} bytes more are resident");
}

mod timely_workers {
    use super::*;
    use crate::sched::timely::{Builders, allocators, spawn_workers};
    use ::timely::communication::Allocator;
    use ::timely::container::CapacityContainerBuilder;
    use ::timely::dataflow::InputHandle;
    use ::timely::dataflow::operators::{Exchange, Input, Inspect, Probe};

    const ROUNDS: u64 = 10;

    /// Counts words that travel to the worker they belong to; workers park when they are idle.
    fn count_words(scheduler: &Scheduler, allocators: Vec<Allocator>) -> Rc<RefCell<Vec<u64>>> {
        let counts = Rc::new(RefCell::new(vec![0; allocators.len()]));
        let counted = Rc::clone(&counts);
        spawn_workers(scheduler, "worker", 0, allocators, move |worker| {
            let counted = Rc::clone(&counted);
            let index = worker.worker.index();
            let mut input = InputHandle::<u64, CapacityContainerBuilder<Vec<u64>>>::new();
            let probe = worker.worker.dataflow(|scope| {
                scope
                    .input_from(&mut input)
                    .exchange(|word: &u64| *word)
                    .inspect(move |word| {
                        env::point(Point::Records(1));
                        counted.borrow_mut()[index] += word;
                    })
                    .probe()
                    .0
            });
            for round in 0..ROUNDS {
                (0..8).for_each(|word| input.send(word));
                input.advance_to(round + 1);
                while probe.less_than(input.time()) {
                    worker.step_or_park();
                }
            }
        });
        counts
    }

    fn run(seed: u64, allocators: Vec<Allocator>) -> (u64, Vec<u32>, Vec<u64>) {
        let (scheduler, diary) = world(eager(seed));
        let _installed = scheduler.install();
        let counts = count_words(&scheduler, allocators);
        assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
        assert!(scheduler.threads().is_empty(), "a worker waits for ever");
        assert!(!diary.parked.borrow().is_empty(), "no worker ever had to wait for the other");
        let counts = counts.take();
        (scheduler.hash(), scheduler.decisions(), counts)
    }

    #[test]
    fn two_workers_that_exchange_are_deterministic() {
        for seed in 0..20 {
            let first = run(seed, allocators(2));
            assert_eq!(first, run(seed, allocators(2)));
            // 0 + 2 + 4 + 6 and 1 + 3 + 5 + 7, from two workers in each round.
            assert_eq!(first.2, [2 * ROUNDS * 12, 2 * ROUNDS * 16]);
        }
        assert_ne!(run(0, allocators(2)).0, run(1, allocators(2)).0);
    }

    #[test]
    fn inside_madsim_the_run_is_the_same() {
        let plain = run(5, allocators(2));
        let builders = Builders::new(3);
        let runtime = madsim::runtime::Runtime::with_seed_and_config(1, Default::default());
        let inside = runtime.block_on(async move {
            let result = run(5, builders.allocators(2));
            madsim::time::sleep(std::time::Duration::from_millis(1)).await;
            result
        });
        assert_eq!(inside, plain);
    }

    #[test]
    fn workers_can_be_killed_in_the_middle() {
        for seed in 0..20 {
            let (scheduler, _) = world(eager(seed));
            let _installed = scheduler.install();
            let counts = count_words(&scheduler, allocators(2));
            let outcome = scheduler.run_until(20_000 + 1_000 * seed);
            assert!(matches!(outcome, Outcome::Limit { .. } | Outcome::Idle), "{outcome:?}");
            scheduler.kill(&scheduler.threads());
            assert_eq!(Rc::strong_count(&counts), 1, "a dataflow outlives its worker");
        }
    }
}
