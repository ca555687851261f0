//! The LRU in the lab: page faults and files on its lists, and seeds.

use crate::common::{fails, freehold, json, replay, stdout, succeeds};
use serde_json::Value;

/// The only result of a run; checks that a second run has the same if it is simulated.
fn result(arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    let text = succeeds(&arguments);
    if arguments.contains(&"--machine") {
        assert_eq!(text, succeeds(&arguments), "one seed, one result");
    }
    let document: Value = serde_json::from_str(&text).unwrap();
    document["results"][0].clone()
}

fn lock_wait(result: &Value) -> f64 {
    result["time_share"]["lru_lock"].as_f64().unwrap()
}

#[test]
fn a_lock_a_group_keeps_tasks_apart() {
    let faults = |lru, groups| {
        let sets = ["task_bytes=1MiB", "node_memory=256MiB", "fault=whole", lru, groups];
        let sets = sets.map(|set| ["--set", set]).concat();
        result(&[&["run", "page-fault", "--machine", "uma-48"], &sets[..]].concat())
    };
    let node = faults("lru=node", "groups=tasks");
    let group = faults("lru=group", "groups=tasks");
    let one = faults("lru=group", "groups=one");
    assert!(lock_wait(&node) > 0.0 && lock_wait(&one) > 0.0, "they share a lock");
    assert_eq!(lock_wait(&group), 0.0, "each has a lock");
    let data = group["workload_specific"]["data"].as_array().unwrap();
    assert!(data.iter().any(|of| of["data"] == "lru_frames"), "the lists are real: {data:?}");
    let off = faults("lru=off", "groups=tasks");
    let data = off["workload_specific"]["data"].as_array().unwrap();
    assert!(data.iter().all(|of| of["data"] != "lru_frames"));
}

#[test]
fn pages_are_listed_on_the_host() {
    let small = ["task_bytes=1MiB", "samples=2", "sample_ms=20"];
    let faults = |lru, groups| {
        let sets = [&small[..], &[lru, groups]].concat();
        let sets: Vec<_> = sets.iter().flat_map(|&set| ["--set", set]).collect();
        result(&[&["run", "page-fault"], &sets[..]].concat())
    };
    for lru in ["lru=node", "lru=group"] {
        for groups in ["groups=tasks", "groups=one"] {
            let specific = &faults(lru, groups)["workload_specific"];
            assert!(specific["lru_ns"].as_f64().unwrap() != 0.0, "{lru} {groups}: {specific}");
        }
    }
    let off = &faults("lru=off", "groups=tasks")["workload_specific"];
    assert_eq!(off["lru_ns"], 0.0);
}

#[test]
fn files_are_read_twice_on_every_machine() {
    let small = ["--set", "file_bytes=256KiB", "--set", "share_bytes=64KiB"];
    let read = |more: &[&str]| result(&[&["run", "read-twice"], &small[..], more].concat());
    for lru in ["lru=node", "lru=group"] {
        for groups in ["groups=files", "groups=one"] {
            let sets = ["--set", lru, "--set", groups];
            let on = ["--machine", "uma-4"];
            let result = read(&[&sets[..], &on].concat());
            // Four files of 64 blocks, two readers each, and a quarter to warm up.
            assert_eq!(result["work"]["count"], 2 * 4 * 48, "{lru} {groups}");
            let hits = result["workload_specific"]["hit_share"].as_f64().unwrap();
            assert!((0.2..0.8).contains(&hits), "half of the reads are second ones: {hits}");
            assert!(lock_wait(&result) >= 0.0);
        }
    }
    // The readers of all files want the only frame of each.
    let tiny = ["read-twice", "--machine", "uma-4", "--set", "share_bytes=4KiB"];
    let tiny = result(&[&["run"], &tiny[..], &["--set", "file_bytes=256KiB"]].concat());
    assert!(tiny["work"]["count"].as_u64().unwrap() > 0);
    let on_host = read(&["--cpus", "1"]);
    assert_eq!(on_host["work"]["count"], 2 * 64);
    let table =
        stdout(freehold(&[&["run", "read-twice", "--machine", "uma-2"], &small[..]].concat()));
    assert!(table.contains("LRU lock") && table.contains("a prediction"), "{table}");
}

/// The result of the workload `tenants` on a small machine, and its sorts of tenants: hot, scan,
/// noisy.
fn tenants(sets: &[&str]) -> (Value, Vec<Value>) {
    let sets = sets.iter().flat_map(|&set| ["--set", set]);
    let run = ["run", "tenants", "--machine", "uma-4"];
    let small = ["--set", "time_ms=4", "--set", "share_bytes=512KiB"];
    let result = result(&run.into_iter().chain(small).chain(sets).collect::<Vec<_>>());
    let sorts = result["workload_specific"]["sorts"].as_array().unwrap().clone();
    (result, sorts)
}

#[test]
fn tenants_are_protected_from_a_noisy_neighbour() {
    for lru in ["lru=node", "lru=group"] {
        let hits = |more: &[&str]| {
            let (_, sorts) = tenants(&[&[lru], more].concat());
            ["hit_share", "worst_hit_share"].map(|share| sorts[0][share].as_f64().unwrap())
        };
        let [open, worst] = hits(&["protect=none"]);
        assert!(worst <= open && open < 0.97, "{lru}: the neighbour takes memory: {open}");
        for protect in ["protect=low", "protect=max"] {
            let [protected, worst] = hits(&[protect]);
            assert!(worst > 0.99 && protected > open, "{lru} {protect}: {worst} {protected}");
        }
        let [alone, _] = hits(&["protect=none", "tenants=1"]);
        assert_eq!(alone, 1.0, "{lru}: a hot set fits");
    }
}

#[test]
fn reads_of_tenants_add_up() {
    let sum = |sorts: &[Value], of: &str| -> u64 {
        sorts.iter().map(|sort| sort[of].as_u64().unwrap()).sum()
    };
    for settings in [
        ["policy=two-lists", "reclaim=ahead", "protect=low"],
        ["policy=scan-resistant", "reclaim=ahead", "protect=none"],
        ["policy=scan-resistant", "reclaim=direct", "protect=low"],
        ["policy=two-lists", "reclaim=direct", "protect=max"],
    ] {
        // The fourth task works for the first tenant.
        let (result, sorts) = tenants(&[&settings[..], &["tenants=3", "disk_us=1"]].concat());
        let names: Vec<_> = sorts.iter().map(|of| of["sort"].as_str().unwrap()).collect();
        assert_eq!(names, ["hot", "scan", "noisy"]);
        assert_eq!(sum(&sorts, "tenants"), 3);
        assert_eq!(sum(&sorts, "hits") + sum(&sorts, "misses"), sum(&sorts, "reads"));
        assert_eq!(result["work"]["count"], sum(&sorts, "reads"), "{settings:?}");
        assert!(sum(&sorts, "refaults") <= sum(&sorts, "misses"));
        assert!(sorts[2]["misses"].as_u64() > sorts[2]["hits"].as_u64(), "{sorts:?}");
        for of in &sorts {
            let [p50, p99] = ["p50_ns", "p99_ns"].map(|name| of["latency"][name].as_u64().unwrap());
            assert!(0 < p50 && p50 <= p99, "{of}");
            assert!(of["tenant_per_second"].as_f64().unwrap() > 0.0);
        }
    }
    let (_, sorts) = tenants(&["protect=none", "share_bytes=256KiB"]);
    assert!(sorts[0]["refaults"].as_u64().unwrap() > 0, "what it needs comes back: {sorts:?}");
}

#[test]
fn tenants_run_on_the_host_and_are_counted() {
    let run = ["run", "tenants", "--set", "time_ms=20"];
    for more in [["--cpus", "1"], ["--set", "policy=scan-resistant"], ["--set", "reclaim=direct"]] {
        let result = result(&[&run[..], &more].concat());
        let specific = &result["workload_specific"];
        assert!(specific["hit_share"].as_f64().unwrap() > 0.0);
        assert_eq!(specific["sorts"][0]["sort"], "hot");
    }
    let table = stdout(freehold(&[&run[..], &["--machine", "uma-4"]].concat()));
    assert!(table.contains("a prediction") && table.contains(" noisy "), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}

#[test]
fn seeds_of_the_lru_are_played_and_replayed() {
    let text = succeeds(&["check", "--subject", "lru", "--seeds", "5"]);
    assert!(text.contains("lru on freehold: 5 seeds from 0, no failure"), "{text}");
    let seed = ["check", "--subject", "lru", "--seed", "3", "--design", "zone-lock", "--json"];
    let one = succeeds(&seed);
    assert_eq!(one, succeeds(&seed));
    let document: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(document["subject"], "lru");
    assert!(document["released"].as_u64().unwrap() > 0, "{one}");
}

/// The check is only meaningful if all of this happens, and all at once.
#[test]
fn seeds_of_the_lru_leave_nothing_out() {
    let check = ["check", "--subject", "lru", "--seeds", "60", "--json"];
    let document = json(&check);
    for count in [
        "reads",
        "hits",
        "reclaimed",
        "released",
        "isolated",
        "busy",
        "regrouped",
        "moves",
        "pins",
        "groups_made",
        "groups_removed",
        "inherited",
        "refaults",
        "restored",
        "departures",
    ] {
        assert_ne!(document[count].as_u64(), Some(0), "{count}: {document}");
        assert!(document[count].is_u64(), "{count}: {document}");
    }
}

#[test]
fn a_bug_planted_in_the_lru_is_found() {
    // Two seeds that fail soon: in seed 3, a CPU waits for 200 million accesses.
    let planted = ["check", "--subject", "lru", "--canary", "--first-seed", "4", "--seeds", "2"];
    let stderr = fails(&planted, 1);
    let replay = replay(&stderr);
    fails(&replay, 1);
}
