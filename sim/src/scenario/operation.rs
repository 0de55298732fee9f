//! What is asked of the system: operations, and the choices they leave to the moment.

use serde::{Deserialize, Serialize};
use tandem::plan::Finishing;
use tandem::repr::{Datum, Diff, Row, Timestamp};

use super::shape::{CollectionInfo, ConcreteIndex, PlanShape};

/// An operation and the virtual time before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    /// How long after the operation before it, in nanoseconds of virtual time; zero is the same
    /// instant.
    pub gap_ns: u64,
    /// The operation.
    pub operation: Operation,
}

/// One thing that the outside does.
///
/// Every operation is legal in every state. What it acts on is picked when it is carried out; when
/// there is nothing to pick from, it does nothing. *Collections* are the sources, in order, followed
/// by the live indexes in order of creation; *indexes* are the live ones only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Operation {
    /// Appends to a source at its upper and advances the upper by one.
    Tick {
        /// The source, modulo their number.
        source: usize,
        /// What is appended, after the source's [`Ledger`](super::Ledger) admitted it.
        updates: Vec<(Row, Diff)>,
    },
    /// Advances the upper of a source without data.
    Advance {
        /// The source, modulo their number.
        source: usize,
        /// By how much, in timestamps.
        by: u64,
    },
    /// Creates a maintained index.
    CreateIndex {
        /// What it holds.
        spec: IndexSpec,
    },
    /// Reads an index (the fast path).
    Peek {
        /// Which index.
        index: Pick,
        /// At which time.
        when: When,
        /// Which keys.
        keys: KeyChoice,
        /// What is made of the rows; its columns count modulo those there are.
        finishing: Finishing,
        /// Whether and when it is cancelled.
        cancel: Option<Cancel>,
    },
    /// Builds a query dataflow over indexes and reads its output (the slow path), then drops it.
    Query {
        /// What it computes. Picks among indexes only: the sources are no collections here.
        plan: PlanShape,
        /// The columns that make the key of the output's index, modulo its arity.
        key: Vec<usize>,
        /// At which time.
        when: When,
        /// What is made of the rows; its columns count modulo those there are.
        finishing: Finishing,
        /// Whether and when it is cancelled.
        cancel: Option<Cancel>,
    },
    /// Drops an index. What was built over it lives on.
    Drop {
        /// Which index.
        index: Pick,
    },
    /// Creates a dropped index again, under the id it had and as the plan it was; or nothing, when a
    /// collection that it reads is gone.
    Recreate {
        /// Which of the dropped ones, in order of being dropped.
        index: Pick,
    },
    /// Changes how far the controller lets a collection's since trail its upper.
    SetLag {
        /// Which collection.
        collection: Pick,
        /// The new lag, in timestamps.
        lag: u64,
    },
}

impl Operation {
    /// All kinds of operations, by [`Operation::kind`].
    pub const KINDS: [&'static str; 8] =
        ["tick", "advance", "create-index", "peek", "query", "drop", "recreate", "set-lag"];

    /// What kind of operation this is.
    pub fn kind(&self) -> &'static str {
        match self {
            Operation::Tick { .. } => "tick",
            Operation::Advance { .. } => "advance",
            Operation::CreateIndex { .. } => "create-index",
            Operation::Peek { .. } => "peek",
            Operation::Query { .. } => "query",
            Operation::Drop { .. } => "drop",
            Operation::Recreate { .. } => "recreate",
            Operation::SetLag { .. } => "set-lag",
        }
    }

    /// For reads: at which time, and whether cancelled.
    pub fn read(&self) -> Option<(When, Option<Cancel>)> {
        match self {
            Operation::Peek { when, cancel, .. } | Operation::Query { when, cancel, .. } => {
                Some((*when, *cancel))
            }
            _ => None,
        }
    }
}

/// Picks one of those that exist when the operation is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pick {
    /// The one at this position, modulo their number.
    Nth(usize),
    /// The last one.
    Newest,
}

impl Pick {
    /// The position of the pick among `len`; nothing when there are none.
    pub fn resolve(self, len: usize) -> Option<usize> {
        let last = len.checked_sub(1)?;
        Some(match self {
            Pick::Nth(nth) => nth % len,
            Pick::Newest => last,
        })
    }
}

/// The time of a read, relative to what can be read when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// The first readable time.
    Since,
    /// The last readable time.
    UpperMinusOne,
    /// The first time that is not complete yet.
    Upper,
    /// So many timestamps after the first readable time, but no later than the last.
    Within(u64),
    /// So many timestamps after the upper.
    Ahead(u64),
    /// So many timestamps before the first readable time: to be refused by the controller, unless
    /// that would be before the beginning of time.
    BelowSince(u64),
    /// The last of all times: never complete while its inputs live, so that only a cancel or a drop
    /// ends the read. A valid scenario always cancels such a read.
    Last,
}

impl When {
    /// The time, where `since` and `upper` are the frontiers of what is read: for more than one
    /// index the latest since and the earliest upper.
    pub fn resolve(self, since: Timestamp, upper: Timestamp) -> Timestamp {
        let last = upper.saturating_sub(1).max(since);
        match self {
            When::Since => since,
            When::UpperMinusOne => last,
            When::Upper => upper.max(since),
            When::Within(by) => since.saturating_add(by).min(last),
            When::Ahead(by) => upper.max(since).saturating_add(by),
            When::BelowSince(by) => since.saturating_sub(by),
            When::Last => Timestamp::MAX,
        }
    }
}

/// The keys of a read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyChoice {
    /// All rows.
    All,
    /// Only rows with one of these keys; each value fills a key of however many columns.
    Values(Vec<Vec<Datum>>),
}

impl KeyChoice {
    /// The key constraint for an index whose key has `width` columns: values are repeated or cut to
    /// that width, absent ones count as `Null`.
    pub fn fit(&self, width: usize) -> Option<Vec<Row>> {
        let KeyChoice::Values(values) = self else { return None };
        let fit = |value: &Vec<Datum>| {
            Row(value
                .iter()
                .cloned()
                .cycle()
                .chain(std::iter::repeat(Datum::Null))
                .take(width)
                .collect())
        };
        Some(values.iter().map(fit).collect())
    }
}

/// When the controller cancels a read, and what it does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// How long after the read was asked, in nanoseconds of virtual time; zero is the same instant.
    /// The answer may have come by then, or not.
    pub after_ns: u64,
    /// Whether, in the instant of the cancel, the lag of what was read is set to zero, so that
    /// compaction overtakes commands of the read that are still under way.
    pub then_compact: bool,
}

/// What an index holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexSpec {
    /// What is indexed. A mere [`PlanShape::Get`] of a source indexes the source itself, and one of
    /// an index exports that index's arrangement again, or the same collection by another key.
    pub over: PlanShape,
    /// The columns that make its key, modulo the arity.
    pub key: Vec<usize>,
    /// How far the controller lets its since trail its upper, in timestamps.
    pub lag: u64,
}

impl IndexSpec {
    /// What this is over the collections there are; nothing when there are none.
    pub fn concretise(&self, collections: &[CollectionInfo]) -> Option<ConcreteIndex> {
        self.over.concretise_index(&self.key, collections)
    }
}
