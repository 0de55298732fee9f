//! What of a run led to a violation: the commands, views, holds and captures of those it is about.
//!
//! The cast is what the violation names, and the indexes that its reads read. What they did and what
//! was done to them is ranked: their own commands and captures before the views in between, and of
//! each rank the first (how they came to be) and the last (what went wrong) before the middle.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tandem::protocol::PeekId;
use tandem::repr::GlobalId;

use super::chronicle::{Chronicle, Class, Entry, Who};
use crate::report::{Subjects, Violation};

/// The most lines a chain has.
const LINES_MAX: usize = 40;

/// How many of a rank's lines are taken from its beginning.
const FIRST: usize = 10;

/// How many of those that a violation names have a part in the story.
const NAMED_MAX: usize = 2;

/// One line of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number in the chronicle, counted from zero.
    pub number: u64,
    /// When, in nanoseconds of virtual time.
    pub at_ns: u64,
    /// Who did it.
    pub who: String,
    /// What.
    pub text: String,
    /// How many entries about the same cast were left out just before it.
    pub left_out: u64,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { at_ns, who, text, .. } = self;
        write!(f, "{:>8}.{:03} us  {who:<8} {text}", at_ns / 1_000, at_ns % 1_000)
    }
}

/// How much an entry matters to a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It is of the reads and threads concerned.
    Own,
    /// It is about the collections concerned.
    Cause,
    /// It shows what became of them.
    Detail,
}

/// Whom the story is about.
struct Cast {
    ids: BTreeSet<GlobalId>,
    peeks: BTreeSet<PeekId>,
    about: Subjects,
}

impl Cast {
    fn new(chronicle: &Chronicle, about: &Subjects) -> Cast {
        let peeks: BTreeSet<_> = about.peeks.iter().take(NAMED_MAX).copied().collect();
        let mut ids: BTreeSet<_> = about.ids.iter().take(NAMED_MAX).copied().collect();
        for (_, entry) in chronicle.entries() {
            if entry.class == Class::Ask && entry.peek.is_some_and(|peek| peeks.contains(&peek)) {
                ids.extend(&entry.ids);
            }
        }
        Cast { ids, peeks, about: about.clone() }
    }

    /// Whether an entry is about a collection of the cast.
    fn is_about(&self, entry: &Entry) -> bool {
        entry.ids.iter().any(|id| self.ids.contains(id))
    }

    fn rank(&self, entry: &Entry) -> Option<Rank> {
        let is_elsewhere = |worker| !self.about.workers.contains(&worker);
        if !self.about.workers.is_empty() && entry.worker.is_some_and(is_elsewhere) {
            return None;
        }
        let own = match entry.who {
            Who::Thread(thread) => self.about.threads.contains(&thread),
            _ => false,
        };
        match (entry.class, entry.peek) {
            (Class::Verdict, _) => Some(Rank::Own),
            (_, Some(peek)) if self.peeks.contains(&peek) => Some(Rank::Own),
            (Class::Work, _) if entry.ids.is_empty() => own.then_some(Rank::Own),
            (Class::Work, _) => (own && self.is_about(entry)).then_some(Rank::Detail),
            (Class::Fault, _) if matches!(entry.who, Who::Thread(_)) => own.then_some(Rank::Cause),
            (Class::Fault, _) => Some(Rank::Cause),
            _ if !self.is_about(entry) => None,
            (Class::Command | Class::Ask, Some(_)) => None,
            (Class::Capture, Some(_)) | (Class::View | Class::Trace, _) => Some(Rank::Detail),
            (Class::Command, None) if entry.who == Who::Endpoint => Some(Rank::Detail),
            _ => Some(Rank::Cause),
        }
    }
}

/// The entries that led to a violation, oldest first. What threads still did after it is no part of that.
pub fn chain(chronicle: &Chronicle, violation: &Violation) -> Vec<Line> {
    let cast = Cast::new(chronicle, &violation.about);
    let mut ranked: BTreeMap<Rank, Vec<u64>> = BTreeMap::new();
    let mut concerned = BTreeMap::new();
    for (number, entry) in chronicle.entries() {
        if let Some(rank) = cast.rank(entry) {
            ranked.entry(rank).or_default().push(number);
            concerned.insert(number, entry);
        }
        if entry.class == Class::Verdict {
            break;
        }
    }
    let mut chosen = BTreeSet::new();
    for numbers in ranked.values() {
        let room = LINES_MAX.saturating_sub(chosen.len());
        chosen.extend(ends(numbers, room));
    }
    let mut left_out = 0;
    let mut lines = Vec::new();
    for (number, entry) in concerned {
        if chosen.contains(&number) {
            lines.push(line(chronicle, number, entry, std::mem::take(&mut left_out)));
        } else {
            left_out += 1;
        }
    }
    lines
}

/// At most so many of them: some of the first, and the last.
fn ends(numbers: &[u64], most: usize) -> Vec<u64> {
    if numbers.len() <= most {
        return numbers.to_vec();
    }
    let first = FIRST.min(most / 3);
    let last = numbers.len() - (most - first);
    numbers[..first].iter().chain(&numbers[last..]).copied().collect()
}

/// All entries.
pub fn everything(chronicle: &Chronicle) -> impl DoubleEndedIterator<Item = Line> {
    chronicle.entries().map(|(number, entry)| line(chronicle, number, entry, 0))
}

fn line(chronicle: &Chronicle, number: u64, entry: &Entry, left_out: u64) -> Line {
    let Entry { at_ns, who, line, .. } = entry;
    let (who, text) = (chronicle.name(*who).to_string(), line.clone());
    Line { number, at_ns: *at_ns, who, text, left_out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Oracle;

    fn entry(class: Class, id: u64, peek: Option<u64>, line: &str) -> Entry {
        Entry {
            at_ns: 1_500,
            who: Who::Control,
            class,
            ids: vec![GlobalId::User(id)],
            peek: peek.map(PeekId),
            worker: None,
            line: line.to_string(),
            hash: 0,
        }
    }

    fn violation() -> Violation {
        Violation::new(Oracle::O2, 0, String::new()).of_peek(PeekId(7))
    }

    #[test]
    fn a_chain_has_the_read_and_what_it_reads_and_nothing_of_others() {
        let mut chronicle = Chronicle::default();
        chronicle.push(entry(Class::Command, 3, None, "sends CreateDataflow u3"));
        chronicle.push(entry(Class::Command, 4, None, "sends CreateDataflow u4"));
        chronicle.push(entry(Class::Ask, 3, Some(7), "peek 7"));
        chronicle.push(entry(Class::Ask, 3, Some(8), "peek 8"));
        chronicle.push(entry(Class::Compaction, 3, None, "may compact u3"));
        chronicle.push(entry(Class::Capture, 3, Some(7), "peek 7 captures u3"));
        let lines = chain(&chronicle, &violation());
        let texts: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
        let expected =
            ["sends CreateDataflow u3", "peek 7", "may compact u3", "peek 7 captures u3"];
        assert_eq!(texts, expected);
        assert_eq!(lines[0].to_string(), "       1.500 us  control  sends CreateDataflow u3");
    }

    #[test]
    fn a_long_chain_keeps_its_beginning_and_its_end_and_counts_what_it_leaves_out() {
        let mut chronicle = Chronicle::default();
        chronicle.push(entry(Class::Ask, 3, Some(7), "peek 7"));
        for index in 0..500 {
            chronicle.push(entry(Class::Compaction, 3, None, &format!("compaction {index}")));
        }
        let lines = chain(&chronicle, &violation());
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!((lines[1].text.as_str(), lines[0].left_out), ("compaction 0", 0));
        assert_eq!(lines.last().map(|line| line.text.as_str()), Some("compaction 499"));
        let left_out: u64 = lines.iter().map(|line| line.left_out).sum();
        assert_eq!(left_out, 501 - LINES_MAX as u64);
    }
}
