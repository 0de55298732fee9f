//! Reading a replay file, and all that can be wrong with one.

use std::collections::BTreeMap;
use std::str::FromStr;

use tandem::zoo::Defect;

use super::decisions::{self, DECISIONS_MAX};
use super::file::{Expectation, FORMAT, ReplayFile, Seen, policy, profile};
use crate::report::Oracle;
use crate::scenario::{Scenario, ScenarioError};
use crate::story::{MARKS_MAX, Trail};

/// Why a text is no replay file. Lines are counted from one, decisions from zero.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It does not begin as one.
    #[error("no replay file: it begins with '{found}', not with 'tandem-replay {FORMAT}'")]
    Foreign {
        /// Its first line, or the beginning of that.
        found: String,
    },
    /// It has another version.
    #[error(
        "version {found} of the replay format, where this tool reads {FORMAT}: replay it with the \
         tool that wrote it"
    )]
    Version {
        /// The version it says it has.
        found: String,
    },
    /// It ends too early.
    #[error("the file is cut off after line {line}: it does not end with 'end'")]
    Truncated {
        /// The last line.
        line: usize,
    },
    /// Something comes after its end.
    #[error("line {line} comes after the end of the file")]
    Trailing {
        /// That line.
        line: usize,
    },
    /// A line is neither a key with a value nor the rest of one.
    #[error("line {line} is '{text}': write 'key: value'")]
    Line {
        /// Which line.
        line: usize,
        /// What it says.
        text: String,
    },
    /// A key that no file has.
    #[error("line {line} has the unknown key '{key}'")]
    Key {
        /// Which line.
        line: usize,
        /// The key.
        key: String,
    },
    /// A key that is there twice.
    #[error("line {line} has the key '{key}' again")]
    Again {
        /// Which line.
        line: usize,
        /// The key.
        key: String,
    },
    /// A key that every file has is not there.
    #[error("the key '{key}' is missing")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A value that cannot be.
    #[error("'{value}' is no value of '{key}': {expected} is expected")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What values look like.
        expected: &'static str,
    },
    /// Something among the decisions is none.
    #[error("decision {position} is '{token}': write a number, or 0*17 for so many calm choices")]
    Decision {
        /// Which of the words.
        position: usize,
        /// The word.
        token: String,
    },
    /// More decisions than any run takes.
    #[error("with word {position} there are {len} decisions: at most {DECISIONS_MAX} are read")]
    ManyDecisions {
        /// Which of the words.
        position: usize,
        /// How many there would be.
        len: usize,
    },
    /// The scenario is not what scenarios look like.
    #[error("the scenario cannot be read: {0}")]
    Scenario(#[from] serde_json::Error),
    /// The scenario cannot be run.
    #[error("the scenario cannot be run: {0}")]
    Invalid(#[from] ScenarioError),
    /// The head and the scenario contradict each other.
    #[error("the head says that '{key}' is {head}, but the scenario says {scenario}: change both")]
    Contradiction {
        /// The key.
        key: &'static str,
        /// The head's value.
        head: String,
        /// The scenario's value.
        scenario: String,
    },
}

/// Every key, in the order they are written.
const KEYS: [&str; 14] = [
    "tool",
    "revision",
    "seed",
    "profile",
    "policy",
    "plant",
    "expect",
    "verdict",
    "at-ns",
    "message",
    "hash",
    "trail",
    "decisions",
    "scenario",
];

impl FromStr for ReplayFile {
    type Err = ReplayError;

    fn from_str(text: &str) -> Result<ReplayFile, ReplayError> {
        let head = Head::read(text)?;
        let scenario: Scenario = serde_json::from_str(head.get("scenario")?)?;
        scenario.validate()?;
        head.agrees("seed", scenario.seed.to_string())?;
        head.agrees("profile", profile(scenario.profile).to_string())?;
        head.agrees("policy", policy(scenario.policy).to_string())?;
        Ok(ReplayFile {
            tool: head.get("tool")?.to_string(),
            revision: head.get("revision")?.to_string(),
            expect: head.parse("expect", "'passes' or 'fails with O2'", expectation)?,
            plant: head.parse("plant", "the name of a defect, or 'none'", plant)?,
            decisions: decisions::read(head.get("decisions")?)?,
            seen: head.seen()?,
            hash: head.parse("hash", "a number of 16 hexadecimal digits", hash)?,
            trail: head.parse("trail", "a distance, a number of entries and hashes", trail)?,
            scenario,
        })
    }
}

/// The values of a file, by key.
struct Head(BTreeMap<&'static str, String>);

impl Head {
    fn read(text: &str) -> Result<Head, ReplayError> {
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end()));
        version(lines.next().map_or("", |(_, line)| line))?;
        let mut values: BTreeMap<&'static str, String> = BTreeMap::new();
        let (mut current, mut last) = (None, 1);
        while let Some((line, text)) = lines.next() {
            last = line;
            if text == "end" {
                return match lines.find(|(_, text)| !text.is_empty()) {
                    Some((line, _)) => Err(ReplayError::Trailing { line }),
                    None => Ok(Head(values)),
                };
            }
            if text.starts_with('#') || text.is_empty() {
                continue;
            }
            if let (Some(more), Some(key)) = (text.strip_prefix("  "), current) {
                let value: &mut String = values.entry(key).or_default();
                value.push('\n');
                value.push_str(more);
                continue;
            }
            let wrong = || ReplayError::Line { line, text: beginning(text) };
            let (key, value) = text.split_once(':').ok_or_else(wrong)?;
            let known = KEYS.into_iter().find(|known| *known == key);
            let key = known.ok_or_else(|| ReplayError::Key { line, key: beginning(key) })?;
            if values.insert(key, value.trim_start().to_string()).is_some() {
                return Err(ReplayError::Again { line, key: key.to_string() });
            }
            current = Some(key);
        }
        Err(ReplayError::Truncated { line: last })
    }

    fn get(&self, key: &'static str) -> Result<&str, ReplayError> {
        self.0.get(key).map(String::as_str).ok_or(ReplayError::Missing { key })
    }

    fn parse<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ReplayError> {
        let value = self.get(key)?;
        parse(value).ok_or_else(|| ReplayError::Value { key, value: beginning(value), expected })
    }

    fn agrees(&self, key: &'static str, scenario: String) -> Result<(), ReplayError> {
        let head = self.get(key)?.to_string();
        if head == scenario {
            return Ok(());
        }
        Err(ReplayError::Contradiction { key, head, scenario })
    }

    /// What the file's run came to.
    fn seen(&self) -> Result<Option<Seen>, ReplayError> {
        let expected = "'as promised', or an oracle and the class of what it found";
        let verdict = self.parse("verdict", expected, verdict)?;
        let Some((oracle, class)) = verdict else { return Ok(None) };
        let at_ns = self.parse("at-ns", "a number of nanoseconds", |text| text.parse().ok())?;
        let message =
            self.parse("message", "a JSON string", |text| serde_json::from_str(text).ok())?;
        Ok(Some(Seen { oracle, class, at_ns, message }))
    }
}

/// The beginning of something that may be long.
fn beginning(text: &str) -> String {
    text.chars().take(60).collect()
}

fn version(line: &str) -> Result<(), ReplayError> {
    match line.strip_prefix("tandem-replay ") {
        None => Err(ReplayError::Foreign { found: beginning(line) }),
        Some(found) if found == FORMAT.to_string() => Ok(()),
        Some(found) => Err(ReplayError::Version { found: beginning(found) }),
    }
}

fn expectation(text: &str) -> Option<Expectation> {
    if text == "passes" {
        return Some(Expectation::Passes);
    }
    Oracle::from_name(text.strip_prefix("fails with ")?).map(Expectation::Fails)
}

fn plant(text: &str) -> Option<Option<Defect>> {
    if text == "none" {
        return Some(None);
    }
    Defect::from_name(text).map(Some)
}

fn verdict(text: &str) -> Option<Option<(Oracle, String)>> {
    if text == "as promised" {
        return Some(None);
    }
    let (oracle, class) = text.split_once(' ').unwrap_or((text, ""));
    Some(Some((Oracle::from_name(oracle)?, class.to_string())))
}

fn hash(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}

fn trail(text: &str) -> Option<Trail> {
    let mut words = text.split_whitespace();
    let every: u64 = words.next()?.parse().ok()?;
    let entries = words.next()?.parse().ok()?;
    let marks: Option<Vec<_>> = words.map(|word| u32::from_str_radix(word, 16).ok()).collect();
    let marks = marks?;
    (every.is_power_of_two() && marks.len() <= MARKS_MAX).then_some(Trail { every, entries, marks })
}
