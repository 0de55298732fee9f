//! A trail: hashes of a run's beginnings, by which the place where another run leaves it is found.

use std::ops::Range;

/// The most hashes a trail keeps.
pub const MARKS_MAX: usize = 256;

/// How far apart marks are at first, in entries.
const EVERY_MIN: u64 = 16;

/// A hash of everything up to each so many entries of a chronicle.
///
/// The distance doubles whenever the marks become more than [`MARKS_MAX`], so that a trail is small
/// whatever the length of the run, and two trails can be compared at the coarser distance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail {
    /// How many entries lie between two marks: a power of two.
    pub every: u64,
    /// How many entries there were.
    pub entries: u64,
    /// After `every` entries, after twice as many, and so on.
    pub marks: Vec<u32>,
}

impl Default for Trail {
    fn default() -> Trail {
        Trail { every: EVERY_MIN, entries: 0, marks: Vec::new() }
    }
}

impl Trail {
    /// Takes note of an entry; `hash` is that of all entries so far, this one included.
    pub fn step(&mut self, hash: u64) {
        self.entries += 1;
        if !self.entries.is_multiple_of(self.every) {
            return;
        }
        self.marks.push((hash >> 32) as u32);
        if self.marks.len() > MARKS_MAX {
            self.every *= 2;
            self.marks = self.marks.iter().skip(1).step_by(2).copied().collect();
        }
    }

    /// The marks at a distance that is a multiple of this trail's.
    fn at_every(&self, every: u64) -> impl Iterator<Item = u32> {
        let step = usize::try_from(every / self.every.max(1)).unwrap_or(usize::MAX).max(1);
        self.marks.iter().skip(step - 1).step_by(step).copied()
    }

    /// Between which entries, counted from zero, the two runs first differ. Nothing if neither
    /// shows a difference.
    pub fn first_difference(&self, other: &Trail) -> Option<Range<u64>> {
        let every = self.every.max(other.every);
        let both = self.at_every(every).zip(other.at_every(every));
        let same = both.take_while(|(left, right)| left == right).count() as u64;
        let (shorter, longer) = (self.entries.min(other.entries), self.entries.max(other.entries));
        let compared = shorter / every;
        match same < compared {
            true => Some(same * every..(same + 1) * every),
            false if shorter == longer => None,
            false => Some(compared * every..shorter + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::mix;

    /// The trail of entries that are all alike up to one.
    fn trail(entries: u64, differs_at: u64) -> Trail {
        let mut trail = Trail::default();
        for entry in 0..entries {
            trail.step(mix(entry + if entry >= differs_at { 1 << 40 } else { 0 }));
        }
        trail
    }

    #[test]
    fn a_trail_stays_small_and_still_finds_where_two_runs_part() {
        for entries in [1, 16, 300, 5_000, 100_000] {
            let same = trail(entries, u64::MAX);
            assert!(same.marks.len() <= MARKS_MAX, "{} marks", same.marks.len());
            assert_eq!(same.first_difference(&trail(entries, u64::MAX)), None);
            for at in [0, entries / 3, entries - 1] {
                let range = match same.first_difference(&trail(entries, at)) {
                    Some(range) => range,
                    // The last few entries of a run have no mark.
                    None => continue,
                };
                assert!(range.contains(&at), "{at} of {entries} is not in {range:?}");
                assert!(range.end - range.start <= same.every, "{range:?}");
            }
        }
    }

    #[test]
    fn a_run_that_ends_early_parts_where_it_ends() {
        let (short, long) = (trail(5_000, u64::MAX), trail(90_000, u64::MAX));
        assert!(long.every > short.every, "the longer run has the coarser trail");
        let range = short.first_difference(&long).expect("their lengths differ");
        assert!(range.contains(&5_000), "{range:?}");
        assert_eq!(long.first_difference(&short), Some(range));
    }
}
