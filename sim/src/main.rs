//! The command line of the testbed; see [`tandem_sim::cli`].

use std::process::ExitCode;

use tandem_sim::report::RunReport;
use tandem_sim::sweep::{RunRequest, Runner};

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
