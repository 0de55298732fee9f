//! Every seed and every regression is a test of its own.
//!
//! Regressions are the replay files in `tests/regressions`, as `run --out` and `shrink` write them;
//! they come first. What failed without a planted defect must pass, under the recorded schedule and
//! the drawn one. What failed with one must go on failing: it shows that scenarios, schedules and
//! oracles still see it.
//!
//! Seeds are those of the smoke profile: the first few, or what `TANDEM_SEED` or `TANDEM_SEEDS`
//! says. The last line of a seed's failure is the command that replays it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use tandem_sim::cli::{Environment, describe};
use tandem_sim::replay::{Case, Comparison, Expectation, ReplayFile};
use tandem_sim::report::RunReport;
use tandem_sim::scenario::Profile;
use tandem_sim::shrink::schedules::redrawn;
use tandem_sim::sweep::{Failure, RunRequest, Seeds, Simulation, apart, judge};
use tandem_sim::world::Schedule;

/// The seeds that are run unless somebody says which.
const DEFAULT_SEEDS: &str = "0..40";

/// A change of the code moves events in time, and then a recorded schedule may miss what it was
/// recorded for. So a planted defect may also be seen under one of so many others.
const REDRAWS: u64 = 40;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let seeds = match Environment::of_process().seeds() {
        Ok(seeds) => seeds.unwrap_or_else(|| DEFAULT_SEEDS.parse().expect("a range")),
        Err(error) => error.exit(),
    };
    let mut trials = regressions();
    trials.extend(sweep(seeds));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn sweep(seeds: Seeds) -> impl Iterator<Item = Trial> {
    (0..seeds.count()).map(move |offset| {
        let seed = seeds.at(offset);
        Trial::test(format!("seed_{seed}_keeps_every_promise"), move || seed_passes(seed))
    })
}

fn seed_passes(seed: u64) -> Result<(), Failed> {
    let request = RunRequest { profile: Profile::Smoke, ..RunRequest::new(seed) };
    let report = judge(&Simulation, &request, false)?.recording.report;
    assert!(report.decisions > 0, "nothing was scheduled: seed {seed} tested nothing");
    let RunReport { violation: Some(violation), hash, .. } = report else { return Ok(()) };
    Err(describe(&Simulation, &Failure { request, violation, hash }).into())
}

fn regressions() -> Vec<Trial> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
    let files = fs::read_dir(&folder).into_iter().flatten();
    let mut paths: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths.into_iter().map(regression).collect()
}

fn regression(path: PathBuf) -> Trial {
    let stem = path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
    let name = format!("regression_{}_comes_out_as_its_file_expects", stem.replace('-', "_"));
    Trial::test(name, move || {
        let file: ReplayFile = fs::read_to_string(&path)?.parse()?;
        comes_out_as_expected(&file).map_err(|problem| {
            let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into());
            let command = "cargo run --release -p tandem-sim -- replay sim/tests/regressions";
            format!("{problem}\n{command}/{name}").into()
        })
    })
}

fn comes_out_as_expected(file: &ReplayFile) -> Result<(), String> {
    let case = file.case();
    let recording = apart(&Simulation, &case, true)?;
    let comparison = Comparison::new(file, &recording);
    let oracle = |case: &Case| -> Result<_, String> {
        Ok(apart(&Simulation, case, false)?.report.violation.map(|violation| violation.oracle))
    };
    match (file.expect, recording.report.violation) {
        (Expectation::Passes, Some(violation)) => {
            Err(format!("{comparison}\n{}: {}", violation.oracle, violation.message))
        }
        (Expectation::Passes, None) => match oracle(&Case { schedule: Schedule::Drawn, ..case })? {
            None => Ok(()),
            Some(oracle) => Err(format!("{oracle} fails under the schedule that is drawn")),
        },
        (Expectation::Fails(expected), Some(seen)) if seen.oracle == expected => Ok(()),
        (Expectation::Fails(expected), _) => {
            for other in redrawn(&case, REDRAWS) {
                if oracle(&other)? == Some(expected) {
                    return Ok(());
                }
            }
            Err(format!("{comparison}; {expected} fails under none of {REDRAWS} other schedules"))
        }
    }
}
