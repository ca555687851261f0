//! `freehold check --stop-cpu`: a CPU stops forever, and the others proceed.

use serde_json::Value;

use crate::common::{freehold, stdout};

/// The failures with which memory seldom runs short.
const PREEMPT: [&str; 2] = ["--failures", "preempt"];

#[test]
fn the_others_go_on_in_every_design() {
    for design in ["zone-lock", "freehold"] {
        let check = ["check", "--stop-cpu", "--design", design, "--json"];
        // Seeds with which CPUs stop in all these places, and memory is seldom nearly gone, where
        // runs take several times as long.
        let seeds = ["--first-seed", "106", "--seeds", "8"];
        let text = stdout(freehold(&[&check[..], &seeds, &PREEMPT].concat()));
        let document: Value = serde_json::from_str(&text).unwrap();
        let count = |name: &str| document[name].as_u64().unwrap();
        assert_eq!(count("runs"), 8);
        assert!(count("stopped") > 4 && count("stopped") <= 8, "{text}");
        assert!(count("with_lock") > 0 && count("waited") > 0, "{text}");
        assert_eq!(count("in_section") > 0, design == "freehold", "{text}");
        assert!(count("served") > 1000 && count("short") > 0, "{text}");
        assert!(count("shortages") > 0 && count("shortages") <= count("short"), "{text}");
    }
}

#[test]
fn what_happened_is_told_and_a_seed_is_the_same_every_time() {
    let seed = ["check", "--stop-cpu", "--design", "block-owner", "--seed", "3"];
    let text = stdout(freehold(&seed));
    assert!(text.contains("1 runs stopped a CPU forever"), "{text}");
    assert_eq!(text, stdout(freehold(&seed)));
}

#[test]
fn a_call_that_never_ends_is_found_and_replayed() {
    let planted = ["check", "--stop-cpu", "--canary", "--design", "lazy-merge", "--seeds", "20"];
    let output = freehold(&[&planted[..], &PREEMPT].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("waits forever in"), "{stderr}");
    assert!(stderr.contains("halt: Some(Halt { cpu:") && stderr.contains("step:"), "{stderr}");
    let replay = stderr.lines().find_map(|line| line.strip_prefix("replay: freehold "));
    let replay: Vec<_> = replay.expect("a command that replays").split(' ').collect();
    let again = freehold(&replay);
    assert_eq!(again.status.code(), Some(1));
    let first = stderr.lines().find(|line| line.contains("failed:")).unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains(first), "{first}");
}

#[test]
fn other_subjects_are_refused() {
    let output = freehold(&["check", "--stop-cpu", "--subject", "lru"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--stop-cpu"));
}
