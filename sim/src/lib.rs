//! Deterministic simulation of tandem.

pub mod cli;
pub mod report;

#[cfg(not(madsim))]
compile_error!(
    "tandem-sim runs on madsim and must be built with `--cfg madsim`: build from the repository, whose .cargo/config.toml sets it, or put RUSTFLAGS=\"--cfg madsim\" into the environment"
);

pub mod model;
pub mod scenario;
pub mod sweep;
