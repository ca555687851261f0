//! `freehold check` as a user types it: counts, threads on this machine, saved cases, minutes.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{fails, freehold, json, succeeds};

/// Steps of which a check is meaningful only if all of them happen.
fn counts(document: &Value, names: &[&str]) {
    for name in names {
        assert!(document[name].as_u64().unwrap() > 0, "{name}: {document}");
    }
}

#[test]
fn simulated_cpus_are_interrupted_and_lease() {
    let document = json(&["check", "--seed", "47", "--json"]);
    counts(&document, &["interrupts", "leases", "departures", "moves", "ranges", "removals"]);
    let interrupts = ["--failures", "interrupt", "--design", "cluster"];
    let document = json(&[&["check", "--seeds", "10", "--json"], &interrupts[..]].concat());
    counts(&document, &["interrupts"]);
    assert_eq!(document["departures"], 0);
}

#[test]
fn threads_on_this_machine_hand_frames_to_each_other() {
    // On a busy machine the threads of one seed may end before the others have made every call.
    let seeds = ["--first-seed", "3", "--seeds", "3"];
    let document = json(&[&["check", "--subject", "host", "--json"], &seeds[..]].concat());
    counts(&document, &["operations", "moves", "ranges", "purged", "removals", "validations"]);
    counts(&document, &["leased"]);
    for canary in ["--canary=race", "--canary=loss"] {
        let text = fails(&["check", "--subject", "host", "--seeds", "2", canary], 1);
        assert!(text.contains(" failed: in round "), "{text}");
        assert!(text.contains("replay: freehold check --seed "), "{text}");
    }
}

#[test]
fn threads_that_are_delayed_at_any_step_find_what_was_planted() {
    let chaos = ["check", "--subject", "chaos", "--design", "zone-lock", "--seeds"];
    let document = json(&[&chaos[..], &["4", "--json"]].concat());
    counts(&document, &["operations", "fights", "moves", "ranges", "removals", "validations"]);
    for canary in ["--canary=race", "--canary=lock"] {
        let text = fails(&[&chaos[..], &["1", canary]].concat(), 1);
        assert!(text.contains("seed 0 failed: "), "{text}");
        assert!(text.contains("scenario: chaos: ") && text.contains(", locking="), "{text}");
        assert!(text.contains(" --subject chaos --canary="), "{text}");
    }
}

#[test]
fn a_seed_that_fails_is_made_small_and_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("case.json");
    let path = path.to_str().unwrap();
    let planted = ["check", "--design", "zone-lock", "--canary", "--seeds", "30"];
    let text = fails(&[&planted[..], &["--shrink", path]].concat(), 1);
    let replay = format!("replay: freehold check --case {path}");
    assert!(text.contains("shrunk: ") && text.ends_with(&format!("{replay}\n")), "{text}");
    let case: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cuts = &case["cuts"];
    assert!(cuts["operations"].as_u64().is_some_and(|operations| operations < 100), "{case}");
    assert!(!cuts["steps"].as_array().unwrap().is_empty(), "{case}");
    // It fails again, in the same way.
    let again = fails(&["check", "--case", path], 1);
    let found = case["found"].as_str().unwrap();
    assert!(again.contains(found) && again.contains(&replay), "{again}\n{found}");
    let refused = fails(&["check", "--case", path, "--seed", "3"], 2);
    assert!(refused.contains("--case"), "{refused}");
}

#[test]
fn minutes_go_by_with_seeds_of_everything_that_is_wanted() {
    let small = ["check", "--minutes", "0.02", "--jobs", "1", "--first-seed", "7"];
    let document = json(&[&small[..], &["--subject", "lru", "--json"]].concat());
    assert_eq!(document["schema"], "freehold.check-minutes/1");
    assert_eq!((&document["first_seed"], &document["findings"]), (&7.into(), &[0; 0][..].into()));
    counts(&document, &["seeds", "operations"]);
    assert_eq!(document["seeds"].as_u64().unwrap() % 40, 0);
    let text = succeeds(&[&small[..], &["--stop-cpu", "--design", "cluster"]].concat());
    assert!(text.contains(" operations, 0 findings in ") && text.lines().count() == 1, "{text}");
}

#[test]
fn minutes_find_what_was_planted_and_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let save = folder.path().join("findings");
    let planted = ["check", "--canary", "--minutes", "0.02", "--jobs", "1", "--subject", "chaos"];
    let options = ["--design", "zone-lock", "--save", save.to_str().unwrap()];
    let output = freehold(&[&planted[..], &options].concat());
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nerror: seed ") && text.contains("replay: "), "{text}");
    let mut replays = text.lines().filter_map(|line| line.strip_prefix("replay: freehold "));
    let case: Vec<_> = replays.find(|it| it.contains("--case")).unwrap().split(' ').collect();
    assert!(fails(&case, 1).contains(" failed: in round "), "{case:?}");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.starts_with("error: findings: "), "{stderr}");
}

#[test]
fn an_interrupt_ends_the_minutes_and_says_what_was_done() {
    let mut check = Command::new(env!("CARGO_BIN_EXE_freehold"));
    let check = check.args(["check", "--minutes", "10", "--jobs", "1", "--subject", "lru"]);
    let check = check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let kill = Command::new("kill").args(["-INT", &check.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let output = check.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(output.stderr, b"error: interrupted\n");
    assert!(String::from_utf8_lossy(&output.stdout).contains(" 0 findings in "));
}
