//! The timeline as Chrome trace events, which Perfetto and `chrome://tracing` open.
//!
//! Each runtime of a process is a trace process with a track for every worker; the controller is another, and the
//! collections, as counters, a third. Slices are complete events (`X`). Flow arrows (`s` and `f`) lead from a command
//! to wherever it is applied, from a wake to what its sleeper does next, and from an answer of a worker to the
//! controller. Both ends of an arrow are inside a slice, or it would not be drawn.

use serde_json::{Value, json};

use super::{Doing, Level, Strip, Thread, Timeline, runtime_name};

/// The trace process of the controller.
const CONTROLLER: usize = 1;
/// The trace process of the collections.
const COLLECTIONS: usize = 2;
/// The trace process of the first runtime.
const FIRST_RUNTIME: usize = 10;

/// The tracks of the controller.
const COMMANDS: usize = 1;
const ANSWERS: usize = 2;
const FAULTS: usize = 3;

/// How long an instant of the controller is drawn, at most, in nanoseconds.
const INSTANT_NS: u64 = 500;

/// The trace, as JSON.
pub fn render(timeline: &Timeline) -> String {
    let mut trace = Trace::default();
    trace.names(timeline);
    trace.slices(timeline);
    trace.commands(timeline);
    trace.answers(timeline);
    trace.wakes(timeline);
    trace.faults(timeline);
    timeline.collections.iter().for_each(|strip| trace.counters(strip));
    let Trace { metadata, mut events, .. } = trace;
    // Of events at the same time, the outer slice comes first.
    events.sort_by_key(|event| (event.at_ns, std::cmp::Reverse(event.length_ns)));
    let events = metadata.into_iter().chain(events.into_iter().map(|event| event.json));
    let events: Vec<Value> = events.collect();
    let about = json!({
        "run": timeline.name,
        "replay": timeline.command,
        "hash": format!("{:016x}", timeline.hash),
        "violation": timeline.violation.as_ref().map(|mark| &mark.message),
    });
    json!({ "displayTimeUnit": "ns", "otherData": about, "traceEvents": events }).to_string()
}

struct Event {
    at_ns: u64,
    length_ns: u64,
    json: Value,
}

#[derive(Default)]
struct Trace {
    metadata: Vec<Value>,
    events: Vec<Event>,
    flows: u64,
}

/// A track: process and thread of the trace.
type Track = (usize, usize);

/// Microseconds, the unit of trace events, to the nanosecond.
fn us(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}

fn track(timeline: &Timeline, thread: usize) -> Track {
    let Thread { role, process, .. } = timeline.threads[thread];
    (FIRST_RUNTIME + 3 * process + role as usize, FIRST_RUNTIME + thread)
}

impl Trace {
    fn names(&mut self, timeline: &Timeline) {
        self.process(CONTROLLER, "controller");
        for (thread, name) in [(COMMANDS, "commands"), (ANSWERS, "answers"), (FAULTS, "faults")] {
            self.thread((CONTROLLER, thread), name);
        }
        self.process(COLLECTIONS, "collections");
        for (index, thread) in timeline.threads.iter().enumerate() {
            let track = track(timeline, index);
            let name = format!("p{} {}", thread.process, runtime_name(thread.role));
            self.process(track.0, &name);
            self.thread(track, &thread.name);
        }
    }

    fn process(&mut self, pid: usize, name: &str) {
        let name = json!({ "name": name });
        let known = |event: &Value| event["pid"] == pid && event["name"] == "process_name";
        if !self.metadata.iter().any(known) {
            self.metadata
                .push(json!({ "ph": "M", "name": "process_name", "pid": pid, "args": name }));
            let order = json!({ "sort_index": pid });
            self.metadata.push(
                json!({ "ph": "M", "name": "process_sort_index", "pid": pid, "args": order }),
            );
        }
    }

    fn thread(&mut self, (pid, tid): Track, name: &str) {
        let name = json!({ "name": name });
        self.metadata.push(
            json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": name }),
        );
    }

    fn slice(&mut self, (pid, tid): Track, name: &str, kind: &str, at_ns: u64, length_ns: u64) {
        let (ts, dur) = (us(at_ns), us(length_ns));
        let json = json!({
            "ph": "X", "name": name, "cat": kind, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
        });
        self.events.push(Event { at_ns, length_ns, json });
    }

    fn flow(&mut self, name: &str, from: (Track, u64), to: (Track, u64)) {
        self.flows += 1;
        for (phase, ((pid, tid), at_ns)) in [("s", from), ("f", to)] {
            let (id, ts) = (self.flows, us(at_ns));
            let mut json = json!({
                "ph": phase, "name": name, "cat": name, "id": id, "pid": pid, "tid": tid, "ts": ts,
            });
            if phase == "f" {
                // To the slice around it, not to the next one.
                json["bp"] = json!("e");
            }
            self.events.push(Event { at_ns, length_ns: 0, json });
        }
    }

    fn slices(&mut self, timeline: &Timeline) {
        for (index, thread) in timeline.threads.iter().enumerate() {
            let track = track(timeline, index);
            for slice in &thread.slices {
                let label = slice.doing.label(&timeline.threads);
                let kind = Doing::KINDS[slice.doing.kind()];
                self.slice(track, &label, kind, slice.begin_ns, slice.end_ns - slice.begin_ns);
            }
        }
    }

    /// Commands sent in one instant are one slice, because slices of a track are nested or disjoint.
    fn commands(&mut self, timeline: &Timeline) {
        let track = (CONTROLLER, COMMANDS);
        let mut groups = timeline.commands.chunk_by(|left, right| left.sent_ns == right.sent_ns);
        let mut group = groups.next();
        while let Some(commands) = group {
            group = groups.next();
            let sent_ns = commands[0].sent_ns;
            let next_ns = group.map_or(u64::MAX, |commands| commands[0].sent_ns);
            let name = match commands {
                [only] => only.label(),
                several => format!("{} commands", several.len()),
            };
            let length_ns = INSTANT_NS.min(next_ns - sent_ns);
            self.slice(track, &name, "command", sent_ns, length_ns);
            for command in commands {
                // A thread's clock may lag behind the network's: then the arrow would lead back in time.
                let applied = command.applied.iter().filter(|(_, at_ns)| *at_ns >= sent_ns);
                for (thread, at_ns) in applied {
                    let to = (self::track(timeline, *thread), *at_ns);
                    self.flow("command", (track, sent_ns), to);
                }
            }
        }
    }

    fn answers(&mut self, timeline: &Timeline) {
        let track = (CONTROLLER, ANSWERS);
        let reads = timeline.peeks.iter();
        let mut answers: Vec<_> = reads
            .filter_map(|read| read.answered.as_ref().map(|(at_ns, kind, _)| (*at_ns, kind, read)))
            .collect();
        answers.sort_by_key(|(at_ns, ..)| *at_ns);
        let mut groups = answers.chunk_by(|left, right| left.0 == right.0);
        let mut group = groups.next();
        while let Some(answers) = group {
            group = groups.next();
            let at_ns = answers[0].0;
            let next_ns = group.map_or(u64::MAX, |answers| answers[0].0);
            let name = match answers {
                [(_, kind, read)] => format!("{}: {kind}", read.peek),
                several => format!("{} answers", several.len()),
            };
            self.slice(track, &name, "answer", at_ns, INSTANT_NS.min(next_ns - at_ns));
            for (.., read) in answers {
                let said = read.steps.iter();
                // The clock of a worker may be ahead of the network's.
                let said = said.filter(|step| step.what == "answered" && step.at_ns <= at_ns);
                for step in said {
                    let from = (self::track(timeline, step.thread), step.at_ns);
                    if timeline.is_busy(step.thread, step.at_ns) {
                        self.flow("answer", from, (track, at_ns));
                    }
                }
            }
        }
    }

    fn wakes(&mut self, timeline: &Timeline) {
        for wake in &timeline.wakes {
            let next = timeline.next_slice(wake.thread, wake.runs_ns);
            if let (Some(by), Some(begin_ns)) = (wake.by, next)
                && timeline.is_busy(by, wake.at_ns)
            {
                let from = (track(timeline, by), wake.at_ns);
                self.flow("wake", from, (track(timeline, wake.thread), begin_ns));
            }
        }
    }

    /// Faults may overlap, and the slices of a track must not: each has a track of its own.
    fn faults(&mut self, timeline: &Timeline) {
        for (index, fault) in timeline.faults.iter().enumerate() {
            let track = (CONTROLLER, FAULTS + index);
            if index > 0 {
                self.thread(track, "faults");
            }
            self.slice(track, &fault.label, "fault", fault.from_ns, fault.to_ns - fault.from_ns);
        }
        if let Some(mark) = &timeline.violation {
            let json = json!({
                "ph": "i", "s": "g", "name": format!("{} violated", mark.oracle),
                "pid": CONTROLLER, "tid": COMMANDS, "ts": us(mark.at_ns),
                "args": { "message": mark.message },
            });
            self.events.push(Event { at_ns: mark.at_ns, length_ns: 0, json });
        }
    }

    /// A closed frontier has no number; the counter stays where it was.
    fn counters(&mut self, strip: &Strip) {
        let frontiers: [(&str, &[(u64, Level)]); 4] = [
            ("since", &strip.since),
            ("upper", &strip.upper),
            ("allowed", &strip.allowed),
            ("held", &strip.held),
        ];
        for (name, series) in frontiers {
            for (at_ns, level) in series {
                let (at_ns, Some(level)) = (*at_ns, level) else { continue };
                let counter = format!("{} {name}", strip.id);
                let json = json!({
                    "ph": "C", "name": counter, "pid": COLLECTIONS, "ts": us(at_ns),
                    "args": { name: level },
                });
                self.events.push(Event { at_ns, length_ns: 0, json });
            }
        }
    }
}
