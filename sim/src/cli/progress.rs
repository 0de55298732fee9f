//! How far a sweep or a search is: a bar or a spinner on a terminal, a line now and then elsewhere.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::text;
use crate::shrink;
use crate::sweep::{Seeds, Tally};

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows how far a sweep is.
pub(super) enum Progress {
    /// On the terminal that is standard error.
    Bar(ProgressBar),
    /// In lines.
    Lines {
        /// Of how many seeds.
        total: u64,
        /// When the last line was written.
        last: Instant,
    },
}

impl Progress {
    /// Of a sweep that begins.
    pub(super) fn new(seeds: Seeds, is_terminal: bool) -> Progress {
        if !is_terminal {
            return Progress::Lines { total: seeds.count(), last: Instant::now() };
        }
        let template = "{bar:40} {pos}/{len} seeds{msg}, {elapsed} gone, {eta} to go";
        let style = ProgressStyle::with_template(template).expect("the template is well-formed");
        Progress::Bar(ProgressBar::new(seeds.count()).with_style(style))
    }

    /// Another seed is judged.
    pub(super) fn update(&mut self, tally: &Tally, lines: &mut dyn Write) -> io::Result<()> {
        let failed = match tally.failures.len() {
            0 => String::new(),
            count => format!(", {count} failed"),
        };
        match self {
            Progress::Bar(bar) => {
                bar.set_message(failed);
                bar.set_position(tally.seeds);
            }
            Progress::Lines { total, last } => {
                if last.elapsed() >= LINE_EVERY {
                    *last = Instant::now();
                    writeln!(lines, "{}/{total} seeds{failed}", tally.seeds)?;
                }
            }
        }
        Ok(())
    }

    /// Prints something else meanwhile.
    pub(super) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match self {
            Progress::Bar(bar) => bar.suspend(print),
            Progress::Lines { .. } => print(),
        }
    }

    /// The sweep is over.
    pub(super) fn finish(self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// How often a search writes a line where there is no terminal.
const SEARCH_LINE_EVERY: Duration = Duration::from_secs(1);

/// Shows how far a search for something smaller is.
pub(super) enum Search {
    /// On the terminal that is standard error.
    Spinner(ProgressBar),
    /// In lines: when the last was written.
    Lines(Option<Instant>),
}

impl Search {
    /// Of a search that begins.
    pub(super) fn new(is_terminal: bool) -> Search {
        if !is_terminal {
            return Search::Lines(None);
        }
        let template = "{spinner} {elapsed}: {msg}";
        let style = ProgressStyle::with_template(template).expect("the template is well-formed");
        let spinner = ProgressBar::new_spinner().with_style(style);
        spinner.enable_steady_tick(Duration::from_millis(100));
        Search::Spinner(spinner)
    }

    /// Something smaller fails.
    pub(super) fn update(
        &mut self,
        progress: &shrink::Progress<'_>,
        lines: &mut dyn Write,
    ) -> io::Result<()> {
        match self {
            Search::Spinner(spinner) => {
                spinner.set_message(format!("{} after {} runs", progress.size, progress.tried));
            }
            Search::Lines(last) => {
                if last.is_none_or(|last| last.elapsed() >= SEARCH_LINE_EVERY) {
                    *last = Some(Instant::now());
                    text::improvement(lines, progress)?;
                }
            }
        }
        Ok(())
    }

    /// The search is over.
    pub(super) fn finish(self) {
        if let Search::Spinner(spinner) = self {
            spinner.finish_and_clear();
        }
    }
}
