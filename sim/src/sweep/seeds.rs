//! Which seeds a sweep runs.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use thiserror::Error;

/// A contiguous range of seeds with at least one in it, written `A..B` (`B` is not part of it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    count: u64,
}

/// A text or a pair of numbers that is no range of seeds.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SeedsError {
    /// No seed is at least `first` and below `end`.
    #[error("the range {first}..{end} is empty: write A..B with A below B")]
    Empty {
        /// Where it starts.
        first: u64,
        /// Where it ends.
        end: u64,
    },
    /// There are not two dots, or there is nothing on one side of them.
    #[error(
        "'{text}' is no range of seeds: write A..B, as in 0..1000, or --seed N for a single one"
    )]
    Shape {
        /// What was written.
        text: String,
    },
    /// One side is not a number.
    #[error("'{text}' is no seed: {reason}")]
    Number {
        /// What was written.
        text: String,
        /// Why it is not.
        reason: ParseIntError,
    },
    /// The largest number, which no range can end behind.
    #[error("the largest seed is {}", u64::MAX - 1)]
    TooLarge,
}

impl Seeds {
    /// The seeds from `first` on that are below `end`.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(first: u64, end: u64) -> Result<Seeds, SeedsError> {
        match end.checked_sub(first) {
            None | Some(0) => Err(SeedsError::Empty { first, end }),
            Some(count) => Ok(Seeds { first, count }),
        }
    }

    /// This seed alone.
    ///
    /// # Errors
    /// If it is the largest `u64`.
    pub fn single(seed: u64) -> Result<Seeds, SeedsError> {
        if seed == u64::MAX {
            Err(SeedsError::TooLarge)
        } else {
            Ok(Seeds { first: seed, count: 1 })
        }
    }

    /// How many there are, at least one.
    pub fn count(self) -> u64 {
        self.count
    }

    /// The seed at this offset from the first.
    ///
    /// # Panics
    /// If there are not that many.
    pub fn at(self, offset: u64) -> u64 {
        assert!(offset < self.count, "offset {offset} of {} seeds", self.count);
        self.first + offset
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.first, self.first + self.count)
    }
}

impl FromStr for Seeds {
    type Err = SeedsError;

    fn from_str(text: &str) -> Result<Seeds, SeedsError> {
        let shape = || SeedsError::Shape { text: text.to_string() };
        let (first, end) = text.split_once("..").ok_or_else(shape)?;
        if first.trim().is_empty() || end.trim().is_empty() {
            return Err(shape());
        }
        Seeds::new(number(first)?, number(end)?)
    }
}

fn number(text: &str) -> Result<u64, SeedsError> {
    let text = text.trim();
    text.parse().map_err(|reason| SeedsError::Number { text: text.to_string(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_reads_as_it_prints() {
        let seeds: Seeds = "3..8".parse().unwrap();
        assert_eq!((seeds.count(), seeds.at(0), seeds.at(4)), (5, 3, 7));
        assert_eq!(seeds.to_string(), "3..8");
        assert_eq!(" 3 .. 8 ".parse(), Ok(seeds));
    }

    #[test]
    fn an_empty_or_reversed_range_says_that_it_is_empty() {
        for text in ["5..3", "5..5"] {
            let message = text.parse::<Seeds>().unwrap_err().to_string();
            assert!(message.contains(text) && message.contains("empty"), "{message}");
        }
    }

    #[test]
    fn what_is_no_range_says_what_to_write() {
        for text in ["", "7", "7..", "..7", "7-9"] {
            let message = text.parse::<Seeds>().unwrap_err().to_string();
            assert!(message.contains("A..B"), "{message}");
        }
        for text in ["x..9", "0..=9", "-1..9", "0..18446744073709551616"] {
            let error = text.parse::<Seeds>().unwrap_err();
            assert!(matches!(error, SeedsError::Number { .. }), "{error:?}");
        }
    }

    #[test]
    fn a_single_seed_is_a_range_of_one_unless_nothing_is_behind_it() {
        assert_eq!(Seeds::single(9).unwrap().to_string(), "9..10");
        assert_eq!(Seeds::single(u64::MAX), Err(SeedsError::TooLarge));
    }
}
