//! The controller, and whoever uses it: carries out the scenario's operations and compares answers with the model.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tandem::controller::{
    Controller, ControllerError, ControllerEvent, PeekRequest, QueryRequest, ReadPolicy,
};
use tandem::plan::{DataflowDescription, Finishing, IndexDescription, IndexImport, Plan};
use tandem::protocol::{
    Command, InstanceConfig, Nonce, Parameters, PeekId, PeekResponse, Response,
};
use tandem::repr::{Frontier, GlobalId, Row, Timestamp};
use tandem::shard::Shards;
use timely::progress::Antichain;

use super::judge::Judge;
use super::witness::Fact;
use super::{SharedShards, World, now_ns, sleep_until_ns};
use crate::model::{Expected, Model};
use crate::oracle::{Asked, answers};
use crate::report::{Oracle, Violation};
use crate::scenario::{
    Cancel, CollectionInfo, ConcreteIndex, IndexSpec, KeyChoice, Ledger, Operation, Pick,
    PlanShape, Scenario, When, fit_finishing,
};

/// Indexes and what they hold are numbered from here, in steps of two.
const FIRST_INDEX: u64 = 100;

/// A source as the client knows it.
struct Source {
    info: CollectionInfo,
    ledger: Ledger,
    upper: Timestamp,
}

/// An index as the client knows it.
#[derive(Clone)]
struct Index {
    id: GlobalId,
    /// What it holds.
    info: CollectionInfo,
    description: DataflowDescription,
    key: Vec<usize>,
    lag: u64,
}

/// What a read has to be compared with.
struct Question {
    index: GlobalId,
    keys: Option<Vec<Row>>,
    finishing: Finishing,
}

/// The controller and its user.
pub(super) struct Client {
    controller: Controller,
    model: Model,
    shards: SharedShards,
    judge: Rc<Judge>,
    sources: Vec<Source>,
    live: Vec<Index>,
    dropped: Vec<Index>,
    /// To be created again as soon as their names are free.
    recreating: Vec<Index>,
    questions: BTreeMap<PeekId, Question>,
    /// Reads to be cancelled, by when.
    cancels: BTreeMap<(u64, PeekId), Cancel>,
    next_id: u64,
}

impl Client {
    pub(super) fn new(scenario: &Scenario, judge: &Rc<Judge>) -> Client {
        let mut controller = Controller::new(InstanceConfig { peers: scenario.peers() });
        controller.connect(Nonce(1)).expect("the first connection");
        let walk_budget = Some(scenario.walk_budget);
        controller.update_configuration(Parameters { walk_budget });
        let mut client = Client {
            controller,
            model: Model::new(),
            shards: Shards::new(),
            judge: Rc::clone(judge),
            sources: Vec::new(),
            live: Vec::new(),
            dropped: Vec::new(),
            recreating: Vec::new(),
            questions: BTreeMap::new(),
            cancels: BTreeMap::new(),
            next_id: FIRST_INDEX,
        };
        for (index, spec) in scenario.sources.iter().enumerate() {
            let id = GlobalId::User(index as u64 + 1);
            client.shards.create(id, spec.arity).expect("a new name");
            client.model.create_source(id).expect("a new name");
            client.controller.create_source(id, spec.arity).expect("a new name");
            let policy = ReadPolicy::LagBy(spec.lag);
            client.controller.set_read_policy(id, policy).expect("just created");
            let info = CollectionInfo { id, arity: spec.arity, bits: spec.bits() };
            client.sources.push(Source { info, ledger: spec.ledger(), upper: 0 });
        }
        client
    }

    pub(super) fn shards(&self) -> SharedShards {
        Arc::clone(&self.shards)
    }

    /// What the controller has to say to the replica. Compacts sources on the way.
    pub(super) fn take_commands(&mut self) -> Vec<Command> {
        for (id, since) in self.controller.take_source_compaction() {
            self.shards.get(id).expect("a source").downgrade_since(&since);
        }
        let commands = self.controller.take_commands();
        for command in &commands {
            self.judge.fact(&Fact::Sent(command));
        }
        commands
    }

    fn carry_out(&mut self, operation: &Operation) {
        self.judge.exercised(operation.kind());
        match operation {
            Operation::Tick { source, updates } => {
                let source = source % self.sources.len();
                let admitted = self.sources[source].ledger.admit(updates);
                self.append(source, admitted, 1);
            }
            Operation::Advance { source, by } => {
                self.judge.sometimes("idle time advanced");
                self.append(source % self.sources.len(), Vec::new(), *by);
            }
            Operation::CreateIndex { spec } => self.create_index(spec),
            Operation::Peek { index, when, keys, finishing, cancel } => {
                self.peek(*index, *when, keys, finishing, *cancel);
            }
            Operation::Query { plan, when, finishing, cancel, .. } => {
                self.query(plan, *when, finishing, *cancel);
            }
            Operation::Drop { index } => self.drop_index(*index),
            Operation::Recreate { index } => {
                if let Some(position) = index.resolve(self.dropped.len()) {
                    let index = self.dropped.remove(position);
                    self.recreating.push(index);
                    self.recreate();
                }
            }
            Operation::SetLag { collection, lag } => self.set_lag(*collection, *lag),
        }
    }

    /// Appends to a source at its upper, and advances that.
    fn append(&mut self, source: usize, updates: Vec<(Row, i64)>, by: u64) {
        let Source { info, upper, .. } = &mut self.sources[source];
        let (id, time) = (info.id, *upper);
        *upper = time.saturating_add(by);
        if *upper == time {
            return;
        }
        let after = Frontier::from_elem(*upper);
        let updates: Vec<_> = updates.into_iter().map(|(row, diff)| (row, time, diff)).collect();
        let fact = Fact::Appended { source: id, updates: updates.len(), upper: &after };
        self.judge.fact(&fact);
        self.model.append(id, updates.iter().cloned()).expect("a source");
        let shard = self.shards.get(id).expect("a source");
        shard
            .compare_and_append(updates, &Antichain::from_elem(time), after.clone())
            .expect("there is no other writer");
        self.controller.source_upper(id, after).expect("a source");
    }

    /// The sources and the live indexes, as plans pick among them.
    fn collections(&self) -> Vec<CollectionInfo> {
        let sources = self.sources.iter().map(|source| &source.info);
        sources.chain(self.live.iter().map(|index| &index.info)).cloned().collect()
    }

    fn create_index(&mut self, spec: &IndexSpec) {
        let Some(concrete) = spec.concretise(&self.collections()) else { return };
        let ConcreteIndex { over, key } = concrete;
        self.next_id += 2;
        let (id, object) = (GlobalId::User(self.next_id), GlobalId::User(self.next_id + 1));
        let (on, objects) = match over.plan {
            Plan::Get(on) => (on, vec![]),
            plan => (object, vec![(object, plan)]),
        };
        let mut description = DataflowDescription {
            source_imports: BTreeMap::new(),
            index_imports: BTreeMap::new(),
            objects_to_build: objects,
            index_exports: BTreeMap::from([(id, IndexDescription { on, key: key.clone() })]),
            as_of: 0,
            until: Antichain::new(),
        };
        for read in over.reads {
            match read.checked_sub(self.sources.len()) {
                None => {
                    let info = &self.sources[read].info;
                    description.source_imports.insert(info.id, info.arity);
                }
                Some(index) => {
                    let Index { id, info, key, .. } = &self.live[index];
                    let index = IndexDescription { on: info.id, key: key.clone() };
                    let import = IndexImport { index, arity: info.arity };
                    description.index_imports.insert(*id, import);
                    self.judge.sometimes("index over an index");
                }
            }
        }
        let info = CollectionInfo { id: on, arity: over.arity, bits: over.bits };
        let index = Index { id, info, description, key, lag: spec.lag };
        if let Err(error) = self.create(index) {
            let message = format!("{id} cannot be created: {error}");
            let violation = Violation::new(Oracle::O8, now_ns(), message);
            self.judge.found(violation.class("not created").of_id(id));
        }
    }

    /// Creates an index as of the first time at which all it reads can be read.
    fn create(&mut self, mut index: Index) -> Result<(), ControllerError> {
        let sinces = index.description.import_ids().map(|id| self.since(id));
        index.description.as_of = sinces.max().unwrap_or(0);
        self.controller.create_dataflow(index.description.clone())?;
        self.controller.set_read_policy(index.id, ReadPolicy::LagBy(index.lag))?;
        for (object, plan) in &index.description.objects_to_build {
            self.model.define(*object, plan.clone()).expect("validated by the controller");
        }
        let on = index.description.index_exports[&index.id].clone();
        self.model.define_index(index.id, on).expect("validated by the controller");
        self.live.push(index);
        Ok(())
    }

    /// Creates what waits for its name to be free, if it is.
    fn recreate(&mut self) {
        for index in std::mem::take(&mut self.recreating) {
            let readable = index.description.import_ids().all(|id| self.controller.is_live(id));
            if !readable {
                self.dropped.push(index);
            } else if self.create(index.clone()).is_err() {
                self.recreating.push(index);
            }
        }
    }

    fn drop_index(&mut self, pick: Pick) {
        let Some(position) = pick.resolve(self.live.len()) else { return };
        let index = self.live.remove(position);
        self.controller.drop_collection(index.id).expect("a live index");
        self.dropped.push(index);
    }

    fn set_lag(&mut self, pick: Pick, lag: u64) {
        let count = self.sources.len() + self.live.len();
        let Some(position) = pick.resolve(count) else { return };
        let id = match position.checked_sub(self.sources.len()) {
            None => self.sources[position].info.id,
            Some(index) => {
                self.live[index].lag = lag;
                self.live[index].id
            }
        };
        self.controller.set_read_policy(id, ReadPolicy::LagBy(lag)).expect("a live collection");
    }

    fn since(&self, id: GlobalId) -> Timestamp {
        let since = self.controller.since(id).expect("a live collection");
        *since.as_option().expect("not dropped")
    }

    fn upper(&self, id: GlobalId) -> Timestamp {
        let upper = self.controller.upper(id).expect("a live collection");
        upper.as_option().copied().unwrap_or(Timestamp::MAX)
    }

    /// The time of a read of these indexes.
    fn time(&self, when: When, ids: &[GlobalId]) -> Timestamp {
        let since = ids.iter().map(|id| self.since(*id)).max().unwrap_or(0);
        let upper = ids.iter().map(|id| self.upper(*id)).min().unwrap_or(0);
        when.resolve(since, upper)
    }

    fn peek(
        &mut self,
        pick: Pick,
        when: When,
        keys: &KeyChoice,
        finishing: &Finishing,
        cancel: Option<Cancel>,
    ) {
        let Some(position) = pick.resolve(self.live.len()) else { return };
        let Index { id, info, key, .. } = &self.live[position];
        let (target, keys) = (*id, keys.fit(key.len()));
        let finishing = fit_finishing(finishing, info.arity);
        let timestamp = self.time(when, &[target]);
        let request =
            PeekRequest { target, timestamp, keys: keys.clone(), finishing: finishing.clone() };
        let question = Question { index: target, keys, finishing };
        let asked = self.controller.peek(request);
        self.ask(asked, target, vec![target], timestamp, question, cancel);
    }

    fn query(
        &mut self,
        plan: &PlanShape,
        when: When,
        finishing: &Finishing,
        cancel: Option<Cancel>,
    ) {
        let infos: Vec<_> = self.live.iter().map(|index| index.info.clone()).collect();
        let Some(concrete) = plan.concretise(&infos) else { return };
        let reads: Vec<_> = concrete.reads.iter().map(|read| self.live[*read].id).collect();
        let timestamp = self.time(when, &reads);
        let finishing = fit_finishing(finishing, concrete.arity);
        let request = QueryRequest {
            plan: concrete.plan.clone(),
            index_imports: reads.clone(),
            timestamp,
            finishing: finishing.clone(),
        };
        let asked = self.controller.query(request);
        self.next_id += 2;
        let (index, object) = (GlobalId::User(self.next_id), GlobalId::User(self.next_id + 1));
        self.model.define(object, concrete.plan).expect("made from what exists");
        let on = IndexDescription { on: object, key: vec![] };
        self.model.define_index(index, on).expect("just defined");
        let question = Question { index, keys: None, finishing };
        let target = asked.as_ref().ok().and_then(|uuid| {
            self.controller.outstanding().find(|(peek, ..)| peek == uuid).map(|(_, id, ..)| id)
        });
        self.ask(asked, target.unwrap_or(index), reads, timestamp, question, cancel);
    }

    fn ask(
        &mut self,
        asked: Result<PeekId, ControllerError>,
        target: GlobalId,
        reads: Vec<GlobalId>,
        at: Timestamp,
        question: Question,
        cancel: Option<Cancel>,
    ) {
        let uuid = match asked {
            Ok(uuid) => uuid,
            // Below since, or at the last of all times for a query: the controller says so itself.
            Err(_) => return self.judge.exercised("refused by the controller"),
        };
        self.judge.exercised(if target.is_transient() { "slow path" } else { "fast path" });
        let read = Asked { target, reads, at, given_up: false, answered: false };
        self.judge.asked(uuid, read);
        self.questions.insert(uuid, question);
        match cancel {
            Some(cancel) if cancel.after_ns == 0 => self.cancel(uuid, cancel),
            Some(cancel) => {
                self.cancels.insert((now_ns() + cancel.after_ns, uuid), cancel);
            }
            None => {}
        }
    }

    fn cancel(&mut self, uuid: PeekId, cancel: Cancel) {
        self.judge.exercised("cancel");
        let in_time = self.controller.cancel(uuid);
        self.judge.fact(&Fact::Canceled { peek: uuid, in_time });
        if in_time {
            self.judge.gave_up(uuid);
        } else {
            self.judge.sometimes("cancel after the answer");
        }
        if cancel.then_compact
            && let Some(asked) = self.judge.asked_of(uuid)
        {
            for id in asked.reads {
                if self.controller.is_live(id) {
                    let policy = ReadPolicy::LagBy(0);
                    self.controller.set_read_policy(id, policy).expect("a live index");
                }
            }
        }
    }

    /// Handles a response of the replica.
    pub(super) fn response(&mut self, response: Response) {
        self.judge.fact(&Fact::Heard(&response));
        for event in self.controller.response(response) {
            match event {
                ControllerEvent::PeekAnswered { uuid, response, canceled } => {
                    self.answered(uuid, &response, canceled);
                }
                ControllerEvent::FrontierAdvanced { .. } => self.judge.checked(Oracle::O5),
                ControllerEvent::Status { message } => {
                    let message = format!("a command was not carried out: {message}");
                    let violation = Violation::new(Oracle::O8, now_ns(), message);
                    self.judge.found(violation.class("not carried out"));
                }
                ControllerEvent::Violation(violation) => self.violation(violation),
            }
        }
        self.recreate();
    }

    fn violation(&mut self, violation: tandem::controller::ProtocolViolation) {
        match violation {
            tandem::controller::ProtocolViolation::UnknownPeek { uuid } => {
                // A second response: the first made the controller forget the peek.
                self.judge.responded(uuid);
            }
            violation => self.judge.violated(Oracle::O5, now_ns(), violation.to_string()),
        }
    }

    fn answered(&mut self, uuid: PeekId, response: &PeekResponse, canceled: bool) {
        let asked = self.judge.responded(uuid);
        self.judge.fact(&Fact::Answered { peek: uuid, response });
        let (Some(asked), Some(question)) = (asked, self.questions.remove(&uuid)) else { return };
        self.judge.exercised(match response {
            PeekResponse::Rows(_) => "answered with rows",
            PeekResponse::Error(_) => "answered with an error",
            PeekResponse::Canceled => "answered as cancelled",
        });
        if canceled {
            match response {
                PeekResponse::Canceled => self.judge.sometimes("cancel before the answer"),
                _ => self.judge.sometimes("cancel after the answer"),
            }
            return;
        }
        let keys = question.keys.as_deref();
        let expected = self.model.answer(question.index, asked.at, keys, &question.finishing);
        let expected = expected.expect("the model knows what the client asks about");
        self.count(&question, &expected, response);
        if self.judge.was_refused(uuid) {
            // O2 has spoken.
            return;
        }
        let mut verdict = self.judge.verdict();
        answers::answered(now_ns(), uuid, asked.at, &expected, response, &mut verdict);
    }

    fn count(&self, question: &Question, expected: &Expected, response: &PeekResponse) {
        match response {
            PeekResponse::Rows(rows) if !rows.is_empty() => {
                self.judge.sometimes("non-empty answer");
                if question.keys.is_some() {
                    self.judge.sometimes("key lookup");
                }
                if question.finishing.limit.is_some() {
                    self.judge.sometimes("answer bounded by a limit");
                }
            }
            PeekResponse::Error(_) if matches!(expected, Expected::Error(_)) => {
                self.judge.sometimes("error answer");
            }
            _ => {}
        }
    }
}

/// What the second phase needs.
impl Client {
    pub(super) fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The live indexes.
    pub(super) fn indexes(&self) -> Vec<GlobalId> {
        self.live.iter().map(|index| index.id).collect()
    }

    /// Whether operations are still waiting for something.
    pub(super) fn waiting_for_names(&self) -> Vec<GlobalId> {
        self.recreating.iter().map(|index| index.id).collect()
    }

    /// Seals all sources up to one time, beyond everything that is still read, and asks for no history.
    /// Gives that time.
    pub(super) fn settle(&mut self) -> Timestamp {
        let reads = self.controller.outstanding().filter(|(.., canceled)| !canceled);
        let read = reads.map(|(_, _, at, _)| at.saturating_add(1)).max().unwrap_or(0);
        let upper = self.sources.iter().map(|source| source.upper).max().unwrap_or(0);
        let target = upper.max(read).saturating_add(1);
        for source in 0..self.sources.len() {
            let by = target - self.sources[source].upper;
            self.append(source, Vec::new(), by);
        }
        for index in &mut self.recreating {
            index.lag = 0;
        }
        for index in &self.live {
            let policy = ReadPolicy::LagBy(0);
            self.controller.set_read_policy(index.id, policy).expect("a live index");
        }
        for source in &self.sources {
            let policy = ReadPolicy::LagBy(0);
            self.controller.set_read_policy(source.info.id, policy).expect("a source");
        }
        target
    }

    /// Drops every index.
    pub(super) fn drop_all(&mut self) {
        self.recreating.clear();
        for index in std::mem::take(&mut self.live) {
            self.controller.drop_collection(index.id).expect("a live index");
        }
    }
}

/// Handles a response that arrived over the network.
pub(super) fn respond(world: &World, response: Response) {
    world.machine.scheduler().advance_to(now_ns());
    world.client.borrow_mut().response(response);
    world.outgoing.notify_one();
}

/// Lets the controller's commands go, and whatever its environment did take effect.
pub(super) fn flush(world: &World) {
    world.outgoing.notify_one();
    world.pump.notify_one();
}

/// The scenario's operations, each with its time.
pub(super) struct Agenda<'a> {
    operations: std::iter::Peekable<std::vec::IntoIter<(u64, &'a Operation)>>,
}

/// What is to be done next.
pub(super) enum Due<'a> {
    Operation(&'a Operation),
    Cancel(PeekId, Cancel),
}

impl<'a> Agenda<'a> {
    /// The operations of `scenario`, the first of them after its gap from `start_ns`.
    pub(super) fn new(scenario: &'a Scenario, start_ns: u64) -> Self {
        let mut at_ns = start_ns;
        let timed = scenario.operations.iter().map(|timed| {
            at_ns += timed.gap_ns;
            (at_ns, &timed.operation)
        });
        Agenda { operations: timed.collect::<Vec<_>>().into_iter().peekable() }
    }

    /// When the next operation or cancel is due; nothing when all is done.
    pub(super) fn next_ns(&mut self, client: &Client) -> Option<u64> {
        let operation = self.operations.peek().map(|(at_ns, _)| *at_ns);
        let cancel = client.cancels.keys().next().map(|(at_ns, _)| *at_ns);
        operation.into_iter().chain(cancel).min()
    }

    /// Takes what is due next; a cancel before an operation of the same time.
    pub(super) fn take(&mut self, client: &mut Client) -> Option<Due<'a>> {
        let next_ns = self.next_ns(client)?;
        match client.cancels.first_entry() {
            Some(entry) if entry.key().0 <= next_ns => {
                let (uuid, cancel) = (entry.key().1, entry.remove());
                Some(Due::Cancel(uuid, cancel))
            }
            _ => self.operations.next().map(|(_, operation)| Due::Operation(operation)),
        }
    }
}

impl Client {
    /// Does what is due.
    pub(super) fn perform(&mut self, due: Due<'_>) {
        match due {
            Due::Operation(operation) => self.carry_out(operation),
            Due::Cancel(uuid, cancel) => self.cancel(uuid, cancel),
        }
    }
}

/// Carries out the scenario's operations and cancels, each at its time.
pub(super) async fn operate(world: &Rc<World>) {
    let start_ns = now_ns();
    let mut agenda = Agenda::new(&world.scenario, start_ns);
    loop {
        let next_ns = agenda.next_ns(&world.client.borrow());
        let Some(next_ns) = next_ns else { break };
        if next_ns > now_ns() {
            flush(world);
            sleep_until_ns(next_ns).await;
        }
        if world.finished.get() {
            return;
        }
        world.machine.scheduler().advance_to(now_ns());
        let mut client = world.client.borrow_mut();
        if let Some(due) = agenda.take(&mut client) {
            client.perform(due);
        }
    }
    flush(world);
    // Faults that outlast the operations belong to the first phase.
    let last = world.scenario.faults.iter().map(|fault| fault.window_ns().1).max();
    let horizon_ns = start_ns + world.scenario.horizon_ns();
    sleep_until_ns(last.unwrap_or(0).min(horizon_ns).max(now_ns() + 1)).await;
}
