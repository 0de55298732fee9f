//! The machine's view: one object per line, each with its version and kind.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use tandem::zoo::Defect;

use crate::report::Oracle;
use crate::sweep::{Broken, Failure, Tally};

/// One line.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line<'a> {
    /// An oracle fired on a seed.
    Failure(FailedSeed<'a>),
    /// The tool itself broke on a seed.
    Broken { seed: u64, message: &'a str, replay: String },
    /// The last line of a sweep.
    Summary(Box<Summary<'a>>),
    /// An oracle, listed.
    Oracle { name: &'a str, promise: &'a str, exit_code: u8 },
    /// A defect that can be planted, listed.
    Defect { name: &'a str, oracle: &'a str, summary: &'a str },
}

#[derive(Serialize)]
struct FailedSeed<'a> {
    seed: u64,
    oracle: &'a str,
    message: &'a str,
    replay: String,
    at_ns: u64,
    /// Of this run, in 16 hexadecimal digits.
    hash: String,
}

#[derive(Serialize)]
struct Summary<'a> {
    seeds: u64,
    failed: Vec<FailedSeed<'a>>,
    decisions: u64,
    virtual_s: f64,
    wall_s: f64,
    sometimes: &'a BTreeMap<&'static str, u64>,
    /// Of the sweep, in 16 hexadecimal digits.
    hash: String,
    runs: u64,
    jobs: usize,
    planted: Option<&'static str>,
    /// `"2x3"` stands for two processes of three workers per runtime.
    shapes: BTreeMap<String, u64>,
    exercised: &'a BTreeMap<&'static str, u64>,
    checks: BTreeMap<&'static str, u64>,
    /// What a sweep of this size should have tested and did not.
    untested: Vec<String>,
}

impl<'a> FailedSeed<'a> {
    fn of(failure: &'a Failure) -> FailedSeed<'a> {
        let Failure { request, violation, hash } = failure;
        FailedSeed {
            seed: request.seed,
            oracle: violation.oracle.name(),
            message: &violation.message,
            replay: request.replay_command(),
            at_ns: violation.at_ns,
            hash: format!("{hash:016x}"),
        }
    }
}

fn write_line(out: &mut dyn Write, line: Line<'_>) -> io::Result<()> {
    /// Every object says which version of this format it has.
    #[derive(Serialize)]
    struct Versioned<'a> {
        v: u32,
        #[serde(flatten)]
        line: Line<'a>,
    }
    serde_json::to_writer(&mut *out, &Versioned { v: 1, line })?;
    writeln!(out)
}

/// A failure, as it comes.
pub(super) fn failure(out: &mut dyn Write, failure: &Failure) -> io::Result<()> {
    write_line(out, Line::Failure(FailedSeed::of(failure)))
}

/// The tool broke.
pub(super) fn broken(out: &mut dyn Write, broken: &Broken) -> io::Result<()> {
    let Broken { request, message } = broken;
    let replay = request.replay_command();
    write_line(out, Line::Broken { seed: request.seed, message, replay })
}

/// The last line of a sweep that took `wall` with `jobs` runs at a time.
pub(super) fn summary(
    out: &mut dyn Write,
    tally: &Tally,
    wall: Duration,
    jobs: usize,
) -> io::Result<()> {
    let shape = |(&(processes, workers), &count): (&(usize, usize), &u64)| {
        (format!("{processes}x{workers}"), count)
    };
    let summary = Summary {
        seeds: tally.seeds,
        failed: tally.failures.iter().map(FailedSeed::of).collect(),
        decisions: tally.decisions,
        virtual_s: Duration::from_nanos(tally.virtual_ns).as_secs_f64(),
        wall_s: wall.as_secs_f64(),
        sometimes: &tally.sometimes,
        hash: format!("{:016x}", tally.hash),
        runs: tally.runs,
        jobs,
        planted: tally.request().plant.map(Defect::name),
        shapes: tally.shapes.iter().map(shape).collect(),
        exercised: &tally.exercised,
        checks: tally.checks.iter().map(|(oracle, count)| (oracle.name(), *count)).collect(),
        untested: tally.untested(),
    };
    write_line(out, Line::Summary(Box::new(summary)))
}

/// All oracles.
pub(super) fn oracles(out: &mut dyn Write) -> io::Result<()> {
    Oracle::ALL.into_iter().try_for_each(|oracle| {
        let (name, promise, exit_code) = (oracle.name(), oracle.promise(), oracle.exit_code());
        write_line(out, Line::Oracle { name, promise, exit_code })
    })
}

/// All defects.
pub(super) fn defects(out: &mut dyn Write) -> io::Result<()> {
    Defect::ALL.into_iter().try_for_each(|defect| {
        let (name, oracle, summary) = (defect.name(), defect.oracle(), defect.summary());
        write_line(out, Line::Defect { name, oracle, summary })
    })
}
