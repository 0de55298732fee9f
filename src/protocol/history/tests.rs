//! Replaying a reduced history must lead where replaying everything leads, and every peek of the
//! replay must find its target readable. [`Replica`] is the reference: it applies commands naively.

use proptest::prelude::*;
use timely::progress::Antichain;

use super::*;
use crate::plan::{Finishing, IndexDescription, IndexImport, Plan};
use crate::repr::step_forward;

fn user(id: u64) -> GlobalId {
    GlobalId::User(id)
}

fn at(time: Timestamp) -> Frontier {
    Antichain::from_elem(time)
}

/// A dataflow that exports `exports` over the indexes `imports`.
fn dataflow(exports: &[GlobalId], imports: &[GlobalId], as_of: Timestamp) -> DataflowDescription {
    let on = GlobalId::System(0);
    let index = IndexDescription { on, key: vec![] };
    let import = IndexImport { index: index.clone(), arity: 0 };
    DataflowDescription {
        source_imports: BTreeMap::new(),
        index_imports: imports.iter().map(|id| (*id, import.clone())).collect(),
        objects_to_build: vec![(GlobalId::System(1), Plan::Get(on))],
        index_exports: exports.iter().map(|id| (*id, index.clone())).collect(),
        as_of,
        until: Frontier::new(),
    }
}

fn create(exports: &[GlobalId], imports: &[GlobalId], as_of: Timestamp) -> Command {
    Command::CreateDataflow(Box::new(dataflow(exports, imports, as_of)))
}

fn compact(id: GlobalId, frontier: Frontier) -> Command {
    Command::AllowCompaction { id, frontier }
}

fn peek(uuid: u64, target: GlobalId, timestamp: Timestamp) -> Command {
    let finishing = Finishing::default();
    Command::Peek(Box::new(Peek { uuid: PeekId(uuid), target, timestamp, keys: None, finishing }))
}

fn reduced(commands: impl IntoIterator<Item = Command>) -> Vec<Command> {
    let mut history = CommandHistory::new();
    commands.into_iter().for_each(|command| history.push(command));
    history.reduce();
    history.iter().cloned().collect()
}

fn kinds(commands: &[Command]) -> Vec<&'static str> {
    let kind = |command: &Command| match command {
        Command::Hello { .. } => "hello",
        Command::CreateInstance(_) => "instance",
        Command::UpdateConfiguration(_) => "configuration",
        Command::InitializationComplete => "complete",
        Command::CreateDataflow(_) => "create",
        Command::Schedule(_) => "schedule",
        Command::AllowWrites(_) => "writes",
        Command::AllowCompaction { .. } => "compact",
        Command::Peek(_) => "peek",
        Command::CancelPeek { .. } => "cancel",
    };
    commands.iter().map(kind).collect()
}

fn as_ofs(commands: &[Command]) -> Vec<Timestamp> {
    let as_of = |command: &Command| match command {
        Command::CreateDataflow(dataflow) => Some(dataflow.as_of),
        _ => None,
    };
    commands.iter().filter_map(as_of).collect()
}

#[test]
fn a_replay_says_everything_once_and_compaction_last() {
    let parameters = |walk_budget| Command::UpdateConfiguration(Parameters { walk_budget });
    let commands = reduced([
        Command::CreateInstance(InstanceConfig { peers: 2 }),
        Command::Hello { nonce: Nonce(1) },
        parameters(Some(5)),
        Command::InitializationComplete,
        create(&[user(1)], &[], 3),
        Command::Schedule(user(1)),
        peek(0, user(1), 4),
        compact(user(1), at(4)),
        parameters(None),
        Command::AllowWrites(user(1)),
        compact(user(1), at(7)),
        Command::Hello { nonce: Nonce(2) },
    ]);
    let order = [
        "hello",
        "instance",
        "configuration",
        "create",
        "schedule",
        "writes",
        "complete",
        "peek",
        "compact",
    ];
    assert_eq!(kinds(&commands), order);
    assert_eq!(commands[0], Command::Hello { nonce: Nonce(2) });
    assert_eq!(commands[2], parameters(Some(5)), "an absent parameter does not reset one");
    assert_eq!(commands[8], compact(user(1), at(7)));
    assert_eq!(as_ofs(&commands), [4], "the outstanding peek is at 4");
}

#[test]
fn an_as_of_follows_compaction_but_not_past_a_dataflow_that_imports_it() {
    let commands = reduced([
        create(&[user(1)], &[], 0),
        create(&[user(2)], &[user(1)], 2),
        compact(user(1), at(9)),
        compact(user(2), at(5)),
    ]);
    assert_eq!(as_ofs(&commands), [5, 5]);
}

#[test]
fn an_as_of_does_not_reach_until() {
    let mut query = dataflow(&[GlobalId::Transient(1)], &[], 6);
    query.until = step_forward(6);
    let commands = reduced([
        Command::CreateDataflow(Box::new(query)),
        compact(GlobalId::Transient(1), at(100)),
    ]);
    assert_eq!(as_ofs(&commands), [6]);
}

#[test]
fn a_dropped_dataflow_stays_for_an_outstanding_peek_and_vanishes_after_it() {
    let mut history = CommandHistory::new();
    let commands =
        [create(&[user(1)], &[], 0), peek(0, user(1), 8), compact(user(1), Frontier::new())];
    commands.into_iter().for_each(|command| history.push(command));
    history.reduce();
    let kept: Vec<Command> = history.iter().cloned().collect();
    assert_eq!(kinds(&kept), ["create", "peek", "compact"]);
    assert_eq!(as_ofs(&kept), [8]);
    history.retire_peek(PeekId(0));
    history.reduce();
    assert!(history.is_empty());
}

#[test]
fn a_cancelled_peek_is_not_replayed() {
    let cancel = Command::CancelPeek { uuid: PeekId(0) };
    let commands = reduced([create(&[user(1)], &[], 0), peek(0, user(1), 8), cancel]);
    assert_eq!(kinds(&commands), ["create"]);
}

#[test]
fn of_several_exports_the_dropped_one_does_not_count_for_the_as_of() {
    let commands = reduced([
        create(&[user(1), user(2)], &[], 0),
        compact(user(1), Frontier::new()),
        compact(user(2), at(4)),
    ]);
    assert_eq!(kinds(&commands), ["create", "compact", "compact"]);
    assert_eq!(as_ofs(&commands), [4]);
}

#[test]
fn an_id_that_stands_for_two_collections_keeps_the_original_order() {
    let commands = [
        create(&[user(1)], &[], 0),
        peek(0, user(1), 8),
        compact(user(1), Frontier::new()),
        create(&[user(1)], &[], 9),
    ];
    assert_eq!(reduced(commands.clone()), commands);
    let commands = [
        create(&[user(1)], &[], 0),
        create(&[user(2)], &[user(1)], 0),
        compact(user(1), Frontier::new()),
        create(&[user(1)], &[], 9),
    ];
    assert_eq!(reduced(commands.clone()), commands);
}

#[test]
fn a_long_history_of_short_lived_things_stays_short() {
    let mut history = CommandHistory::new();
    let mut longest = 0;
    for round in 0..10_000 {
        let id = GlobalId::Transient(round);
        history.push(create(&[id], &[], round));
        history.push(peek(round, id, round));
        history.retire_peek(PeekId(round));
        history.push(compact(id, Frontier::new()));
        longest = longest.max(history.len());
    }
    assert!(longest <= 2 * SHORT, "{longest} commands");
}

/// What a replica knows after it applied commands in order.
#[derive(Debug, Default, PartialEq)]
struct Replica {
    nonce: Option<Nonce>,
    parameters: Parameters,
    complete: bool,
    /// The incarnation, the collections imported, and the frontier, by export.
    live: BTreeMap<GlobalId, (u64, Vec<GlobalId>, Frontier)>,
    scheduled: BTreeSet<GlobalId>,
    outstanding: BTreeMap<PeekId, (GlobalId, Timestamp)>,
}

impl Replica {
    fn of<'a>(commands: impl IntoIterator<Item = &'a Command>) -> Replica {
        let mut replica = Replica::default();
        commands.into_iter().for_each(|command| replica.apply(command));
        replica
    }

    fn apply(&mut self, command: &Command) {
        match command {
            Command::Hello { nonce } => self.nonce = Some(*nonce),
            Command::UpdateConfiguration(parameters) => merge(&mut self.parameters, parameters),
            Command::InitializationComplete => self.complete = true,
            Command::CreateDataflow(dataflow) => self.create(dataflow),
            Command::Schedule(id) => {
                assert!(self.live.contains_key(id), "{id} scheduled but not live");
                self.scheduled.insert(*id);
            }
            Command::AllowCompaction { id, frontier } if frontier.is_empty() => {
                self.live.remove(id).expect("only what is live is dropped");
                self.scheduled.remove(id);
            }
            Command::AllowCompaction { id, frontier } => {
                let (_, _, current) = self.live.get_mut(id).expect("live");
                assert!(
                    timely::PartialOrder::less_equal(current, frontier),
                    "compaction regresses"
                );
                *current = frontier.clone();
            }
            Command::Peek(peek) => {
                let (_, _, since) = self.live.get(&peek.target).expect("peeks read what is live");
                assert!(since.less_equal(&peek.timestamp), "{} below {since:?}", peek.uuid);
                self.outstanding.insert(peek.uuid, (peek.target, peek.timestamp));
            }
            Command::CancelPeek { uuid } => {
                self.outstanding.remove(uuid);
            }
            Command::CreateInstance(_) | Command::AllowWrites(_) => {}
        }
    }

    fn create(&mut self, dataflow: &DataflowDescription) {
        for id in dataflow.import_ids() {
            let (_, _, since) = self.live.get(&id).expect("imports are live");
            assert!(since.less_equal(&dataflow.as_of), "{id} compacted past an import");
        }
        let imports: Vec<GlobalId> = dataflow.import_ids().collect();
        for id in dataflow.export_ids() {
            // The key of the index stands for the incarnation.
            let incarnation = dataflow.index_exports[&id].key.len() as u64;
            let state = (incarnation, imports.clone(), at(dataflow.as_of));
            let before = self.live.insert(id, state);
            assert_eq!(before, None, "{id} is created while it exists");
        }
    }
}

/// What a random controller tries next. What is not legal at that moment, it leaves out.
#[derive(Clone, Debug)]
enum Step {
    Create { id: u64, second: bool, import: Option<u64>, delay: u64 },
    Compact { id: u64, by: u64 },
    Drop { id: u64 },
    Peek { id: u64, delay: u64 },
    Cancel { nth: usize },
    Answer { nth: usize },
    Configure { walk_budget: Option<usize> },
    Connect,
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..4u64;
    prop_oneof![
        3 => (id.clone(), any::<bool>(), prop::option::of(id.clone()), 0..3u64)
            .prop_map(|(id, second, import, delay)| Step::Create { id, second, import, delay }),
        4 => (id.clone(), 1..4u64).prop_map(|(id, by)| Step::Compact { id, by }),
        2 => id.clone().prop_map(|id| Step::Drop { id }),
        4 => (id, 0..4u64).prop_map(|(id, delay)| Step::Peek { id, delay }),
        1 => (0..4usize).prop_map(|nth| Step::Cancel { nth }),
        2 => (0..4usize).prop_map(|nth| Step::Answer { nth }),
        1 => prop::option::of(0..9usize).prop_map(|walk_budget| Step::Configure { walk_budget }),
        1 => Just(Step::Connect),
    ]
}

/// Runs steps against a history and, in full, against the reference.
#[derive(Default)]
struct Run {
    history: CommandHistory,
    replica: Replica,
    created: u64,
    asked: u64,
}

impl Run {
    fn say(&mut self, command: Command) {
        self.replica.apply(&command);
        self.history.push(command);
    }

    fn nth(&self, nth: usize) -> Option<PeekId> {
        self.replica.outstanding.keys().nth(nth).copied()
    }

    fn since(&self, id: GlobalId) -> Option<Timestamp> {
        self.replica.live.get(&id).and_then(|(_, _, since)| since.as_option()).copied()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create { id, second, import, delay } => {
                // The second export shares its dataflow's fate but not its frontier.
                let exports = if second { vec![user(id), user(id + 10)] } else { vec![user(id)] };
                let taken = |id: &GlobalId| self.replica.live.contains_key(id) || self.peeked(*id);
                let import = import.map(user).and_then(|id| Some((id, self.since(id)?)));
                if exports.iter().any(taken) {
                    return;
                }
                let as_of = import.map_or(0, |(_, since)| since) + delay;
                let imports: Vec<GlobalId> = import.into_iter().map(|(id, _)| id).collect();
                let mut dataflow = dataflow(&exports, &imports, as_of);
                self.created += 1;
                for index in dataflow.index_exports.values_mut() {
                    index.key = vec![0; self.created as usize];
                }
                self.say(Command::CreateDataflow(Box::new(dataflow)));
                exports.into_iter().for_each(|id| self.say(Command::Schedule(id)));
            }
            Step::Compact { id, by } => {
                if let Some(since) = self.since(user(id)) {
                    self.say(compact(user(id), at(since + by)));
                }
            }
            Step::Drop { id } => {
                for id in [user(id), user(id + 10)] {
                    if self.since(id).is_some() {
                        self.say(compact(id, Frontier::new()));
                    }
                }
            }
            Step::Peek { id, delay } => {
                if let Some(since) = self.since(user(id)) {
                    self.asked += 1;
                    self.say(peek(self.asked, user(id), since + delay));
                }
            }
            Step::Cancel { nth } => {
                if let Some(uuid) = self.nth(nth) {
                    self.say(Command::CancelPeek { uuid });
                }
            }
            Step::Answer { nth } => {
                if let Some(uuid) = self.nth(nth) {
                    self.replica.outstanding.remove(&uuid);
                    self.history.retire_peek(uuid);
                }
            }
            Step::Configure { walk_budget } => {
                self.say(Command::UpdateConfiguration(Parameters { walk_budget }));
            }
            Step::Connect => {
                let nonce = self.replica.nonce.map_or(1, |nonce| nonce.0 + 1);
                self.say(Command::Hello { nonce: Nonce(nonce) });
                if nonce == 1 {
                    self.say(Command::InitializationComplete);
                }
            }
        }
    }

    fn peeked(&self, id: GlobalId) -> bool {
        self.replica.outstanding.values().any(|(target, _)| *target == id)
    }
}

proptest! {
    #[test]
    fn a_reduced_history_leads_where_the_full_one_led(
        steps in prop::collection::vec(step(), 1..150),
        reduce_every in 1..20usize,
    ) {
        let mut run = Run::default();
        for (index, step) in steps.into_iter().enumerate() {
            run.step(step);
            if index % reduce_every == 0 {
                run.history.reduce();
                let replayed = Replica::of(run.history.iter());
                prop_assert_eq!(&replayed, &run.replica);
            }
        }
        run.history.reduce();
        let once = run.history.len();
        prop_assert_eq!(Replica::of(run.history.iter()), run.replica);
        run.history.reduce();
        prop_assert_eq!(run.history.len(), once, "reducing again changes nothing");
    }
}
