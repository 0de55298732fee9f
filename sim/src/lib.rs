//! Deterministic simulation of tandem.

#[cfg(not(madsim))]
compile_error!(
    "tandem-sim runs on madsim and must be built with `--cfg madsim`: build from the repository, whose .cargo/config.toml sets it, or put RUSTFLAGS=\"--cfg madsim\" into the environment"
);

pub mod cli;
pub mod model;
pub mod oracle;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod sched;
pub mod sweep;
pub mod timeline;
pub mod world;
