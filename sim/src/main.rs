//! The command line of the testbed; see [`tandem_sim::cli`].

use std::process::ExitCode;

use tandem_sim::replay::{Case, Recording};
use tandem_sim::sweep::Runner;

/// Building and stepping dataflows allocates a lot, and every run on an OS thread of its own: a quarter of a sweep went
/// into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs in the simulated world.
struct World;

impl Runner for World {
    fn record(&self, case: &Case, watched: bool) -> Recording {
        tandem_sim::replay::record(case, watched)
    }
}

fn main() -> ExitCode {
    tandem_sim::cli::main(&World)
}
