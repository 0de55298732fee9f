//! Deterministic simulation of tandem: seeds, faults and oracles over the very code that runs for real.
//!
//! A tour:
//!
//! * [`sched`] runs threads as coroutines under a list of decisions, in virtual time; it knows nothing of replicas and can
//!   simulate any timely program;
//! * [`scenario`] is everything a run does, drawn from a seed ([`rng`]);
//! * [`world`] carries a scenario out: controller, network, replica, faults, and the phase in which all must converge;
//! * [`oracle`] judges what happens, one file per promise; [`model`] is the sequential reference that answers must equal;
//! * [`report`] is what a run comes to; [`sweep`] does many of them; [`cli`] is the command line;
//! * when one fails, [`story`] tells what led to it, [`replay`] keeps it as a file, and [`shrink`] makes it small;
//! * [`timeline`] draws a run: a page to look at, and a trace for Perfetto.

#[cfg(not(madsim))]
compile_error!(
    "tandem-sim runs on madsim and must be built with `--cfg madsim`: build from the repository, whose .cargo/config.toml sets it, or put RUSTFLAGS=\"--cfg madsim\" into the environment"
);

#[cfg(madsim)]
pub mod cli;
#[cfg(madsim)]
pub mod model;
#[cfg(madsim)]
pub mod oracle;
#[cfg(madsim)]
pub mod replay;
#[cfg(madsim)]
pub mod report;
#[cfg(madsim)]
pub mod rng;
#[cfg(madsim)]
pub mod scenario;
#[cfg(madsim)]
pub mod sched;
#[cfg(madsim)]
pub mod shrink;
#[cfg(madsim)]
pub mod story;
#[cfg(madsim)]
pub mod sweep;
#[cfg(madsim)]
pub mod timeline;
#[cfg(madsim)]
pub mod world;
