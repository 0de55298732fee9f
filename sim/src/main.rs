//! The command line of the testbed; see [`tandem_sim::cli`].

use std::process::ExitCode;

use tandem_sim::sweep::Simulation;

fn main() -> ExitCode {
    tandem_sim::cli::main(&Simulation)
}
