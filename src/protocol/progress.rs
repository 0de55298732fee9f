//! Frontiers that only move forward.
//!
//! A worker, a runtime and a replica each report the same three frontiers of a collection, as the
//! parts that changed. Whoever listens keeps a [`Progress`], which starts at the minimum: a
//! collection nobody has reported on yet has made no progress, and is anything but closed.
//!
//! The *last report* of a collection is the one after which both its write and its output frontier
//! are empty ([`Progress::is_final`]). Nothing about this incarnation of the collection may follow
//! it, so that the next report under the same id is the first one of a successor.

use std::fmt;

use timely::PartialOrder;
use timely::progress::Antichain;

use super::Frontiers;
use crate::repr::{Frontier, show};

/// The frontiers of a collection, as reported so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is sealed.
    pub write: Frontier,
    /// What has been read of the inputs.
    pub input: Frontier,
    /// What the dataflow has produced.
    pub output: Frontier,
}

/// Which of a collection's frontiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrontierKind {
    /// What is sealed.
    Write,
    /// What has been read of the inputs.
    Input,
    /// What the dataflow has produced.
    Output,
}

impl fmt::Display for FrontierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrontierKind::Write => "write",
            FrontierKind::Input => "input",
            FrontierKind::Output => "output",
        })
    }
}

/// A reported frontier is not beyond what was reported before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {kind} frontier goes back from {} to {}", show(.from), show(.to))]
pub struct Regression {
    /// Which frontier.
    pub kind: FrontierKind,
    /// What was reported before.
    pub from: Frontier,
    /// What is reported now.
    pub to: Frontier,
}

impl Progress {
    /// No progress yet: every frontier is at the minimum.
    pub fn start() -> Progress {
        let minimum = || Antichain::from_elem(0);
        Progress { write: minimum(), input: minimum(), output: minimum() }
    }

    /// Takes in a report and says which parts of it are news.
    ///
    /// # Errors
    /// [`Regression`] for the first frontier that goes back; then nothing has changed.
    pub fn advance(&mut self, report: &Frontiers) -> Result<Frontiers, Regression> {
        let news = Frontiers {
            write: news(FrontierKind::Write, &self.write, &report.write)?,
            input: news(FrontierKind::Input, &self.input, &report.input)?,
            output: news(FrontierKind::Output, &self.output, &report.output)?,
        };
        let take = |own: &mut Frontier, new: &Option<Frontier>| {
            if let Some(new) = new {
                own.clone_from(new);
            }
        };
        take(&mut self.write, &news.write);
        take(&mut self.input, &news.input);
        take(&mut self.output, &news.output);
        Ok(news)
    }

    /// Whether the last report came in: write and output are closed.
    pub fn is_final(&self) -> bool {
        self.write.is_empty() && self.output.is_empty()
    }

    /// What all of `parts` have reached. A part that is closed holds nobody back.
    ///
    /// # Panics
    /// If there are no parts: the meet of nothing would read as closed.
    pub fn meet(parts: &[Progress]) -> Progress {
        assert!(!parts.is_empty(), "the meet of no progress at all is not a frontier");
        let meet = |of: fn(&Progress) -> &Frontier| {
            let least = parts.iter().filter_map(|part| of(part).as_option()).min();
            least.copied().map(Antichain::from_elem).unwrap_or_default()
        };
        Progress {
            write: meet(|part| &part.write),
            input: meet(|part| &part.input),
            output: meet(|part| &part.output),
        }
    }

    /// All of it as a report.
    pub fn report(&self) -> Frontiers {
        Frontiers {
            write: Some(self.write.clone()),
            input: Some(self.input.clone()),
            output: Some(self.output.clone()),
        }
    }
}

impl Frontiers {
    /// Whether this says nothing.
    pub fn is_empty(&self) -> bool {
        self.write.is_none() && self.input.is_none() && self.output.is_none()
    }
}

fn news(
    kind: FrontierKind,
    from: &Frontier,
    to: &Option<Frontier>,
) -> Result<Option<Frontier>, Regression> {
    match to {
        None => Ok(None),
        Some(to) if to == from => Ok(None),
        Some(to) if PartialOrder::less_equal(from, to) => Ok(Some(to.clone())),
        Some(to) => Err(Regression { kind, from: from.clone(), to: to.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: u64) -> Frontier {
        Antichain::from_elem(time)
    }

    #[test]
    fn only_news_comes_back_and_closing_is_progress() {
        let mut progress = Progress::start();
        let report =
            Frontiers { write: Some(at(3)), input: Some(at(0)), output: Some(Frontier::new()) };
        let news = progress.advance(&report).expect("forward");
        assert_eq!(news, Frontiers { input: None, ..report.clone() });
        assert!(progress.advance(&report).expect("the same again").is_empty());
        assert!(!progress.is_final());
        let close = Frontiers { write: Some(Frontier::new()), ..Frontiers::default() };
        progress.advance(&close).expect("closing");
        assert!(progress.is_final());
    }

    #[test]
    fn a_regression_in_any_part_changes_no_part() {
        let mut progress = Progress::start();
        let closed = Frontiers { output: Some(Frontier::new()), ..Frontiers::default() };
        progress.advance(&closed).expect("closing");
        let before = progress.clone();
        let report = Frontiers { write: Some(at(9)), output: Some(at(9)), ..Frontiers::default() };
        let error = progress.advance(&report).expect_err("output reopens");
        assert_eq!(error.to_string(), "the output frontier goes back from {} to {9}");
        assert_eq!(progress, before);
    }

    #[test]
    fn the_meet_waits_for_the_slowest_and_not_for_the_closed() {
        let mut parts = vec![Progress::start(), Progress::start()];
        parts[0].write = at(5);
        assert_eq!(Progress::meet(&parts).write, at(0));
        parts[1].write = Frontier::new();
        assert_eq!(Progress::meet(&parts).write, at(5));
        parts[0].write = Frontier::new();
        assert_eq!(Progress::meet(&parts).write, Frontier::new());
    }
}
