//! What holds over many seeds: that scenarios are varied enough to find anything, and legal however
//! they are cut.
//!
//! [`DryRun`] carries a scenario out against the reference model alone, with frontiers as they
//! would be if everything happened at once.

use std::collections::{BTreeMap, BTreeSet};

use tandem::plan::{Finishing, IndexDescription, Plan};
use tandem::repr::{Datum, EvalError, GlobalId, Row, Timestamp};

use super::*;
use crate::model::{Expected, Model, ReadError};

const SEEDS: u64 = 300;

fn scenarios() -> impl Iterator<Item = Scenario> {
    (0..SEEDS).map(|seed| Scenario::from_seed(seed, Profile::Swarm))
}

/// A live or dropped index.
#[derive(Clone)]
struct Index {
    id: GlobalId,
    info: CollectionInfo,
    key: Vec<usize>,
    sources: BTreeSet<usize>,
    lag: u64,
}

#[derive(Default)]
struct DryRun {
    model: Model,
    ledgers: Vec<Ledger>,
    uppers: Vec<Timestamp>,
    source_infos: Vec<CollectionInfo>,
    live: Vec<Index>,
    dropped: Vec<Index>,
    next_id: u64,
    counts: BTreeMap<&'static str, usize>,
    /// Updates that the ledgers cut.
    cut: usize,
}

impl DryRun {
    fn of(scenario: &Scenario) -> DryRun {
        let mut run = DryRun { next_id: 100, ..DryRun::default() };
        for (index, source) in scenario.sources.iter().enumerate() {
            let id = GlobalId::User(index as u64);
            run.model.create_source(id).unwrap();
            run.ledgers.push(source.ledger());
            run.uppers.push(0);
            let info = CollectionInfo { id, arity: source.arity, bits: source.bits() };
            run.source_infos.push(info);
        }
        for timed in &scenario.operations {
            run.carry_out(&timed.operation);
        }
        run
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn seen(&self, what: &str) -> usize {
        self.counts.get(what).copied().unwrap_or(0)
    }

    fn carry_out(&mut self, operation: &Operation) {
        match operation {
            Operation::Tick { source, updates } => self.tick(*source, updates),
            Operation::Advance { source, by } => {
                let source = source % self.uppers.len();
                self.uppers[source] += by;
            }
            Operation::CreateIndex { spec } => {
                let infos = self.collections();
                let concrete = spec.concretise(&infos).expect("there are sources");
                let index = self.build(concrete, &infos, spec.lag);
                self.live.push(index);
            }
            Operation::Peek { index, when, keys, finishing, .. } => {
                let Some(position) = index.resolve(self.live.len()) else {
                    return self.count("skipped");
                };
                let index = self.live[position].clone();
                self.read(&index, *when, keys.fit(index.key.len()).as_deref(), finishing);
            }
            Operation::Query { plan, key, when, finishing, .. } => {
                let infos: Vec<_> = self.live.iter().map(|index| index.info.clone()).collect();
                let Some(concrete) = plan.concretise_index(key, &infos) else {
                    return self.count("skipped");
                };
                let offset = self.source_infos.len();
                let over = Concrete {
                    reads: concrete.over.reads.iter().map(|read| read + offset).collect(),
                    ..concrete.over
                };
                let infos = self.collections();
                let index = self.build(ConcreteIndex { over, ..concrete }, &infos, 0);
                self.read(&index, *when, None, finishing);
            }
            Operation::Drop { index } => match index.resolve(self.live.len()) {
                Some(position) => {
                    let index = self.live.remove(position);
                    self.dropped.push(index);
                }
                None => self.count("skipped"),
            },
            Operation::Recreate { index } => match index.resolve(self.dropped.len()) {
                Some(position) => {
                    let index = self.dropped.remove(position);
                    self.live.push(index);
                }
                None => self.count("skipped"),
            },
            Operation::SetLag { collection, lag } => {
                let sources = self.source_infos.len();
                let position = collection.resolve(sources + self.live.len()).unwrap();
                if let Some(index) = position.checked_sub(sources) {
                    self.live[index].lag = *lag;
                }
            }
        }
    }

    fn tick(&mut self, source: usize, updates: &[(Row, i64)]) {
        let source = source % self.uppers.len();
        let admitted = self.ledgers[source].admit(updates);
        assert!(self.ledgers[source].room() >= 0);
        assert!(self.ledgers[source].rows().values().all(|held| *held > 0));
        self.cut += usize::from(admitted != updates);
        let time = self.uppers[source];
        let id = self.source_infos[source].id;
        let timed = admitted.into_iter().map(|(row, diff)| (row, time, diff));
        self.model.append(id, timed).unwrap();
        self.uppers[source] += 1;
    }

    fn collections(&self) -> Vec<CollectionInfo> {
        let indexes = self.live.iter().map(|index| &index.info);
        self.source_infos.iter().chain(indexes).cloned().collect()
    }

    fn build(&mut self, concrete: ConcreteIndex, infos: &[CollectionInfo], lag: u64) -> Index {
        let ConcreteIndex { over, key } = concrete;
        let arities = infos.iter().map(|info| (info.id, info.arity)).collect();
        assert_eq!(over.plan.arity(&arities), Ok(over.arity), "{:?}", over.plan);
        assert!(key.iter().all(|column| *column < over.arity));
        let reads: BTreeSet<_> = over.reads.iter().map(|read| infos[*read].id).collect();
        assert_eq!(reads, over.plan.depends_on());
        let offset = self.source_infos.len();
        let sources = over.reads.iter().flat_map(|read| match read.checked_sub(offset) {
            None => BTreeSet::from([*read]),
            Some(index) => self.live[index].sources.clone(),
        });
        let sources = sources.collect();
        self.next_id += 2;
        let (id, object) = (GlobalId::User(self.next_id), GlobalId::User(self.next_id + 1));
        let on = match over.plan {
            Plan::Get(on) => on,
            plan => {
                self.model.define(object, plan).unwrap();
                object
            }
        };
        self.model.define_index(id, IndexDescription { on, key: key.clone() }).unwrap();
        let info = CollectionInfo { id: on, arity: over.arity, bits: over.bits };
        Index { id, info, key, sources, lag }
    }

    fn read(&mut self, index: &Index, when: When, keys: Option<&[Row]>, finishing: &Finishing) {
        let finishing = fit_finishing(finishing, index.info.arity);
        finishing.validate(index.info.arity).unwrap();
        let upper = index.sources.iter().map(|source| self.uppers[*source]).min().unwrap();
        let time = when.resolve(upper.saturating_sub(index.lag), upper);
        let expected = self.model.answer(index.id, time, keys, &finishing).unwrap();
        let contents = self.model.contents(index.info.id, time).unwrap();
        let magnitude: u64 = contents.oks.values().map(|diff| diff.unsigned_abs()).sum();
        assert!(magnitude <= 1 << index.info.bits, "{magnitude} beyond {} bits", index.info.bits);
        self.count("reads");
        self.count(match expected {
            Expected::Rows(rows) if rows.is_empty() => "empty",
            Expected::Rows(_) => "rows",
            Expected::Error(ReadError::Data(EvalError::DivisionByZero)) => "division by zero",
            Expected::Error(ReadError::Data(EvalError::Overflow)) => "overflow",
            Expected::Error(ReadError::Data(EvalError::Type(_))) => "type",
            Expected::Error(ReadError::Predicate(_)) => "predicate",
            Expected::Error(ReadError::Negative { .. }) => "negative",
        });
    }
}

fn share(count: usize, of: usize) -> f64 {
    count as f64 / of as f64
}

#[test]
fn most_seeds_have_several_processes_and_several_workers() {
    let count = |condition: fn(&Scenario) -> bool| scenarios().filter(condition).count();
    let all = SEEDS as usize;
    assert!(count(|scenario| scenario.processes >= 2) * 2 >= all);
    assert!(count(|scenario| scenario.workers >= 2) * 4 >= all * 3);
    let two_by_two = count(|scenario| (scenario.processes, scenario.workers) == (2, 2));
    assert!(share(two_by_two, all) > 0.35, "{two_by_two}");
    for corner in [(1, 1), (3, 3)] {
        assert!(scenarios().any(|scenario| (scenario.processes, scenario.workers) == corner));
    }
}

#[test]
fn operations_occur_in_the_mix_that_is_meant() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut total = 0;
    for timed in scenarios().flat_map(|scenario| scenario.operations) {
        *counts.entry(timed.operation.kind()).or_default() += 1;
        total += 1;
    }
    assert_eq!(total, SEEDS as usize * Profile::Swarm.operations());
    let bounds = [
        ("tick", 0.30, 0.42),
        ("advance", 0.03, 0.07),
        ("create-index", 0.03, 0.10),
        ("peek", 0.30, 0.48),
        ("query", 0.04, 0.12),
        ("drop", 0.01, 0.06),
        ("recreate", 0.005, 0.05),
        ("set-lag", 0.01, 0.05),
    ];
    assert_eq!(bounds.map(|(kind, ..)| kind), Operation::KINDS);
    for (kind, least, most) in bounds {
        let share = share(counts[kind], total);
        assert!((least..=most).contains(&share), "{kind}: {share}");
    }
}

#[test]
fn every_fault_strategy_and_time_of_a_read_occurs() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut saw = |what: &str| *seen.entry(what.to_string()).or_default() += 1;
    for scenario in scenarios() {
        scenario.faults.iter().for_each(|fault| saw(fault.kind()));
        match scenario.strategy {
            StrategyChoice::Random { .. } => saw("random"),
            StrategyChoice::Starvation { victim: Victim::Runtime(_), .. } => saw("runtime-starved"),
            StrategyChoice::Starvation { victim: Victim::Worker { .. }, .. } => {
                saw("worker-starved");
            }
        }
        for (when, cancel) in scenario.operations.iter().filter_map(|timed| timed.operation.read())
        {
            let when = format!("{when:?}");
            saw(when.split('(').next().unwrap());
            match cancel {
                None => saw("kept"),
                Some(Cancel { after_ns: 0, then_compact: true }) => saw("cancel-at-once-compact"),
                Some(Cancel { after_ns: 0, .. }) => saw("cancel-at-once"),
                Some(Cancel { then_compact: true, .. }) => saw("cancel-later-compact"),
                Some(_) => saw("cancel-later"),
            }
        }
    }
    let expected = "random runtime-starved worker-starved Since UpperMinusOne Upper Within Ahead \
        BelowSince Last kept cancel-at-once-compact cancel-at-once cancel-later-compact \
        cancel-later";
    for what in expected.split_whitespace().chain(Fault::KINDS) {
        assert!(seen.get(what).is_some_and(|count| *count >= 30), "{what}: {:?}", seen.get(what));
    }
    let calm = scenarios().filter(|scenario| scenario.faults.is_empty()).count();
    assert!((20..200).contains(&calm), "{calm} of {SEEDS} seeds have no faults");
}

#[test]
fn races_are_provoked_in_one_instant() {
    let (mut unpublished, mut query_placeholder, mut drop_under_reader, mut successor) =
        (0, 0, 0, 0);
    for scenario in scenarios() {
        for pair in scenario.operations.windows(2) {
            let (first, second) = (&pair[0].operation, &pair[1].operation);
            if pair[1].gap_ns > 0 {
                continue;
            }
            match (first, second) {
                (Operation::CreateIndex { .. }, Operation::Peek { index: Pick::Newest, .. }) => {
                    unpublished += 1;
                }
                (Operation::CreateIndex { .. }, Operation::Query { .. }) => query_placeholder += 1,
                (
                    Operation::Peek { index, cancel: Some(_), .. },
                    Operation::Drop { index: dropped },
                ) if index == dropped => drop_under_reader += 1,
                (Operation::Drop { .. }, Operation::Recreate { .. }) => successor += 1,
                _ => {}
            }
        }
    }
    let counts = [unpublished, query_placeholder, drop_under_reader, successor];
    assert!(counts.iter().all(|count| *count >= 50), "{counts:?}");
}

#[test]
fn every_node_of_a_plan_occurs_and_joins_of_three_do() {
    fn nodes(shape: &PlanShape, seen: &mut BTreeMap<String, usize>) {
        let name = format!("{shape:?}");
        let end = name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len());
        *seen.entry(name[..end].to_string()).or_default() += 1;
        shape.inputs().into_iter().for_each(|input| nodes(input, seen));
    }
    fn three_way_joins(shape: &PlanShape) -> usize {
        let here = matches!(shape, PlanShape::Join { inputs, .. } if inputs.len() == 3);
        usize::from(here) + shape.inputs().into_iter().map(three_way_joins).sum::<usize>()
    }
    let mut seen = BTreeMap::new();
    let mut three_way = 0;
    for timed in scenarios().flat_map(|scenario| scenario.operations) {
        let shape = match &timed.operation {
            Operation::CreateIndex { spec } => &spec.over,
            Operation::Query { plan, .. } => plan,
            _ => continue,
        };
        nodes(shape, &mut seen);
        three_way += three_way_joins(shape);
    }
    let names =
        "Get Map Filter Project Join Reduce Distinct Union Negate Threshold".split_whitespace();
    for name in names {
        assert!(seen.get(name).is_some_and(|count| *count >= 50), "{name}: {seen:?}");
    }
    assert!(three_way >= 50, "{three_way}");
}

#[test]
fn generated_scenarios_are_valid_deterministic_and_survive_being_written() {
    for profile in [Profile::Smoke, Profile::Swarm, Profile::Soak] {
        for seed in (0..40).chain([u64::MAX]) {
            let scenario = Scenario::from_seed(seed, profile);
            assert_eq!(scenario.validate(), Ok(()), "seed {seed}");
            assert_eq!(scenario, Scenario::from_seed(seed, profile));
            assert_eq!(scenario.operations.len(), profile.operations());
            let read: Scenario = serde_json::from_str(&scenario.to_string()).unwrap();
            assert_eq!(read, scenario);
        }
    }
    assert_ne!(Scenario::from_seed(1, Profile::Swarm), Scenario::from_seed(2, Profile::Swarm));
}

#[test]
fn whole_scenarios_are_admitted_as_drawn_and_answer_rows_and_every_kind_of_error() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for scenario in scenarios() {
        let run = DryRun::of(&scenario);
        assert_eq!(run.cut, 0, "seed {}", scenario.seed);
        assert!(run.seen("reads") > 30, "seed {}: {:?}", scenario.seed, run.counts);
        for (what, count) in &run.counts {
            *counts.entry(*what).or_default() += count;
        }
    }
    let reads = counts["reads"];
    assert!(share(counts["rows"], reads) > 0.5, "{counts:?}");
    for what in ["empty", "division by zero", "overflow", "type", "predicate", "negative"] {
        assert!(counts.get(what).is_some_and(|count| *count >= 50), "{what}: {counts:?}");
    }
}

#[test]
fn a_scenario_stays_legal_whatever_is_taken_away_from_it() {
    let mut cut = 0;
    for scenario in scenarios().take(100) {
        for part in 0..3 {
            let mut less = scenario.clone();
            let mut position = 0;
            less.operations.retain_mut(|timed| {
                position += 1;
                if let Operation::Tick { updates, .. } = &mut timed.operation {
                    updates.truncate(1 + part);
                }
                position % 3 != part
            });
            less.sources.truncate(1 + part);
            assert_eq!(less.validate(), Ok(()));
            cut += DryRun::of(&less).cut;
        }
    }
    assert!(cut > 0, "no update ever lost what it deletes: the ledgers were not put to the test");
}

#[test]
fn without_indexes_reads_find_nothing_and_do_nothing() {
    let mut scenario = Scenario::from_seed(3, Profile::Swarm);
    scenario.operations.retain(|timed| !matches!(timed.operation, Operation::CreateIndex { .. }));
    let run = DryRun::of(&scenario);
    assert!(run.seen("skipped") > 0);
    assert_eq!(run.seen("reads"), 0);
}

#[test]
fn times_of_reads_stay_within_their_meaning_at_the_edges() {
    assert_eq!(When::UpperMinusOne.resolve(0, 0), 0);
    assert_eq!(When::UpperMinusOne.resolve(3, 9), 8);
    assert_eq!(When::Within(100).resolve(3, 9), 8);
    assert_eq!(When::Upper.resolve(5, 4), 5);
    assert_eq!(When::Ahead(5).resolve(0, Timestamp::MAX), Timestamp::MAX);
    assert_eq!(When::BelowSince(4).resolve(2, 9), 0);
    assert_eq!(When::Last.resolve(2, 9), Timestamp::MAX);
}

#[test]
fn keys_are_made_as_wide_as_the_index_needs() {
    let keys = KeyChoice::Values(vec![vec![1.into(), 2.into()], vec![]]);
    let wide = [Row::new([1, 2, 1]), Row(vec![Datum::Null; 3])];
    assert_eq!(keys.fit(3), Some(wide.to_vec()));
    assert_eq!(keys.fit(0), Some(vec![Row::default(), Row::default()]));
    assert_eq!(KeyChoice::All.fit(2), None);
}

#[test]
fn joins_that_would_grow_beyond_the_bound_lose_inputs() {
    let info = |id, bits| CollectionInfo { id: GlobalId::User(id), arity: 2, bits };
    let (small, large) = (info(1, 4), info(2, 10));
    let gets = |picks: &[usize]| picks.iter().map(|nth| PlanShape::Get(Pick::Nth(*nth))).collect();
    let join = |picks| PlanShape::Join { inputs: gets(picks), keys: vec![vec![7]] };
    let all = [small, large];
    let kept = join(&[0, 0, 0]).concretise(&all).unwrap();
    assert_eq!((kept.arity, kept.bits), (6, 12));
    let lost = join(&[0, 1, 0]).concretise(&all).unwrap();
    assert_eq!((lost.arity, lost.bits, lost.reads), (4, 8, BTreeSet::from([0])));
    let alone = join(&[1, 0]).concretise(&all).unwrap();
    assert_eq!(alone.plan, Plan::Get(GlobalId::User(2)));
    let union = PlanShape::Union { inputs: gets(&[1, 1, 0]) }.concretise(&all).unwrap();
    assert_eq!(union.bits, 12);
    assert_eq!(join(&[0, 0]).concretise(&[]), None);
}

#[test]
fn impossible_scenarios_are_named_with_their_numbers() {
    let broken = |breaking: fn(&mut Scenario)| {
        let mut scenario = Scenario::from_seed(1, Profile::Smoke);
        scenario.strategy =
            StrategyChoice::Random { switch_per_mille: 1, stall_per_myriad: 0, stall_ns_max: 0 };
        breaking(&mut scenario);
        scenario.validate().unwrap_err()
    };
    assert_eq!(broken(|s| s.workers = 0), ScenarioError::Workers(0));
    assert_eq!(broken(|s| s.processes = 99), ScenarioError::Processes(99));
    assert_eq!(broken(|s| s.sources.clear()), ScenarioError::NoSources);
    assert_eq!(broken(|s| s.walk_budget = 0), ScenarioError::WalkBudget);
    assert_eq!(broken(|s| s.idle_effort = Some(0)), ScenarioError::IdleEffort);
    assert_eq!(
        broken(|s| s.network = Network { latency_ns_min: 5, latency_ns_max: 4 }),
        ScenarioError::Latency { min: 5, max: 4 }
    );
    let source = broken(|s| s.sources[0].arity = 0).to_string();
    assert_eq!(source, "source 0: arity is 0, which is not within 1 to 8");
    let fault = broken(|s| {
        (s.processes, s.workers) = (2, 2);
        let role = tandem::env::Role::Interactive;
        s.faults = vec![Fault::StallWorker { role, worker: 4, from_ns: 0, for_ns: 1 }];
    });
    assert_eq!(fault.to_string(), "fault 0: worker 4 of 4");
    let gap = broken(|s| s.operations[7].gap_ns = u64::MAX);
    assert_eq!(gap, ScenarioError::Time { operation: 7, ns: u64::MAX });
    let advance = broken(|s| s.operations[0].operation = Operation::Advance { source: 9, by: 0 });
    assert_eq!(advance, ScenarioError::Advance { operation: 0, by: 0 });
    let shape = broken(|s| {
        let over = PlanShape::Distinct {
            input: Box::new(PlanShape::Join { inputs: vec![], keys: vec![] }),
        };
        let spec = IndexSpec { over, key: vec![], lag: 0 };
        s.operations[3].operation = Operation::CreateIndex { spec };
    });
    assert_eq!(shape, ScenarioError::Shape { operation: 3, node: "join", inputs: 0 });
    let endless = broken(|s| {
        s.operations[5].operation = Operation::Peek {
            index: Pick::Newest,
            when: When::Last,
            keys: KeyChoice::All,
            finishing: Finishing::default(),
            cancel: None,
        };
    });
    assert_eq!(endless, ScenarioError::Endless { operation: 5 });
}
