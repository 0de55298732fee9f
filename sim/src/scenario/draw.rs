//! The few ways in which scenarios draw from the streams of a seed.

use rand_core::RngCore;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::rng::Streams;

/// A stream of draws.
pub(super) struct Draw(Xoshiro256PlusPlus);

impl Draw {
    /// The part of a scenario that has this name. The run itself draws from streams of its own, so
    /// that, for one, the range of latencies and the latencies drawn from it are not the same
    /// numbers.
    pub(super) fn new(seed: u64, part: &str) -> Draw {
        Draw(Streams::new(seed).stream(&format!("scenario {part}")))
    }

    /// A number below `bound`, which is not zero. Uniform but for a bias of `bound / 2^64`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number of `least..=most`.
    pub(super) fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// A position among `len`, which is not zero.
    pub(super) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True for so many of a hundred draws.
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// One of these, which are not empty.
    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// One of these, each as often as its weight says; the weights are not all zero.
    pub(super) fn weighted<T: Copy>(&mut self, of: &[(u32, T)]) -> T {
        let total = of.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let mut left = self.below(total);
        for (weight, value) in of {
            match left.checked_sub(u64::from(*weight)) {
                Some(rest) => left = rest,
                None => return *value,
            }
        }
        unreachable!("the draw is below the sum of the weights")
    }

    /// A number of `least..=most`, even in its order of magnitude rather than in its value.
    pub(super) fn magnitude(&mut self, least: u64, most: u64) -> u64 {
        let (low, high) = (least.max(1).ilog2(), most.max(1).ilog2());
        let exponent = self.within(u64::from(low), u64::from(high));
        let base = 1u64 << exponent;
        (base + self.below(base)).clamp(least, most)
    }
}
