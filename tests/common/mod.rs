//! A controller and a replica on threads, for tests that run the whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem::controller::{Controller, ControllerEvent, PeekRequest, QueryRequest};
use tandem::plan::{DataflowDescription, Finishing, IndexDescription, IndexImport, Plan};
use tandem::protocol::{InstanceConfig, Nonce, PeekId, PeekResponse};
use tandem::replica::{Layout, Replica, ReplicaConfig};
use tandem::repr::{Diff, Frontier, GlobalId, Row, Timestamp};
use tandem::shard::Shards;
use timely::progress::Antichain;

/// How long anything may take before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A whole system on threads.
pub struct World {
    pub controller: Controller,
    pub replica: Replica,
    pub shards: Arc<Shards>,
    pub statuses: Vec<String>,
    answers: BTreeMap<PeekId, (PeekResponse, bool)>,
    uppers: BTreeMap<GlobalId, Timestamp>,
}

impl World {
    /// A connected system.
    pub fn start(layout: Layout, workers: usize) -> World {
        let shards = Shards::new();
        let replica =
            Replica::start(ReplicaConfig::new(layout, workers), &shards).expect("equal peers");
        let mut controller = Controller::new(InstanceConfig { peers: workers });
        controller.connect(Nonce(1)).expect("the first connection");
        let (statuses, answers, uppers) = Default::default();
        let mut world = World { controller, replica, shards, statuses, answers, uppers };
        world.flush();
        world
    }

    /// Sends what the controller has to say.
    pub fn flush(&mut self) {
        for command in self.controller.take_commands() {
            self.replica.send(command).expect("the controller keeps to the protocol");
        }
        for (id, since) in self.controller.take_source_compaction() {
            self.shards.get(id).expect("a source").downgrade_since(&since);
        }
    }

    /// Handles responses until `done`, or panics when that takes too long.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&World) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.flush();
            if done(self) {
                return;
            }
            assert!(Instant::now() < deadline, "gave up waiting for {what}");
            let Some(response) = self.replica.recv_timeout(Duration::from_millis(50)) else {
                continue;
            };
            let events = self.controller.response(response);
            self.handle(events);
        }
    }

    fn handle(&mut self, events: Vec<ControllerEvent>) {
        for event in events {
            match event {
                ControllerEvent::PeekAnswered { uuid, response, canceled } => {
                    let before = self.answers.insert(uuid, (response, canceled));
                    assert_eq!(before, None, "{uuid} was answered twice");
                }
                ControllerEvent::FrontierAdvanced { .. } => {}
                ControllerEvent::Status { message } => self.statuses.push(message),
                ControllerEvent::Violation(violation) => panic!("{violation}"),
            }
        }
    }

    /// Opens a new connection to the same replica, whose responses of the old one are still under way.
    pub fn reconnect(&mut self, nonce: u64) {
        let events = self.controller.connect(Nonce(nonce)).expect("a greater nonce");
        self.handle(events);
        self.flush();
    }

    /// Creates a source.
    pub fn source(&mut self, id: GlobalId, arity: usize) {
        self.shards.create(id, arity).expect("a new source");
        self.controller.create_source(id, arity).expect("a new source");
        self.uppers.insert(id, 0);
    }

    /// Appends to a source and seals that time.
    pub fn append(&mut self, id: GlobalId, rows: &[(&[i64], Diff)]) -> Timestamp {
        let upper = self.uppers.get_mut(&id).expect("a source");
        let time = *upper;
        *upper += 1;
        let updates = rows.iter().map(|(row, diff)| (Row::new(row.iter().copied()), time, *diff));
        let after = Frontier::from_elem(time + 1);
        let shard = self.shards.get(id).expect("a source");
        shard
            .compare_and_append(updates.collect(), &Antichain::from_elem(time), after.clone())
            .expect("the only writer");
        self.controller.source_upper(id, after).expect("a source");
        self.flush();
        time
    }

    /// Creates an index named `id` of `plan`, over sources and indexes.
    pub fn index(&mut self, id: GlobalId, plan: Plan, key: &[usize], reads: &[(GlobalId, usize)]) {
        let object = held_by(id);
        let mut description = DataflowDescription {
            source_imports: BTreeMap::new(),
            index_imports: BTreeMap::new(),
            objects_to_build: vec![(object, plan)],
            index_exports: BTreeMap::from([(
                id,
                IndexDescription { on: object, key: key.to_vec() },
            )]),
            as_of: 0,
            until: Antichain::new(),
        };
        for (read, arity) in reads {
            let since = self.controller.since(*read).expect("read what exists");
            description.as_of = description.as_of.max(*since.as_option().expect("not dropped"));
            if self.uppers.contains_key(read) {
                description.source_imports.insert(*read, *arity);
            } else {
                description.index_imports.insert(*read, import(*read, *arity));
            }
        }
        self.controller.create_dataflow(description).expect("a valid dataflow");
        self.flush();
    }

    /// Asks for all rows of an index at a time.
    pub fn peek(
        &mut self,
        target: GlobalId,
        timestamp: Timestamp,
        keys: Option<Vec<Row>>,
    ) -> PeekId {
        let finishing = Finishing::default();
        let request = PeekRequest { target, timestamp, keys, finishing };
        let uuid = self.controller.peek(request).expect("a readable index");
        self.flush();
        uuid
    }

    /// Asks for the result of a query over indexes.
    pub fn query(
        &mut self,
        plan: Plan,
        index_imports: Vec<GlobalId>,
        timestamp: Timestamp,
    ) -> PeekId {
        let request =
            QueryRequest { plan, index_imports, timestamp, finishing: Finishing::default() };
        let uuid = self.controller.query(request).expect("readable indexes");
        self.flush();
        uuid
    }

    /// The answer of a peek.
    pub fn answer(&mut self, uuid: PeekId) -> PeekResponse {
        self.until(&format!("the answer of {uuid}"), |world| world.answers.contains_key(&uuid));
        self.answers[&uuid].0.clone()
    }

    /// Waits until an index is complete up to `upper`.
    pub fn complete(&mut self, id: GlobalId, upper: Timestamp) {
        self.until(&format!("{id} to be complete up to {upper}"), |world| {
            world.controller.upper(id).is_some_and(|seen| !seen.less_than(&upper))
        });
    }
}

/// The collection that an index made by [`World::index`] holds, and by which plans read it.
pub fn held_by(index: GlobalId) -> GlobalId {
    match index {
        GlobalId::User(id) => GlobalId::User(1_000_000 + id),
        other => panic!("{other} is not an index of these tests"),
    }
}

fn import(id: GlobalId, arity: usize) -> IndexImport {
    IndexImport { index: IndexDescription { on: held_by(id), key: vec![0] }, arity }
}

/// Rows of an answer, each once.
pub fn rows(rows: &[&[i64]]) -> PeekResponse {
    let rows = rows.iter().map(|row| (Row::new(row.iter().copied()), 1));
    PeekResponse::Rows(rows.collect())
}
