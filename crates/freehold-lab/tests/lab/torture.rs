//! `freehold torture`, saved cases and threads on this machine, as a user types them.

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
    let document = json(&["check", "--seed", "22", "--json"]);
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
    let refused = fails(&["check", "--subject", "host", "--failures", "preempt"], 2);
    assert!(refused.contains("--failures are those of simulated machines"), "{refused}");
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
    let refused = fails(&[&chaos[..], &["1", "--canary=loss"]].concat(), 2);
    assert!(refused.contains("for the subjects allocator and host"), "{refused}");
    let refused = fails(&["check", "--canary=lock"], 2);
    assert!(refused.contains("for the subject chaos"), "{refused}");
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
    let missing = fails(&["check", "--case", "no-such-case.json"], 2);
    assert!(missing.contains("no-such-case.json: not a case"), "{missing}");
}

#[test]
fn what_torture_did_is_counted_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("runs.jsonl");
    let small = ["torture", "--minutes", "0.02", "--jobs", "1", "--json"];
    let what = ["--kind", "simulated,lru", "--design", "merge-ahead"];
    let record = record.to_str().unwrap();
    let mut documents = Vec::new();
    for first_seed in ["7", "8"] {
        let seed = ["--first-seed", first_seed, "--record", record];
        documents.push(json(&[&small[..], &what, &seed].concat()));
    }
    let lines = std::fs::read_to_string(record).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, documents);
    let document = &documents[0];
    assert_eq!(
        (&document["schema"], &document["first_seed"]),
        (&"freehold.torture/1".into(), &7.into())
    );
    assert!(document["findings"].as_array().unwrap().is_empty(), "{document}");
    let line = &document["lines"][0];
    assert_eq!((&line["kind"], &line["design"]), (&"simulated".into(), &"merge-ahead".into()));
    assert_eq!(line["seeds"].as_u64().unwrap() % 40, 0);
    counts(&line["counts"], &["operations", "allocations"]);
}

#[test]
fn torture_finds_what_was_planted_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let save = folder.path().join("findings");
    let planted = ["torture", "--canary", "--minutes", "0.02", "--jobs", "1", "--kind", "chaos"];
    let options = ["--design", "zone-lock", "--save", save.to_str().unwrap()];
    let output = freehold(&[&planted[..], &options].concat());
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("failed: error: seed ") && text.contains("replay: "), "{text}");
    let case = text.lines().find_map(|line| line.strip_prefix("made small: freehold "));
    let replay: Vec<_> = case.expect("a case was saved").split(' ').collect();
    assert!(fails(&replay, 1).contains(" failed: in round "), "{replay:?}");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("finding"), "{stderr}");
}

#[test]
fn torture_tables_fit_100_columns() {
    let table = succeeds(&["torture", "--minutes", "0.01", "--kind", "lru", "--design", "cluster"]);
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let refused = fails(&["torture", "--minutes", "0"], 2);
    assert!(refused.contains("a number of minutes above 0"), "{refused}");
}
