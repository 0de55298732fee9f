//! The command line of the testbed; see [`tandem_sim::cli`].

use std::process::ExitCode;

use tandem_sim::sweep::Simulation;

/// A sweep builds and drops worlds of many small parts.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tandem_sim::cli::main(&Simulation)
}
