//! Facts in the words of the design: one line each, and whom it is about.

use tandem::env::{Event, PartName};
use tandem::protocol::{Command, PeekId, Response};
use tandem::repr::{Frontier, GlobalId, show};

use super::chronicle::{About, Class, Who};
use crate::oracle::answers;
use crate::world::Fact;

/// A part of an index.
pub(super) fn part(part: &PartName) -> String {
    format!("{} {:?} of worker {}", part.id, part.half, part.worker)
}

fn reader(peek: Option<PeekId>) -> String {
    peek.map_or("a read".to_string(), |peek| peek.to_string())
}

fn range(since: &Frontier, upper: &Frontier) -> String {
    format!("since {}, upper {}", show(since), show(upper))
}

/// An event of the replica; nothing for those that only oracles count.
pub(super) fn event(event: &Event) -> Option<(Class, About, String)> {
    let told = match event {
        Event::PlaceholderCreated { part: name } => {
            let line =
                format!("a reader creates a placeholder for {} on worker {}", name.id, name.worker);
            (Class::Dataflow, About::part(name), line)
        }
        Event::Attached { part: name, adopted } => {
            let how = if *adopted { "adopts the placeholder of" } else { "publishes" };
            (Class::Dataflow, About::part(name), format!("maintenance {how} {}", part(name)))
        }
        Event::Published { part: name, since, upper, spans } => {
            let line = format!("view of {}: {}, {spans} spans", part(name), range(since, upper));
            (Class::View, About::part(name), line)
        }
        Event::Closed { part: name } => {
            (Class::Dataflow, About::part(name), format!("{} is closed", part(name)))
        }
        Event::TraceState { part: name, logical, physical, upper, batches, .. } => {
            let line = format!(
                "trace of {}: logical {}, physical {}, upper {}, {batches} batches",
                part(name),
                show(logical),
                show(physical),
                show(upper)
            );
            (Class::Trace, About::part(name), line)
        }
        Event::Turn { .. } | Event::BatchAllocated { .. } | Event::BatchFreed { .. } => {
            return None;
        }
        other => return reading(other).or_else(|| doing(other)),
    };
    Some(told)
}

/// Events of readers.
fn reading(event: &Event) -> Option<(Class, About, String)> {
    let (about, line) = match event {
        Event::SnapshotTaken { id, worker, at, since, upper, peek } => {
            let (who, range) = (reader(*peek), range(since, upper));
            let line = format!("{who} captures {id} on worker {worker} at {at} ({range})");
            (About::id(*id).on(*worker).by(*peek), line)
        }
        Event::SnapshotRefused { id, worker, at, since, peek } => {
            let (who, since) = (reader(*peek), show(since));
            let line =
                format!("{who} is refused {id} on worker {worker} at {at}: since is {since}");
            (About::id(*id).on(*worker).by(*peek), line)
        }
        Event::ReadWaits { id, worker, peek, published } => {
            let why = if *published { "a seal" } else { "its publication" };
            let line = format!("{peek} on worker {worker} waits for {why} of {id}");
            (About::id(*id).on(*worker).by(Some(*peek)), line)
        }
        Event::ImportCaptured { part: name, as_of, since, upper, over_placeholder } => {
            let over = if *over_placeholder { " over a placeholder" } else { "" };
            let (part, range) = (part(name), range(since, upper));
            let line = format!("an import{over} captures {part} as of {as_of} ({range})");
            (About::part(name), line)
        }
        Event::ImportRefused { part: name, as_of, since } => {
            let (part, since) = (part(name), show(since));
            let line = format!("an import of {part} as of {as_of} is refused: since is {since}");
            (About::part(name), line)
        }
        _ => return None,
    };
    Some((Class::Capture, about, line))
}

/// Events of a runtime that does as it is told.
fn doing(event: &Event) -> Option<(Class, About, String)> {
    let told = match event {
        Event::CommandApplied { role, worker, command, id, peek } => {
            let what = object(*id, *peek);
            let line = format!("{role:?} worker {worker} applies {command}{what}");
            let about =
                About { ids: id.iter().copied().collect(), peek: *peek, worker: Some(*worker) };
            (Class::Command, about, line)
        }
        Event::CompactionApplied { role, worker, id, frontier } => {
            let to = show(frontier);
            let line = format!("{role:?} worker {worker} may compact {id} to {to}");
            (Class::Compaction, About::id(*id).on(*worker), line)
        }
        Event::PeekAnswered { role, worker, peek, answer } => {
            let line = format!("{role:?} worker {worker} answers {peek}: {answer}");
            (Class::Capture, About::peek(*peek).on(*worker), line)
        }
        Event::Rendered { role, worker, exports } => {
            let names: Vec<_> = exports.iter().map(GlobalId::to_string).collect();
            let line = format!("{role:?} worker {worker} renders {}", names.join(", "));
            (Class::Dataflow, About { ids: exports.clone(), ..About::default() }.on(*worker), line)
        }
        Event::Dropped { role, worker, id } => {
            let line = format!("{role:?} worker {worker} drops {id}");
            (Class::Dataflow, About::id(*id).on(*worker), line)
        }
        Event::Rejected { role, message } => {
            let line = format!("{role:?} rejects a command: {message}");
            (Class::Command, About::default(), line)
        }
        _ => return None,
    };
    Some(told)
}

/// Whatever a command is about.
fn object(id: Option<GlobalId>, peek: Option<PeekId>) -> String {
    let id = id.map_or(String::new(), |id| format!(" {id}"));
    let peek = peek.map_or(String::new(), |peek| format!(" ({peek})"));
    id + &peek
}

/// A command, with what distinguishes it from others of its kind.
fn command(command: &Command) -> (About, String) {
    let mut about = About {
        ids: command.collection().into_iter().collect(),
        peek: command.peek(),
        worker: None,
    };
    let more = match command {
        Command::AllowCompaction { frontier, .. } => format!(" to {}", show(frontier)),
        Command::Peek(peek) => format!(" at {}", peek.timestamp),
        Command::CreateDataflow(dataflow) => {
            let reads: Vec<_> = dataflow.import_ids().map(|id| id.to_string()).collect();
            about.ids.extend(dataflow.import_ids());
            format!(" as of {}, reading {}", dataflow.as_of, reads.join(", "))
        }
        _ => String::new(),
    };
    let what = object(command.collection(), command.peek());
    (about, format!("{}{what}{more}", command.kind()))
}

/// A fact from outside of the replica's threads.
pub(super) fn fact(fact: &Fact<'_>) -> Option<(Who, Class, About, String)> {
    let told = match fact {
        Fact::Sent(what) => {
            let (about, what) = command(what);
            (Who::Control, Class::Command, about, format!("sends {what}"))
        }
        Fact::Delivered(what) => {
            let (about, what) = command(what);
            (Who::Endpoint, Class::Command, about, format!("receives {what}"))
        }
        Fact::Heard(Response::Peek { uuid, response }) => {
            let line = format!("hears of {uuid}: {}", answers::show_response(response));
            (Who::Control, Class::Command, About::peek(*uuid), line)
        }
        Fact::Asked { peek, target, reads, at } => {
            let about = About { ids: reads.to_vec(), peek: Some(*peek), worker: None };
            let names: Vec<_> = reads.iter().map(GlobalId::to_string).collect();
            let via = if reads.contains(target) { "a peek" } else { "a query" };
            let line = format!("{peek}: {via} of {} at {at} is asked", names.join(", "));
            (Who::Control, Class::Ask, about, line)
        }
        Fact::Canceled { peek, in_time } => {
            let late = if *in_time { "" } else { ", which is answered already" };
            let line = format!("cancels {peek}{late}");
            (Who::Control, Class::Ask, About::peek(*peek), line)
        }
        Fact::Appended { source, updates, upper } => {
            let line = format!("appends {updates} updates to {source}, upper {}", show(upper));
            (Who::Control, Class::Data, About::id(*source), line)
        }
        Fact::Fault { fault, begins } => {
            let line = format!("{} {}", fault.kind(), if *begins { "begins" } else { "ends" });
            (Who::Fault, Class::Fault, About::default(), line)
        }
        Fact::Healed => {
            let line = "faults stop, and everything must converge".to_string();
            (Who::Fault, Class::Fault, About::default(), line)
        }
        Fact::Violated(violation) => {
            let line = format!("{} is violated", violation.oracle);
            (Who::Judge, Class::Verdict, About::default(), line)
        }
        Fact::Thread { .. } | Fact::Heard(_) | Fact::Answered { .. } | Fact::Over => return None,
    };
    Some(told)
}
