//! What a controller must say again to a replica that forgot, or missed, everything.
//!
//! A history takes in every command of an instance and keeps those that still matter. Replaying it
//! to a fresh replica, or to one that reconciles, leads to the same live dataflows, compaction
//! frontiers and outstanding peeks as all commands ever sent would.
//!
//! # The order of a reduced history
//!
//! 1. the last `Hello`, `CreateInstance`, the merged `UpdateConfiguration`;
//! 2. the dataflows that still matter, in creation order, `as_of` advanced as far as it may be;
//! 3. `Schedule` and `AllowWrites` of their exports;
//! 4. `InitializationComplete`, if it was said;
//! 5. the outstanding peeks, in their order;
//! 6. `AllowCompaction`, the last one of each collection.
//!
//! Compaction comes last because a peek may still need what it takes away. In the original order
//! such a peek came first; a replay that compacted first would refuse it, or answer it wrongly.
//!
//! # How far an `as_of` advances
//!
//! A replica that starts over need not rebuild what was compacted away, and often cannot: the
//! inputs are compacted too. So a dataflow is replayed with the meet of its exports' compaction
//! frontiers as its `as_of`, but never
//! * below what it was created with;
//! * past an outstanding peek of one of its exports;
//! * past the `as_of` of a dataflow that is replayed too and imports one of its exports;
//! * up to its `until`: a query dataflow reads at its one time or not at all.
//!
//! A dataflow whose exports are all dropped vanishes, unless an outstanding peek or a later
//! dataflow that stays still needs one of them; then its drop is replayed as well, at the end.

use std::collections::{BTreeMap, BTreeSet};

use super::{Command, InstanceConfig, Nonce, Parameters, Peek, PeekId};
use crate::plan::DataflowDescription;
use crate::repr::{Frontier, GlobalId, Timestamp};

/// A history that has not yet doubled from this length is not worth reducing.
const SHORT: usize = 32;

/// The commands that still matter, in an order in which they may be replayed.
///
/// Answered and cancelled peeks go at once, the rest when the history has doubled since it was last
/// reduced.
#[derive(Clone, Debug, Default)]
pub struct CommandHistory {
    /// By when they came.
    commands: BTreeMap<u64, Command>,
    /// Where in `commands` the outstanding peeks are.
    peeks: BTreeMap<PeekId, u64>,
    next: u64,
    /// The length after the last reduction.
    reduced: usize,
}

impl CommandHistory {
    /// A history without commands.
    pub fn new() -> CommandHistory {
        CommandHistory::default()
    }

    /// Takes in a command that is sent, and reduces the history if it has doubled.
    pub fn push(&mut self, command: Command) {
        match command {
            Command::CancelPeek { uuid } => self.retire_peek(uuid),
            command => self.append(command),
        }
        if self.commands.len() >= 2 * self.reduced.max(SHORT) {
            self.reduce();
        }
    }

    /// The peek was answered and is not to be replayed.
    pub fn retire_peek(&mut self, uuid: PeekId) {
        if let Some(at) = self.peeks.remove(&uuid) {
            self.commands.remove(&at);
        }
    }

    /// The commands, in the order in which to replay them.
    pub fn iter(&self) -> impl Iterator<Item = &Command> + '_ {
        self.commands.values()
    }

    /// The number of commands kept.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there are no commands.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Forgets what no longer matters and puts the rest into the order of a replay.
    ///
    /// Does nothing while an id stands for two collections at once: when it was created again
    /// although an outstanding peek or another dataflow still reads its predecessor. Only the
    /// original order tells those two apart.
    pub fn reduce(&mut self) {
        if let Some(summary) = Summary::of(self.commands.values()) {
            let commands = summary.replay();
            self.commands.clear();
            self.peeks.clear();
            commands.into_iter().for_each(|command| self.append(command));
        }
        self.reduced = self.commands.len();
    }

    fn append(&mut self, command: Command) {
        if let Command::Peek(peek) = &command {
            self.peeks.insert(peek.uuid, self.next);
        }
        self.commands.insert(self.next, command);
        self.next += 1;
    }
}

/// One dataflow, and what was said about each of its exports.
struct Dataflow {
    description: Box<DataflowDescription>,
    exports: BTreeMap<GlobalId, Said>,
}

/// What was said about a collection after its creation.
#[derive(Default)]
struct Said {
    scheduled: bool,
    writes: bool,
    compaction: Option<Frontier>,
}

impl Said {
    fn is_dropped(&self) -> bool {
        self.compaction.as_ref().is_some_and(|frontier| frontier.is_empty())
    }
}

impl Dataflow {
    fn is_dropped(&self) -> bool {
        self.exports.values().all(Said::is_dropped)
    }

    /// The first time that all live exports may still be read at.
    fn allowed(&self) -> Option<Timestamp> {
        let as_of = self.description.as_of;
        let live = self.exports.values().filter(|said| !said.is_dropped());
        live.map(|said| {
            said.compaction.as_ref().and_then(|frontier| frontier.as_option()).map_or(as_of, |t| *t)
        })
        .min()
    }
}

/// All of a history, by what it is about.
#[derive(Default)]
struct Summary {
    nonce: Option<Nonce>,
    config: Option<InstanceConfig>,
    parameters: Option<Parameters>,
    complete: bool,
    dataflows: Vec<Dataflow>,
    /// Where in `dataflows` each id was created last.
    created: BTreeMap<GlobalId, usize>,
    /// About collections that no dataflow here creates.
    others: BTreeMap<GlobalId, Said>,
    peeks: Vec<Peek>,
}

impl Summary {
    /// What still matters; `None` if an id stands for two collections that both do.
    fn of<'a>(commands: impl Iterator<Item = &'a Command>) -> Option<Summary> {
        let mut summary = Summary::default();
        for command in commands {
            match command {
                Command::Hello { nonce } => summary.nonce = Some(*nonce),
                Command::CreateInstance(config) => summary.config = Some(config.clone()),
                Command::UpdateConfiguration(parameters) => {
                    merge(summary.parameters.get_or_insert_default(), parameters);
                }
                Command::InitializationComplete => summary.complete = true,
                Command::CreateDataflow(description) => summary.create(description)?,
                Command::Schedule(id) => summary.said(*id).scheduled = true,
                Command::AllowWrites(id) => summary.said(*id).writes = true,
                Command::AllowCompaction { id, frontier } => {
                    summary.said(*id).compaction = Some(frontier.clone());
                }
                Command::Peek(peek) => summary.peeks.push((**peek).clone()),
                // A cancelled peek was retired when it was cancelled.
                Command::CancelPeek { .. } => {}
            }
        }
        summary.settle();
        (!summary.is_ambiguous()).then_some(summary)
    }

    fn create(&mut self, description: &DataflowDescription) -> Option<()> {
        let again = |id: &GlobalId| self.created.contains_key(id);
        let peeked = |id: GlobalId| self.peeks.iter().any(|peek| peek.target == id);
        if description.export_ids().any(|id| again(&id) && peeked(id)) {
            return None;
        }
        let index = self.dataflows.len();
        let mut exports = BTreeMap::new();
        for id in description.export_ids() {
            self.created.insert(id, index);
            exports.insert(id, Said::default());
        }
        let description = Box::new(description.clone());
        self.dataflows.push(Dataflow { description, exports });
        Some(())
    }

    fn said(&mut self, id: GlobalId) -> &mut Said {
        let created = self.created.get(&id).map(|index| &mut self.dataflows[*index]);
        match created.and_then(|dataflow| dataflow.exports.get_mut(&id)) {
            Some(said) => said,
            None => self.others.entry(id).or_default(),
        }
    }

    /// Takes out the dataflows that no longer matter and advances the others' `as_of`.
    ///
    /// A dataflow imports only what was created before it, so that going backwards meets everyone
    /// who may need a dataflow before the dataflow itself.
    fn settle(&mut self) {
        let mut needed = BTreeMap::new();
        for peek in &self.peeks {
            need(&mut needed, peek.target, peek.timestamp);
        }
        let mut kept = vec![];
        for mut dataflow in std::mem::take(&mut self.dataflows).into_iter().rev() {
            let needs: Vec<Timestamp> =
                dataflow.exports.keys().filter_map(|id| needed.remove(id)).collect();
            if dataflow.is_dropped() && needs.is_empty() {
                continue;
            }
            let bounds = needs.into_iter().chain(dataflow.allowed());
            let description = &mut dataflow.description;
            let until = description.until.as_option().map(|until| until.saturating_sub(1));
            let as_of = bounds.chain(until).min().unwrap_or(description.as_of);
            description.as_of = description.as_of.max(as_of);
            for id in description.import_ids() {
                need(&mut needed, id, description.as_of);
            }
            kept.push(dataflow);
        }
        kept.reverse();
        self.dataflows = kept;
    }

    /// Whether an id stands for two of the dataflows that are left.
    fn is_ambiguous(&self) -> bool {
        let mut seen = BTreeSet::new();
        self.dataflows
            .iter()
            .flat_map(|dataflow| dataflow.exports.keys())
            .any(|id| !seen.insert(id))
    }

    fn replay(self) -> Vec<Command> {
        let mut commands = vec![];
        commands.extend(self.nonce.map(|nonce| Command::Hello { nonce }));
        commands.extend(self.config.map(Command::CreateInstance));
        commands.extend(self.parameters.map(Command::UpdateConfiguration));
        let mut all = vec![];
        for dataflow in self.dataflows {
            commands.push(Command::CreateDataflow(dataflow.description));
            all.extend(dataflow.exports);
        }
        all.extend(self.others);
        let scheduled = all.iter().filter(|(_, said)| said.scheduled);
        commands.extend(scheduled.map(|(id, _)| Command::Schedule(*id)));
        let writes = all.iter().filter(|(_, said)| said.writes);
        commands.extend(writes.map(|(id, _)| Command::AllowWrites(*id)));
        commands.extend(self.complete.then_some(Command::InitializationComplete));
        commands.extend(self.peeks.into_iter().map(|peek| Command::Peek(Box::new(peek))));
        for (id, said) in all {
            let compaction = said.compaction;
            commands.extend(compaction.map(|frontier| Command::AllowCompaction { id, frontier }));
        }
        commands
    }
}

/// Someone reads `id` at `time`: notes the earliest such time.
fn need(needed: &mut BTreeMap<GlobalId, Timestamp>, id: GlobalId, time: Timestamp) {
    let earliest = needed.entry(id).or_insert(time);
    *earliest = time.min(*earliest);
}

/// Later parameters win; absent ones stay.
fn merge(parameters: &mut Parameters, later: &Parameters) {
    let Parameters { walk_budget } = later;
    parameters.walk_budget = walk_budget.or(parameters.walk_budget);
}

#[cfg(test)]
mod tests;
