//! Two timely runtimes over one set of arrangements, so that reads do not wait behind maintenance.
//!
//! A tour, from the outside in:
//!
//! * [`controller`] holds back compaction for whoever still reads, and is the only authority on it;
//! * [`protocol`] is what it says to a replica, and hears from it;
//! * [`router`] hides behind one endpoint that a replica is two runtimes;
//! * [`runtime`] is one worker of one of them: it renders dataflows, answers peeks, reports frontiers;
//! * [`registry`] carries the maintenance runtime's arrangements to the interactive one, within one process;
//! * [`arrange`] is how: views of an arrangement that readers on any thread load without a lock;
//! * [`shard`] is where data comes from: durable append-only collections outside the replica;
//! * [`replica`] runs all of it on threads; [`env`](mod@env) is the seam through which a simulator runs it instead.
//!
//! [`repr`] and [`plan`] are the data and the expressions over it.

pub mod arrange;
pub mod controller;
pub mod env;
pub mod plan;
pub mod protocol;
pub mod registry;
pub mod replica;
pub mod repr;
pub mod router;
pub mod runtime;
pub mod shard;
pub mod zoo;
