//! Reading a shard into a dataflow.

use std::cell::RefCell;
use std::rc::Rc;

use differential_dataflow::{AsCollection, VecCollection};
use timely::dataflow::Scope;
use timely::dataflow::operators::CapabilitySet;
use timely::dataflow::operators::generic::source;
use timely::progress::Antichain;

use crate::arrange::{StartSignal, operator_waker};
use crate::env::{self, Point};
use crate::repr::{Diff, Frontier, Row, Timestamp};
use crate::shard::{ShardError, ShardReader};

/// What a source operator lets the rest of its worker see.
#[derive(Clone)]
pub(super) struct SourceState {
    /// Up to where the shard has been read.
    pub(super) frontier: Rc<RefCell<Frontier>>,
    /// Whether reading failed.
    pub(super) failed: Rc<RefCell<Failure>>,
}

/// Whether a source operator cannot read its shard.
#[derive(Default)]
pub(super) enum Failure {
    /// It can.
    #[default]
    None,
    /// It cannot, and nobody has been told why.
    New(ShardError),
    /// It cannot.
    Told,
}

/// How many records an operator handles between two places where it could be preempted.
const RECORDS_BETWEEN_POINTS: usize = 32;

/// Emits this worker's part of a shard: its snapshot at `as_of`, then what follows, until `until`.
pub(super) fn shard_source<'scope>(
    scope: Scope<'scope, Timestamp>,
    mut reader: ShardReader,
    as_of: Timestamp,
    until: Frontier,
    start: &StartSignal,
) -> (VecCollection<'scope, Timestamp, Row, Diff>, SourceState) {
    let state = SourceState {
        frontier: Rc::new(RefCell::new(Antichain::from_elem(as_of))),
        failed: Rc::default(),
    };
    let (frontier, failed) = (Rc::clone(&state.frontier), Rc::clone(&state.failed));
    let start = start.clone();
    let stream = source(scope, "Shard", move |capability, info| {
        start.listen(scope.activator_for(Rc::clone(&info.address)));
        let waker = operator_waker(scope.worker().sync_activator_for(info.address.to_vec()));
        // Nothing is ever emitted below `as_of`, and nobody downstream should wait for it.
        let mut capabilities = CapabilitySet::from_elem(capability);
        capabilities.downgrade([as_of]);
        move |output| {
            let has_failed = !matches!(*failed.borrow(), Failure::None);
            if !start.fired() || capabilities.is_empty() || has_failed {
                return;
            }
            match reader.poll(&waker) {
                Ok((updates, upper)) => {
                    for chunk in updates.chunks(RECORDS_BETWEEN_POINTS) {
                        let mut session = output.session(&capabilities);
                        for (row, time, diff) in chunk {
                            if !until.less_equal(time) {
                                session.give((row.clone(), *time, *diff));
                            }
                        }
                        drop(session);
                        env::point(Point::Records(chunk.len()));
                    }
                    if timely::PartialOrder::less_equal(&until, &upper) {
                        capabilities.downgrade(&[] as &[Timestamp]);
                    } else {
                        capabilities.downgrade(upper.iter());
                    }
                    *frontier.borrow_mut() = upper;
                }
                // The capability stays: what cannot be read must not pass for complete and empty.
                Err(error) => *failed.borrow_mut() = Failure::New(error),
            }
        }
    });
    (stream.as_collection(), state)
}
