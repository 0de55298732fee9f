//! A timely program under the scheduler: two workers count words that travel to the worker they
//! belong to, under one seed after the other.
//!
//! ```text
//! cargo run --release -p tandem-sim --example word_count -- [FIRST_SEED [SEEDS]]
//! ```
//!
//! Each line is one run: the seed, the event hash, how many decisions were made and how long it all
//! took in virtual time. The counts are the same in all of them, or the example fails.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tandem::env::{self, Point};
use tandem_sim::rng::Streams;
use tandem_sim::sched::strategy::Random;
use tandem_sim::sched::timely::{SimulatedWorker, allocators, spawn_workers};
use tandem_sim::sched::{Blind, Config, Outcome, Scheduler, Seeded};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::InputHandle;
use timely::dataflow::operators::{Exchange, Input, Inspect, Probe};

type Counts = Rc<RefCell<BTreeMap<String, u64>>>;

const LINES: [&str; 3] = ["the cat sat", "on the mat", "the end"];

/// What each worker does. Nothing in it knows that it is simulated, but for the point.
fn count_words(worker: &mut SimulatedWorker, counts: Counts) {
    let mut input = InputHandle::<u64, CapacityContainerBuilder<Vec<String>>>::new();
    let probe = worker.worker.dataflow(|scope| {
        scope
            .input_from(&mut input)
            .exchange(|word: &String| word.bytes().map(u64::from).sum())
            .inspect(move |word| {
                // Here the other worker may run, in the middle of the operator.
                env::point(Point::Records(1));
                *counts.borrow_mut().entry(word.clone()).or_default() += 1;
            })
            .probe()
            .0
    });
    for (time, line) in LINES.into_iter().enumerate() {
        line.split(' ').for_each(|word| input.send(word.to_string()));
        input.advance_to(time as u64 + 1);
        while probe.less_than(input.time()) {
            worker.step_or_park();
        }
    }
}

fn run(seed: u64) -> BTreeMap<String, u64> {
    let source = Seeded::new(Streams::new(seed).stream("schedule"), Random::default());
    let scheduler = Scheduler::new(Config::default(), Box::new(source), Rc::new(Blind));
    let counts = Counts::default();
    let shared = Rc::clone(&counts);
    spawn_workers(&scheduler, "worker", 0, allocators(2), move |worker| {
        count_words(worker, Rc::clone(&shared));
    });
    let outcome = scheduler.run_until(u64::MAX);
    assert_eq!(outcome, Outcome::Idle, "seed {seed}");
    println!(
        "seed {seed}: hash {:016x}, {} decisions, {} us",
        scheduler.hash(),
        scheduler.decision_count(),
        scheduler.now_ns() / 1_000,
    );
    counts.take()
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let first = arguments.next().and_then(Result::ok).unwrap_or(0);
    let seeds = arguments.next().and_then(Result::ok).unwrap_or(5);
    for seed in first..first + seeds {
        let counts = run(seed);
        assert_eq!(counts["the"], 6, "seed {seed}: {counts:?}");
        assert_eq!(counts.len(), 6, "seed {seed}: {counts:?}");
    }
    println!("two workers saw \"the\" six times, under every schedule");
}
