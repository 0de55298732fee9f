//! What can be asked for on the command line and through the environment.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use tandem::zoo::Defect;

use super::draw::DrawArgs;
use crate::scenario::{Policy, Profile};
use crate::sweep::{PROFILES, RunRequest, Seeds, StrategyName, profile_name};

/// The default sweep: about half a minute on two cores.
pub(super) const DEFAULT_SEEDS: &str = "0..1000";

/// Deterministic simulation of a two-runtime compute replica: seeds, faults and oracles.
#[derive(Debug, Parser)]
#[command(
    name = "tandem-sim",
    after_help = "Exit codes: 0 as promised, 1 an oracle failed or a sweep tested too little, \
                  2 wrong usage, 3 no convergence,\n4 not deterministic, 101 the tool itself \
                  broke. With --plant, whatever oracle fires has found the defect: 1.\n\n\
                  Environment: TANDEM_SEED, TANDEM_SEEDS, TANDEM_JOBS (a flag beats them), \
                  RUST_LOG, NO_COLOR."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Sweeps seeds; ends with what was exercised, and what was not
    Run(RunArgs),
    /// Runs one seed or replay file and tells it as a story, with the verdict and the hash it had
    Replay(ReplayArgs),
    /// Looks for the smallest run that fails as a seed or replay file does
    Shrink(ShrinkArgs),
    /// Prints the scenario of a seed as JSON
    Scenario(ScenarioArgs),
    /// Lists the oracles and what they promise
    Oracles(ListArgs),
    /// Lists the defects that can be planted
    Defects(ListArgs),
}

/// What a seed is turned into.
#[derive(Debug, Args)]
pub(super) struct WhatArgs {
    /// How large scenarios are
    #[arg(long, value_name = "NAME", default_value = "swarm", value_parser = profile_parser())]
    profile: Profile,
    /// What bounds compaction beside the controller
    // No request carries it, because there is only one.
    #[arg(long, value_name = "NAME", default_value = "gate", value_parser = policy_parser())]
    policy: Policy,
    /// Puts a known defect back into the system; the sweep ends where it is found
    #[arg(long, value_name = "NAME", value_parser = defect_parser())]
    plant: Option<Defect>,
    /// Schedules every scenario by this strategy, not by the one it was drawn with
    #[arg(long, value_name = "NAME", value_parser = strategy_parser())]
    strategy: Option<StrategyName>,
}

impl WhatArgs {
    /// The request for this seed.
    pub(super) fn request(&self, seed: u64) -> RunRequest {
        let WhatArgs { profile, plant, strategy, .. } = *self;
        RunRequest { seed, profile, plant, strategy }
    }
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[arg(long, value_name = "A..B", help = seeds_help())]
    seeds: Option<Seeds>,
    /// A single seed [env: TANDEM_SEED]
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    #[command(flatten)]
    pub(super) what: WhatArgs,
    /// How many seeds run at once [env: TANDEM_JOBS] [default: one per core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Prints one JSON object per line, and nothing else, to standard output
    #[arg(long)]
    pub(super) json: bool,
    /// Writes a replay file of every failure into this folder
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
}

impl RunArgs {
    /// The seeds to run: of `--seed` and `--seeds`, of the environment (the single one first), or
    /// the default.
    pub(super) fn seeds(&self, environment: &Environment) -> Result<Seeds, clap::Error> {
        match (self.seed, self.seeds) {
            (Some(seed), _) => return single("--seed", seed),
            (None, Some(seeds)) => return Ok(seeds),
            (None, None) => {}
        }
        let given = environment.seeds()?;
        Ok(given.unwrap_or_else(|| DEFAULT_SEEDS.parse().expect("the default is a range")))
    }

    /// How many seeds to run at once.
    pub(super) fn jobs(&self, environment: &Environment) -> Result<NonZeroUsize, clap::Error> {
        jobs(self.jobs, environment)
    }
}

/// What the flag says, or the environment, or one for each core.
fn jobs(
    flag: Option<NonZeroUsize>,
    environment: &Environment,
) -> Result<NonZeroUsize, clap::Error> {
    if let Some(jobs) = flag {
        return Ok(jobs);
    }
    let given = parse_variable("TANDEM_JOBS", &environment.jobs)?;
    Ok(given.unwrap_or_else(|| thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)))
}

fn seeds_help() -> String {
    format!("The seeds from A on that are below B [env: TANDEM_SEEDS] [default: {DEFAULT_SEEDS}]")
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    pub(super) drawings: DrawArgs,
    /// Prints the whole scenario, all events that were kept, and what was exercised
    #[arg(long)]
    pub(super) verbose: bool,
}

impl ReplayArgs {
    pub(super) fn which(&self, environment: &Environment) -> Result<Which, clap::Error> {
        self.which.get(environment)
    }
}

#[derive(Debug, Args)]
pub(super) struct ShrinkArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Where the smallest failing run is written [default: beside FILE, or in this folder]
    #[arg(short, long = "out", value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    /// How long to look
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(super) budget: u64,
    /// How many candidates are tried at once [env: TANDEM_JOBS] [default: one per core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

impl ShrinkArgs {
    pub(super) fn which(&self, environment: &Environment) -> Result<Which, clap::Error> {
        self.which.get(environment)
    }

    /// How many candidates to try at once.
    pub(super) fn jobs(&self, environment: &Environment) -> Result<NonZeroUsize, clap::Error> {
        jobs(self.jobs, environment)
    }
}

/// A run that somebody means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// That of a seed.
    Seed(RunRequest),
    /// That of a replay file.
    File(PathBuf),
}

#[derive(Debug, Args)]
struct WhichArgs {
    /// A replay file; it carries everything that the other flags say
    #[arg(value_name = "FILE", conflicts_with_all = ["seed", "profile", "policy", "plant", "strategy"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    seed: SeedArgs,
    #[command(flatten)]
    what: WhatArgs,
}

impl WhichArgs {
    fn get(&self, environment: &Environment) -> Result<Which, clap::Error> {
        match &self.file {
            Some(file) => Ok(Which::File(file.clone())),
            None => Ok(Which::Seed(self.what.request(self.seed.get(environment)?))),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct ScenarioArgs {
    #[command(flatten)]
    seed: SeedArgs,
    #[command(flatten)]
    what: WhatArgs,
}

impl ScenarioArgs {
    pub(super) fn request(&self, environment: &Environment) -> Result<RunRequest, clap::Error> {
        Ok(self.what.request(self.seed.get(environment)?))
    }
}

#[derive(Debug, Args)]
struct SeedArgs {
    /// The seed [env: TANDEM_SEED]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl SeedArgs {
    fn get(&self, environment: &Environment) -> Result<u64, clap::Error> {
        let given = match self.seed {
            Some(seed) => Some(seed),
            None => parse_variable("TANDEM_SEED", &environment.seed)?,
        };
        given.ok_or_else(|| {
            let message = "which seed? Give --seed N, or a replay file where one is taken, or set TANDEM_SEED";
            Cli::command().error(ErrorKind::MissingRequiredArgument, message)
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Prints one JSON object per line
    #[arg(long)]
    pub(super) json: bool,
}

/// The variables that stand in for flags. One that is empty counts as unset.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `TANDEM_SEED`: a single seed. Beats `TANDEM_SEEDS`.
    pub seed: Option<String>,
    /// `TANDEM_SEEDS`: a range of seeds.
    pub seeds: Option<String>,
    /// `TANDEM_JOBS`: how many seeds run at once.
    pub jobs: Option<String>,
}

impl Environment {
    /// The seeds it asks for, if any.
    ///
    /// # Errors
    /// If a variable is no seed or no range of seeds.
    pub fn seeds(&self) -> Result<Option<Seeds>, clap::Error> {
        match parse_variable("TANDEM_SEED", &self.seed)? {
            Some(seed) => single("TANDEM_SEED", seed).map(Some),
            None => parse_variable("TANDEM_SEEDS", &self.seeds),
        }
    }

    /// The environment of this process.
    pub fn of_process() -> Environment {
        let read = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Environment {
            seed: read("TANDEM_SEED"),
            seeds: read("TANDEM_SEEDS"),
            jobs: read("TANDEM_JOBS"),
        }
    }
}

fn parse_variable<T: FromStr<Err: std::fmt::Display>>(
    name: &str,
    value: &Option<String>,
) -> Result<Option<T>, clap::Error> {
    let Some(value) = value.as_deref().filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    value.parse().map(Some).map_err(|error| {
        let message = format!("invalid value '{value}' of the variable {name}: {error}");
        Cli::command().error(ErrorKind::ValueValidation, message)
    })
}

fn single(given_by: &str, seed: u64) -> Result<Seeds, clap::Error> {
    Seeds::single(seed).map_err(|error| {
        let message = format!("invalid value '{seed}' of {given_by}: {error}");
        Cli::command().error(ErrorKind::ValueValidation, message)
    })
}

fn profile_parser() -> impl TypedValueParser<Value = Profile> {
    PossibleValuesParser::new(PROFILES.map(profile_name)).map(|name| {
        let profile = PROFILES.into_iter().find(|profile| profile_name(*profile) == name);
        profile.expect("the parser admits names of profiles only")
    })
}

fn policy_parser() -> impl TypedValueParser<Value = Policy> {
    PossibleValuesParser::new(["gate"]).map(|_| Policy::Gate)
}

fn defect_parser() -> impl TypedValueParser<Value = Defect> {
    PossibleValuesParser::new(Defect::ALL.map(Defect::name))
        .map(|name| Defect::from_name(&name).expect("the parser admits names of defects only"))
}

fn strategy_parser() -> impl TypedValueParser<Value = StrategyName> {
    PossibleValuesParser::new(StrategyName::ALL.map(StrategyName::name)).map(|name| {
        StrategyName::from_name(&name).expect("the parser admits names of strategies only")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    fn run_args(line: &str) -> RunArgs {
        match parse(line).unwrap().command {
            Command::Run(args) => args,
            other => panic!("{other:?} is not a sweep"),
        }
    }

    fn environment(seed: &str, seeds: &str, jobs: &str) -> Environment {
        let some = |text: &str| Some(text.to_string());
        Environment { seed: some(seed), seeds: some(seeds), jobs: some(jobs) }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_flag_beats_the_environment_which_beats_the_default() {
        let none = Environment::default();
        let both = environment("7", "5..9", "3");
        let range = environment("", "5..9", "3");
        let seeds = |line, environment| run_args(line).seeds(environment).unwrap().to_string();
        assert_eq!(seeds("sim run", &none), DEFAULT_SEEDS);
        assert_eq!(seeds("sim run", &range), "5..9");
        assert_eq!(seeds("sim run", &both), "7..8");
        assert_eq!(seeds("sim run --seed 4", &both), "4..5");
        assert_eq!(seeds("sim run --seeds 1..3", &both), "1..3");
        let jobs = |line, environment| run_args(line).jobs(environment).unwrap().get();
        assert!(jobs("sim run", &none) >= 1);
        assert_eq!(jobs("sim run", &both), 3);
        assert_eq!(jobs("sim run --jobs 2", &both), 2);
    }

    #[test]
    fn a_bad_variable_is_wrong_usage_and_named() {
        let bad = environment("x", "5..3", "0");
        let args = run_args("sim run");
        let seed = args.seeds(&bad).unwrap_err();
        let seeds = args.seeds(&Environment { seed: None, ..bad.clone() }).unwrap_err();
        let jobs = args.jobs(&bad).unwrap_err();
        for (error, name) in [(seed, "SEED"), (seeds, "SEEDS"), (jobs, "JOBS")] {
            assert!(error.to_string().contains(&format!("TANDEM_{name}:")), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn a_request_carries_what_the_flags_say() {
        let args = run_args("sim run --profile soak --plant cancel-twice --strategy starvation");
        let request = args.what.request(5);
        assert_eq!((request.seed, request.profile), (5, Profile::Soak));
        assert_eq!(request.plant, Some(Defect::CancelTwice));
        assert_eq!(request.strategy, Some(StrategyName::Starvation));
        let plain = run_args("sim run --policy gate").what.request(5);
        assert_eq!(plain, RunRequest::new(5));
    }

    #[test]
    fn every_replay_command_parses_into_the_request_it_came_from() {
        for (profile, plant) in PROFILES.into_iter().zip(Defect::ALL) {
            for strategy in [None, Some(StrategyName::Random)] {
                let plant = Some(plant);
                let request = RunRequest { profile, plant, strategy, ..RunRequest::new(12) };
                let command = request.replay_command();
                let words = command.split_whitespace().skip_while(|word| *word != "--");
                let Command::Replay(args) = Cli::try_parse_from(words).unwrap().command else {
                    panic!("{command} replays");
                };
                let parsed = args.which(&Environment::default()).unwrap();
                assert_eq!(parsed, Which::Seed(request));
            }
        }
    }
}
