//! The recorder: hears what happens, one callback at a time, and keeps what a drawing needs.
//!
//! A thread's slices are a stack. Activities tell their begin and end; waiting does not tell its
//! end, so a sleep ends where the wake that counted said that it would, once the thread is heard of
//! again. A stall moves the clock of its thread at once, so it is a slice that is closed from the
//! start, and cuts the wait it falls into in two.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use tandem::env::{Activity, Event, PartName};
use tandem::protocol::{Command, PeekId, PeekResponse};
use tandem::repr::{Frontier, GlobalId, show};

use super::{
    Doing, FaultWindow, Level, Mark, Read, ReadStep, SentCommand, Slice, Strip, Subject, Thread,
    Timeline, Wake,
};
use crate::oracle::answers;
use crate::report::{RunReport, Violation};
use crate::scenario::Fault;
use crate::sched::{Blocked, Observer, ThreadId};
use crate::world::{Fact, Witness};

/// How much is shown beyond a violation, at least: what its thread was doing there may be a wait
/// that just began.
const AFTERMATH_NS: u64 = 1_000;

/// Records a run.
pub(super) struct Recorder {
    state: RefCell<State>,
}

/// What tells one command from others: its kind, collection and read.
type CommandKey = (&'static str, Option<GlobalId>, Option<PeekId>);

/// Something changed in one part of an index.
enum PartChange {
    View(Level, Level),
    Logical(Level),
    Gone,
}

#[derive(Default)]
struct State {
    timeline: Timeline,
    lanes: Vec<Lane>,
    /// Commands that have not reached the replica, by their place among the sent ones.
    under_way: VecDeque<usize>,
    sent: BTreeMap<CommandKey, Vec<usize>>,
    /// How many commands of this key a thread has applied.
    applied: BTreeMap<(usize, CommandKey), usize>,
    peeks: BTreeMap<PeekId, usize>,
    /// The read whose query has this output.
    queries: BTreeMap<GlobalId, usize>,
    strips: BTreeMap<GlobalId, Strip>,
    parts: Vec<(u64, PartName, PartChange)>,
    logicals: BTreeMap<PartName, Level>,
    faults: Vec<(Fault, u64, Option<u64>)>,
    /// The thread that was heard of last, and when.
    last: Option<(usize, u64)>,
    over: bool,
}

/// What a thread is in the middle of.
#[derive(Default)]
struct Lane {
    /// Slices that have not ended, outermost first.
    open: Vec<usize>,
    /// Who wakes it from its sleep: when, by whom, and from when on it runs.
    wake: Option<(u64, Option<usize>, u64)>,
    /// Its clock when it was torn down, after the run.
    last_ns: Option<u64>,
}

fn level(frontier: &Frontier) -> Level {
    frontier.as_option().copied()
}

impl Recorder {
    pub(super) fn new() -> Recorder {
        Recorder { state: RefCell::default() }
    }

    /// Everything that was recorded. Nothing is left.
    pub(super) fn finish(&self, subject: &Subject, report: &RunReport) -> Timeline {
        self.state.take().finish(subject, report)
    }

    fn torn_down(&self, now_ns: u64, thread: ThreadId) {
        let mut state = self.state.borrow_mut();
        let over = state.over;
        let lane = usize::try_from(thread.0).ok().and_then(|index| state.lanes.get_mut(index));
        if let Some(lane) = lane.filter(|_| over) {
            lane.last_ns = Some(now_ns);
        }
    }

    /// Does something with the state, unless the run is over.
    fn with(&self, thread: ThreadId, now_ns: u64, record: impl FnOnce(&mut State, usize)) {
        let mut state = self.state.borrow_mut();
        let index = usize::try_from(thread.0).unwrap_or(usize::MAX);
        if !state.over && index < state.lanes.len() {
            state.last = Some((index, now_ns));
            record(&mut state, index);
        }
    }
}

impl Observer for Recorder {
    fn event(&self, now_ns: u64, thread: ThreadId, event: &Event) {
        self.with(thread, now_ns, |state, thread| {
            state.resume(thread, now_ns);
            state.event(thread, now_ns, event);
        });
    }

    fn begin(&self, now_ns: u64, thread: ThreadId, activity: Activity) {
        self.with(thread, now_ns, |state, thread| {
            state.resume(thread, now_ns);
            state.open(thread, now_ns, doing(activity));
        });
    }

    fn end(&self, now_ns: u64, thread: ThreadId, activity: Activity) {
        self.with(thread, now_ns, |state, thread| {
            state.resume(thread, now_ns);
            state.close_through(thread, now_ns, &doing(activity));
        });
    }

    fn parked(&self, now_ns: u64, thread: ThreadId) {
        self.with(thread, now_ns, |state, thread| {
            state.resume(thread, now_ns);
            state.close_turn(thread, now_ns);
            state.open(thread, now_ns, Doing::Idle);
        });
    }

    fn woken(&self, now_ns: u64, by: ThreadId, thread: ThreadId, runs_ns: u64) {
        let mut state = self.state.borrow_mut();
        let known = |thread: ThreadId| usize::try_from(thread.0).ok();
        let threads = state.lanes.len();
        let by = known(by).filter(|by| *by < threads);
        if let Some(thread) = known(thread).filter(|thread| !state.over && *thread < threads) {
            state.lanes[thread].wake = Some((now_ns, by, runs_ns));
        }
    }

    fn blocked(&self, now_ns: u64, blocked: &Blocked) {
        self.with(blocked.waiter, now_ns, |state, thread| {
            let threads = state.lanes.len();
            let holder = blocked.holder.and_then(|holder| usize::try_from(holder.0).ok());
            let holder = holder.filter(|holder| *holder < threads);
            state.open(thread, now_ns, Doing::Blocked { lock: blocked.lock, holder });
        });
    }

    fn unblocked(&self, now_ns: u64, thread: ThreadId, _lock: &'static str, _waited_ns: u64) {
        self.with(thread, now_ns, |state, thread| {
            let top = state.top(thread);
            if top.is_some_and(|slice| matches!(slice.doing, Doing::Blocked { .. })) {
                state.close(thread, now_ns);
            }
        });
    }

    fn stalled(&self, now_ns: u64, thread: ThreadId, stall_ns: u64) {
        self.with(thread, now_ns, |state, thread| state.stall(thread, now_ns, stall_ns));
    }

    fn ended(&self, now_ns: u64, thread: ThreadId) {
        self.torn_down(now_ns, thread);
        self.with(thread, now_ns, |state, thread| {
            state.resume(thread, now_ns);
            while !state.lanes[thread].open.is_empty() {
                state.close(thread, now_ns);
            }
            state.timeline.threads[thread].died_ns = Some(now_ns);
        });
    }
}

impl Witness for Recorder {
    fn fact(&self, now_ns: u64, fact: &Fact<'_>) {
        let mut state = self.state.borrow_mut();
        match fact {
            Fact::Thread { id, name, role, process } => {
                assert_eq!(id.0, state.lanes.len() as u64, "threads are introduced in order");
                state.lanes.push(Lane::default());
                let (name, role, process) = (name.to_string(), *role, *process);
                let thread = Thread { name, role, process, died_ns: None, slices: Vec::new() };
                state.timeline.threads.push(thread);
            }
            Fact::Sent(command) => state.sent(now_ns, command),
            Fact::Delivered(_) => {
                if let Some(index) = state.under_way.pop_front() {
                    state.timeline.commands[index].delivered_ns = Some(now_ns);
                }
            }
            Fact::Heard(_) => {}
            Fact::Asked { peek, target, reads, at } => {
                let index = state.timeline.peeks.len();
                state.peeks.insert(*peek, index);
                if target.is_transient() {
                    state.queries.insert(*target, index);
                }
                state.timeline.peeks.push(Read {
                    peek: *peek,
                    target: *target,
                    reads: reads.to_vec(),
                    at: *at,
                    asked_ns: now_ns,
                    canceled: None,
                    answered: None,
                    steps: Vec::new(),
                });
            }
            Fact::Canceled { peek, in_time } => {
                if let Some(read) = state.read(*peek) {
                    read.canceled.get_or_insert((now_ns, *in_time));
                }
            }
            Fact::Answered { peek, response } => {
                if let Some(read) = state.read(*peek) {
                    read.answered = Some(answer(now_ns, response));
                }
            }
            Fact::Appended { source, upper, .. } => {
                let strip = state.strip(*source);
                strip.source = true;
                push(&mut strip.upper, now_ns, level(upper));
            }
            Fact::Fault { fault, begins } => state.fault(now_ns, fault, *begins),
            Fact::Healed => state.timeline.healed_ns = Some(now_ns),
            Fact::Over => state.over = true,
            Fact::Violated(violation) => state.violated(violation),
        }
    }
}

fn answer(now_ns: u64, response: &PeekResponse) -> (u64, &'static str, String) {
    let kind = match response {
        PeekResponse::Rows(_) => "rows",
        PeekResponse::Error(_) => "error",
        PeekResponse::Canceled => "canceled",
    };
    (now_ns, kind, answers::show_response(response))
}

fn doing(activity: Activity) -> Doing {
    match activity {
        Activity::Commands => Doing::Commands,
        Activity::Step => Doing::Step,
        Activity::Compact(part) => Doing::Compact(part.map(|part| (part.id, part.half))),
        Activity::Merge => Doing::Merge,
        Activity::Walk(peek) => Doing::Walk(peek),
        Activity::Tick => Doing::Tick,
    }
}

/// Appends what holds from now on, if it is news.
fn push(series: &mut Vec<(u64, Level)>, now_ns: u64, level: Level) {
    if series.last().is_none_or(|(_, last)| *last != level) {
        series.push((now_ns, level));
    }
}

/// Slices.
impl State {
    fn top(&self, thread: usize) -> Option<&Slice> {
        let index = self.lanes[thread].open.last()?;
        Some(&self.timeline.threads[thread].slices[*index])
    }

    fn open(&mut self, thread: usize, begin_ns: u64, doing: Doing) {
        let (lane, slices) = (&mut self.lanes[thread], &mut self.timeline.threads[thread].slices);
        let depth = lane.open.len();
        lane.open.push(slices.len());
        slices.push(Slice { doing, begin_ns, end_ns: u64::MAX, depth });
    }

    /// Ends what the thread began last.
    fn close(&mut self, thread: usize, end_ns: u64) {
        if let Some(index) = self.lanes[thread].open.pop() {
            let slice = &mut self.timeline.threads[thread].slices[index];
            slice.end_ns = end_ns.max(slice.begin_ns);
        }
    }

    /// Ends what the end of the run found unfinished: work where the thread's clock stood, waits at
    /// the end.
    fn close_all(&mut self, thread: usize, end_ns: u64) {
        let waits = self.top(thread).is_some_and(|slice| slice.doing.is_wait());
        let last_ns = if waits { None } else { self.lanes[thread].last_ns };
        while !self.lanes[thread].open.is_empty() {
            self.close(thread, last_ns.unwrap_or(end_ns).min(end_ns));
        }
    }

    /// Ends this and whatever is inside of it.
    fn close_through(&mut self, thread: usize, end_ns: u64, doing: &Doing) {
        let slices = &self.timeline.threads[thread].slices;
        let open = &self.lanes[thread].open;
        let Some(position) = open.iter().rposition(|index| slices[*index].doing == *doing) else {
            return;
        };
        while self.lanes[thread].open.len() > position {
            self.close(thread, end_ns);
        }
    }

    fn close_turn(&mut self, thread: usize, end_ns: u64) {
        if self.top(thread).is_some_and(|slice| slice.doing == Doing::Turn) {
            self.close(thread, end_ns);
        }
    }

    /// The thread does something: if it slept, it was woken.
    fn resume(&mut self, thread: usize, now_ns: u64) {
        if self.top(thread).is_none_or(|slice| slice.doing != Doing::Idle) {
            return;
        }
        let Some((at_ns, by, runs_ns)) = self.lanes[thread].wake.take() else {
            return self.close(thread, now_ns);
        };
        let runs_ns = runs_ns.min(now_ns);
        self.close(thread, runs_ns);
        self.timeline.wakes.push(Wake { by, at_ns, thread, runs_ns });
    }

    fn stall(&mut self, thread: usize, from_ns: u64, stall_ns: u64) {
        if self.lanes[thread].wake.is_some_and(|(.., runs_ns)| runs_ns <= from_ns) {
            self.resume(thread, from_ns);
        }
        let top = self.top(thread).map(|slice| slice.doing.clone());
        let wait = top.filter(Doing::is_wait);
        if wait.is_some() {
            self.close(thread, from_ns);
        }
        self.open(thread, from_ns, Doing::Stalled);
        let end_ns = from_ns.saturating_add(stall_ns);
        self.close(thread, end_ns);
        if let Some(wait) = wait {
            self.open(thread, end_ns, wait);
        }
    }
}

/// Everything else.
impl State {
    fn read(&mut self, peek: PeekId) -> Option<&mut Read> {
        let index = *self.peeks.get(&peek)?;
        self.timeline.peeks.get_mut(index)
    }

    fn strip(&mut self, id: GlobalId) -> &mut Strip {
        self.strips.entry(id).or_insert_with(|| Strip::new(id))
    }

    fn step(
        &mut self,
        peek: PeekId,
        thread: usize,
        at_ns: u64,
        what: &'static str,
        detail: String,
    ) {
        if let Some(read) = self.read(peek) {
            read.steps.push(ReadStep { at_ns, thread, what, detail });
        }
    }

    fn sent(&mut self, sent_ns: u64, command: &Command) {
        let (kind, id, peek) = (command.kind(), command.collection(), command.peek());
        let index = self.timeline.commands.len();
        self.under_way.push_back(index);
        self.sent.entry((kind, id, peek)).or_default().push(index);
        let detail = match command {
            Command::AllowCompaction { frontier, .. } if frontier.is_empty() => "drop".to_string(),
            Command::AllowCompaction { frontier, .. } => format!("to {}", show(frontier)),
            Command::Peek(peek) => format!("at {}", peek.timestamp),
            Command::CreateDataflow(dataflow) => format!("as of {}", dataflow.as_of),
            _ => String::new(),
        };
        if let Command::AllowCompaction { id, frontier } = command {
            push(&mut self.strip(*id).allowed, sent_ns, level(frontier));
        }
        if let Command::CreateDataflow(dataflow) = command {
            for id in dataflow.export_ids() {
                push(&mut self.strip(id).allowed, sent_ns, Some(dataflow.as_of));
            }
        }
        self.timeline.commands.push(SentCommand {
            kind,
            detail,
            id,
            peek,
            sent_ns,
            delivered_ns: None,
            applied: Vec::new(),
        });
    }

    fn applied(&mut self, thread: usize, at_ns: u64, key: CommandKey) {
        let count = self.applied.entry((thread, key)).or_default();
        let index = self.sent.get(&key).and_then(|sent| sent.get(*count)).copied();
        *count += 1;
        if let Some(index) = index {
            self.timeline.commands[index].applied.push((thread, at_ns));
        }
        let (kind, _, peek) = key;
        if let Some(peek) = peek {
            let what = if kind == "CancelPeek" { "cancel applied" } else { "applied" };
            self.step(peek, thread, at_ns, what, String::new());
        }
    }

    fn event(&mut self, thread: usize, now_ns: u64, event: &Event) {
        match event {
            Event::Turn { .. } => {
                self.close_turn(thread, now_ns);
                if self.lanes[thread].open.is_empty() {
                    self.open(thread, now_ns, Doing::Turn);
                }
            }
            Event::CommandApplied { command, id, peek, .. } => {
                self.applied(thread, now_ns, (command, *id, *peek));
            }
            Event::SnapshotTaken { id, since, upper, peek: Some(peek), .. } => {
                let detail = format!("{id} since {} upper {}", show(since), show(upper));
                self.step(*peek, thread, now_ns, "captured", detail);
            }
            Event::SnapshotRefused { id, since, peek: Some(peek), .. } => {
                self.step(*peek, thread, now_ns, "refused", format!("{id} since {}", show(since)));
            }
            Event::ReadWaits { id, peek, published, .. } => {
                let why = if *published { "is not complete" } else { "is not published" };
                self.step(*peek, thread, now_ns, "waits", format!("{id} {why}"));
            }
            Event::PeekAnswered { peek, answer, .. } => {
                self.step(*peek, thread, now_ns, "answered", answer.to_string());
            }
            Event::Rendered { exports, .. } => {
                let queries = exports.iter().filter_map(|id| self.queries.get(id));
                for index in queries.copied().collect::<Vec<_>>() {
                    let peek = self.timeline.peeks[index].peek;
                    self.step(peek, thread, now_ns, "rendered", String::new());
                }
            }
            _ => self.part_event(now_ns, event),
        }
    }

    fn part_event(&mut self, now_ns: u64, event: &Event) {
        match event {
            Event::Published { part, since, upper, .. } => {
                let change = PartChange::View(level(since), level(upper));
                self.parts.push((now_ns, *part, change));
            }
            Event::TraceState { part, logical, .. } => {
                let logical = level(logical);
                if self.logicals.insert(*part, logical) != Some(logical) {
                    self.parts.push((now_ns, *part, PartChange::Logical(logical)));
                }
            }
            Event::Closed { part } => {
                self.logicals.remove(part);
                self.parts.push((now_ns, *part, PartChange::Gone));
            }
            _ => {}
        }
    }

    fn fault(&mut self, now_ns: u64, fault: &Fault, begins: bool) {
        if begins {
            return self.faults.push((fault.clone(), now_ns, None));
        }
        let mut open = self.faults.iter_mut().filter(|(_, _, to_ns)| to_ns.is_none());
        if let Some((.., to_ns)) = open.find(|(known, ..)| known == fault) {
            *to_ns = Some(now_ns);
        }
    }

    fn violated(&mut self, violation: &Violation) {
        let Violation { oracle, at_ns, message, .. } = violation;
        let thread = self.last.filter(|(_, last_ns)| last_ns == at_ns).map(|(thread, _)| thread);
        let peeks = self.timeline.peeks.iter().map(|read| read.peek);
        let peeks = peeks.filter(|peek| mentions(message, &peek.to_string())).collect();
        let mut ids: Vec<_> = self.strips.keys().copied().collect();
        ids.extend(self.parts.iter().map(|(_, part, _)| part.id));
        ids.sort();
        ids.dedup();
        ids.retain(|id| mentions(message, &id.to_string()));
        let (oracle, at_ns, message) = (*oracle, *at_ns, message.clone());
        let holder = thread.and_then(|thread| match self.top(thread)?.doing {
            Doing::Blocked { holder, .. } => holder,
            _ => None,
        });
        let holding = holder.and_then(|holder| Some((holder, self.top(holder)?.begin_ns)));
        self.timeline.violation =
            Some(Mark { oracle, at_ns, message, thread, holding, peeks, collections: ids });
    }

    /// Replays what happened to parts of indexes, in the order of virtual time, into one strip for
    /// each.
    fn fold_parts(&mut self) {
        let mut parts = std::mem::take(&mut self.parts);
        parts.sort_by_key(|(at_ns, ..)| *at_ns);
        let mut views: BTreeMap<PartName, (Level, Level)> = BTreeMap::new();
        let mut logicals: BTreeMap<PartName, Level> = BTreeMap::new();
        for (at_ns, part, change) in parts {
            match change {
                PartChange::View(since, upper) => {
                    views.insert(part, (since, upper));
                    // The empty frontier is beyond all others.
                    let beyond = |level: &Level| (level.is_none(), *level);
                    let all = || views.iter().filter(|(name, _)| name.id == part.id);
                    let since = all().map(|(_, (since, _))| *since).max_by_key(beyond);
                    let upper = all().map(|(_, (_, upper))| *upper).min_by_key(beyond);
                    let strip = self.strip(part.id);
                    push(&mut strip.since, at_ns, since.flatten());
                    push(&mut strip.upper, at_ns, upper.flatten());
                }
                PartChange::Logical(logical) => {
                    logicals.insert(part, logical);
                    let all = logicals.iter().filter(|(name, _)| name.id == part.id);
                    let held = all.map(|(_, logical)| *logical);
                    let held = held.min_by_key(|level| (level.is_none(), *level)).flatten();
                    push(&mut self.strip(part.id).held, at_ns, held);
                }
                PartChange::Gone => {
                    views.remove(&part);
                    logicals.remove(&part);
                    if !views.keys().any(|name| name.id == part.id) {
                        let strip = self.strip(part.id);
                        push(&mut strip.since, at_ns, None);
                        push(&mut strip.upper, at_ns, None);
                        push(&mut strip.held, at_ns, None);
                    }
                }
            }
        }
    }

    fn finish(mut self, subject: &Subject, report: &RunReport) -> Timeline {
        self.fold_parts();
        let heard = self.timeline.threads.iter().flat_map(|thread| &thread.slices);
        let heard = heard.filter(|slice| slice.doing != Doing::Stalled);
        let heard = heard.flat_map(|slice| [slice.begin_ns, slice.end_ns]);
        let last = heard.filter(|at_ns| *at_ns != u64::MAX).max().unwrap_or(0);
        let torn = (0..self.lanes.len()).filter(|thread| {
            let last = self.timeline.threads[*thread].slices.last();
            self.top(*thread).is_some_and(|slice| !slice.doing.is_wait())
                && last.is_some_and(|slice| slice.doing != Doing::Stalled)
        });
        let last =
            torn.filter_map(|thread| self.lanes[thread].last_ns).max().unwrap_or(0).max(last);
        let violated_ns =
            self.timeline.violation.as_ref().map_or(0, |mark| mark.at_ns + AFTERMATH_NS);
        let end_ns = report.virtual_ns.max(last).max(violated_ns);
        for thread in 0..self.lanes.len() {
            self.close_all(thread, end_ns);
        }
        let mut timeline = self.timeline;
        for slices in timeline.threads.iter_mut().map(|thread| &mut thread.slices) {
            slices.iter_mut().for_each(|slice| slice.end_ns = slice.end_ns.min(end_ns));
            // A sleep that a stall cut off where it began was none. A wait for a lock is worth
            // telling even if, by the clocks of both, it took no time.
            slices.retain(|slice| {
                slice.begin_ns < slice.end_ns
                    || (slice.begin_ns == slice.end_ns && slice.doing != Doing::Idle)
            });
        }
        timeline.wakes.sort_by_key(|wake| wake.runs_ns);
        timeline.peeks.iter_mut().for_each(|read| read.steps.sort_by_key(|step| step.at_ns));
        let shown = |strip: &Strip| strip.source || !strip.upper.is_empty();
        timeline.collections = self.strips.into_values().filter(shown).collect();
        let fault = |(fault, from_ns, to_ns): (Fault, u64, Option<u64>)| FaultWindow {
            label: fault_label(&fault),
            from_ns,
            to_ns: to_ns.unwrap_or(end_ns).min(end_ns),
        };
        timeline.faults = self.faults.into_iter().map(fault).collect();
        timeline.name = subject.name.clone();
        timeline.command = subject.command.clone();
        timeline.planted =
            subject.plant.map(|defect| format!("{}: {}", defect.name(), defect.summary()));
        (timeline.decisions, timeline.hash) = (report.decisions, report.hash);
        timeline.end_ns = end_ns;
        timeline
    }
}

fn fault_label(fault: &Fault) -> String {
    match fault {
        Fault::SlowMerge { factor, process: None, .. } => format!("merges {factor} times as slow"),
        Fault::SlowMerge { factor, process: Some(process), .. } => {
            format!("merges {factor} times as slow in process {process}")
        }
        Fault::StallWorker { role, worker, .. } => {
            format!("{} worker {worker} stalled", super::runtime_name(*role))
        }
        Fault::StallRuntime { role, .. } => {
            format!("{} runtime stalled", super::runtime_name(*role))
        }
    }
}

/// Whether a text contains this name, and not only as a part of a longer one.
fn mentions(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::mentions;

    #[test]
    fn a_name_is_mentioned_only_as_a_whole() {
        assert!(mentions("peek 4 of u12 at 7", "u12"));
        assert!(mentions("u12: late", "u12"));
        assert!(!mentions("u123 and xu12", "u12"));
        assert!(mentions("peek 1 and peek 12", "peek 1"));
        assert!(!mentions("peek 12", "peek 1"));
    }
}
