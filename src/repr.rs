//! Data as the system sees it: identifiers, times, differences, datums and rows.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use timely::progress::Antichain;

/// A moment of a collection's history. The unit is the controller's choice; only the order matters here.
pub type Timestamp = u64;

/// How often a row is added (positive) or removed (negative).
pub type Diff = i64;

/// A frontier of [`Timestamp`]s. The empty frontier means *closed*, never *unknown*.
pub type Frontier = Antichain<Timestamp>;

/// The frontier that follows `time`: `{time + 1}`, or the empty frontier after the last time.
pub fn step_forward(time: Timestamp) -> Frontier {
    time.checked_add(1).map(Antichain::from_elem).unwrap_or_default()
}

/// Whether a collection can be read at `time`: compaction has not passed it, and it is complete.
pub fn readable(since: &Frontier, upper: &Frontier, time: Timestamp) -> bool {
    since.less_equal(&time) && !upper.less_equal(&time)
}

/// A frontier as people read it: `{7}`, or `{}` when closed.
pub fn show(frontier: &Frontier) -> String {
    frontier.as_option().map_or_else(|| "{}".to_string(), |time| format!("{{{time}}}"))
}

/// Decodes a frontier. As times are totally ordered, one with several is an error.
pub(crate) fn deserialize_frontier<'de, D>(deserializer: D) -> Result<Frontier, D::Error>
where
    D: Deserializer<'de>,
{
    let frontier = Frontier::deserialize(deserializer)?;
    match frontier.len() {
        0 | 1 => Ok(frontier),
        times => Err(serde::de::Error::custom(format!("a frontier of {times} times"))),
    }
}

/// Decodes a frontier that may be absent, as [`deserialize_frontier`].
pub(crate) fn deserialize_frontier_option<'de, D>(
    deserializer: D,
) -> Result<Option<Frontier>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    struct Present(#[serde(deserialize_with = "deserialize_frontier")] Frontier);
    Ok(Option::<Present>::deserialize(deserializer)?.map(|Present(frontier)| frontier))
}

/// The name of a collection.
///
/// [`GlobalId::Transient`] names the output of a query dataflow; everything else is maintained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GlobalId {
    /// What the replica maintains about itself.
    System(u64),
    /// What a user created: sources, indexes, views.
    User(u64),
    /// The output of a query dataflow.
    Transient(u64),
}

impl GlobalId {
    /// Whether this is the output of a query dataflow.
    pub fn is_transient(self) -> bool {
        matches!(self, GlobalId::Transient(_))
    }
}

impl fmt::Display for GlobalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GlobalId::System(id) => write!(f, "s{id}"),
            GlobalId::User(id) => write!(f, "u{id}"),
            GlobalId::Transient(id) => write!(f, "t{id}"),
        }
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Datum {
    /// The absent value; it equals itself and sorts first.
    Null,
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// A text.
    Text(String),
}

impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Datum::Null => write!(f, "null"),
            Datum::Bool(value) => write!(f, "{value}"),
            Datum::Int(value) => write!(f, "{value}"),
            Datum::Text(value) => write!(f, "{value:?}"),
        }
    }
}

impl From<i64> for Datum {
    fn from(value: i64) -> Self {
        Datum::Int(value)
    }
}

impl From<bool> for Datum {
    fn from(value: bool) -> Self {
        Datum::Bool(value)
    }
}

impl From<&str> for Datum {
    fn from(value: &str) -> Self {
        Datum::Text(value.to_string())
    }
}

/// A tuple of datums.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Row(pub Vec<Datum>);

impl Row {
    /// A row of the given values.
    pub fn new<D: Into<Datum>>(datums: impl IntoIterator<Item = D>) -> Self {
        Row(datums.into_iter().map(Into::into).collect())
    }

    /// The row made of the named columns, in that order.
    ///
    /// # Panics
    /// If a column is out of range; plans are validated before they are rendered.
    pub fn project(&self, columns: &[usize]) -> Row {
        Row(columns.iter().map(|&column| self.0[column].clone()).collect())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(")?;
        for (index, datum) in self.0.iter().enumerate() {
            if index > 0 {
                write!(f, ", ")?;
            }
            write!(f, "{datum}")?;
        }
        write!(f, ")")
    }
}

/// An error in the data: what evaluating an expression over some row came to.
///
/// Errors are data. They travel beside the rows, are indexed, retracted and compacted like them, and a read at a time
/// at which a collection holds an error answers with the error.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error,
)]
pub enum EvalError {
    /// A division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// A result that does not fit.
    #[error("integer out of range")]
    Overflow,
    /// An operand of the wrong type.
    #[error("operand has the wrong type: {0}")]
    Type(String),
}
