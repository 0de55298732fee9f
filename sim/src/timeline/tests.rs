//! What is recorded is the run that was asked about, and what is drawn of it is well formed.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::scenario::Profile;

fn request(seed: u64, plant: Option<Defect>) -> RunRequest {
    RunRequest { plant, profile: Profile::Swarm, ..RunRequest::new(seed) }
}

fn recorded(seed: u64, plant: Option<Defect>) -> Recording {
    record(&Subject::of(&request(seed, plant))).unwrap()
}

/// A seed on which a planted defect is found: in which seeds, changes with the generators.
fn failing(defect: Defect) -> Recording {
    let recordings = (0..500).map(|seed| recorded(seed, Some(defect)));
    let mut failing = recordings.filter(|recording| recording.report.violation.is_some());
    failing.next().expect("some seed finds it")
}

#[test]
fn recording_changes_nothing() {
    for (seed, plant) in [(1, None), (2, None), (3, Some(Defect::CancelTwice))] {
        let request = request(seed, plant);
        let unwatched = thread::spawn(move || crate::replay::record(&request.case(), false).report)
            .join()
            .unwrap();
        let Recording { timeline, report } = recorded(seed, plant);
        assert_eq!((report.hash, report.decisions), (unwatched.hash, unwatched.decisions));
        assert_eq!(report.violation, unwatched.violation);
        assert_eq!(timeline.hash, unwatched.hash);
        assert!(timeline.events() > 1_000, "seed {seed} recorded {}", timeline.events());
    }
}

#[test]
fn slices_of_a_thread_are_disjoint_or_nested_and_of_every_kind() {
    let mut seen = [0; Doing::KINDS.len()];
    for seed in 0..12 {
        let timeline = recorded(seed, None).timeline;
        for thread in &timeline.threads {
            let mut open: Vec<&Slice> = Vec::new();
            let mut last_ns = 0;
            for slice in &thread.slices {
                assert!(last_ns <= slice.begin_ns && slice.begin_ns <= slice.end_ns, "{slice:?}");
                assert!(slice.end_ns <= timeline.end_ns, "{slice:?}");
                last_ns = slice.begin_ns;
                open.truncate(slice.depth);
                assert_eq!(open.len(), slice.depth, "seed {seed}, {}: {slice:?}", thread.name);
                if let Some(outer) = open.last() {
                    assert!(slice.end_ns <= outer.end_ns, "{slice:?} sticks out of {outer:?}");
                }
                open.push(slice);
                seen[slice.doing.kind()] += 1;
            }
            for pair in
                thread.slices.iter().filter(|slice| slice.depth == 0).collect::<Vec<_>>().windows(2)
            {
                assert!(pair[0].end_ns <= pair[1].begin_ns, "{} overlaps: {pair:?}", thread.name);
            }
        }
    }
    for (kind, count) in Doing::KINDS.into_iter().zip(seen) {
        assert!(count > 0, "no thread ever did {kind}");
    }
}

#[test]
fn a_read_is_followed_from_the_question_to_the_answer() {
    let timeline = recorded(1, None).timeline;
    let peers = timeline.threads.iter().filter(|thread| thread.role == Role::Interactive).count();
    let rows = timeline.peeks.iter().filter(|read| {
        read.canceled.is_none()
            && read.answered.as_ref().is_some_and(|(_, kind, _)| *kind == "rows")
    });
    let mut followed = 0;
    for read in rows {
        for what in ["applied", "captured", "answered"] {
            let steps = read.steps.iter().filter(|step| step.what == what).count();
            assert_eq!(steps, peers, "{} was {what} by {steps} of {peers} workers", read.peek);
        }
        let walks = timeline.threads.iter().flat_map(|thread| &thread.slices);
        assert!(walks.filter(|slice| slice.doing.peek() == Some(read.peek)).count() >= peers);
        followed += 1;
    }
    assert!(followed > 5, "only {followed} reads were answered with rows");
}

#[test]
fn wakes_end_the_sleep_of_the_thread_they_wake() {
    let timeline = recorded(1, None).timeline;
    assert!(timeline.wakes.iter().any(|wake| wake.by.is_some()), "no thread woke another");
    let wake_ns = crate::sched::CostModel::default().wake_ns;
    let mut slept = 0;
    for wake in &timeline.wakes {
        assert!(wake.at_ns <= wake.runs_ns, "{wake:?}");
        // Who went to sleep no earlier than it was to run again slept no time at all.
        let slices = timeline.threads[wake.thread].slices.iter();
        let mut before = slices.filter(|slice| slice.depth == 0 && slice.end_ns == wake.runs_ns);
        let last = before.next_back().expect("a thread does something until it sleeps");
        slept += usize::from(last.doing == Doing::Idle && wake.at_ns + wake_ns == wake.runs_ns);
    }
    assert!(slept > 20, "only {slept} wakes of {}", timeline.wakes.len());
}

#[test]
fn a_lock_that_keeps_a_read_waiting_is_drawn_where_it_happened() {
    let timeline = failing(Defect::MergeUnderLock).timeline;
    let mark = timeline.violation.as_ref().unwrap();
    assert_eq!(mark.oracle, Oracle::O10);
    let thread = &timeline.threads[mark.thread.expect("it was seen on a thread")];
    assert_eq!(thread.role, Role::Interactive);
    let mut found = thread.slices.iter().filter(|slice| slice.begin_ns == mark.at_ns);
    let waits = |slice: &Slice| matches!(slice.doing, Doing::Blocked { holder: Some(_), .. });
    assert!(found.any(waits), "no wait begins at {}", mark.at_ns);
    let (holder, begin_ns) = mark.holding.expect("somebody held the lock");
    let holder = &timeline.threads[holder];
    assert_eq!((holder.role, holder.process), (Role::Maintenance, thread.process));
    let mut merges = holder.slices.iter().filter(|slice| slice.begin_ns == begin_ns);
    assert!(merges.any(|slice| matches!(slice.doing, Doing::Merge | Doing::Compact(_))));
}

#[test]
fn a_trace_that_is_held_back_is_named_and_drawn() {
    let timeline = failing(Defect::FrozenPublisher).timeline;
    let mark = timeline.violation.as_ref().unwrap();
    assert_eq!(mark.oracle, Oracle::O3);
    let strip = timeline.collections.iter().find(|strip| mark.collections.contains(&strip.id));
    let strip = strip.expect("the message names an index");
    // The run goes on for a moment, in which the index may be dropped.
    let before = |step: &&(u64, Level)| step.0 <= mark.at_ns;
    let last = |series: &[(u64, Level)]| series.iter().rfind(before).and_then(|(_, level)| *level);
    let held = last(&strip.held).expect("the trace is there");
    // Closed, which is beyond all times, if the controller has dropped the index meanwhile.
    assert!(last(&strip.allowed).is_none_or(|allowed| held < allowed), "{strip:?}");
}

/// The data that a page carries.
fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_page_needs_nothing_but_itself() {
    let timeline = recorded(1, None).timeline;
    let page = page::render(&timeline);
    for foreign in ["http://", "https://", "src=", "@import", "fetch(", "{{"] {
        assert!(!page.contains(foreign), "the page contains {foreign}");
    }
    let data = data_of(&page);
    assert_eq!(data["threads"].as_array().unwrap().len(), timeline.threads.len());
    assert_eq!(data["peeks"].as_array().unwrap().len(), timeline.peeks.len());
    assert_eq!(page, page::render(&recorded(1, None).timeline), "the same run, the same page");
}

#[test]
fn no_text_of_a_run_can_leave_its_place_in_the_page() {
    let mut timeline = recorded(1, None).timeline;
    timeline.name = "</script><b>&{{script}}".to_string();
    timeline.command = "</script>{{style}}\u{2028}".to_string();
    let page = page::render(&timeline);
    assert_eq!(data_of(&page)["command"], timeline.command.as_str());
    assert_eq!(data_of(&page)["name"], timeline.name.as_str());
    assert_eq!(page.matches("</script>").count(), 2, "one for the data, one for the script");
    assert!(page.contains("<title>&lt;/script>&lt;b>&amp;{{script}}"));
}

#[test]
fn a_trace_for_perfetto_is_nested_and_every_flow_has_two_ends_inside_slices() {
    let broken = failing(Defect::MergeUnderLock).timeline;
    for timeline in [recorded(1, None).timeline, recorded(4, None).timeline, broken] {
        let trace: Value = serde_json::from_str(&perfetto::render(&timeline)).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let slices = check_slices(events);
        check_flows(events, &slices);
        check_counters(events);
        let marks = events.iter().filter(|event| event["ph"] == "i").count();
        assert_eq!(marks, usize::from(timeline.violation.is_some()));
    }
}

type Tracks = BTreeMap<(u64, u64), Vec<(u64, u64)>>;

fn ns(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1_000.0).round() as u64
}

fn track_of(event: &Value) -> (u64, u64) {
    (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap())
}

/// The slices of each track, in the order of the file.
fn check_slices(events: &[Value]) -> Tracks {
    let mut tracks = Tracks::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let begin_ns = ns(&event["ts"]);
        let slice = (begin_ns, begin_ns + ns(&event["dur"]));
        tracks.entry(track_of(event)).or_default().push(slice);
    }
    assert!(tracks.len() > 5, "{} tracks", tracks.len());
    for (track, slices) in &tracks {
        let mut open: Vec<(u64, u64)> = Vec::new();
        let mut last_ns = 0;
        for slice in slices {
            assert!(last_ns <= slice.0, "{track:?} goes back in time");
            last_ns = slice.0;
            while open.last().is_some_and(|outer| outer.1 <= slice.0 && *outer != *slice) {
                open.pop();
            }
            assert!(open.last().is_none_or(|outer| slice.1 <= outer.1), "{track:?}: {slice:?}");
            open.push(*slice);
        }
        let named = |event: &&Value| event["name"] == "thread_name" && track_of(event) == *track;
        assert_eq!(events.iter().filter(named).count(), 1, "the name of {track:?}");
    }
    tracks
}

fn check_flows(events: &[Value], tracks: &Tracks) {
    let mut ends: BTreeMap<u64, Vec<(&str, u64)>> = BTreeMap::new();
    for event in events {
        let phase = event["ph"].as_str().unwrap();
        if matches!(phase, "s" | "f") {
            let at_ns = ns(&event["ts"]);
            let inside = |slice: &(u64, u64)| slice.0 <= at_ns && at_ns <= slice.1;
            assert!(tracks[&track_of(event)].iter().any(inside), "{event} is in no slice");
            ends.entry(event["id"].as_u64().unwrap()).or_default().push((phase, at_ns));
        }
    }
    assert!(ends.len() > 50, "{} flows", ends.len());
    for (id, mut ends) in ends {
        ends.sort_by_key(|(phase, _)| *phase == "f");
        let [("s", from_ns), ("f", to_ns)] = ends[..] else { panic!("flow {id}: {ends:?}") };
        assert!(from_ns <= to_ns, "flow {id} leads back in time");
    }
}

fn check_counters(events: &[Value]) {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "C") {
        let before = last.insert(event["name"].as_str().unwrap(), ns(&event["ts"]));
        assert!(before.unwrap_or(0) <= ns(&event["ts"]));
    }
    for frontier in ["since", "upper", "allowed", "held"] {
        assert!(last.keys().any(|name| name.ends_with(frontier)), "no counter of {frontier}");
    }
}
