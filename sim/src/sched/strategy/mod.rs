//! Strategies: how to draw a schedule that finds something.
//!
//! A strategy sees one [`Choice`] at a time and answers with a number; it keeps whatever state it
//! likes between choices. One with priorities would hold them by [`ThreadId`](super::ThreadId) and
//! answer with the index of the candidate that has the highest. What is not random (replay,
//! enumeration) is a [`Source`](super::Source) of its own.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::choice::Choice;

pub mod pct;
pub mod random;
pub mod starvation;

pub use pct::Pct;
pub use random::Random;
pub use starvation::Starvation;

/// Draws decisions.
pub trait Strategy {
    /// The next decision, taken modulo [`Choice::options`].
    ///
    /// All its randomness must come from `random`, or runs will not repeat.
    fn choose(&mut self, random: &mut Xoshiro256PlusPlus, choice: &Choice<'_>) -> u32;
}

/// Turns a word of 32 random bits into a number below `bound`, by Lemire's multiplication. The bias
/// is below `bound / 2^32`.
#[inline]
fn below(word: u32, bound: u32) -> u32 {
    ((u64::from(word) * u64::from(bound)) >> 32) as u32
}
