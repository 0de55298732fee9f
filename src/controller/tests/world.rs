//! A controller against a replica that is as slow, and as quick to crash, as it can be.
//!
//! The replica applies commands in order, whenever it likes; durable sources are compacted the
//! moment the controller says so. The replica checks what it is asked: that everything the
//! controller has not given up on can be read when its command is applied, and later while it is
//! still being read.

use proptest::prelude::*;
use timely::PartialOrder;

use super::*;

/// One export as the replica has it.
#[derive(Debug)]
struct Export {
    imports: Vec<GlobalId>,
    as_of: Timestamp,
    until: Frontier,
    since: Frontier,
    write: Frontier,
    /// Dropped, and the last report is to be made.
    dropped: bool,
}

/// One controller, one replica, one source.
struct World {
    controller: Controller,
    nonce: u64,
    /// Sent and not applied.
    commands: VecDeque<Command>,
    exports: BTreeMap<GlobalId, Export>,
    /// Applied and not answered.
    peeks: BTreeMap<PeekId, (GlobalId, Timestamp)>,
    upper: Timestamp,
    source_since: Frontier,
    asked: usize,
    answers: BTreeMap<PeekId, usize>,
    allowed: BTreeMap<GlobalId, Frontier>,
}

#[derive(Clone, Debug)]
enum Step {
    Upper(u64),
    Index { id: u64, delay: u64 },
    Dependent { id: u64, import: u64, delay: u64 },
    Peek { id: u64, delay: u64 },
    Query { delay: u64 },
    Cancel(prop::sample::Index),
    Drop(u64),
    Policy { id: u64, policy: ReadPolicy },
    Apply(usize),
    Report(prop::sample::Index),
    Answer(prop::sample::Index),
    Connect,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let id = || 2..6u64;
    let policy = prop_oneof![Just(ReadPolicy::Pinned), (0..4u64).prop_map(ReadPolicy::LagBy)];
    prop_oneof![
        3 => (1..5u64).prop_map(Step::Upper),
        2 => (id(), 0..3u64).prop_map(|(id, delay)| Step::Index { id, delay }),
        2 => (id(), id(), 0..3u64)
            .prop_map(|(id, import, delay)| Step::Dependent { id, import, delay }),
        2 => (id(), 0..4u64).prop_map(|(id, delay)| Step::Peek { id, delay }),
        2 => (0..4u64).prop_map(|delay| Step::Query { delay }),
        2 => index().prop_map(Step::Cancel),
        1 => id().prop_map(Step::Drop),
        1 => (1..6u64, policy).prop_map(|(id, policy)| Step::Policy { id, policy }),
        6 => (1..6usize).prop_map(Step::Apply),
        6 => index().prop_map(Step::Report),
        3 => index().prop_map(Step::Answer),
        1 => Just(Step::Connect),
    ]
}

impl World {
    fn new() -> World {
        let mut controller = Controller::new(InstanceConfig { peers: 1 });
        controller.create_source(SOURCE, 2).expect("free");
        World {
            controller,
            nonce: 0,
            commands: VecDeque::new(),
            exports: BTreeMap::new(),
            peeks: BTreeMap::new(),
            upper: 0,
            source_since: at(0),
            asked: 0,
            answers: BTreeMap::new(),
            allowed: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let user = GlobalId::User;
        let from = |controller: &Controller, id: GlobalId| {
            controller.since(id).and_then(|since| since.as_option()).copied().unwrap_or(0)
        };
        match step {
            Step::Upper(by) => {
                self.upper += by;
                self.controller.source_upper(SOURCE, at(self.upper)).expect("forward");
            }
            Step::Index { id, delay } => {
                let as_of = from(&self.controller, SOURCE) + delay;
                let _ = self.controller.create_dataflow(index(user(id), as_of));
            }
            Step::Dependent { id, import, delay } => {
                let as_of = from(&self.controller, user(import)) + delay;
                let mut dataflow = dependent(user(id), user(import), as_of);
                // So that dependents can be imported like indexes on the source.
                dataflow.objects_to_build.clear();
                dataflow.index_exports.insert(user(id), source_index());
                let _ = self.controller.create_dataflow(dataflow);
            }
            Step::Peek { id, delay } => {
                let time = from(&self.controller, user(id)) + delay;
                let peek = self.controller.peek(peek_request(user(id), time));
                self.asked += usize::from(peek.is_ok());
            }
            Step::Query { delay } => {
                let time = from(&self.controller, INDEX) + delay;
                let query = self.controller.query(query_request(time));
                self.asked += usize::from(query.is_ok());
            }
            Step::Cancel(index) => {
                let peeks: Vec<PeekId> =
                    self.controller.outstanding().map(|(uuid, ..)| uuid).collect();
                if !peeks.is_empty() {
                    self.controller.cancel(*index.get(&peeks));
                }
            }
            Step::Drop(id) => {
                let _ = self.controller.drop_collection(user(id));
            }
            Step::Policy { id, policy } => {
                let _ = self.controller.set_read_policy(user(id), policy);
            }
            Step::Apply(count) => (0..count).for_each(|_| self.apply()),
            Step::Report(index) => {
                let ids: Vec<GlobalId> = self.exports.keys().copied().collect();
                if !ids.is_empty() {
                    self.report(*index.get(&ids));
                }
            }
            Step::Answer(index) => {
                let peeks: Vec<PeekId> = self.peeks.keys().copied().collect();
                if !peeks.is_empty() {
                    self.answer(*index.get(&peeks));
                }
            }
            Step::Connect => self.connect(),
        }
        self.collect();
    }

    /// Takes what the controller wants done. Sources compact at once, commands wait.
    fn collect(&mut self) {
        self.commands.extend(self.controller.take_commands());
        for (id, frontier) in self.controller.take_source_compaction() {
            assert_eq!(id, SOURCE);
            assert!(PartialOrder::less_than(&self.source_since, &frontier));
            self.source_since = frontier;
        }
        for (id, export) in &self.exports {
            let reads_source = export.imports.contains(&SOURCE);
            if reads_source && !export.dropped && !self.given_up(*id) {
                let done = export.write.as_option().map_or(u64::MAX, |time| time.max(&1) - 1);
                let reads = done.max(export.as_of);
                assert!(self.source_since.less_equal(&reads), "{id} still reads at {reads}");
            }
        }
    }

    /// Whether the controller has sent the drop of it.
    fn given_up(&self, id: GlobalId) -> bool {
        self.controller.since(id).is_none_or(|since| since.is_empty())
    }

    /// The replica restarts with nothing.
    fn connect(&mut self) {
        self.nonce += 1;
        let events = self.controller.connect(Nonce(self.nonce)).expect("greater");
        self.commands.clear();
        self.exports.clear();
        self.peeks.clear();
        self.allowed.clear();
        self.hear(events);
    }

    fn apply(&mut self) {
        let Some(command) = self.commands.pop_front() else { return };
        match command {
            Command::CreateDataflow(dataflow) => self.create(&dataflow),
            Command::AllowCompaction { id, frontier } => {
                let allowed = self.allowed.insert(id, frontier.clone());
                let forward =
                    allowed.is_none_or(|before| PartialOrder::less_than(&before, &frontier));
                assert!(forward, "compaction of {id} goes back");
                let export = self.exports.get_mut(&id).expect("only what was created is compacted");
                export.dropped = frontier.is_empty();
                export.since = frontier;
            }
            Command::Peek(peek) => {
                let target = &self.exports[&peek.target];
                assert!(target.since.less_equal(&peek.timestamp), "{} is too late", peek.uuid);
                self.peeks.insert(peek.uuid, (peek.target, peek.timestamp));
            }
            Command::CancelPeek { uuid } if self.peeks.remove(&uuid).is_some() => {
                let response = answer(uuid, PeekResponse::Canceled);
                let events = self.controller.response(response);
                self.hear(events);
            }
            _ => {}
        }
    }

    fn create(&mut self, dataflow: &DataflowDescription) {
        let as_of = dataflow.as_of;
        let given_up = dataflow.export_ids().all(|id| self.given_up(id));
        for import in dataflow.import_ids() {
            let since = match self.exports.get(&import) {
                Some(export) => &export.since,
                None => &self.source_since,
            };
            let readable = since.less_equal(&as_of);
            assert!(readable || given_up, "{import} at {since:?} is read at {as_of}");
        }
        for id in dataflow.export_ids() {
            self.allowed.remove(&id);
            let export = Export {
                imports: dataflow.import_ids().collect(),
                as_of,
                until: dataflow.until.clone(),
                since: at(as_of),
                write: at(as_of),
                dropped: false,
            };
            let before = self.exports.insert(id, export);
            assert!(before.is_none(), "{id} is created while it exists");
        }
    }

    /// Up to where an export could be complete.
    fn reached(&self, export: &Export) -> Frontier {
        if export.write.is_empty() {
            return Frontier::new();
        }
        let complete = |id: &GlobalId| match self.exports.get(id) {
            Some(import) => import.write.as_option().copied().unwrap_or(u64::MAX),
            None => self.upper,
        };
        let reached = export.imports.iter().map(complete).min().unwrap_or(0);
        match export.until.as_option() {
            Some(until) if reached >= *until => Frontier::new(),
            _ => at(reached.max(export.as_of)),
        }
    }

    /// Reports where an export is; for the last time when it closes.
    fn report(&mut self, id: GlobalId) {
        let export = &self.exports[&id];
        let (dropped, closed_before) = (export.dropped, export.write.is_empty());
        let write = if dropped { Frontier::new() } else { self.reached(export) };
        if dropped {
            self.exports.remove(&id);
        } else if let Some(export) = self.exports.get_mut(&id) {
            export.write = write.clone();
        }
        if !closed_before {
            let events = self.controller.response(super::report(id, write));
            self.hear(events);
        }
    }

    fn answer(&mut self, uuid: PeekId) {
        let (target, time) = self.peeks[&uuid];
        let export = self.exports.get(&target);
        if export.is_some_and(|export| export.write.less_equal(&time)) {
            return;
        }
        self.peeks.remove(&uuid);
        let events = self.controller.response(super::answer(uuid, rows(&[])));
        self.hear(events);
    }

    fn hear(&mut self, events: Vec<ControllerEvent>) {
        for event in events {
            match event {
                ControllerEvent::PeekAnswered { uuid, .. } => {
                    *self.answers.entry(uuid).or_default() += 1;
                }
                ControllerEvent::FrontierAdvanced { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Everything the replica can do is done, again and again.
    fn settle(&mut self) {
        for _ in 0..20 {
            while !self.commands.is_empty() {
                self.apply();
            }
            self.exports
                .keys()
                .copied()
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|id| self.report(id));
            self.peeks
                .keys()
                .copied()
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|id| self.answer(id));
            self.collect();
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_reads_stay_possible_and_nothing_is_held_in_the_end(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new();
        world.step(Step::Connect);
        steps.into_iter().for_each(|step| world.step(step));

        world.step(Step::Upper(10));
        world.settle();
        prop_assert_eq!(world.controller.outstanding().count(), 0);
        prop_assert_eq!(world.answers.len(), world.asked);
        prop_assert!(world.answers.values().all(|answers| *answers == 1));
        prop_assert!(world.controller.collections().all(|id| !id.is_transient()));

        (1..6).for_each(|id| world.step(Step::Drop(id)));
        world.settle();
        prop_assert_eq!(world.controller.holds_len(), 0);
        prop_assert_eq!(world.controller.collections().count(), 0);
        world.connect();
        let replay: Vec<Command> = world.controller.take_commands();
        prop_assert_eq!(replay.len(), 3, "only lifecycle is left");
    }
}
