//! From a planted defect to a file that shows it: found, shrunk, written, read, replayed.
//!
//! For each defect of the zoo a sweep must find a seed within its budget, by the oracle that is
//! expected of it; shrinking must bring that to what a person can read, and come to the same run
//! again; and the file must reproduce it event for event. With `TANDEM_BLESS` set, the files become
//! the regressions in `tests/regressions`.
//!
//! This takes an optimised build (`cargo test --release -p tandem-sim --test zoo`); in others the
//! tests are ignored.

use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use tandem::zoo::Defect;
use tandem_sim::replay::{Comparison, Outcome, ReplayFile};
use tandem_sim::shrink::{Budget, shrink};
use tandem_sim::sweep::{Failure, RunRequest, Seeds, Simulation, apart, sweep};

/// How many seeds it may take to find a defect.
const SEEDS_MAX: u64 = 2_000;
/// How long it may take to shrink what was found.
const SHRINK_FOR: Duration = Duration::from_secs(60);
/// How many operations may be left.
const OPERATIONS_MAX: usize = 12;
/// How many decisions that are not calm may be left.
const SWITCHES_MAX: usize = 6;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each of them uses all cores.
    arguments.test_threads = Some(1);
    let trials = Defect::ALL.map(|defect| {
        let name = format!("{}_is_found_shrunk_and_replayed", defect.name().replace('-', "_"));
        Trial::test(name, move || found_shrunk_and_replayed(defect))
            .with_ignored_flag(cfg!(debug_assertions))
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

fn found_shrunk_and_replayed(defect: Defect) -> Result<(), Failed> {
    let jobs = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let found = find(defect, jobs)?;
    let start = Instant::now();
    let budget = Budget { deadline: start + SHRINK_FOR, jobs };
    let shrunk =
        shrink(&Simulation, &found.request.case(), budget, &mut |_| ControlFlow::Continue(()))?;
    let (size, wall) = (shrunk.to, start.elapsed());
    println!("{}: from {}", defect.name(), shrunk.from);
    println!("  to {size} in {} runs and {wall:.1?}", shrunk.tried);
    assert_eq!(shrunk.violation.oracle, found.violation.oracle, "shrinking keeps the oracle");
    assert!(shrunk.is_stable, "two more runs had other hashes");
    assert!(wall < SHRINK_FOR, "shrinking took {wall:?}");
    assert!(size.operations <= OPERATIONS_MAX && size.switches <= SWITCHES_MAX, "{size}");
    let path = write(defect, &shrunk.file)?;
    let file: ReplayFile = fs::read_to_string(&path)?.parse()?;
    assert_eq!(file, shrunk.file, "a file reads as it was written");
    let recording = apart(&Simulation, &file.case(), true)?;
    let comparison = Comparison::new(&file, &recording);
    assert_eq!(comparison.outcome, Outcome::Reproduces, "{comparison}");
    Ok(())
}

/// The lowest seed that finds a defect.
fn find(defect: Defect, jobs: NonZeroUsize) -> Result<Failure, Failed> {
    let request = RunRequest { plant: Some(defect), ..RunRequest::new(0) };
    let seeds = Seeds::new(0, SEEDS_MAX)?;
    let tally = sweep(&Simulation, &request, seeds, jobs, &mut |_| ControlFlow::Continue(()));
    if let Some(broken) = tally.broken {
        return Err(broken.to_string().into());
    }
    let found = tally.failures.into_iter().next();
    let found = found.ok_or(format!("{} seeds do not find {}", tally.seeds, defect.name()))?;
    println!("{}: found by seed {}", defect.name(), found.request.seed);
    assert_eq!(found.violation.oracle.name(), defect.oracle(), "{}", found.violation.message);
    Ok(found)
}

fn write(defect: Defect, file: &ReplayFile) -> Result<PathBuf, Failed> {
    let folder = match std::env::var_os("TANDEM_BLESS") {
        Some(_) => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions"),
        None => PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
    };
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}.txt", defect.name()));
    fs::write(&path, file.to_string())?;
    Ok(path)
}
