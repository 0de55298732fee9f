//! The command line of the testbed; see [`tandem_sim::cli`].

use std::process::ExitCode;

use tandem_sim::report::RunReport;
use tandem_sim::sweep::{RunRequest, Runner};

/// Building and stepping dataflows allocates a lot, and every run on an OS thread of its own: a quarter of a sweep went
/// into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs in the simulated world.
struct World;

impl Runner for World {
    fn run(&self, request: &RunRequest) -> RunReport {
        tandem_sim::world::run(request)
    }
}

fn main() -> ExitCode {
    tandem_sim::cli::main(&World)
}
