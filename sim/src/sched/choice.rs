//! One decision, and where decisions come from.
//!
//! A schedule is a list of small numbers and every list is legal: the scheduler takes each number
//! modulo what is possible at that moment. With `k` threads that may run, the numbers mean
//!
//! | number | meaning |
//! |---|---|
//! | `0` | the calm choice: the running thread goes on, else the one furthest behind runs |
//! | `1 .. k` | another of them runs |
//! | `k + i * STALLS + c` | the `i`-th of them stalls for [`STALLS_NS`]`[c]`, then choose again |
//!
//! A [`Source`] gives the numbers. A [`Seeded`] strategy, a [`Recorded`] list, a fuzzer's [`Bytes`]
//! and an [enumerator](super::explore) are sources. What only watches wraps another one, as
//! [`Counted`] does.

use std::cell::Cell;
use std::rc::Rc;

use rand_xoshiro::Xoshiro256PlusPlus;

use super::ThreadId;
use super::cost::Kind;
use super::machine::{MAX_THREADS, bits, nth_bit};
use super::strategy::Strategy;

/// The lengths of stalls a decision can ask for, in nanoseconds of virtual time.
pub const STALLS_NS: [u64; STALLS as usize] = [10_000, 300_000, 10_000_000, 300_000_000];

/// The number of lengths in [`STALLS_NS`].
pub const STALLS: u32 = 4;

/// What is possible at one moment.
pub struct Choice<'a> {
    /// What the thread that ran last came to.
    pub kind: Kind,
    pub(super) ids: &'a [ThreadId; MAX_THREADS],
    pub(super) groups: &'a [u32; MAX_THREADS],
    pub(super) clocks: &'a [u64; MAX_THREADS],
    /// The slot that the calm choice runs.
    pub(super) calm: usize,
    /// Whether that is the thread that ran last.
    pub(super) stay: bool,
    /// The slots of the others that may run.
    pub(super) others: u64,
    /// How many may run. Kept, since counting bits is slow on the oldest x86-64 compiled for.
    pub(super) threads: u32,
}

/// A thread that may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The thread.
    pub thread: ThreadId,
    /// The group it was spawned in.
    pub group: u32,
    /// Its clock, in nanoseconds.
    pub clock_ns: u64,
}

impl Choice<'_> {
    /// How many threads may run: at least one. The numbers below this run one of them.
    #[inline]
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// How many different numbers there are.
    #[inline]
    pub fn options(&self) -> u32 {
        self.threads() * (1 + STALLS)
    }

    /// Whether the calm choice is that the thread that ran last goes on.
    #[inline]
    pub fn may_stay(&self) -> bool {
        self.stay
    }

    /// The thread that the number `index` runs.
    ///
    /// # Panics
    /// If `index` is not below [`Choice::threads`].
    pub fn candidate(&self, index: u32) -> Candidate {
        assert!(index < self.threads(), "{index} of {} threads", self.threads());
        let slot = self.slot(index);
        Candidate { thread: self.ids[slot], group: self.groups[slot], clock_ns: self.clocks[slot] }
    }

    /// All threads that may run, in the order of their numbers.
    pub fn candidates(&self) -> impl Iterator<Item = Candidate> {
        (0..self.threads()).map(|index| self.candidate(index))
    }

    /// The number that stalls the `index`-th thread for [`STALLS_NS`]`[class]`.
    #[inline]
    pub fn stall(&self, index: u32, class: u32) -> u32 {
        self.threads() + index * STALLS + class
    }

    /// The slot of the `index`-th candidate.
    #[inline]
    pub(super) fn slot(&self, index: u32) -> usize {
        let other = nth_bit(self.others, index.saturating_sub(1));
        if index == 0 { self.calm } else { other }
    }

    /// The clock of the thread furthest behind that may run, in nanoseconds.
    pub fn least_ns(&self) -> u64 {
        bits(self.others).map(|slot| self.clocks[slot]).fold(self.clocks[self.calm], u64::min)
    }
}

/// Where decisions come from.
pub trait Source {
    /// The next decision. Any number is legal: it is taken modulo [`Choice::options`].
    fn next(&mut self, choice: &Choice<'_>) -> u32;
}

/// Replays a list, and makes the calm choice after its end.
#[derive(Clone, Debug)]
pub struct Recorded {
    decisions: std::vec::IntoIter<u32>,
}

impl Recorded {
    /// Replays `decisions`.
    pub fn new(decisions: Vec<u32>) -> Self {
        Recorded { decisions: decisions.into_iter() }
    }
}

impl Source for Recorded {
    fn next(&mut self, _choice: &Choice<'_>) -> u32 {
        self.decisions.next().unwrap_or(0)
    }
}

/// Decisions from a fuzzer's bytes, and the calm choice after their end.
///
/// Taken modulo all options, most bytes would be stalls. Here a byte is a stall only from 0xf0 on,
/// and the calm choice below 0x80.
#[derive(Clone, Debug)]
pub struct Bytes {
    bytes: std::vec::IntoIter<u8>,
}

impl Bytes {
    /// Decisions from `bytes`.
    pub fn new(bytes: Vec<u8>) -> Self {
        Bytes { bytes: bytes.into_iter() }
    }
}

impl Source for Bytes {
    fn next(&mut self, choice: &Choice<'_>) -> u32 {
        match self.bytes.next() {
            None | Some(0..0x80) => 0,
            Some(byte @ 0x80..0xf0) => u32::from(byte) % choice.threads(),
            Some(byte) => choice.threads() + u32::from(byte - 0xf0) % (choice.threads() * STALLS),
        }
    }
}

/// What a [`Counted`] source has seen, in decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In all.
    pub decisions: u64,
    /// With more than one thread that could run.
    pub open: u64,
    /// That left a thread which could have gone on.
    pub preemptions: u64,
    /// That stalled a thread.
    pub stalls: u64,
}

/// Counts the decisions of another source.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    source: S,
    counts: Rc<Cell<Counts>>,
}

impl<S: Source> Counted<S> {
    /// Counts what `source` decides. The counts can be read while and after the scheduler has it.
    pub fn new(source: S) -> (Self, Rc<Cell<Counts>>) {
        let counts = Rc::new(Cell::new(Counts::default()));
        (Counted { source, counts: Rc::clone(&counts) }, counts)
    }
}

impl<S: Source> Source for Counted<S> {
    fn next(&mut self, choice: &Choice<'_>) -> u32 {
        let value = self.source.next(choice) % choice.options();
        let is_stall = value >= choice.threads();
        let mut counts = self.counts.get();
        counts.decisions += 1;
        counts.open += u64::from(choice.threads() > 1);
        counts.preemptions += u64::from(choice.may_stay() && value > 0 && !is_stall);
        counts.stalls += u64::from(is_stall);
        self.counts.set(counts);
        value
    }
}

/// Decisions that a strategy makes with random numbers.
#[derive(Clone, Debug)]
pub struct Seeded<S> {
    random: Xoshiro256PlusPlus,
    strategy: S,
}

impl<S: Strategy> Seeded<S> {
    /// Decisions that `strategy` makes with the numbers of `random`.
    pub fn new(random: Xoshiro256PlusPlus, strategy: S) -> Self {
        Seeded { random, strategy }
    }
}

impl<S: Strategy> Source for Seeded<S> {
    #[inline]
    fn next(&mut self, choice: &Choice<'_>) -> u32 {
        self.strategy.choose(&mut self.random, choice)
    }
}
