//! The command line: asks for runs, and prints what they come to.
//!
//! [`main`] is all that the binary calls. Everything behind it takes its surroundings as arguments
//! (words, environment, runner, streams), so that tests can see what a user would. What is printed
//! for people is in `text`, for machines in `json`; what a result *means*, the exit code included,
//! is decided by [`sweep`](crate::sweep), not here.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use clap::error::ErrorKind;
use tracing_subscriber::EnvFilter;

use crate::sweep::{EXIT_BROKEN, Runner, Tally, judge, sweep};
use crate::timeline::Subject;

mod args;
mod draw;
mod json;
mod progress;
mod text;

pub use args::Environment;

use args::{Cli, Command, ListArgs, ReplayArgs, RunArgs};
use progress::Progress;

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
        Trouble::Output(_) | Trouble::Drawing(_) => writeln!(console.err, "error: {trouble}"),
    };
    match trouble {
        Trouble::Usage(help) if help.kind() == ErrorKind::DisplayHelp => 0,
        Trouble::Usage(_) => 2,
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

/// Prints failures as they come, and how far the sweep is.
struct Reporter<'a, 'b> {
    progress: Progress,
    /// How many failures were seen already.
    reported: usize,
    json: bool,
    console: &'a mut Console<'b>,
}

impl Reporter<'_, '_> {
    fn observe(&mut self, tally: &Tally) -> io::Result<()> {
        let Reporter { progress, reported, json, console } = self;
        for failure in &tally.failures[*reported..] {
            *reported += 1;
            let out = &mut *console.out;
            progress.aside(|| match json {
                true => json::failure(out, failure),
                false if *reported <= FAILURES_SHOWN => text::failure(out, failure),
                false => Ok(()),
            })?;
        }
        if let (true, Some(broken)) = (*json, &tally.broken) {
            progress.aside(|| {
                json::broken(console.out, broken)?;
                text::broken(console.err, broken)
            })?;
        }
        progress.update(tally, console.err)
    }
}

fn replay(
    args: &ReplayArgs,
    environment: &Environment,
    runner: &dyn Runner,
    console: &mut Console<'_>,
) -> Result<u8, Trouble> {
    let (request, is_terminal) = (args.request(environment)?, console.out_is_terminal);
    text::opening(console.out, &request, &request.scenario(), args.verbose)?;
    console.out.flush()?;
    match judge(runner, &request) {
        Ok(judged) => {
            let subject = || Subject::of(&request);
            args.drawings.draw(console.out, subject, judged.report.hash)?;
            text::story(console.out, &request, &judged, args.verbose, is_terminal)?;
            let mut tally = Tally::new(request);
            tally.add(request.seed, Ok(judged));
            Ok(tally.exit_code())
        }
        Err(broken) => {
            text::broken(console.err, &broken)?;
            Ok(EXIT_BROKEN)
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
