//! The raw scheduler against shuttle's: four threads that lock and unlock one mutex in a loop. In
//! one program nothing happens under the lock, so it is never found taken; in the other there is a
//! point under it, so that it mostly is.
//!
//! Both choose uniformly among all threads that may run, at every point, from a seeded generator,
//! and both keep the list of what they chose; ours also keeps the event hash, clocks and the
//! holders of locks. Ours runs [`tandem::env::sync::Mutex`], the lock of the system itself, and
//! shuttle its own mutex. A decision is one question to the scheduler: who runs next.
//!
//! `--check` makes the ratio count: the exit code is 1 when ours is less than three times as fast
//! in either program.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use shuttle::scheduler::{RandomScheduler, Schedule, Task, TaskId};
use tandem::env::sync::Mutex;
use tandem::env::{self, Point};
use tandem_sim::rng::Streams;
use tandem_sim::sched::strategy::Random;
use tandem_sim::sched::{Blind, Config, Outcome, Scheduler, Seeded};

const THREADS: u32 = 4;
const ROUNDS: u64 = 10_000;
const REPETITIONS: u64 = 40;
const RATIO_MIN: f64 = 3.0;

/// What one side did, and how long it took.
struct Measured {
    decisions: u64,
    locks: u64,
    seconds: f64,
}

impl Measured {
    fn decisions_per_second(&self) -> f64 {
        self.decisions as f64 / self.seconds
    }

    fn locks_per_second(&self) -> f64 {
        self.locks as f64 / self.seconds
    }
}

fn ours(seed: u64, contended: bool) -> Measured {
    let begin = Instant::now();
    let source = Seeded::new(Streams::new(seed).stream("schedule"), Random::uniform());
    let scheduler = Scheduler::new(Config::default(), Box::new(source), Rc::new(Blind));
    let installed = scheduler.install();
    let lock = Rc::new(Mutex::new("count", 0_u64));
    for index in 0..THREADS {
        let lock = Rc::clone(&lock);
        scheduler.spawn(format!("thread {index}"), 0, move || {
            for _ in 0..ROUNDS {
                let mut count = lock.lock();
                if contended {
                    env::point(Point::Load);
                }
                *count += 1;
            }
        });
    }
    assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
    let seconds = begin.elapsed().as_secs_f64();
    drop(installed);
    black_box(scheduler.hash());
    Measured { decisions: scheduler.decision_count(), locks: *lock.lock(), seconds }
}

/// Counts the questions that shuttle asks.
struct Counting {
    inner: RandomScheduler,
    questions: Rc<Cell<u64>>,
}

impl shuttle::scheduler::Scheduler for Counting {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.inner.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        self.questions.set(self.questions.get() + 1);
        self.inner.next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }
}

fn shuttles(seed: u64, contended: bool) -> Measured {
    let questions = Rc::new(Cell::new(0));
    let inner = RandomScheduler::new_from_seed(seed, 1);
    let scheduler = Counting { inner, questions: Rc::clone(&questions) };
    let mut config = shuttle::Config::new();
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.max_steps = shuttle::MaxSteps::None;
    config.silence_warnings = true;
    let locks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&locks);
    let begin = Instant::now();
    shuttle::Runner::new(scheduler, config).run(move || {
        let lock = Arc::new(shuttle::sync::Mutex::new(0_u64));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let lock = Arc::clone(&lock);
                shuttle::thread::spawn(move || {
                    for _ in 0..ROUNDS {
                        let mut count = lock.lock().expect("nobody panics");
                        if contended {
                            shuttle::thread::yield_now();
                        }
                        *count += 1;
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("nobody panics"));
        counted.store(*lock.lock().expect("nobody panics"), Ordering::Relaxed);
    });
    let seconds = begin.elapsed().as_secs_f64();
    Measured { decisions: questions.get(), locks: locks.load(Ordering::Relaxed), seconds }
}

/// The fastest of several runs, taken in turns so that noise meets both sides alike.
fn best(contended: bool) -> (Measured, Measured) {
    let mut best: Option<(Measured, Measured)> = None;
    for seed in 0..REPETITIONS {
        let now = (ours(seed, contended), shuttles(seed, contended));
        let faster = |old: Measured, new: Measured| {
            if old.decisions_per_second() > new.decisions_per_second() { old } else { new }
        };
        best = Some(match best {
            None => now,
            Some(old) => (faster(old.0, now.0), faster(old.1, now.1)),
        });
    }
    best.expect("there are repetitions")
}

/// Prints one program's measurements; returns how many times as many decisions a second ours made.
fn report(program: &str, (ours, shuttles): &(Measured, Measured)) -> f64 {
    for (scheduler, measured) in [("tandem", ours), ("shuttle", shuttles)] {
        println!(
            "{program:<12}{scheduler:<10}{:>12}{:>16.1}{:>12.1}",
            measured.decisions,
            measured.decisions_per_second() / 1e6,
            measured.locks_per_second() / 1e6,
        );
    }
    let ratio = ours.decisions_per_second() / shuttles.decisions_per_second();
    let locks = ours.locks_per_second() / shuttles.locks_per_second();
    println!("{program:<12}{:<10}{:>12}{ratio:>15.2}x{locks:>11.2}x", "ratio", "");
    ratio
}

fn main() {
    println!(
        "{:<12}{:<10}{:>12}{:>16}{:>12}",
        "lock", "scheduler", "decisions", "M decisions/s", "M locks/s"
    );
    let ratios = [("free", false), ("contended", true)]
        .map(|(program, contended)| report(program, &best(contended)));
    let is_check = std::env::args().any(|argument| argument == "--check");
    if is_check && ratios.iter().any(|ratio| *ratio < RATIO_MIN) {
        eprintln!("the raw scheduler must be at least {RATIO_MIN} times as fast as shuttle's");
        std::process::exit(1);
    }
}
