//! A failing run, or one that must not fail again, as a file.
//!
//! ```text
//! tandem-replay 1
//! # cargo run --release -p tandem-sim -- replay FILE
//! tool: 0.1.0
//! revision: 3865945a1b2c
//! seed: 7
//! profile: swarm
//! policy: gate
//! plant: no-since-gate
//! expect: fails with O2
//! verdict: O2 unreadable capture
//! at-ns: 20195413
//! message: "peek 65 captured u102 ..."
//! hash: 320a59ca92d27511
//! trail: 16 2311 1f2e3d4c 5b6a7988 ...
//! decisions: 0*311 2 0*17 1
//! scenario:
//!   {
//!   ...
//!   }
//! end
//! ```
//!
//! One key a line; a line that begins with two blanks goes on with the value of the line before it,
//! and one that begins with `#` is a comment. Seed, profile and policy are the scenario's own,
//! repeated for whoever reads only the head.

use std::fmt::{self, Write};

use serde_json::Value;
use tandem::zoo::Defect;

use super::case::{Case, Recording};
use super::decisions;
use crate::report::{Oracle, Violation};
use crate::scenario::{Policy, Profile, Scenario};
use crate::story::Trail;
use crate::world::Schedule;

/// The version of the format that is written and read.
pub const FORMAT: u32 = 1;

/// Where lines are broken, in bytes.
const WIDTH: usize = 100;

/// The revision of the repository that this was built from, or `unknown`.
pub fn revision() -> &'static str {
    env!("TANDEM_REVISION")
}

/// What a test demands of a file's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// No oracle fires: what it once failed of is mended.
    Passes,
    /// This oracle fires: the defect that is planted is seen.
    Fails(Oracle),
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expectation::Passes => f.write_str("passes"),
            Expectation::Fails(oracle) => write!(f, "fails with {oracle}"),
        }
    }
}

/// What an oracle said when a file was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which oracle.
    pub oracle: Oracle,
    /// The class of the violation; see [`Violation::class`].
    pub class: String,
    /// When, in nanoseconds of virtual time.
    pub at_ns: u64,
    /// What it said.
    pub message: String,
}

impl From<&Violation> for Seen {
    fn from(violation: &Violation) -> Seen {
        let Violation { oracle, at_ns, class, message, .. } = violation;
        let class = class.to_string();
        Seen { oracle: *oracle, class, at_ns: *at_ns, message: message.clone() }
    }
}

/// A run as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayFile {
    /// The version of the tool that wrote it.
    pub tool: String,
    /// The revision of the repository that the tool was built from.
    pub revision: String,
    /// What a regression test demands.
    pub expect: Expectation,
    /// The defect that was planted, if any.
    pub plant: Option<Defect>,
    /// What was done and went wrong.
    pub scenario: Scenario,
    /// The decisions, and the calm choice after their end.
    pub decisions: Vec<u32>,
    /// What was seen; nothing if all was as promised.
    pub seen: Option<Seen>,
    /// The event hash.
    pub hash: u64,
    /// The hashes on the way.
    pub trail: Trail,
}

impl ReplayFile {
    /// The file of a case that was recorded. Its decisions are the recorded ones, wherever the case
    /// had them from. What fails with a defect planted must go on failing, and what fails without
    /// one must not fail again.
    pub fn new(case: &Case, recording: &Recording) -> ReplayFile {
        let seen = recording.report.violation.as_ref().map(Seen::from);
        let expect = match (case.plant, &seen) {
            (Some(_), Some(seen)) => Expectation::Fails(seen.oracle),
            _ => Expectation::Passes,
        };
        let chronicle = recording.chronicle.as_ref();
        ReplayFile {
            tool: env!("CARGO_PKG_VERSION").to_string(),
            revision: revision().to_string(),
            expect,
            plant: case.plant,
            scenario: case.scenario.clone(),
            decisions: recording.decisions.clone(),
            seen,
            hash: recording.report.hash,
            trail: chronicle.map_or_else(Trail::default, |chronicle| chronicle.trail.clone()),
        }
    }

    /// The case that repeats it.
    pub fn case(&self) -> Case {
        Case {
            scenario: self.scenario.clone(),
            plant: self.plant,
            schedule: Schedule::Recorded(self.decisions.clone()),
        }
    }

    /// A name for it among others.
    pub fn name(&self) -> String {
        let mut name = format!("seed-{}-{}", self.scenario.seed, profile(self.scenario.profile));
        if let Some(defect) = self.plant {
            let _ = write!(name, "-{}", defect.name());
        }
        if let Some(seen) = &self.seen {
            let _ = write!(name, "-{}", seen.oracle.name().to_lowercase());
        }
        name + ".txt"
    }
}

pub(super) fn profile(profile: Profile) -> &'static str {
    match profile {
        Profile::Smoke => "smoke",
        Profile::Swarm => "swarm",
        Profile::Soak => "soak",
    }
}

pub(super) fn policy(policy: Policy) -> &'static str {
    match policy {
        Policy::Gate => "gate",
    }
}

impl fmt::Display for ReplayFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReplayFile { tool, revision, expect, plant, scenario, seen, hash, trail, .. } = self;
        writeln!(f, "tandem-replay {FORMAT}")?;
        writeln!(f, "# cargo run --release -p tandem-sim -- replay FILE")?;
        writeln!(f, "tool: {tool}\nrevision: {revision}\nseed: {}", scenario.seed)?;
        writeln!(f, "profile: {}", profile(scenario.profile))?;
        writeln!(f, "policy: {}", policy(scenario.policy))?;
        writeln!(f, "plant: {}", plant.map_or("none", Defect::name))?;
        writeln!(f, "expect: {expect}")?;
        match seen {
            None => writeln!(f, "verdict: as promised")?,
            Some(Seen { oracle, class, at_ns, message }) => {
                writeln!(f, "verdict: {}", format!("{oracle} {class}").trim_end())?;
                writeln!(f, "at-ns: {at_ns}\nmessage: {}", Value::String(message.clone()))?;
            }
        }
        writeln!(f, "hash: {hash:016x}")?;
        let Trail { every, entries, marks } = trail;
        let marks: String = marks.iter().map(|mark| format!(" {mark:08x}")).collect();
        writeln!(f, "{}", wrapped(&format!("trail: {every} {entries}{marks}")))?;
        let decisions = format!("decisions: {}", decisions::write(&self.decisions));
        writeln!(f, "{}", wrapped(decisions.trim_end()))?;
        writeln!(f, "scenario:")?;
        lines(scenario)?.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        writeln!(f, "end")
    }
}

/// Breaks a long line at its blanks.
fn wrapped(line: &str) -> String {
    let mut wrapped = String::new();
    let mut column = 0;
    for word in line.split(' ') {
        if column > 0 && column + 1 + word.len() > WIDTH {
            wrapped.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += word.len();
    }
    wrapped
}

/// A scenario as JSON, with one operation, fault or source to a line.
fn lines(scenario: &Scenario) -> Result<Vec<String>, fmt::Error> {
    let Ok(Value::Object(fields)) = serde_json::to_value(scenario) else {
        return Err(fmt::Error);
    };
    let mut lines = vec!["{".to_string()];
    let last = fields.len() - 1;
    for (index, (name, value)) in fields.iter().enumerate() {
        let comma = if index == last { "" } else { "," };
        match value {
            Value::Array(values) if !values.is_empty() => {
                lines.push(format!("  {name:?}: ["));
                for (index, value) in values.iter().enumerate() {
                    let comma = if index + 1 == values.len() { "" } else { "," };
                    lines.push(format!("    {value}{comma}"));
                }
                lines.push(format!("  ]{comma}"));
            }
            value => lines.push(format!("  {name:?}: {value}{comma}")),
        }
    }
    lines.push("}".to_string());
    Ok(lines)
}
