//! The uniform random walk, with a chance to switch that depends on where the thread stands.

use rand_core::RngCore;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Strategy, below};
use crate::sched::choice::{Choice, STALLS, STALLS_NS};
use crate::sched::cost::Kind;

/// At each point, leaves the running thread with a chance given by the kind of the point, for one
/// of the others that may run, all alike; now and then stalls one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    /// By [`Kind`], in 65536ths: the chance to leave the running thread.
    switch: [u32; Kind::COUNT],
    /// In 2^24ths: the chance of a stall.
    stall: u32,
    /// How many of the lengths in [`STALLS_NS`](crate::sched::STALLS_NS), from the shortest on.
    lengths: u32,
}

impl Random {
    /// Picks among all threads alike at every point, and never stalls.
    pub fn uniform() -> Self {
        Random { switch: [UNIFORM; Kind::COUNT], stall: 0, lengths: STALLS }
    }

    /// The chance to leave the running thread at points of this kind, in 65536ths.
    ///
    /// Every switch costs some tens of nanoseconds of real time.
    #[must_use]
    pub fn with_switch(mut self, kind: Kind, chance: u16) -> Self {
        self.switch[kind as usize] = u32::from(chance);
        self
    }

    /// The chance of a stall at each decision, in 2^24ths. Short stalls are as likely as long ones.
    ///
    /// Stalls cost no real time of their own, but each advances virtual time by up to
    /// [`STALLS_NS`](crate::sched::STALLS_NS)'s last.
    ///
    /// # Panics
    /// If it is more than 2^24.
    #[must_use]
    pub fn with_stalls(mut self, chance: u32) -> Self {
        assert!(chance <= 1 << 24, "a chance of {chance} in 2^24");
        self.stall = chance;
        self
    }

    /// No stall but the shortest is longer than `longest_ns`, in nanoseconds of virtual time.
    #[must_use]
    pub fn with_stalls_up_to(mut self, longest_ns: u64) -> Self {
        let fitting = STALLS_NS.iter().filter(|stall_ns| **stall_ns <= longest_ns).count();
        self.lengths = fitting.max(1) as u32;
        self
    }
}

/// Marks kinds at which staying is just one of the options.
const UNIFORM: u32 = u32::MAX;

/// Preempts often where threads meet (locks, views, parking) and seldom inside long work, whose
/// points are many; one stall in some hundred thousand decisions.
impl Default for Random {
    fn default() -> Self {
        let mut switch = [1 << 13; Kind::COUNT];
        for kind in [Kind::Merge, Kind::Records, Kind::Walked] {
            switch[kind as usize] = 1 << 11;
        }
        for kind in [Kind::Swap, Kind::Swapped, Kind::Lock, Kind::BeforePark] {
            switch[kind as usize] = 1 << 14;
        }
        Random { switch, stall: 150, lengths: STALLS }
    }
}

impl Strategy for Random {
    #[inline]
    fn choose(&mut self, random: &mut Xoshiro256PlusPlus, choice: &Choice<'_>) -> u32 {
        // One word serves the whole decision: 24 bits for stalling, 16 for leaving, 24 for whom.
        let word = random.next_u64();
        let threads = choice.threads();
        let pick = (word as u32) << 8;
        if ((word >> 40) as u32) < self.stall {
            let stall = below(pick, threads * self.lengths);
            return choice.stall(stall / self.lengths, stall % self.lengths);
        }
        let switch = self.switch[choice.kind as usize];
        if !choice.may_stay() || switch == UNIFORM {
            return below(pick, threads);
        }
        if threads > 1 && ((word >> 24) & 0xffff) as u32 >= switch {
            return 0;
        }
        match threads - 1 {
            0 => 0,
            others => 1 + below(pick, others),
        }
    }
}
