//! How far a sweep is: a bar on a terminal, a line every few seconds elsewhere.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

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
