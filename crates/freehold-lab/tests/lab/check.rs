//! `freehold check` as a user types it: counts, threads on this machine, saved cases.

use serde_json::Value;

use crate::common::{fails, json};

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
        let text = fails(&["check", "--subject", "host", "--seeds", "1", canary], 1);
        assert!(text.contains(" failed: in round "), "{text}");
        assert!(text.contains("replay: freehold check --seed "), "{text}");
    }
}

#[test]
fn threads_that_are_delayed_at_any_step_find_what_was_planted() {
    let chaos = ["check", "--subject", "chaos", "--design", "zone-lock", "--seeds"];
    let document = json(&[&chaos[..], &["2", "--json"]].concat());
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
    let planted = ["check", "--design", "zone-lock", "--canary", "--seeds", "10"];
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
