//! Replays: a run as one small text file, and what becomes of it when it is run again.
//!
//! A seed says what a run was only as long as nothing changes in how scenarios are drawn and
//! schedules are chosen. A [`ReplayFile`] carries what was drawn: the scenario, the decisions, what
//! is planted, the verdict, and a trail of hashes. So it can be run after unrelated changes of the
//! generators and strategies, and when the code itself has changed, [`Comparison`] says what is
//! different: that it fails in another way or no longer, and at which event it left the path.
//!
//! What a file is made from and turns into is a [`Case`]; carrying one out gives a [`Recording`].

mod case;
mod compare;
mod decisions;
mod file;
mod parse;

#[cfg(test)]
mod tests;

pub use case::{Case, Recording, record};
pub use compare::{Comparison, Outcome};
pub use decisions::DECISIONS_MAX;
pub use file::{Expectation, FORMAT, ReplayFile, Seen, revision};
pub use parse::ReplayError;
