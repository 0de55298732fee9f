//! What a user sees and a shell is told, of sweeps and replays that a fake runner carries out.

use std::collections::BTreeSet;

use serde_json::Value;
use tandem::zoo::Defect;

use super::*;
use crate::report::{Oracle, REQUIRED};
use crate::sweep::RunRequest;
use crate::sweep::fake::Fake;

/// Exit code, standard output, standard error.
fn tandem_sim(fake: &Fake, line: &str) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let words = format!("tandem-sim {line}");
    let code = perform(
        words.split_whitespace().map(OsString::from),
        &Environment::default(),
        fake,
        &mut Console {
            out: &mut out,
            err: &mut err,
            out_is_terminal: false,
            err_is_terminal: false,
        },
    );
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn json_lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_sweep_in_which_all_goes_well_exits_with_zero_and_shows_what_it_did() {
    let (code, out, err) = tandem_sim(&Fake::default(), "run --seeds 0..400 --jobs 2");
    assert_eq!((code, err.as_str()), (0, ""));
    for part in ["peeks", "O11", REQUIRED[0], "400 seeds of profile swarm in 420 runs, 0 failed"] {
        assert!(out.contains(part), "{part} is missing from {out}");
    }
    assert!(out.contains("50% of seeds had two or more processes"), "{out}");
    assert!(!out.contains("never") && !out.contains("replay"), "{out}");
}

#[test]
fn the_last_line_of_a_failed_sweep_replays_its_lowest_failing_seed_with_the_same_verdict() {
    let fake = Fake { fails: vec![(3, Oracle::O7), (5, Oracle::O3)], ..Fake::default() };
    let (code, out, _) = tandem_sim(&fake, "run --seeds 0..9 --jobs 2");
    assert_eq!(code, 1, "O3 decides");
    let command = out.lines().last().unwrap();
    assert_eq!(command, "cargo run --release -p tandem-sim -- replay --seed 3");
    let (code, story, _) = tandem_sim(&fake, command.split_once(" -- ").unwrap().1);
    assert_eq!(code, 3, "O7 is all there is on this seed");
    for part in ["something happened", "verdict: O7 failed", "since of u3 should be [9]"] {
        assert!(story.contains(part), "{part} is missing from {story}");
    }
    assert!(out.contains("and then another"), "the sweep shows what led there: {out}");
    let hash = out.lines().find_map(|line| line.strip_prefix("seed 3 failed, hash ")).unwrap();
    assert!(story.contains(hash), "{hash} is missing from {story}");
    assert_eq!(story.lines().last(), Some(command));
}

#[test]
fn only_the_first_failures_are_shown_but_all_are_counted() {
    let fails: Vec<_> = (0..25).map(|seed| (seed, Oracle::O1)).collect();
    let (code, out, _) = tandem_sim(&Fake { fails, ..Fake::default() }, "run --seeds 0..30");
    assert_eq!(code, 1);
    assert_eq!(out.matches("violated O1").count(), FAILURES_SHOWN);
    assert!(out.contains("15 more failures") && out.contains("25 failed"), "{out}");
}

#[test]
fn a_planted_defect_that_is_found_exits_with_one_and_names_the_expected_oracle() {
    let fake = Fake { fails: vec![(4, Oracle::O7), (6, Oracle::O1)], ..Fake::default() };
    let line = "--plant placeholder-overwritten";
    for jobs in [1, 2] {
        let (code, out, _) = tandem_sim(&fake, &format!("run --seeds 0..50 --jobs {jobs} {line}"));
        assert_eq!(code, 1);
        assert!(out.contains("5 seeds of profile swarm"), "seeds above 4 do not count: {out}");
        assert!(out.contains("(expected of it: O7): found by O7"), "{out}");
        assert!(out.ends_with("replay --seed 4 --plant placeholder-overwritten\n"), "{out}");
    }
    assert_eq!(tandem_sim(&fake, &format!("replay --seed 4 {line}")).0, 1);
    let (code, out, _) = tandem_sim(&Fake::default(), &format!("run --seeds 0..50 {line}"));
    assert_eq!(code, 0, "nothing was found");
    assert!(out.contains("not found"), "{out}");
}

#[test]
fn nondeterminism_exits_with_four_in_a_sweep_and_in_its_replay() {
    let line = "--seed 40";
    for command in ["run", "replay"] {
        let fake = Fake { wobbles: vec![40], ..Fake::default() };
        let (code, out, _) = tandem_sim(&fake, &format!("{command} {line}"));
        assert_eq!(code, 4, "{out}");
        assert!(out.contains("the same event hash"), "{out}");
    }
}

#[test]
fn a_broken_tool_exits_with_101_and_the_command_that_shows_it() {
    let fake = Fake { panics: vec![2], ..Fake::default() };
    let (code, out, _) = tandem_sim(&fake, "run --seeds 0..9");
    assert_eq!(code, 101);
    assert!(out.contains("the tool itself broke on seed 2: panic: lost my way"), "{out}");
    assert!(out.ends_with("-- replay --seed 2\n"), "{out}");
    let (code, _, err) = tandem_sim(&fake, "replay --seed 2");
    assert_eq!(code, 101);
    assert!(err.contains("broke on seed 2"), "{err}");
}

#[test]
fn json_has_one_object_per_line_and_ends_with_the_summary() {
    let fake = Fake { fails: vec![(3, Oracle::O7), (5, Oracle::O3)], ..Fake::default() };
    let (code, out, err) = tandem_sim(&fake, "run --seeds 0..30 --jobs 2 --json");
    assert_eq!((code, err.as_str()), (1, ""));
    let lines = json_lines(&out);
    assert!(lines.iter().all(|line| line["v"] == 1));
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["failure", "failure", "summary"]);
    assert_eq!((&lines[0]["seed"], &lines[0]["oracle"]), (&3.into(), &"O7".into()));
    let summary = lines.last().unwrap();
    assert_eq!((&summary["seeds"], &summary["runs"]), (&30.into(), &32.into()));
    let failed = &summary["failed"];
    assert_eq!((&failed[0]["seed"], &failed[1]["seed"]), (&3.into(), &5.into()));
    assert_eq!(failed[1]["oracle"], "O3");
    assert!(failed[1]["message"].as_str().unwrap().contains("u3"));
    assert!(failed[1]["replay"].as_str().unwrap().ends_with("-- replay --seed 5"));
    let decisions: u64 = (0..30).map(|seed| 1_000 + seed).sum();
    assert_eq!(summary["decisions"], decisions);
    assert_eq!(summary["virtual_s"], 0.06);
    assert!(summary["wall_s"].as_f64().unwrap() > 0.0);
    assert_eq!(summary["sometimes"][REQUIRED[2]], 30);
    assert_eq!(summary["shapes"]["2x2"], 15);
    assert_eq!(summary["exercised"]["peeks"], 30 * 50);
    assert_eq!(summary["checks"]["O11"], 2);
    let hash = summary["hash"].as_str().unwrap();
    assert!(hash.len() == 16 && u64::from_str_radix(hash, 16).is_ok(), "{hash}");
}

#[test]
fn a_broken_tool_is_a_line_of_json_too() {
    let fake = Fake { panics: vec![2], ..Fake::default() };
    let (code, out, err) = tandem_sim(&fake, "run --seeds 0..9 --json");
    let lines = json_lines(&out);
    assert_eq!((code, lines.len()), (101, 2));
    assert_eq!((&lines[0]["kind"], &lines[0]["seed"]), (&"broken".into(), &2.into()));
    assert_eq!(lines[1]["kind"], "summary");
    assert!(err.contains("replay --seed 2"), "{err}");
}

#[test]
fn wrong_usage_exits_with_two_and_says_what_would_be_right() {
    for (line, hint) in [
        ("", "Usage"),
        ("run --seeds 5..3", "empty"),
        ("run --seeds 7", "A..B"),
        ("run --seed 1 --seeds 0..2", "cannot be used with"),
        ("run --jobs 0", "--jobs"),
        ("run --plant frozen", "frozen-publisher, no-since-gate, placeholder-overwritten"),
        ("run --profile huge", "smoke, swarm, soak"),
        ("run --policy hold", "gate"),
        ("run --strategy luck", "random, starvation"),
        ("run --seed 18446744073709551615", "largest seed"),
        ("replay", "--seed N"),
        ("scenario", "--seed N"),
        ("shrink", "--seed N"),
        ("shrink x.txt --plant cancel-twice", "cannot be used with"),
        ("replay nowhere.txt", "cannot replay nowhere.txt"),
    ] {
        let (code, out, err) = tandem_sim(&Fake::default(), line);
        assert_eq!((code, out.as_str()), (2, ""), "{line}");
        assert!(err.contains(hint), "{line}: {hint} is missing from {err}");
    }
}

#[test]
fn help_is_no_error_and_tells_the_exit_codes() {
    let (code, out, err) = tandem_sim(&Fake::default(), "--help");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("Exit codes") && out.contains("TANDEM_SEEDS"), "{out}");
}

#[test]
fn a_scenario_prints_as_json_that_reads_back() {
    let (code, out, _) = tandem_sim(&Fake::default(), "scenario --seed 8");
    let scenario: crate::scenario::Scenario = serde_json::from_str(&out).unwrap();
    assert_eq!((code, scenario), (0, RunRequest::new(8).scenario()));
    let (_, forced, _) = tandem_sim(&Fake::default(), "scenario --seed 8 --strategy starvation");
    assert!(forced.contains("Starvation"), "{forced}");
}

#[test]
fn oracles_and_defects_are_listed_for_people_and_for_machines() {
    let fake = Fake::default();
    let (_, oracles, _) = tandem_sim(&fake, "oracles");
    let (_, defects, _) = tandem_sim(&fake, "defects");
    assert!(Oracle::ALL.iter().all(|oracle| oracles.contains(oracle.promise())), "{oracles}");
    assert!(Defect::ALL.iter().all(|defect| defects.contains(defect.summary())), "{defects}");
    let names = |line| -> BTreeSet<String> {
        let lines = json_lines(&tandem_sim(&fake, line).1);
        lines.iter().map(|line| line["name"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(names("oracles --json"), Oracle::ALL.map(|o| o.name().to_string()).into());
    assert_eq!(names("defects --json"), Defect::ALL.map(|d| d.name().to_string()).into());
}

#[test]
fn every_defect_expects_an_oracle_that_exists() {
    let names = Oracle::ALL.map(Oracle::name);
    assert!(Defect::ALL.iter().all(|defect| names.contains(&defect.oracle())));
}

#[test]
fn a_verbose_replay_shows_the_whole_scenario_and_the_counts() {
    let (_, brief, _) = tandem_sim(&Fake::default(), "replay --seed 20");
    let drawn = RunRequest::new(20).scenario();
    let shape = format!("{} processes of {} workers", drawn.processes, drawn.workers);
    assert!(brief.contains(&shape) && brief.contains("200 operations"), "{brief}");
    assert!(brief.contains("run twice, with the same hash"), "{brief}");
    assert!(brief.ends_with("verdict: as promised\n"), "{brief}");
    let (code, verbose, _) = tandem_sim(&Fake::default(), "replay --seed 20 --verbose");
    assert_eq!(code, 0);
    for part in ["\"walk_budget\":", "exercised", REQUIRED[3]] {
        assert!(verbose.contains(part) && !brief.contains(part), "{part}");
    }
}

/// A folder of its own for a test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tandem-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn a_sweep_writes_its_failures_as_files_that_replay_and_shrink() {
    let folder = folder("out");
    let fake = Fake { fails: vec![(3, Oracle::O1), (5, Oracle::O7)], ..Fake::default() };
    let line = format!("run --seeds 0..9 --out {}", folder.display());
    let (code, out, _) = tandem_sim(&fake, &line);
    let file = folder.join("seed-3-swarm-o1.txt");
    assert_eq!(code, 1);
    assert!(folder.join("seed-5-swarm-o7.txt").exists() && file.exists(), "{out}");
    assert!(out.contains(&format!("written to {}", file.display())), "{out}");

    let (code, out, _) = tandem_sim(&fake, &format!("replay {}", file.display()));
    assert_eq!(code, 1);
    assert!(out.contains("reproduces, event for event: O1"), "{out}");
    assert!(out.lines().last().unwrap().ends_with(&format!("replay {}", file.display())), "{out}");
    let mended = Fake::default();
    let (code, out, _) = tandem_sim(&mended, &format!("replay {}", file.display()));
    assert_eq!(code, 0);
    assert!(out.contains("no longer fails, where O1 was recorded"), "{out}");

    let small = folder.join("small.txt");
    let line = format!("shrink {} --out {}", file.display(), small.display());
    let (code, out, _) = tandem_sim(&fake, &line);
    assert_eq!(code, 0, "{out}");
    assert!(out.starts_with("shrinking seed 3, which is replayed by\ncargo run"), "{out}");
    assert!(out.contains("to   0 operations, 0 updates, 0 faults, 1x1 workers"), "{out}");
    let (code, _, _) = tandem_sim(&fake, &format!("replay {}", small.display()));
    assert_eq!(code, 1);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn shrinking_what_does_not_fail_says_so_and_writes_nothing() {
    let small = folder("nothing").join("small.txt");
    let line = format!("shrink --seed 4 --out {}", small.display());
    let (code, out, err) = tandem_sim(&Fake::default(), &line);
    assert_eq!(code, 0);
    assert!(err.contains("seed 4 does not fail") && out.contains("replay --seed 4"), "{out}{err}");
    assert!(!small.exists());
}

#[test]
fn a_run_that_differs_from_itself_shows_the_first_event_that_does() {
    let fake = Fake { wobbles: vec![20], ..Fake::default() };
    let (code, out, _) = tandem_sim(&fake, "replay --seed 20");
    assert_eq!(code, 4);
    for part in ["part at event 1", "in one:", "in the other:", "something happened"] {
        assert!(out.contains(part), "{part} is missing from {out}");
    }
}
