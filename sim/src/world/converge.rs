//! The second phase: no faults, no new work. Everything must be answered, caught up, dropped, and leave nothing (O7).

use std::rc::Rc;

use tandem::protocol::PeekId;
use tandem::repr::{Frontier, GlobalId, Timestamp, show};
use tandem::runtime::Population;
use timely::PartialOrder;

use super::{CONVERGENCE_NS, World, client, now_ns, sleep_until_ns};
use crate::report::{Oracle, Violation};

/// How often the state is looked at, in nanoseconds of virtual time.
const LOOK_EVERY_NS: u64 = 200_000;

/// Something that has not happened, and to whom.
struct Missing {
    what: String,
    id: Option<GlobalId>,
    peek: Option<PeekId>,
    /// What it is, if it never happens, unless it is only late.
    violation: Option<Violation>,
}

impl Missing {
    fn of_id(id: GlobalId, what: String) -> Missing {
        Missing { id: Some(id), ..what.into() }
    }

    fn of_peek(peek: PeekId, what: String) -> Missing {
        Missing { peek: Some(peek), ..what.into() }
    }
}

impl From<String> for Missing {
    fn from(what: String) -> Missing {
        Missing { what, id: None, peek: None, violation: None }
    }
}

impl From<Violation> for Missing {
    fn from(violation: Violation) -> Missing {
        Missing { violation: Some(violation.clone()), ..violation.message.into() }
    }
}

/// What still does not hold when time is up.
fn overdue(mut missing: Vec<Missing>) -> Violation {
    // Whoever never comes to rest may be late only because of this.
    if let Some(violation) = missing.iter_mut().find_map(|missing| missing.violation.take()) {
        return violation;
    }
    let whats: Vec<_> = missing.iter().map(|missing| missing.what.as_str()).collect();
    let after_ms = CONVERGENCE_NS / 1_000_000;
    let message = format!("{after_ms} ms after faults stopped: {}", whats.join("; "));
    let is_unanswered = missing.iter().any(|missing| missing.peek.is_some());
    let class = if is_unanswered { "unanswered" } else { "unsettled" };
    let violation = Violation::new(Oracle::O7, now_ns(), message).class(class);
    missing.into_iter().fold(violation, |violation, Missing { id, peek, .. }| {
        let violation = id.into_iter().fold(violation, Violation::of_id);
        peek.into_iter().fold(violation, Violation::of_peek)
    })
}

/// Lets the world settle, then empties it.
pub(super) async fn converge(world: &Rc<World>) {
    client::flush(world);
    // Before anything is sealed again: the next seal would wake whoever was forgotten, and hide it.
    if !until(world, overlooked).await {
        return;
    }
    let target = world.client.borrow_mut().settle();
    client::flush(world);
    if !until(world, |world| unsettled(world, target)).await {
        return;
    }
    world.client.borrow_mut().drop_all();
    client::flush(world);
    until(world, left_over).await;
}

/// Waits until nothing is missing any more. What is missing for too long is a violation.
async fn until(world: &World, missing: impl Fn(&World) -> Vec<Missing>) -> bool {
    let mut deadline_ns = now_ns() + CONVERGENCE_NS;
    let clocks = world.machine.threads_of(None).into_iter();
    let clocks = clocks.filter_map(|thread| world.machine.scheduler().clock_ns(thread));
    // Stalls that began before are over when the clocks of those who were stalled have come.
    deadline_ns = deadline_ns.max(clocks.max().unwrap_or(0) + CONVERGENCE_NS);
    loop {
        if world.judge.failed() {
            return false;
        }
        world.judge.checked(Oracle::O7);
        let missing = missing(world);
        if missing.is_empty() {
            return true;
        }
        if now_ns() >= deadline_ns {
            world.judge.found(overdue(missing));
            return false;
        }
        sleep_until_ns(now_ns() + LOOK_EVERY_NS).await;
    }
}

/// The reads that could be answered, as far as the controller knows, and are not.
fn overlooked(world: &World) -> Vec<Missing> {
    let client = world.client.borrow();
    let controller = client.controller();
    let complete = |id: &GlobalId, at: Timestamp| {
        controller.upper(*id).is_some_and(|upper| !upper.less_equal(&at))
    };
    let unanswered = world.judge.unanswered().into_iter();
    let overlooked = unanswered.filter_map(|peek| {
        let asked = world.judge.asked_of(peek)?;
        let ready = !asked.given_up && asked.reads.iter().all(|id| complete(id, asked.at));
        ready.then(|| {
            let reads: Vec<_> = asked.reads.iter().map(GlobalId::to_string).collect();
            let (reads, at) = (reads.join(", "), asked.at);
            let what = format!("{peek} of {reads} at {at} is readable, but not answered");
            Missing::of_peek(peek, what)
        })
    });
    overlooked.collect()
}

/// What has not caught up with the sources.
fn unsettled(world: &World, target: Timestamp) -> Vec<Missing> {
    let client = world.client.borrow();
    let mut missing = Vec::new();
    for peek in world.judge.unanswered() {
        missing.push(Missing::of_peek(peek, format!("{peek} is not answered")));
    }
    for id in client.waiting_for_names() {
        // Unless what was built over it keeps it.
        if client.controller().holds(id).is_empty() {
            missing.push(Missing::of_id(id, format!("the dropped {id} still holds its name")));
        }
    }
    let upper = Frontier::from_elem(target);
    let since = Frontier::from_elem(target - 1);
    for id in client.indexes() {
        let seen = client.controller().upper(id);
        if seen != Some(&upper) {
            let seen = seen.map_or("unknown".to_string(), show);
            let what = format!("{id} is reported complete up to {seen}, not {}", show(&upper));
            missing.push(Missing::of_id(id, what));
        }
        let seen = client.controller().since(id);
        if seen != Some(&since) {
            let seen = seen.map_or("nothing".to_string(), show);
            let (since, holds) = (show(&since), client.controller().holds(id));
            let what = format!("{id} has since {seen}, not {since}; held by {holds:?}");
            missing.push(Missing::of_id(id, what));
        }
        missing.extend(traces(world, id, &upper));
        missing.extend(allowances(world, id, &since));
    }
    missing.extend(world.judge.restless().into_iter().map(Missing::from));
    missing.extend(transients(world));
    // An index whose drop waits for what was built over it is still there.
    missing.extend(slots(world, &client.controller().collections().collect::<Vec<_>>()));
    missing
}

fn traces(world: &World, id: GlobalId, upper: &Frontier) -> Vec<Missing> {
    let parts = world.judge.trace_uppers(id);
    let expected = 2 * world.scenario.peers();
    let mut missing = Vec::new();
    if parts.len() != expected {
        missing
            .push(Missing::of_id(id, format!("{id} has {} traces, not {expected}", parts.len())));
    }
    for (part, seen) in parts {
        // Errors of inputs that can have none are complete for all times.
        if !PartialOrder::less_equal(upper, &seen) {
            let seen = show(&seen);
            let what = format!("{id} {:?} of worker {} has upper {seen}", part.half, part.worker);
            missing.push(Missing::of_id(id, what));
        }
    }
    missing
}

/// Workers that have not been told yet what the controller allows.
fn allowances(world: &World, id: GlobalId, since: &Frontier) -> Vec<Missing> {
    let behind = world.judge.trace_allowances(id).into_iter().filter(|(_, seen)| seen != since);
    behind
        .map(|(worker, seen)| {
            let (seen, since) = (show(&seen), show(since));
            let what = format!("worker {worker} may compact {id} to {seen} only, not {since}");
            Missing::of_id(id, what)
        })
        .collect()
}

/// Interactive workers that still have something.
fn transients(world: &World) -> Vec<Missing> {
    let peers = world.scenario.peers();
    occupied(world, peers)
        .map(|(thread, has)| format!("interactive worker {}{has}", thread - peers).into())
        .collect()
}

/// The threads from this one on that have something, and what.
fn occupied(world: &World, first: usize) -> impl Iterator<Item = (usize, String)> {
    let populations = world.machine.populations().into_iter().enumerate().skip(first);
    populations.filter(|(_, population)| *population != Population::default()).map(
        |(thread, Population { collections, peeks, dataflows })| {
            let has =
                format!(" has {collections} collections, {peeks} peeks and {dataflows} dataflows");
            (thread, has)
        },
    )
}

/// Slots that belong to no live index, or that nobody has published.
fn slots(world: &World, live: &[GlobalId]) -> Vec<Missing> {
    let mut orphans = Vec::new();
    for (process, registry) in world.machine.registries().iter().enumerate() {
        for (id, worker, published) in registry.slots() {
            if !published || !live.contains(&id) {
                let state = if published { "published" } else { "unpublished" };
                let what =
                    format!("process {process} keeps a {state} slot of {id} for worker {worker}");
                orphans.push(Missing::of_id(id, what));
            }
        }
    }
    orphans
}

/// What is left when every index was dropped.
fn left_over(world: &World) -> Vec<Missing> {
    let client = world.client.borrow();
    let mut left = Vec::new();
    let controller = client.controller();
    let sources = world.scenario.sources.len();
    let collections: Vec<_> = controller.collections().skip(sources).collect();
    if !collections.is_empty() {
        left.push(format!("the controller keeps {collections:?}").into());
    }
    if controller.holds_len() > 0 {
        let what = format!("the controller has {} holds of readers", controller.holds_len());
        left.push(what.into());
    }
    left.extend(occupied(world, 0).map(|(thread, has)| format!("thread {thread}{has}").into()));
    let batches = world.judge.live_batches();
    if batches != 0 {
        left.push(format!("{batches} batches live on although every index was dropped").into());
    }
    left.extend(slots(world, &[]));
    left
}
