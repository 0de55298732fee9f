//! Draws a run into the files that were asked for.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::timeline::{self, RecordError, Subject, Timeline};

/// The drawings of a run.
#[derive(Debug, Args)]
pub(super) struct DrawArgs {
    /// Draws the run as a page of HTML that needs no network
    #[arg(long, value_name = "OUT.html")]
    timeline: Option<PathBuf>,
    /// Writes the run as Chrome trace events, for Perfetto
    #[arg(long, value_name = "OUT.json")]
    perfetto: Option<PathBuf>,
}

/// What keeps a run from being drawn.
#[derive(Debug, thiserror::Error)]
pub(super) enum DrawError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "the run that was drawn has hash {drawn:016x}, and the one that was judged {judged:016x}: \
         {name} is not deterministic"
    )]
    Differs { name: String, drawn: u64, judged: u64 },
}

impl DrawArgs {
    /// Carries the run out again, records it and draws it, if anything is asked for.
    ///
    /// # Errors
    /// If it cannot be recorded or written, or was not the run whose hash was `judged`.
    pub(super) fn draw(
        &self,
        out: &mut dyn Write,
        subject: impl FnOnce() -> Subject,
        judged: u64,
    ) -> Result<(), DrawError> {
        let drawings: [(&Option<PathBuf>, fn(&Timeline) -> String); 2] = [
            (&self.timeline, timeline::page::render),
            (&self.perfetto, timeline::perfetto::render),
        ];
        if drawings.iter().all(|(path, _)| path.is_none()) {
            return Ok(());
        }
        let recording = timeline::record(&subject())?;
        for (path, render) in drawings {
            let Some(path) = path else { continue };
            write(path, &render(&recording.timeline))?;
            // A drawing whose path cannot be told is still there.
            let _ = writeln!(out, "drawn: {}", path.display());
        }
        let (name, drawn) = (recording.timeline.name, recording.report.hash);
        if drawn == judged { Ok(()) } else { Err(DrawError::Differs { name, drawn, judged }) }
    }
}

fn write(path: &Path, text: &str) -> Result<(), DrawError> {
    fs::write(path, text).map_err(|source| DrawError::Write { path: path.to_path_buf(), source })
}
