//! Named streams of a seed, and the few ways in which scenarios draw from them.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A stream of draws. What it gives depends on the seed and its name alone, for ever: scenarios of
/// old seeds must not change because a library did.
pub(super) struct Draw(Xoshiro256PlusPlus);

impl Draw {
    /// The stream of this name. The generator is seeded with the FNV-1a hash of seed and name.
    pub(super) fn new(seed: u64, name: &str) -> Draw {
        let bytes = seed.to_le_bytes().into_iter().chain(name.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Draw(Xoshiro256PlusPlus::seed_from_u64(hash))
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
