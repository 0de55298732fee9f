//! The reader's view: failures, tables and stories.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;
use tandem::zoo::Defect;

use crate::replay::{Case, Comparison};
use crate::report::{Oracle, RunReport, Violation};
use crate::scenario::Scenario;
use crate::shrink::{Progress, Shrunk, Size};
use crate::story::{self, Line};
use crate::sweep::{Broken, Failure, Judged, Tally, profile_name};
use crate::world::Schedule;

/// How many of the last events a failure shows in a sweep.
const FAILURE_EVENTS: usize = 12;

/// How many events are shown where a run parts from what its file tells.
const PARTING_EVENTS: usize = 16;

/// How wide the text of an event is unless all are wanted.
const EVENT_WIDTH: usize = 160;

/// Nanoseconds as milliseconds.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// A failure of a sweep, with what led to it and where it was written, as far as that is known; its
/// last line is the command that replays it.
pub(super) fn failure(
    out: &mut dyn Write,
    failure: &Failure,
    chain: &[Line],
    written: Option<&Path>,
) -> io::Result<()> {
    let Failure { request, violation, hash } = failure;
    writeln!(out, "seed {} failed, hash {hash:016x}", request.seed)?;
    self::violation(out, violation, request.plant)?;
    let skipped = chain.len().saturating_sub(FAILURE_EVENTS);
    if !chain.is_empty() {
        writeln!(out, "  what led there, at last:")?;
    }
    events(out, &chain[skipped..])?;
    if let Some(path) = written {
        writeln!(out, "  written to {}", path.display())?;
    }
    writeln!(out, "{}", request.replay_command())?;
    writeln!(out)
}

fn violation(out: &mut dyn Write, violation: &Violation, plant: Option<Defect>) -> io::Result<()> {
    let Violation { oracle, at_ns, class, message, .. } = violation;
    let class = if class.is_empty() { String::new() } else { format!(" ({class})") };
    writeln!(out, "  violated {oracle}{class} at {:.3} ms of virtual time", ms(*at_ns))?;
    writeln!(out, "  promise:  {}", oracle.promise())?;
    writeln!(out, "  {}", message.replace('\n', "\n  "))?;
    if let Some(defect) = plant {
        writeln!(out, "  planted:  {} (expected of it: {})", defect.name(), defect.oracle())?;
    }
    Ok(())
}

/// Lines of a chain, each within a width, with how many were left out between them.
fn events(out: &mut dyn Write, lines: &[Line]) -> io::Result<()> {
    for line in lines {
        if line.left_out > 0 {
            writeln!(out, "    {:>15} {} more", "...", line.left_out)?;
        }
        let text = line.to_string();
        match text.char_indices().nth(EVENT_WIDTH) {
            Some((end, _)) => writeln!(out, "    {} ...", &text[..end])?,
            None => writeln!(out, "    {text}")?,
        }
    }
    Ok(())
}

/// The tool broke; the last line is the command that runs that seed alone.
pub(super) fn broken(out: &mut dyn Write, broken: &Broken) -> io::Result<()> {
    writeln!(out, "{broken}")?;
    writeln!(out, "{}", broken.request.replay_command())
}

/// What a sweep comes to.
pub(super) struct Ending<'a> {
    /// Its sum.
    pub(super) tally: &'a Tally,
    /// How long it took.
    pub(super) wall: Duration,
    /// How many seeds ran at a time.
    pub(super) jobs: usize,
    /// How many failures were not printed.
    pub(super) hidden_failures: usize,
    /// Whether tables may be drawn.
    pub(super) is_terminal: bool,
}

impl Ending<'_> {
    /// Prints all of it. The last line of a sweep that failed on a seed is the command that replays
    /// the lowest such seed.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let Ending { tally, is_terminal, .. } = *self;
        counts(out, is_terminal, ["exercised", "times"], &tally.exercised)?;
        counts(out, is_terminal, ["oracle", "checks"], &tally.checks)?;
        counts(out, is_terminal, ["sometimes", "times"], &tally.sometimes)?;
        let never_reached = tally.never_reached();
        if !never_reached.is_empty() {
            writeln!(out, "never reached: {}", never_reached.join(", "))?;
        }
        let never_judged: Vec<_> = tally.never_judged().into_iter().map(Oracle::name).collect();
        if !never_judged.is_empty() {
            writeln!(out, "never judged: {}", never_judged.join(", "))?;
        }
        self.rates(out)?;
        self.verdict(out)
    }

    fn rates(&self, out: &mut dyn Write) -> io::Result<()> {
        let Ending { tally, wall, jobs, .. } = *self;
        let wall_s = wall.as_secs_f64().max(1e-9);
        let decisions_per_s = tally.decisions as f64 / wall_s;
        let virtual_per_wall = tally.virtual_ns as f64 / 1e9 / wall_s;
        let core_ms = wall_s * 1e3 * jobs as f64 / tally.seeds.max(1) as f64;
        writeln!(
            out,
            "{decisions_per_s:.0} decisions/s, {virtual_per_wall:.3} s of virtual time per second, \
             {core_ms:.1} ms a seed on one core, {wall_s:.1} s with {jobs} jobs"
        )?;
        let processes = 100.0 * tally.share(|processes, _| processes >= 2);
        let workers = 100.0 * tally.share(|_, workers| workers >= 2);
        writeln!(
            out,
            "{processes:.0}% of seeds had two or more processes, {workers:.0}% two or more workers"
        )
    }

    fn verdict(&self, out: &mut dyn Write) -> io::Result<()> {
        let Ending { tally, hidden_failures, .. } = *self;
        let (request, failed) = (tally.request(), tally.failures.len());
        if hidden_failures > 0 {
            writeln!(out, "{hidden_failures} more failures are not shown")?;
        }
        writeln!(
            out,
            "{} seeds of profile {} in {} runs, {failed} failed, combined hash {:016x}",
            tally.seeds,
            profile_name(request.profile),
            tally.runs,
            tally.hash
        )?;
        tally.untested().iter().try_for_each(|lack| writeln!(out, "too little tested: {lack}"))?;
        if let Some(defect) = request.plant {
            write!(out, "planted {} (expected of it: {}): ", defect.name(), defect.oracle())?;
            match tally.failures.first() {
                Some(found) => writeln!(out, "found by {}", found.violation.oracle)?,
                None => writeln!(out, "not found")?,
            }
        }
        if let Some(broken) = &tally.broken {
            return self::broken(out, broken);
        }
        if let Some(Failure { request, violation, .. }) = tally.failures.first() {
            writeln!(out, "lowest failing seed: {}, by {}", request.seed, violation.oracle)?;
            writeln!(out, "{}", request.replay_command())?;
        }
        Ok(())
    }
}

/// A table of counts; nothing at all if there are none.
fn counts<'a, K: Display + 'a>(
    out: &mut dyn Write,
    is_terminal: bool,
    header: [&str; 2],
    counts: impl IntoIterator<Item = (&'a K, &'a u64)>,
) -> io::Result<()> {
    let mut table = table(is_terminal);
    table.set_header(header);
    for (what, count) in counts {
        table.add_row([what.to_string(), count.to_string()]);
    }
    if table.is_empty() {
        return Ok(());
    }
    table.column_mut(1).expect("there are two columns").set_cell_alignment(CellAlignment::Right);
    print_table(out, &table)?;
    writeln!(out)
}

fn table(is_terminal: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(if is_terminal { presets::UTF8_FULL_CONDENSED } else { presets::NOTHING });
    table
}

fn print_table(out: &mut dyn Write, table: &Table) -> io::Result<()> {
    table.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}

/// All oracles.
pub(super) fn oracles(out: &mut dyn Write, is_terminal: bool) -> io::Result<()> {
    let mut table = table(is_terminal);
    table.set_header(["oracle", "promises that"]);
    table.add_rows(Oracle::ALL.map(|oracle| [oracle.name(), oracle.promise()]));
    print_table(out, &table)
}

/// All defects.
pub(super) fn defects(out: &mut dyn Write, is_terminal: bool) -> io::Result<()> {
    let mut table = table(is_terminal);
    table.set_header(["defect", "seen by", "what goes wrong"]);
    table.add_rows(Defect::ALL.map(|defect| [defect.name(), defect.oracle(), defect.summary()]));
    print_table(out, &table)
}

/// What a replay is about to run.
pub(super) fn opening(out: &mut dyn Write, case: &Case, verbose: bool) -> io::Result<()> {
    let scenario = &case.scenario;
    if verbose {
        writeln!(out, "{scenario}")?;
    }
    writeln!(
        out,
        "seed {}, profile {}: {} processes of {} workers per runtime, {} sources",
        scenario.seed,
        profile_name(scenario.profile),
        scenario.processes,
        scenario.workers,
        scenario.sources.len(),
    )?;
    writeln!(
        out,
        "{} operations in {:.3} ms of virtual time, drawn to stress {}",
        scenario.operations.len(),
        ms(scenario.horizon_ns()),
        switches(scenario),
    )?;
    match &case.schedule {
        Schedule::Drawn => writeln!(out, "scheduled by {:?}", scenario.strategy)?,
        Schedule::Recorded(decisions) => {
            let size = Size::new(scenario, decisions);
            writeln!(out, "scheduled as recorded, with {} context switches", size.switches)?;
        }
    }
    for fault in &scenario.faults {
        let (from_ns, to_ns) = fault.window_ns();
        writeln!(out, "fault {} from {:.3} to {:.3} ms", fault.kind(), ms(from_ns), ms(to_ns))?;
    }
    if let Some(defect) = case.plant {
        writeln!(out, "planted: {}: {}", defect.name(), defect.summary())?;
    }
    writeln!(out)
}

/// The names of the swarm switches that are on.
fn switches(scenario: &Scenario) -> String {
    let Ok(Value::Object(switches)) = serde_json::to_value(scenario.swarm) else {
        return "nothing in particular".to_string();
    };
    let on: Vec<_> = switches
        .iter()
        .filter(|(_, on)| on.as_bool() == Some(true))
        .map(|(name, _)| name.replace('_', " "))
        .collect();
    if on.is_empty() { "nothing in particular".to_string() } else { on.join(", ") }
}

/// What a replay came to.
pub(super) struct Told<'a> {
    /// What was run.
    pub(super) case: &'a Case,
    /// What it came to.
    pub(super) judged: &'a Judged,
    /// How that compares with what a file tells.
    pub(super) comparison: Option<&'a Comparison>,
    /// The command that replays it.
    pub(super) command: &'a str,
    /// Whether everything is told.
    pub(super) verbose: bool,
    /// Whether tables may be drawn.
    pub(super) is_terminal: bool,
}

impl Told<'_> {
    /// Prints it. The last line of one that failed is the command that replays it.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let Told { judged: Judged { recording, runs }, is_terminal, .. } = *self;
        let (report, chronicle) = (&recording.report, recording.chronicle.as_ref());
        if self.verbose {
            for line in chronicle.into_iter().flat_map(story::everything) {
                writeln!(out, "{:>7} {line}", line.number)?;
            }
            writeln!(out)?;
            counts(out, is_terminal, ["exercised", "times"], &report.exercised)?;
            counts(out, is_terminal, ["oracle", "checks"], &report.checks)?;
            counts(out, is_terminal, ["sometimes", "times"], &report.sometimes)?;
        }
        let RunReport { decisions, virtual_ns, hash, .. } = report;
        writeln!(
            out,
            "{decisions} decisions, {:.3} ms of virtual time, hash {hash:016x}",
            ms(*virtual_ns)
        )?;
        if *runs > 1 && report.violation.is_none() {
            writeln!(out, "run twice, with the same hash")?;
        }
        let Some(violation) = &report.violation else {
            writeln!(out, "verdict: as promised")?;
            return self.compare(out);
        };
        writeln!(out, "verdict: {} failed", violation.oracle)?;
        self::violation(out, violation, self.case.plant)?;
        if let Some(chronicle) = chronicle {
            let chain = story::chain(chronicle, violation);
            writeln!(out, "  what led there ({} of {} events):", chain.len(), chronicle.len())?;
            events(out, &chain)?;
        }
        self.compare(out)?;
        writeln!(out, "{}", self.command)
    }

    /// What is different from what a file tells, and what happened where the runs part.
    fn compare(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(comparison) = self.comparison else { return Ok(()) };
        writeln!(out, "{comparison}")?;
        let chronicle = self.judged.recording.chronicle.as_ref();
        if let (Some(range), Some(chronicle)) = (&comparison.differs, chronicle) {
            let lines = story::everything(chronicle);
            let lines = lines.skip_while(|line| line.number < range.start);
            let lines: Vec<_> = lines.take(PARTING_EVENTS).collect();
            writeln!(out, "  what happened there in this run:")?;
            events(out, &lines)?;
        }
        Ok(())
    }
}

/// Something smaller fails.
pub(super) fn improvement(out: &mut dyn Write, progress: &Progress<'_>) -> io::Result<()> {
    writeln!(out, "{} after {} runs", progress.size, progress.tried)
}

/// What a search for something smaller came to; its last line is the command that replays that.
pub(super) fn shrunk(out: &mut dyn Write, shrunk: &Shrunk, path: &Path) -> io::Result<()> {
    let Shrunk { file, from, to, violation, tried, is_stable, is_cut_off } = shrunk;
    writeln!(out, "from {from}")?;
    writeln!(out, "to   {to}")?;
    let end = if *is_cut_off { "the budget ended the search" } else { "nothing smaller was found" };
    writeln!(out, "{tried} runs; {end}")?;
    self::violation(out, violation, file.plant)?;
    match is_stable {
        true => writeln!(out, "run twice more, with the same hash {:016x}", file.hash)?,
        false => writeln!(out, "not stable: two more runs had other hashes")?,
    }
    writeln!(out, "written to {}", path.display())?;
    writeln!(out, "{}", file_command(path))
}

/// The command that replays a file.
pub(super) fn file_command(path: &Path) -> String {
    format!("cargo run --release -p tandem-sim -- replay {}", path.display())
}
