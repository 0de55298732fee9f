//! Draws a run into the files that were asked for.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::timeline::{self, RecordError, Subject, Timeline};

/// Makes the text of a drawing.
type Render = fn(&Timeline) -> String;

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
        let drawings: [(&Option<PathBuf>, Render); 2] = [
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::record;
    use crate::scenario::Profile;
    use crate::sweep::RunRequest;

    /// A folder that goes away again.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("tandem-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn request() -> RunRequest {
        RunRequest { profile: Profile::Smoke, ..RunRequest::new(5) }
    }

    fn draw(args: &DrawArgs, judged: u64) -> (Result<(), DrawError>, String) {
        let mut out = Vec::new();
        let drawn = args.draw(&mut out, || Subject::of(&request()), judged);
        (drawn, String::from_utf8(out).unwrap())
    }

    #[test]
    fn what_is_drawn_is_the_run_that_was_judged() {
        let folder = Folder::new("drawn");
        let (page, trace) = (folder.0.join("run.html"), folder.0.join("run.json"));
        let args = DrawArgs { timeline: Some(page.clone()), perfetto: Some(trace.clone()) };
        let report = std::thread::spawn(|| record(&request().case(), false).report).join().unwrap();
        let (drawn, out) = draw(&args, report.hash);
        drawn.unwrap();
        assert_eq!(out, format!("drawn: {}\ndrawn: {}\n", page.display(), trace.display()));
        let hash = format!("{:016x}", report.hash);
        for path in [page, trace] {
            assert!(fs::read_to_string(&path).unwrap().contains(&hash), "{}", path.display());
        }
        let error = draw(&args, report.hash ^ 1).0.unwrap_err().to_string();
        assert!(error.contains("seed 5 is not deterministic") && error.contains(&hash), "{error}");
    }

    #[test]
    fn nothing_is_run_when_nothing_is_asked_for() {
        let args = DrawArgs { timeline: None, perfetto: None };
        args.draw(&mut Vec::new(), || panic!("nobody asked"), 0).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let folder = Folder::new("missing");
        let path = folder.0.join("nowhere").join("run.html");
        let args = DrawArgs { timeline: Some(path.clone()), perfetto: None };
        let error = draw(&args, 0).0.unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}
