//! A deterministic scheduler for programs that run on [`tandem::env`].
//!
//! Threads are stackful coroutines on one OS thread. Wherever the program reports a point, the
//! scheduler may switch, so that interleavings inside operators, merges and critical sections are
//! explored, and everything else is sequential. It knows threads and the seam, nothing of replicas.
//!
//! *Decisions.* All that is left open (who runs, who stalls for how long) is one list of small
//! numbers; [`choice`] says what they mean, that every list is legal, and where they come from;
//! [`strategy`] how they are drawn, and [`explore`] how all are tried. They are kept in a [`Log`]
//! and folded, with all events, into the [event hash](hash).
//!
//! *Time.* The machine has a core for each thread, and each thread a clock that the [`CostModel`]
//! advances at points. Only threads whose clocks are within [`Config::skew_ns`] of the one furthest
//! behind may run: for those further ahead, what the others do next has already happened. So all
//! short interleavings are possible, and yet stalls and costs mean something. A thread that is
//! woken, or gets a lock it waited for, moves its clock up to whoever did that.
//!
//! *The driver* is whoever owns the [`Scheduler`]: it spawns threads and calls
//! [`Scheduler::run_until`] with the virtual time of its own next event, in a plain loop or inside
//! a madsim runtime. It may call the system's code, in which points do nothing.
//!
//! ```
//! use std::rc::Rc;
//! use tandem::env::{self, sync::Mutex};
//! use tandem_sim::rng::Streams;
//! use tandem_sim::sched::{Blind, Config, Outcome, Scheduler, Seeded, strategy::Random};
//!
//! let source = Seeded::new(Streams::new(42).stream("schedule"), Random::default());
//! let scheduler = Scheduler::new(Config::default(), Box::new(source), Rc::new(Blind));
//! let _installed = scheduler.install();
//! let total = Rc::new(Mutex::new("total", 0));
//! for name in ["left", "right"] {
//!     let total = Rc::clone(&total);
//!     scheduler.spawn(name.to_string(), 0, move || (0..10).for_each(|_| *total.lock() += 1));
//! }
//! assert_eq!(scheduler.run_until(u64::MAX), Outcome::Idle);
//! assert_eq!(*total.lock(), 20);
//! println!("{:x} after {}", scheduler.hash(), scheduler.log());
//! ```

use std::fmt;

pub mod choice;
pub mod cost;
pub mod explore;
pub mod hash;
pub mod log;
mod machine;
pub mod observe;
mod panics;
mod scheduler;
mod stack;
pub mod strategy;
pub mod timely;

#[cfg(test)]
mod tests;

pub use choice::{
    Bytes, Candidate, Choice, Counted, Counts, Recorded, STALLS, STALLS_NS, Seeded, Source,
};
pub use cost::{CostModel, Kind};
pub use log::Log;
pub use observe::{Blind, Blocked, Observer, nested};
pub use scheduler::Scheduler;

/// The name of a simulated thread, never used again within a run. It is the number that
/// [`tandem::env::Surroundings::current`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u64);

/// The driver, to whom everything outside of simulated threads is attributed.
pub const DRIVER: ThreadId = ThreadId(u64::MAX);

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DRIVER => write!(f, "the driver"),
            ThreadId(id) => write!(f, "thread {id}"),
        }
    }
}

/// One thread or all threads of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The thread.
    Thread(ThreadId),
    /// The threads spawned in this group.
    Group(u32),
}

/// What holds for a whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How far ahead of the thread furthest behind another may run, in nanoseconds of virtual time.
    /// More allows longer interleavings, and makes latencies less exact by as much.
    pub skew_ns: u64,
    /// What work costs.
    pub costs: CostModel,
    /// The size of each thread's stack, in bytes. Stacks are kept for later runs, and take real
    /// memory only as far as they were ever used.
    pub stack_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { skew_ns: 200_000, costs: CostModel::default(), stack_bytes: 256 << 10 }
    }
}

/// Why [`Scheduler::run_until`] returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All threads are parked or have ended, or wait for locks of parked threads.
    Idle,
    /// Threads can run, but only past the limit.
    Limit {
        /// The clock of the one furthest behind.
        next_ns: u64,
    },
    /// The driver was unparked, or [`Scheduler::interrupt`] called.
    Interrupted {
        /// The clock of whoever did that first.
        at_ns: u64,
    },
    /// No thread can run, and some wait for locks that will never be released.
    Deadlock(Deadlock),
    /// A thread panicked. The others are as they were, and running can go on.
    Panicked(Panicked),
}

/// Who waits for what held by whom, when nobody can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// Every thread that waits for a lock.
    pub blocked: Vec<Blocked>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Blocked { waiter, lock, holder, holder_activities }) in
            self.blocked.iter().enumerate()
        {
            let gap = if index == 0 { "" } else { "; " };
            write!(f, "{gap}{waiter} waits for {lock:?}")?;
            match holder {
                Some(holder) => write!(f, " held by {holder} in {}", nested(holder_activities))?,
                None => write!(f, " held by nobody known")?,
            }
        }
        Ok(())
    }
}

/// A thread panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// The thread.
    pub thread: ThreadId,
    /// Its name.
    pub name: String,
    /// Its clock, in nanoseconds.
    pub at_ns: u64,
    /// What it said, and where.
    pub message: String,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) panicked: {}", self.name, self.thread, self.message)
    }
}
