//! The workers of one runtime, heard as one.
//!
//! Every worker of a runtime answers its part of every peek and reports its own frontiers. Above
//! this merge the runtime speaks with one voice: one answer per peek, and the frontiers that all of
//! its workers have reached.
//!
//! What is known here is known from responses alone. Commands enter a runtime at the first worker
//! of the first process; a merge that knew peeks or collections from them would be blind everywhere
//! else.
//!
//! * A peek is answered once every worker has answered its part. An error in any part is the
//!   answer, the least one if there are several, so that the answer does not depend on who was
//!   first. Otherwise, if any part was cancelled, the peek was. Otherwise it is the union of the
//!   rows, unordered and unlimited as far as the peek's finishing goes.
//! * A worker that has not reported a collection yet is at the minimum. Only advances of the meet
//!   are passed on. When all workers have closed a collection, that is its last report, and it is
//!   forgotten: the next report under this id is about a successor. (See [`progress`] for what
//!   closes a collection. A worker's input frontier closes with these or before.)
//!
//! [`progress`]: crate::protocol::progress

use std::collections::BTreeMap;

use crate::planted;
use crate::protocol::progress::{Progress, Regression};
use crate::protocol::{Frontiers, Nonce, PeekId, PeekResponse, Response};
use crate::repr::{GlobalId, Row};

/// A worker's response that breaks the protocol. It was ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// There is no such worker.
    #[error("a response of worker {worker}, but there are {parts}")]
    Worker {
        /// The worker.
        worker: usize,
        /// How many there are.
        parts: usize,
    },
    /// A worker's frontier went back.
    #[error("worker {worker} on {id}: {regression}")]
    Regressed {
        /// The worker.
        worker: usize,
        /// The collection.
        id: GlobalId,
        /// Which frontier, from where, to where.
        regression: Regression,
    },
    /// A worker answered its part of a peek twice.
    #[error("worker {worker} answers {uuid} twice")]
    AnsweredTwice {
        /// The worker.
        worker: usize,
        /// The peek.
        uuid: PeekId,
    },
}

/// The progress of each worker on one collection, and of all of them as passed on last.
#[derive(Clone, Debug)]
struct Collection {
    parts: Vec<Progress>,
    merged: Progress,
}

/// Merges the responses of the workers of one runtime.
#[derive(Clone, Debug)]
pub struct Partitioned {
    /// Which connection each worker last said it is in.
    epochs: Vec<Nonce>,
    peeks: BTreeMap<PeekId, Vec<Option<PeekResponse>>>,
    collections: BTreeMap<GlobalId, Collection>,
}

impl Partitioned {
    /// A merge of `parts` workers.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(parts: usize) -> Partitioned {
        assert!(parts > 0, "a runtime has at least one worker");
        Partitioned {
            epochs: vec![Nonce::default(); parts],
            peeks: BTreeMap::new(),
            collections: BTreeMap::new(),
        }
    }

    /// The newest connection that any worker is in; what [`Partitioned::absorb`] gives belongs to
    /// it.
    pub fn nonce(&self) -> Nonce {
        self.epochs.iter().copied().max().unwrap_or_default()
    }

    /// A worker says that it applied the `Hello` of a connection: what follows belongs to that one.
    ///
    /// The first worker to say so voids what was collected for older connections, and what the
    /// other workers say before they follow is ignored. Whoever never calls this has one
    /// connection.
    ///
    /// # Errors
    /// [`MergeError::Worker`].
    pub fn opened(&mut self, worker: usize, nonce: Nonce) -> Result<(), MergeError> {
        self.check(worker)?;
        if nonce > self.nonce() {
            self.peeks.clear();
            self.collections.clear();
        }
        self.epochs[worker] = self.epochs[worker].max(nonce);
        Ok(())
    }

    /// Takes in one worker's response and gives what the runtime as a whole has to say by now.
    ///
    /// # Errors
    /// [`MergeError`]; then nothing has changed.
    pub fn absorb(
        &mut self,
        worker: usize,
        response: Response,
    ) -> Result<Option<Response>, MergeError> {
        self.check(worker)?;
        if self.epochs[worker] < self.nonce() {
            return Ok(None);
        }
        match response {
            Response::Status { .. } => Ok(Some(response)),
            Response::Peek { uuid, response } => {
                let answer = self.answer(worker, uuid, response)?;
                Ok(answer.map(|response| Response::Peek { uuid, response }))
            }
            Response::Frontiers { id, frontiers } => {
                let news = self.report(worker, id, &frontiers)?;
                Ok((!news.is_empty()).then_some(Response::Frontiers { id, frontiers: news }))
            }
        }
    }

    /// The number of peeks of which some parts are answered and others are not.
    pub fn peeks_len(&self) -> usize {
        self.peeks.len()
    }

    /// The number of collections reported by some worker and not yet closed by all.
    pub fn collections_len(&self) -> usize {
        self.collections.len()
    }

    fn check(&self, worker: usize) -> Result<(), MergeError> {
        let parts = self.epochs.len();
        if worker < parts { Ok(()) } else { Err(MergeError::Worker { worker, parts }) }
    }

    fn answer(
        &mut self,
        worker: usize,
        uuid: PeekId,
        response: PeekResponse,
    ) -> Result<Option<PeekResponse>, MergeError> {
        let parts = self.peeks.entry(uuid).or_insert_with(|| vec![None; self.epochs.len()]);
        if parts[worker].is_some() {
            return Err(MergeError::AnsweredTwice { worker, uuid });
        }
        let first_cancel =
            response == PeekResponse::Canceled && !parts.contains(&Some(PeekResponse::Canceled));
        parts[worker] = Some(response);
        if parts.iter().all(Option::is_some) {
            let parts = self.peeks.remove(&uuid).unwrap_or_default();
            return Ok(Some(merge(parts.into_iter().flatten())));
        }
        Ok((planted!(CancelTwice) && first_cancel).then_some(PeekResponse::Canceled))
    }

    fn report(
        &mut self,
        worker: usize,
        id: GlobalId,
        report: &Frontiers,
    ) -> Result<Frontiers, MergeError> {
        let parts = self.epochs.len();
        let collection = self.collections.entry(id).or_insert_with(|| Collection {
            parts: vec![Progress::start(); parts],
            merged: Progress::start(),
        });
        collection.parts[worker].advance(report).map_err(|regression| MergeError::Regressed {
            worker,
            id,
            regression,
        })?;
        let meet = Progress::meet(&collection.parts);
        let news = collection
            .merged
            .advance(&meet.report())
            .expect("a meet of frontiers that only advance only advances");
        if collection.merged.is_final() {
            self.collections.remove(&id);
        }
        Ok(news)
    }
}

/// One answer out of those of all workers.
fn merge(parts: impl Iterator<Item = PeekResponse>) -> PeekResponse {
    let mut rows: BTreeMap<Row, u64> = BTreeMap::new();
    let mut error: Option<String> = None;
    let mut canceled = false;
    for part in parts {
        match part {
            PeekResponse::Rows(part) => {
                for (row, count) in part {
                    let total = rows.entry(row).or_default();
                    *total = total.saturating_add(count);
                }
            }
            PeekResponse::Error(part) => {
                error = Some(match error {
                    Some(error) => error.min(part),
                    None => part,
                });
            }
            PeekResponse::Canceled => canceled = true,
        }
    }
    match error {
        Some(error) => PeekResponse::Error(error),
        None if canceled => PeekResponse::Canceled,
        None => PeekResponse::Rows(rows.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests;
