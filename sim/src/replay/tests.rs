//! Files read as they were written, and say what is wrong with them.

use tandem::zoo::Defect;

use super::*;
use crate::report::{Oracle, Violation};
use crate::scenario::Profile;
use crate::sweep::{RunRequest, Simulation, apart};
use crate::world::Schedule;

/// A run of the real thing, and its file.
fn recorded(plant: Option<Defect>) -> (ReplayFile, Recording) {
    let request = RunRequest { profile: Profile::Smoke, plant, ..RunRequest::new(0) };
    let recording = apart(&Simulation, &request.case(), true).unwrap();
    (ReplayFile::new(&request.case(), &recording), recording)
}

#[test]
fn a_file_reads_as_it_was_written_and_reproduces_event_for_event() {
    for plant in [None, Some(Defect::FrozenPublisher)] {
        let (file, recording) = recorded(plant);
        assert!(recording.decisions.len() > 100 && !file.trail.marks.is_empty());
        assert_eq!(file.seen.is_some(), plant.is_some());
        let text = file.to_string();
        assert!(text.lines().filter(|line| !line.starts_with("    ")).all(|l| l.len() <= 2_000));
        let read: ReplayFile = text.parse().unwrap();
        assert_eq!(read, file);
        let again = apart(&Simulation, &read.case(), true).unwrap();
        let comparison = Comparison::new(&read, &again);
        assert_eq!((&comparison.outcome, &comparison.differs), (&Outcome::Reproduces, &None));
        assert!(comparison.to_string().starts_with("reproduces"), "{comparison}");
    }
}

#[test]
fn a_run_that_leaves_the_path_says_where_and_what_became_of_it() {
    let (file, recording) = recorded(Some(Defect::FrozenPublisher));
    let mended = Case { plant: None, ..file.case() };
    let mended = apart(&Simulation, &mended, true).unwrap();
    let comparison = Comparison::new(&file, &mended);
    assert_eq!(comparison.outcome, Outcome::NoLongerFails);
    let range = comparison.differs.clone().expect("the planted publisher shows in its traces");
    let events = recording.chronicle.unwrap().len();
    assert!(range.start < events && range.end - range.start <= file.trail.every, "{range:?}");
    let text = comparison.to_string();
    assert!(text.contains("no longer fails, where O3 (held back) was recorded"), "{text}");
    assert!(text.contains(&format!("between events {} and", range.start)), "{text}");

    let mut other = mended.clone();
    other.report.violation = Some(Violation::new(Oracle::O1, 5, "wrong".to_string()));
    let comparison = Comparison::new(&file, &other);
    assert_eq!(comparison.outcome, Outcome::FailsDifferently);
    let (clean, _) = recorded(None);
    assert_eq!(Comparison::new(&clean, &other).outcome, Outcome::FailsNow);
}

#[test]
fn a_calm_schedule_has_no_decisions_in_its_file() {
    let (file, _) = recorded(None);
    let calm = Case { schedule: Schedule::Recorded(vec![0; 500]), ..file.case() };
    let recording = apart(&Simulation, &calm, false).unwrap();
    let file = ReplayFile::new(&calm, &recording);
    assert!(file.decisions.is_empty());
    assert_eq!(file.to_string().parse::<ReplayFile>().unwrap(), file);
}

#[test]
fn everything_that_can_be_wrong_with_a_file_is_named() {
    let (file, _) = recorded(Some(Defect::FrozenPublisher));
    let text = file.to_string();
    let broken = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} is in the file");
        let broken = text.replacen(from, to, 1);
        broken.parse::<ReplayFile>().unwrap_err().to_string()
    };
    let hash = format!("hash: {:016x}", file.hash);
    for (from, to, expected) in [
        ("tandem-replay 1", "hello", "begins with 'hello'"),
        ("tandem-replay 1", "tandem-replay 2", "version 2 of the replay format"),
        ("\nend\n", "\n", "cut off after line"),
        ("\nend\n", "\nend\nmore\n", "comes after the end"),
        ("seed: 0", "seed 0", "is 'seed 0': write 'key: value'"),
        ("seed: 0", "sead: 0", "unknown key 'sead'"),
        ("seed: 0", "seed: 0\nseed: 0", "the key 'seed' again"),
        ("seed: 0\n", "", "'seed' is missing"),
        ("seed: 0", "seed: 8", "says that 'seed' is 8, but the scenario says 0"),
        ("plant: frozen-publisher", "plant: melted", "'melted' is no value of 'plant'"),
        ("expect: fails with O3", "expect: fails", "'fails with O2' is expected"),
        ("verdict: O3", "verdict: O33", "no value of 'verdict'"),
        (hash.as_str(), "hash: 12", "16 hexadecimal digits"),
        ("trail: 16", "trail: 17", "no value of 'trail'"),
        ("decisions: ", "decisions: x ", "decision 0 is 'x'"),
        ("\"walk_budget\":", "\"walk_budgets\":", "unknown field `walk_budgets`"),
        ("\"workers\": 2", "\"workers\": 0", "the scenario cannot be run: 0 workers"),
    ] {
        let message = broken(from, to);
        assert!(message.contains(expected), "{to}: {message}");
    }
    for cut in (0..text.len() - 1).step_by(97) {
        let error = text[..cut].parse::<ReplayFile>().unwrap_err();
        let is_named = matches!(
            error,
            ReplayError::Truncated { .. }
                | ReplayError::Foreign { .. }
                | ReplayError::Version { .. }
                | ReplayError::Line { .. }
                | ReplayError::Key { .. }
        );
        assert!(is_named, "cut at byte {cut}: {error:?}");
    }
}
