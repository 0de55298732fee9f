//! What a sweep adds up to, and whether that is good.

use std::collections::BTreeMap;

use super::{Broken, Judged, RunRequest};
use crate::replay::Recording;
use crate::report::{Oracle, REQUIRED, Violation};
use crate::scenario::Profile;

/// An unplanted sweep of this many seeds must have reached every [`REQUIRED`] situation, and every
/// oracle must have judged something.
pub const COVERING_SEEDS: u64 = 300;

/// The exit code of a tool that broke, as opposed to a system that did.
pub const EXIT_BROKEN: u8 = 101;

/// A seed on which an oracle fired.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was run; [`RunRequest::replay_command`] runs it again.
    pub request: RunRequest,
    /// What the oracle said.
    pub violation: Violation,
    /// The event hash of the run.
    pub hash: u64,
}

/// The sum over the seeds of a sweep, taken in the order of the seeds.
///
/// Nothing in it depends on the number of jobs or on the wall clock.
#[derive(Clone, Debug)]
pub struct Tally {
    request: RunRequest,
    /// How many seeds were judged.
    pub seeds: u64,
    /// How many runs that took: some seeds are run twice.
    pub runs: u64,
    /// Seeds on which an oracle fired, in ascending order.
    pub failures: Vec<Failure>,
    /// The seed on which the tool itself broke, if one did. The sweep ends there.
    pub broken: Option<Broken>,
    /// The decisions that schedulers took, over all seeds; of a seed that is run twice, once.
    pub decisions: u64,
    /// The virtual time that passed, in nanoseconds, likewise.
    pub virtual_ns: u64,
    /// How often each situation occurred. Those of [`REQUIRED`] are always present.
    pub sometimes: BTreeMap<&'static str, u64>,
    /// How often each thing was done.
    pub exercised: BTreeMap<&'static str, u64>,
    /// How often each oracle judged something. Every oracle is present.
    pub checks: BTreeMap<Oracle, u64>,
    /// How many seeds had this number of processes, and of workers per process and runtime.
    pub shapes: BTreeMap<(usize, usize), u64>,
    /// The event hashes of all seeds in their order, folded into one.
    pub hash: u64,
}

impl Tally {
    /// Of no seeds, for runs that differ from `request` in their seeds only.
    pub fn new(request: RunRequest) -> Tally {
        Tally {
            request,
            seeds: 0,
            runs: 0,
            failures: Vec::new(),
            broken: None,
            decisions: 0,
            virtual_ns: 0,
            sometimes: REQUIRED.into_iter().map(|name| (name, 0)).collect(),
            exercised: BTreeMap::new(),
            checks: Oracle::ALL.into_iter().map(|oracle| (oracle, 0)).collect(),
            shapes: BTreeMap::new(),
            hash: 0,
        }
    }

    /// What all seeds have in common.
    pub fn request(&self) -> &RunRequest {
        &self.request
    }

    /// Adds what became of the next seed.
    pub(crate) fn add(&mut self, seed: u64, outcome: Result<Judged, Broken>) {
        let Judged { recording: Recording { report, .. }, runs } = match outcome {
            Ok(judged) => judged,
            Err(broken) => {
                self.broken = Some(broken);
                return;
            }
        };
        self.seeds += 1;
        self.runs += runs;
        self.decisions += report.decisions;
        self.virtual_ns = self.virtual_ns.saturating_add(report.virtual_ns);
        add_counts(&mut self.sometimes, report.sometimes);
        add_counts(&mut self.exercised, report.exercised);
        add_counts(&mut self.checks, report.checks);
        *self.shapes.entry(report.shape).or_default() += 1;
        self.hash = mix(self.hash ^ report.hash);
        if let Some(violation) = report.violation {
            let request = RunRequest { seed, ..self.request };
            self.failures.push(Failure { request, violation, hash: report.hash });
        }
    }

    /// Situations that no seed reached.
    pub fn never_reached(&self) -> Vec<&'static str> {
        self.sometimes.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect()
    }

    /// Oracles that judged nothing on any seed.
    pub fn never_judged(&self) -> Vec<Oracle> {
        self.checks.iter().filter(|(_, count)| **count == 0).map(|(oracle, _)| *oracle).collect()
    }

    /// What this sweep should have tested and did not, one sentence each; such a sweep has failed.
    ///
    /// Nothing is asked of a sweep with a planted defect, of the smoke profile, or of fewer than
    /// [`COVERING_SEEDS`] seeds.
    pub fn untested(&self) -> Vec<String> {
        let Tally { request, seeds, .. } = self;
        let must_cover = request.plant.is_none()
            && request.profile != Profile::Smoke
            && *seeds >= COVERING_SEEDS;
        if !must_cover {
            return Vec::new();
        }
        let situations = self
            .never_reached()
            .into_iter()
            .filter(|name| REQUIRED.contains(name))
            .map(|name| format!("no run of {seeds} seeds reached \"{name}\""));
        let oracles = self
            .never_judged()
            .into_iter()
            .map(|oracle| format!("in {seeds} seeds, oracle {oracle} never judged anything"));
        situations.chain(oracles).collect()
    }

    /// The exit code: that of a broken tool before all others, then 1 (an oracle failed, or the
    /// sweep tested too little), 4 (not deterministic), 3 (no convergence), and 0.
    ///
    /// With a planted defect, whatever oracle fires has found it, and the code is 1.
    pub fn exit_code(&self) -> u8 {
        if self.broken.is_some() {
            return EXIT_BROKEN;
        }
        let planted = self.request.plant.is_some();
        let fired = |code| {
            let code_of = |failure: &Failure| match planted {
                true => 1,
                false => failure.violation.oracle.exit_code(),
            };
            self.failures.iter().any(|failure| code_of(failure) == code)
        };
        match () {
            () if fired(1) || !self.untested().is_empty() => 1,
            () if fired(4) => 4,
            () if fired(3) => 3,
            () => 0,
        }
    }

    /// The share of seeds, from 0 to 1, whose processes and workers satisfy this; 0 of none.
    pub fn share(&self, of: impl Fn(usize, usize) -> bool) -> f64 {
        let matching =
            self.shapes.iter().filter(|((processes, workers), _)| of(*processes, *workers));
        let count: u64 = matching.map(|(_, count)| count).sum();
        if self.seeds == 0 { 0.0 } else { count as f64 / self.seeds as f64 }
    }
}

fn add_counts<K: Ord>(sums: &mut BTreeMap<K, u64>, counts: BTreeMap<K, u64>) {
    for (key, count) in counts {
        *sums.entry(key).or_default() += count;
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014) over one more step of its counter.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use tandem::zoo::Defect;

    use super::super::fake;
    use super::*;

    /// The tally of this many seeds, each failing of one of these oracles while there are some.
    fn tally(request: RunRequest, seeds: u64, oracles: &[Oracle]) -> Tally {
        let mut tally = Tally::new(request);
        for seed in 0..seeds {
            let mut report = fake::report(seed);
            if let Some(oracle) = oracles.get(seed as usize) {
                report.violation = Some(fake::violation(*oracle));
            }
            report.checks = Oracle::ALL.into_iter().map(|oracle| (oracle, 1)).collect();
            tally.add(seed, Ok(Judged { recording: fake::recording(report), runs: 1 }));
        }
        tally
    }

    #[test]
    fn of_several_classes_of_failures_a_wrong_answer_decides_then_nondeterminism() {
        let code = |oracles: &[Oracle]| tally(RunRequest::new(0), 9, oracles).exit_code();
        assert_eq!(code(&[]), 0);
        assert_eq!(code(&[Oracle::O7]), 3);
        assert_eq!(code(&[Oracle::O7, Oracle::O11]), 4);
        assert_eq!(code(&[Oracle::O7, Oracle::O11, Oracle::O3]), 1);
    }

    #[test]
    fn with_a_planted_defect_any_find_is_code_one() {
        let request =
            RunRequest { plant: Some(Defect::PlaceholderOverwritten), ..RunRequest::new(0) };
        assert_eq!(tally(request, 9, &[Oracle::O7]).exit_code(), 1);
        assert_eq!(tally(request, 9, &[]).exit_code(), 0);
    }

    #[test]
    fn a_broken_tool_decides_before_everything_else() {
        let mut tally = tally(RunRequest::new(0), 2, &[Oracle::O1]);
        tally.add(2, Err(Broken { request: RunRequest::new(2), message: "lost".to_string() }));
        assert_eq!(tally.exit_code(), 101);
        assert_eq!(tally.seeds, 2);
    }

    #[test]
    fn a_large_sweep_that_never_reached_a_required_situation_fails_and_names_it() {
        let mut sweep = tally(RunRequest::new(0), COVERING_SEEDS, &[]);
        assert_eq!((sweep.untested(), sweep.exit_code()), (vec![], 0));
        sweep.sometimes.insert(REQUIRED[1], 0);
        assert_eq!(sweep.never_reached(), [REQUIRED[1]]);
        assert_eq!(sweep.exit_code(), 1);
        assert!(sweep.untested()[0].contains(REQUIRED[1]), "{:?}", sweep.untested());
    }

    #[test]
    fn a_large_sweep_in_which_an_oracle_never_judged_fails_and_names_it() {
        let mut sweep = tally(RunRequest::new(0), COVERING_SEEDS, &[]);
        sweep.checks.insert(Oracle::O10, 0);
        assert_eq!(sweep.exit_code(), 1);
        assert!(sweep.untested()[0].contains("O10"), "{:?}", sweep.untested());
    }

    #[test]
    fn small_smoke_and_planted_sweeps_need_not_cover() {
        let planted = RunRequest { plant: Some(Defect::CancelTwice), ..RunRequest::new(0) };
        let smoke = RunRequest { profile: Profile::Smoke, ..RunRequest::new(0) };
        for (request, seeds) in [
            (RunRequest::new(0), COVERING_SEEDS - 1),
            (planted, COVERING_SEEDS),
            (smoke, COVERING_SEEDS),
        ] {
            let mut sweep = tally(request, seeds, &[]);
            sweep.sometimes.insert(REQUIRED[0], 0);
            sweep.checks.insert(Oracle::O1, 0);
            assert_eq!(sweep.exit_code(), 0, "{request:?}");
        }
    }

    #[test]
    fn a_situation_that_runs_do_not_even_mention_counts_as_never_reached() {
        let tally = Tally::new(RunRequest::new(0));
        assert_eq!(tally.never_reached().len(), REQUIRED.len());
        assert_eq!(tally.never_judged(), Oracle::ALL);
    }

    #[test]
    fn the_combined_hash_depends_on_the_order_of_the_seeds() {
        let hash = |hashes: [u64; 2]| {
            let mut tally = Tally::new(RunRequest::new(0));
            for (seed, hash) in hashes.into_iter().enumerate() {
                let report = crate::report::RunReport { hash, ..fake::report(seed as u64) };
                let judged = Judged { recording: fake::recording(report), runs: 1 };
                tally.add(seed as u64, Ok(judged));
            }
            tally.hash
        };
        assert_ne!(hash([1, 2]), hash([2, 1]));
    }

    #[test]
    fn shares_count_seeds_by_their_shape() {
        let mut tally = tally(RunRequest::new(0), 4, &[]);
        tally.shapes = BTreeMap::from([((1, 2), 3), ((2, 1), 1)]);
        assert_eq!(tally.share(|processes, _| processes >= 2), 0.25);
        assert_eq!(tally.share(|_, workers| workers >= 2), 0.75);
        assert_eq!(Tally::new(RunRequest::new(0)).share(|_, _| true), 0.0);
    }
}
