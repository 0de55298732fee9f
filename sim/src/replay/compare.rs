//! What became of a file's run when it was run again.

use std::fmt;
use std::ops::Range;

use super::case::Recording;
use super::file::{ReplayFile, Seen, revision};

/// How a run compares with the one that a file tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The same verdict, event for event.
    Reproduces,
    /// The same verdict, but other events.
    SameVerdict,
    /// A violation of another kind.
    FailsDifferently,
    /// It failed, and does not any more.
    NoLongerFails,
    /// It did not fail, and does now.
    FailsNow,
}

/// A run against what its file tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// How they compare.
    pub outcome: Outcome,
    /// Between which entries of their chronicles, counted from zero, they first differ, as far as
    /// the file's trail tells.
    pub differs: Option<Range<u64>>,
    was: Option<Seen>,
    is: Option<Seen>,
    revision: String,
}

impl Comparison {
    /// Compares a recording with the file it replays.
    pub fn new(file: &ReplayFile, recording: &Recording) -> Comparison {
        let (was, is) = (file.seen.clone(), recording.report.violation.as_ref().map(Seen::from));
        let is_same_hash = file.hash == recording.report.hash;
        let outcome = match (&was, &is) {
            (None, Some(_)) => Outcome::FailsNow,
            (Some(_), None) => Outcome::NoLongerFails,
            (Some(was), Some(is)) if (was.oracle, &was.class) != (is.oracle, &is.class) => {
                Outcome::FailsDifferently
            }
            _ if is_same_hash => Outcome::Reproduces,
            _ => Outcome::SameVerdict,
        };
        let trail = recording.chronicle.as_ref().map(|chronicle| &chronicle.trail);
        let differs = trail.filter(|_| !is_same_hash && file.trail.entries > 0);
        let differs = differs.and_then(|trail| file.trail.first_difference(trail));
        Comparison { outcome, differs, was, is, revision: file.revision.clone() }
    }

    /// Which code the two runs ran.
    fn code(&self) -> String {
        match self.revision == revision() {
            true => format!("both ran revision {}", self.revision),
            false => format!("it was recorded at {}, and this is {}", self.revision, revision()),
        }
    }
}

fn name(seen: &Option<Seen>) -> String {
    match seen {
        None => "nothing".to_string(),
        Some(Seen { oracle, class, .. }) if class.is_empty() => oracle.to_string(),
        Some(Seen { oracle, class, .. }) => format!("{oracle} ({class})"),
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (was, is) = (name(&self.was), name(&self.is));
        match self.outcome {
            Outcome::Reproduces if self.is.is_none() => {
                return write!(f, "reproduces, event for event: as promised");
            }
            Outcome::Reproduces => return write!(f, "reproduces, event for event: {is}"),
            Outcome::SameVerdict if self.is.is_none() => write!(f, "as promised, as recorded")?,
            Outcome::SameVerdict => write!(f, "fails as recorded: {is}")?,
            Outcome::FailsDifferently => {
                write!(f, "fails differently: {is}, where {was} was recorded")?;
            }
            Outcome::NoLongerFails => write!(f, "no longer fails, where {was} was recorded")?,
            Outcome::FailsNow => write!(f, "fails now: {is}, where none was recorded")?,
        }
        match &self.differs {
            Some(range) => write!(
                f,
                "; the runs part between events {} and {}",
                range.start,
                range.end.saturating_sub(1)
            )?,
            None => write!(f, "; no event that was compared differs")?,
        }
        write!(f, " ({})", self.code())
    }
}
