//! `freehold check --stop-cpu`: a CPU stops forever, and the others proceed.

use serde_json::Value;

use crate::common::{fails, freehold, replay, stdout, succeeds};

/// The failures with which memory seldom runs short.
const PREEMPT: [&str; 2] = ["--failures", "preempt"];

#[test]
fn the_others_go_on_in_every_design() {
    for design in ["zone-lock", "freehold"] {
        let check = ["check", "--stop-cpu", "--design", design, "--json"];
        // Seeds with which CPUs stop in all these places, and memory is seldom nearly gone, where
        // runs take several times as long.
        let seeds = ["--first-seed", "133", "--seeds", "8"];
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
    let text = succeeds(&seed);
    assert!(text.contains("1 runs stopped a CPU forever"), "{text}");
    assert_eq!(text, succeeds(&seed));
}

#[test]
fn a_call_that_never_ends_is_found_and_replayed() {
    let planted = ["check", "--stop-cpu", "--canary", "--design", "lazy-merge", "--seeds", "20"];
    let stderr = fails(&[&planted[..], &PREEMPT].concat(), 1);
    assert!(stderr.contains("waits forever in"), "{stderr}");
    assert!(stderr.contains("halt: Some(Halt { cpu:") && stderr.contains("step:"), "{stderr}");
    let replay = replay(&stderr);
    let again = fails(&replay, 1);
    let first = stderr.lines().find(|line| line.contains("failed:")).unwrap();
    assert!(again.contains(first), "{first}");
}
