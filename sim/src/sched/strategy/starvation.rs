//! Starvation: for a while, a group or a thread gets nothing.
//!
//! What breaks under it is whatever relies on the other side making progress: compaction that waits
//! for a stalled reader, a reader that is overtaken by compaction, queues that only grow.

use rand_core::RngCore;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Random, Strategy, below};
use crate::sched::Whom;
use crate::sched::choice::{Candidate, Choice, STALLS_NS};

/// Alternates between quiet, in which it does as [`Random`] does, and windows, in which whichever
/// member of the victim could run is stalled to the end of the window instead.
///
/// Unless it is [given](Starvation::of), the victim of each window is a group or a single thread
/// among those that could run when it began, either with the same chance.
#[derive(Clone, Debug)]
pub struct Starvation {
    random: Random,
    /// The longest quiet and the longest window, in nanoseconds.
    quiet_ns_max: u64,
    window_ns_max: u64,
    /// Who is starved in every window; drawn for each when absent.
    victim: Option<Whom>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    Quiet { until_ns: u64 },
    Window { victim: Whom, until_ns: u64 },
}

impl Starvation {
    /// Quiet and windows of random lengths up to these, in nanoseconds of virtual time; `random`
    /// decides what is left to decide.
    pub fn new(random: Random, quiet_ns_max: u64, window_ns_max: u64) -> Self {
        Starvation { random, quiet_ns_max, window_ns_max, victim: None, state: State::Begin }
    }

    /// Every window starves `victim`.
    #[must_use]
    pub fn of(mut self, victim: Whom) -> Self {
        self.victim = Some(victim);
        self
    }

    /// The current victim and when its window ends, in nanoseconds; `None` in quiet.
    pub fn victim(&self) -> Option<(Whom, u64)> {
        match self.state {
            State::Window { victim, until_ns } => Some((victim, until_ns)),
            _ => None,
        }
    }

    /// Moves on when the time has come.
    fn advance(&mut self, random: &mut Xoshiro256PlusPlus, choice: &Choice<'_>) {
        let now_ns = choice.least_ns();
        self.state = match self.state {
            State::Begin => State::Quiet { until_ns: now_ns + length(random, self.quiet_ns_max) },
            State::Quiet { until_ns } if until_ns <= now_ns => {
                let candidate = choice.candidate(below(random.next_u32(), choice.threads()));
                let victim = self.victim.unwrap_or(match random.next_u32() >> 31 {
                    0 => Whom::Group(candidate.group),
                    _ => Whom::Thread(candidate.thread),
                });
                State::Window { victim, until_ns: now_ns + length(random, self.window_ns_max) }
            }
            State::Window { until_ns, .. } if until_ns <= now_ns => {
                State::Quiet { until_ns: now_ns + length(random, self.quiet_ns_max) }
            }
            state => state,
        };
    }
}

/// Ten milliseconds of quiet and windows of half a second, at most.
impl Default for Starvation {
    fn default() -> Self {
        Starvation::new(Random::default(), 10_000_000, 500_000_000)
    }
}

fn length(random: &mut Xoshiro256PlusPlus, max_ns: u64) -> u64 {
    1 + random.next_u64() % max_ns.max(1)
}

fn is_victim(victim: Whom, candidate: Candidate) -> bool {
    match victim {
        Whom::Group(group) => candidate.group == group,
        Whom::Thread(thread) => candidate.thread == thread,
    }
}

/// The class of the longest stall that ends within `ns`, or of the shortest. A window is filled by
/// few of them, as they get shorter towards its end.
fn class_of(ns: u64) -> u32 {
    let class = STALLS_NS.iter().rposition(|stall_ns| *stall_ns <= ns);
    class.map_or(0, |class| class as u32)
}

impl Strategy for Starvation {
    fn choose(&mut self, random: &mut Xoshiro256PlusPlus, choice: &Choice<'_>) -> u32 {
        self.advance(random, choice);
        if let State::Window { victim, until_ns } = self.state {
            let victims = (0..choice.threads())
                .map(|index| (index, choice.candidate(index)))
                .find(|(_, candidate)| is_victim(victim, *candidate));
            if let Some((index, candidate)) = victims {
                // Whatever could run of the victim is put off, until nothing of it is left to
                // choose: each such answer is followed by another choice.
                let rest_ns = until_ns.saturating_sub(candidate.clock_ns).max(1);
                return choice.stall(index, class_of(rest_ns));
            }
        }
        self.random.choose(random, choice)
    }
}
