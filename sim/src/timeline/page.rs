//! The timeline as one page of HTML that needs nothing else: no network, no server, no other file.
//!
//! The parts are files in the folder beside this one, put together at compile time; the data goes in as JSON. Slices
//! are columns of numbers, each begin relative to the one before, because a run has many of them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Level, SentCommand, Strip, Thread, Timeline, json_for_html, runtime_name};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

/// The page.
pub fn render(timeline: &Timeline) -> String {
    assemble(&timeline.name, &json_for_html(&Data::of(timeline)))
}

/// Puts the parts together, those that may contain a placeholder's text last.
fn assemble(name: &str, data: &str) -> String {
    let name = name.replace('&', "&amp;").replace('<', "&lt;");
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
    let mut rest = PAGE;
    let parts = [("{{name}}", name.as_str()), ("{{style}}", STYLE), ("{{data}}", data)];
    for (placeholder, part) in parts.into_iter().chain([("{{script}}", SCRIPT)]) {
        let (before, after) = rest.split_once(placeholder).expect("the page has each part once");
        page.push_str(before);
        page.push_str(part);
        rest = after;
    }
    page.push_str(rest);
    page
}

/// What the script reads.
#[derive(Serialize)]
struct Data<'a> {
    name: &'a str,
    command: &'a str,
    hash: String,
    decisions: u64,
    planted: Option<&'a str>,
    end: u64,
    healed: Option<u64>,
    kinds: [&'static str; super::Doing::KINDS.len()],
    labels: Vec<String>,
    threads: Vec<Lane<'a>>,
    /// By whom (none: -1), when, whom, and when that ran.
    wakes: Vec<(i64, u64, usize, u64)>,
    commands: Vec<CommandData<'a>>,
    peeks: Vec<PeekData<'a>>,
    collections: Vec<StripData<'a>>,
    faults: Vec<(&'a str, u64, u64)>,
    violation: Option<MarkData<'a>>,
}

/// A thread; its slices as columns.
#[derive(Serialize)]
struct Lane<'a> {
    name: &'a str,
    role: &'static str,
    process: usize,
    died: Option<u64>,
    /// From the begin of the slice before to the begin of this one.
    begin: Vec<u64>,
    length: Vec<u64>,
    kind: Vec<usize>,
    depth: Vec<usize>,
    label: Vec<usize>,
    /// The place of its read among the reads, counted from one; zero without one.
    peek: Vec<usize>,
}

#[derive(Serialize)]
struct CommandData<'a> {
    kind: &'static str,
    detail: &'a str,
    id: Option<String>,
    peek: Option<u64>,
    sent: u64,
    delivered: Option<u64>,
    applied: &'a [(usize, u64)],
}

#[derive(Serialize)]
struct PeekData<'a> {
    peek: u64,
    target: String,
    reads: Vec<String>,
    at: u64,
    asked: u64,
    canceled: Option<(u64, bool)>,
    answered: Option<(u64, &'static str, &'a str)>,
    steps: Vec<(u64, usize, &'static str, &'a str)>,
}

#[derive(Serialize)]
struct StripData<'a> {
    id: String,
    source: bool,
    since: &'a [(u64, Level)],
    upper: &'a [(u64, Level)],
    allowed: &'a [(u64, Level)],
    held: &'a [(u64, Level)],
}

#[derive(Serialize)]
struct MarkData<'a> {
    oracle: &'static str,
    promise: &'static str,
    at: u64,
    message: &'a str,
    thread: Option<usize>,
    holding: Option<(usize, u64)>,
    peeks: Vec<u64>,
    collections: Vec<String>,
}

/// Texts that occur many times, each kept once.
#[derive(Default)]
struct Labels {
    texts: Vec<String>,
    known: BTreeMap<String, usize>,
}

impl Labels {
    fn of(&mut self, text: String) -> usize {
        if let Some(index) = self.known.get(&text) {
            return *index;
        }
        self.texts.push(text.clone());
        self.known.insert(text, self.texts.len() - 1);
        self.texts.len() - 1
    }
}

impl<'a> Data<'a> {
    fn of(timeline: &'a Timeline) -> Data<'a> {
        let mut labels = Labels::default();
        let reads = timeline.peeks.iter().enumerate();
        let reads = reads.map(|(index, read)| (read.peek, index + 1)).collect();
        let threads = &timeline.threads;
        let lanes = threads.iter().map(|thread| lane(thread, threads, &reads, &mut labels));
        Data {
            name: &timeline.name,
            command: &timeline.command,
            hash: format!("{:016x}", timeline.hash),
            decisions: timeline.decisions,
            planted: timeline.planted.as_deref(),
            end: timeline.end_ns,
            healed: timeline.healed_ns,
            kinds: super::Doing::KINDS,
            threads: lanes.collect(),
            labels: labels.texts,
            wakes: wakes(timeline),
            commands: timeline.commands.iter().map(command).collect(),
            peeks: timeline.peeks.iter().map(peek).collect(),
            collections: timeline.collections.iter().map(strip).collect(),
            faults: faults(timeline),
            violation: timeline.violation.as_ref().map(|mark| MarkData {
                oracle: mark.oracle.name(),
                promise: mark.oracle.promise(),
                at: mark.at_ns,
                message: &mark.message,
                thread: mark.thread,
                holding: mark.holding,
                peeks: mark.peeks.iter().map(|peek| peek.0).collect(),
                collections: mark.collections.iter().map(ToString::to_string).collect(),
            }),
        }
    }
}

fn lane<'a>(
    thread: &'a Thread,
    threads: &[Thread],
    reads: &BTreeMap<tandem::protocol::PeekId, usize>,
    labels: &mut Labels,
) -> Lane<'a> {
    let mut lane = Lane {
        name: &thread.name,
        role: runtime_name(thread.role),
        process: thread.process,
        died: thread.died_ns,
        begin: Vec::new(),
        length: Vec::new(),
        kind: Vec::new(),
        depth: Vec::new(),
        label: Vec::new(),
        peek: Vec::new(),
    };
    let mut last_ns = 0;
    for slice in &thread.slices {
        lane.begin.push(slice.begin_ns - last_ns);
        last_ns = slice.begin_ns;
        lane.length.push(slice.end_ns - slice.begin_ns);
        lane.kind.push(slice.doing.kind());
        lane.depth.push(slice.depth);
        lane.label.push(labels.of(slice.doing.label(threads)));
        let read = slice.doing.peek().and_then(|peek| reads.get(&peek));
        lane.peek.push(read.copied().unwrap_or(0));
    }
    lane
}

fn wakes(timeline: &Timeline) -> Vec<(i64, u64, usize, u64)> {
    let by = |by: Option<usize>| by.and_then(|by| i64::try_from(by).ok()).unwrap_or(-1);
    let wakes = timeline.wakes.iter();
    wakes.map(|wake| (by(wake.by), wake.at_ns, wake.thread, wake.runs_ns)).collect()
}

fn faults(timeline: &Timeline) -> Vec<(&str, u64, u64)> {
    let faults = timeline.faults.iter();
    faults.map(|fault| (fault.label.as_str(), fault.from_ns, fault.to_ns)).collect()
}

fn command(command: &SentCommand) -> CommandData<'_> {
    CommandData {
        kind: command.kind,
        detail: &command.detail,
        id: command.id.map(|id| id.to_string()),
        peek: command.peek.map(|peek| peek.0),
        sent: command.sent_ns,
        delivered: command.delivered_ns,
        applied: &command.applied,
    }
}

fn peek(read: &super::Read) -> PeekData<'_> {
    let steps = read.steps.iter();
    let steps = steps.map(|step| (step.at_ns, step.thread, step.what, step.detail.as_str()));
    PeekData {
        peek: read.peek.0,
        target: read.target.to_string(),
        reads: read.reads.iter().map(ToString::to_string).collect(),
        at: read.at,
        asked: read.asked_ns,
        canceled: read.canceled,
        answered: read.answered.as_ref().map(|(at, kind, text)| (*at, *kind, text.as_str())),
        steps: steps.collect(),
    }
}

fn strip(strip: &Strip) -> StripData<'_> {
    StripData {
        id: strip.id.to_string(),
        source: strip.source,
        since: &strip.since,
        upper: &strip.upper,
        allowed: &strip.allowed,
        held: &strip.held,
    }
}
