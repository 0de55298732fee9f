//! The command line: asks for runs, and prints what they come to.
//!
//! [`main`] is all that the binary calls. Everything behind it takes its surroundings as arguments
//! (words, environment, runner, streams), so that tests can see what a user would. What is printed
//! for people is in `text`, for machines in `json`; what a result *means*, the exit code included,
//! is decided by [`sweep`](crate::sweep), not here.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use clap::error::ErrorKind;
use tracing_subscriber::EnvFilter;

use crate::replay::{Case, Comparison, Recording, ReplayFile};
use crate::report::Oracle;
use crate::shrink::{Budget, ShrinkError, shrink as search};
use crate::story;
use crate::sweep::{
    DETERMINISM_EVERY, EXIT_BROKEN, Failure, Runner, Tally, apart, judge_case, sweep,
};
use crate::timeline::Subject;

mod args;
mod draw;
mod files;
mod json;
mod progress;
mod text;

pub use args::Environment;

use args::{Cli, Command, ListArgs, ReplayArgs, RunArgs, ShrinkArgs, Which};
use progress::{Progress, Search};

/// How many failures of a sweep are printed for people; machines get all.
const FAILURES_SHOWN: usize = 10;

/// Where output goes.
pub struct Console<'a> {
    /// What was asked for.
    pub out: &'a mut dyn Write,
    /// Progress and errors.
    pub err: &'a mut dyn Write,
    /// Whether [`Console::out`] is read by a person.
    pub out_is_terminal: bool,
    /// Whether standard error is a terminal; then progress is drawn there, not written.
    pub err_is_terminal: bool,
}

/// What keeps a command from its end.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    /// Wrong usage, or a request for help.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// Output could not be written.
    #[error("cannot write output: {0}")]
    Output(#[from] io::Error),
    /// A replay file cannot be read.
    #[error("cannot replay {}: {problem}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A replay file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Unwritable {
        /// Which file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A run cannot be drawn.
    #[error(transparent)]
    Drawing(#[from] draw::DrawError),
}

/// The whole program: does what the words of this process ask for, and gives its exit code.
pub fn main(runner: &dyn Runner) -> ExitCode {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let (out_is_terminal, err_is_terminal) = (stdout.is_terminal(), stderr.is_terminal());
    if let Err(problem) = log_to_stderr(err_is_terminal) {
        let _ = writeln!(io::stderr(), "error: {problem}");
        return ExitCode::from(2);
    }
    let mut console = Console {
        out: &mut Unread(stdout),
        err: &mut Unread(stderr),
        out_is_terminal,
        err_is_terminal,
    };
    let environment = Environment::of_process();
    ExitCode::from(perform(std::env::args_os(), &environment, runner, &mut console))
}

/// Does what `words` ask for (the first is the name of the program); gives the exit code.
pub fn perform(
    words: impl IntoIterator<Item = OsString>,
    environment: &Environment,
    runner: &dyn Runner,
    console: &mut Console<'_>,
) -> u8 {
    let done = Cli::try_parse_from(words)
        .map_err(Trouble::Usage)
        .and_then(|cli| dispatch(&cli, environment, runner, console));
    let flushed = console.out.flush().map_err(Trouble::Output);
    match done.and_then(|code| flushed.map(|()| code)) {
        Ok(code) => code,
        Err(trouble) => explain(&trouble, console),
    }
}

/// Help goes to the output and is no error.
fn explain(trouble: &Trouble, console: &mut Console<'_>) -> u8 {
    // There is nowhere left to say that this failed.
    let _ = match trouble {
        Trouble::Usage(error) if error.use_stderr() => write!(console.err, "{}", error.render()),
        Trouble::Usage(help) => write!(console.out, "{}", help.render()),
        _ => writeln!(console.err, "error: {trouble}"),
    };
    match trouble {
        Trouble::Usage(help) if help.kind() == ErrorKind::DisplayHelp => 0,
        Trouble::Usage(_) | Trouble::Unreadable { .. } | Trouble::Unwritable { .. } => 2,
        Trouble::Output(_) | Trouble::Drawing(_) => EXIT_BROKEN,
    }
}

fn dispatch(
    cli: &Cli,
    environment: &Environment,
    runner: &dyn Runner,
    console: &mut Console<'_>,
) -> Result<u8, Trouble> {
    let is_terminal = console.out_is_terminal;
    match &cli.command {
        Command::Run(args) => run(args, environment, runner, console),
        Command::Replay(args) => replay(args, environment, runner, console),
        Command::Shrink(args) => shrink(args, environment, runner, console),
        Command::Scenario(args) => {
            let request = args.request(environment)?;
            writeln!(console.out, "{}", request.scenario())?;
            Ok(0)
        }
        Command::Oracles(ListArgs { json: true }) => Ok(json::oracles(console.out).map(|()| 0)?),
        Command::Oracles(_) => Ok(text::oracles(console.out, is_terminal).map(|()| 0)?),
        Command::Defects(ListArgs { json: true }) => Ok(json::defects(console.out).map(|()| 0)?),
        Command::Defects(_) => Ok(text::defects(console.out, is_terminal).map(|()| 0)?),
    }
}

fn run(
    args: &RunArgs,
    environment: &Environment,
    runner: &dyn Runner,
    console: &mut Console<'_>,
) -> Result<u8, Trouble> {
    let (seeds, jobs) = (args.seeds(environment)?, args.jobs(environment)?);
    let start = Instant::now();
    let mut reporter = Reporter {
        progress: Progress::new(seeds, console.err_is_terminal),
        reported: 0,
        json: args.json,
        out: args.out.as_deref(),
        runner,
        console,
    };
    let mut written = Ok(());
    let tally = sweep(runner, &args.what.request(0), seeds, jobs, &mut |tally| {
        written = reporter.observe(tally);
        if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let wall = start.elapsed();
    reporter.progress.finish();
    written?;
    if args.json {
        json::summary(console.out, &tally, wall, jobs.get())?;
    } else {
        let hidden_failures = tally.failures.len().saturating_sub(FAILURES_SHOWN);
        let (tally, jobs, is_terminal) = (&tally, jobs.get(), console.out_is_terminal);
        text::Ending { tally, wall, jobs, hidden_failures, is_terminal }.print(console.out)?;
    }
    Ok(tally.exit_code())
}

/// What is printed of a failure: the oracle, what it saw, what led there, and as the last line the
/// command that replays it. Runs it once more to tell.
pub fn describe(runner: &dyn Runner, failure: &Failure) -> String {
    let chain = match apart(runner, &failure.request.case(), true) {
        Ok(Recording { chronicle: Some(chronicle), .. }) => {
            story::chain(&chronicle, &failure.violation)
        }
        _ => Vec::new(),
    };
    let mut text = Vec::new();
    text::failure(&mut text, failure, &chain, None).expect("memory takes everything");
    String::from_utf8_lossy(&text).trim_end().to_string()
}

/// Prints failures as they come, and how far the sweep is.
struct Reporter<'a, 'b> {
    progress: Progress,
    /// How many failures were seen already.
    reported: usize,
    json: bool,
    /// Where replay files go.
    out: Option<&'a Path>,
    runner: &'a dyn Runner,
    console: &'a mut Console<'b>,
}

impl Reporter<'_, '_> {
    fn observe(&mut self, tally: &Tally) -> Result<(), Trouble> {
        for failure in &tally.failures[self.reported..] {
            self.reported += 1;
            let is_told = !self.json && self.reported <= FAILURES_SHOWN;
            let (chain, written) = self.look_again(failure, is_told)?;
            let (json, out) = (self.json, &mut *self.console.out);
            self.progress.aside(|| match json {
                true => json::failure(out, failure),
                false if is_told => text::failure(out, failure, &chain, written.as_deref()),
                false => Ok(()),
            })?;
        }
        let Reporter { progress, json, console, .. } = self;
        if let (true, Some(broken)) = (*json, &tally.broken) {
            progress.aside(|| {
                json::broken(console.out, broken)?;
                text::broken(console.err, broken)
            })?;
        }
        Ok(progress.update(tally, console.err)?)
    }

    /// Runs a failure once more, watched, if it is to be told or to be written.
    fn look_again(
        &self,
        failure: &Failure,
        is_told: bool,
    ) -> Result<(Vec<story::Line>, Option<PathBuf>), Trouble> {
        if !is_told && self.out.is_none() {
            return Ok((Vec::new(), None));
        }
        let case = failure.request.case();
        let Ok(recording) = apart(self.runner, &case, true) else {
            // It ran before, so it differs from itself: the failure says what there is to say.
            return Ok((Vec::new(), None));
        };
        let chronicle = recording.chronicle.as_ref();
        let chain = chronicle.map(|chronicle| story::chain(chronicle, &failure.violation));
        let Some(folder) = self.out else { return Ok((chain.unwrap_or_default(), None)) };
        // The sweep's verdict: one that took two runs to find is not in this one.
        let seen = Some((&failure.violation).into());
        let file = ReplayFile { seen, ..ReplayFile::new(&case, &recording) };
        let path = folder.join(file.name());
        files::write(&path, &file)?;
        Ok((chain.unwrap_or_default(), Some(path)))
    }
}

/// A run that somebody means, ready to be carried out.
struct Meant {
    case: Case,
    file: Option<ReplayFile>,
    /// The command that replays it.
    command: String,
    /// The file it was read from, or the one it would be written to.
    path: PathBuf,
    /// Whether it is run twice and compared with itself.
    is_twice: bool,
}

impl Meant {
    fn new(which: Which) -> Result<Meant, Trouble> {
        match which {
            Which::Seed(request) => {
                let case = request.case();
                let command = request.replay_command();
                let path = PathBuf::from(format!("seed-{}.txt", request.seed));
                let is_twice = request.seed.is_multiple_of(DETERMINISM_EVERY);
                Ok(Meant { case, file: None, command, path, is_twice })
            }
            Which::File(path) => {
                let file = files::read(&path)?;
                let seen = file.seen.as_ref();
                let is_twice = seen.is_some_and(|seen| seen.oracle == Oracle::O11);
                let command = text::file_command(&path);
                Ok(Meant { case: file.case(), file: Some(file), command, path, is_twice })
            }
        }
    }
}

fn replay(
    args: &ReplayArgs,
    environment: &Environment,
    runner: &dyn Runner,
    console: &mut Console<'_>,
) -> Result<u8, Trouble> {
    let is_terminal = console.out_is_terminal;
    let Meant { case, file, command, is_twice, .. } = Meant::new(args.which(environment)?)?;
    text::opening(console.out, &case, args.verbose)?;
    console.out.flush()?;
    let judged = match judge_case(runner, &case, true, is_twice) {
        Ok(judged) => judged,
        Err(message) => {
            let seed = case.scenario.seed;
            writeln!(console.err, "the tool itself broke on seed {seed}: {message}\n{command}")?;
            return Ok(EXIT_BROKEN);
        }
    };
    let comparison = file.as_ref().map(|file| Comparison::new(file, &judged.recording));
    let comparison = comparison.as_ref();
    let subject = || Subject::of_case(&case, &command);
    args.drawings.draw(console.out, subject, judged.recording.report.hash)?;
    let (verbose, command) = (args.verbose, command.as_str());
    let told =
        text::Told { case: &case, judged: &judged, comparison, command, verbose, is_terminal };
    told.print(console.out)?;
    let violation = judged.recording.report.violation.as_ref();
    Ok(violation.map_or(0, |violation| match case.plant {
        // Whatever oracle fires has found the defect, as in a sweep.
        Some(_) => 1,
        None => violation.oracle.exit_code(),
    }))
}

fn shrink(
    args: &ShrinkArgs,
    environment: &Environment,
    runner: &dyn Runner,
    console: &mut Console<'_>,
) -> Result<u8, Trouble> {
    let jobs = args.jobs(environment)?;
    let Meant { case, command, path, .. } = Meant::new(args.which(environment)?)?;
    writeln!(console.out, "shrinking seed {}, which is replayed by", case.scenario.seed)?;
    writeln!(console.out, "{command}")?;
    console.out.flush()?;
    let path = args.out.clone().unwrap_or_else(|| files::shrunk(&path));
    let deadline = Instant::now() + Duration::from_secs(args.budget);
    let mut search_progress = Search::new(console.err_is_terminal);
    let mut written = Ok(());
    let found = search(runner, &case, Budget { deadline, jobs }, &mut |progress| {
        let file = ReplayFile::new(progress.case, progress.recording);
        written = files::write(&path, &file)
            .and_then(|()| Ok(search_progress.update(progress, console.err)?));
        if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    search_progress.finish();
    written?;
    match found {
        Ok(shrunk) => {
            files::write(&path, &shrunk.file)?;
            text::shrunk(console.out, &shrunk, &path)?;
            Ok(if shrunk.is_stable { 0 } else { Oracle::O11.exit_code() })
        }
        Err(error) => {
            writeln!(console.err, "{error}")?;
            Ok(match error {
                ShrinkError::Passes { .. } => 0,
                ShrinkError::Broken { .. } => EXIT_BROKEN,
                ShrinkError::Unsteady { .. } => Oracle::O11.exit_code(),
            })
        }
    }
}

/// Installs a subscriber that logs to standard error what `RUST_LOG` asks for, if it asks for
/// anything; without one, events cost nothing.
fn log_to_stderr(err_is_terminal: bool) -> Result<(), String> {
    let Some(directives) = std::env::var_os("RUST_LOG").filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let directives = directives.to_string_lossy();
    let filter = EnvFilter::try_new(&directives).map_err(|error| {
        format!("invalid value '{directives}' of the variable RUST_LOG: {error}")
    })?;
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(err_is_terminal && !no_color)
        // The clock of a simulated thread is virtual, and not this one.
        .without_time()
        .try_init()
        .map_err(|error| error.to_string())
}

/// A stream whose reader may go away (`| head`): a verdict is worth something without its text.
struct Unread<W>(W);

impl<W: Write> Write for Unread<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

#[cfg(test)]
mod tests;
