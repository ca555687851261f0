//! The workloads that are written once for every machine: each runs on the host and on a simulated
//! machine, where one seed gives the same bytes.

use std::process::Output;

use crate::common::{freehold, profile, results, stdout};
use serde_json::Value;

const DESIGNS: [&str; 7] =
    ["zone-lock", "lazy-merge", "cluster", "merge-ahead", "block-owner", "llfree", "freehold"];

/// Every such workload, small enough for a test.
const WORKLOADS: &[(&str, &[&str])] = &[
    ("parallel-free", &["task_region=2MiB", "batch_frames=64", "rounds=2"]),
    ("purge", &["frames=3000", "live=100", "ring=256"]),
    ("cross-cpu", &["frames=2000", "ring=64"]),
    ("build", &["jobs=4", "job_allocs=400", "cache=1MiB", "task_memory=8MiB"]),
    ("thp-mix", &["memory_mib=64", "time_ms=2"]),
    ("contig", &["memory_mib=64", "ranges=20"]),
    ("pressure", &["task_mib=4", "time_ms=1", "huge=20"]),
    ("high-order", &["memory_mib=64", "tree_mib=32", "delay_ms=1", "build_s=1"]),
];

/// Those of them that do not determine the memory of a simulated machine.
const OF_ANY_MEMORY: [&str; 3] = ["parallel-free", "purge", "cross-cpu"];

fn run(workload: &str, settings: &[&str], more: &[&str]) -> Output {
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let arguments: Vec<_> = ["run", workload].into_iter().chain(settings).collect();
    freehold(&[&arguments, more].concat())
}

fn simulated(workload: &str, settings: &[&str], more: &[&str]) -> Output {
    let machine = ["--machine", "uma-4"];
    let memory = ["--set", "node_memory=64MiB"];
    let memory = if OF_ANY_MEMORY.contains(&workload) { &memory[..] } else { &[] };
    run(workload, settings, &[&machine, memory, more].concat())
}

/// The result of the only cell.
fn result(document: &str) -> Value {
    let results = results(document);
    assert_eq!(results.len(), 1);
    results[0].clone()
}

/// Checks what holds for every result.
fn check(workload: &str, result: &Value) {
    assert_eq!(result["workload"], workload);
    assert!(result["work"]["count"].as_u64().unwrap() > 0, "{workload}");
    assert!(result["work"]["per_second"].as_f64().unwrap() > 0.0, "{workload}");
    let specific = &result["workload_specific"];
    assert!(specific["options"].is_object(), "{workload}");
    for path in ["alloc", "free"] {
        assert!(specific["calls"][path]["count"].is_u64(), "{workload}");
    }
    let share = specific["allocator_share"].as_f64().unwrap();
    // On the host, calls as fast as the clock may seem to take no time.
    assert!(share > 0.0 || share == 0.0 && result["machine"] == "host", "{workload}: {share}");
    for when in ["before_drain", "after_drain"] {
        let memory = &result["fragmentation"][when];
        let blocks = memory["by_order"].as_array().unwrap();
        let frames =
            blocks.iter().enumerate().map(|(order, count)| count.as_u64().unwrap() << order);
        assert_eq!(frames.sum::<u64>(), memory["free_frames"], "{workload}");
        assert!(memory["per_cpu_frames"].is_u64() && memory["free_pageblocks"].is_u64());
        let unusable = memory["unusable_index"].as_array().unwrap();
        assert!(unusable.iter().is_sorted_by_key(|index| index.as_u64()), "{workload}: {memory}");
        assert_eq!(memory["fragmentation_index"][0], -1000, "{workload}: single frames are there");
    }
    assert_eq!(result["fragmentation"]["after_drain"]["per_cpu_frames"], 0, "{workload}");
}

#[test]
fn every_workload_runs_on_every_design_and_one_seed_gives_the_same_bytes() {
    for (workload, settings) in WORKLOADS {
        let seed = |seed, designs| {
            let with = ["--design", designs, "--json", "--seed", seed];
            results(&stdout(simulated(workload, settings, &with)))
        };
        let all = seed("3", "all");
        // Whatever else runs beside them.
        let some = "freehold,zone-lock";
        let (again, other) = (seed("3", some), seed("4", some));
        assert_eq!((again.len(), other.len()), (2, 2));
        for (again, other) in again.iter().zip(&other) {
            assert_eq!(again["design"], other["design"]);
            assert!(all.contains(again), "{workload}");
            assert_ne!(again["result_hash"], other["result_hash"], "{workload}");
        }
        assert_eq!(all.len(), DESIGNS.len());
        for one in &all {
            check(workload, one);
            let locks = one["locks"].as_array().unwrap();
            let has = |name: &str| locks.iter().any(|lock| lock["name"] == name);
            let expected = match one["design"].as_str() {
                Some("freehold") => (true, false),
                Some("llfree") => (false, false),
                _ => (false, true),
            };
            assert_eq!((has("cpu_cache_lock"), has("zone_lock")), expected, "{workload}");
        }
    }
}

#[test]
fn every_workload_runs_on_the_free_lunch() {
    for (workload, settings) in WORKLOADS {
        let run = || stdout(simulated(workload, settings, &["--design", "free-lunch", "--json"]));
        let document = run();
        assert_eq!(document, run(), "{workload}");
        let result = result(&document);
        let specific = &result["workload_specific"];
        assert!(result["work"]["per_second"].as_f64().unwrap() > 0.0, "{workload}");
        let calls = &specific["calls"];
        let all = ["alloc", "free"].map(|path| calls[path]["count"].as_u64().unwrap());
        assert!(all.into_iter().sum::<u64>() > 0, "{workload}");
        assert_eq!(calls["free"]["total_ns"], 0.0, "{workload}");
        // Migrating content for a large block is work of its owner.
        let moves = ["thp-mix", "contig", "high-order", "pressure"].contains(workload);
        assert!(calls["alloc"]["total_ns"] == 0.0 || moves, "{workload}: {calls}");
        let locks = result["locks"].as_array().unwrap();
        // Rings between the tasks are the workload's own, and the LRU is not part of the allocator.
        let other = |lock: &Value| {
            let name = lock["name"].as_str().unwrap();
            name == "ring_lock" || name.starts_with("lru")
        };
        assert!(locks.iter().all(other), "{workload}: {locks:?}");
    }
}

#[test]
fn every_workload_runs_on_the_host() {
    for (workload, settings) in WORKLOADS {
        let document = stdout(run(workload, settings, &["--cpus", "2", "--json"]));
        let result = result(&document);
        check(workload, &result);
        assert!(result.get("locks").is_none(), "{workload}");
    }
}

#[test]
fn every_table_fits_100_columns_and_says_what_its_figures_are() {
    // With one of the longest names.
    let designs = "block-owner,freehold";
    for (workload, settings) in WORKLOADS {
        for (table, origin) in [
            (
                run(workload, settings, &["--design", designs, "--cpus", "2"]),
                format!("Measured on this host with profile {}.", profile()),
            ),
            (
                simulated(workload, settings, &["--design", designs]),
                "Simulated on uma-4: a prediction.".to_owned(),
            ),
        ] {
            let table = stdout(table);
            assert!(table.contains(&origin), "{table}");
            assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
            // A line of headings, one below them, and one for each design: no cell is broken.
            let names = table.lines().skip(2).map(|line| line.split_whitespace().next());
            assert!(names.take(2).eq(designs.split(',').map(Some)), "{table}");
        }
    }
}

#[test]
fn what_is_allocated_is_freed_by_the_others() {
    let of = |workload| WORKLOADS.iter().find(|(name, _)| *name == workload).unwrap().1;
    let document = stdout(simulated("purge", of("purge"), &["--json", "--set", "freers=2"]));
    let calls = &result(&document)["workload_specific"]["calls"];
    assert_eq!(calls["free"]["count"], 2 * 3000, "two tasks send 3000 frames each");
    let document = stdout(simulated("cross-cpu", of("cross-cpu"), &["--json"]));
    let calls = &result(&document)["workload_specific"]["calls"];
    assert_eq!((&calls["alloc"]["count"], &calls["free"]["count"]), (&4000.into(), &4000.into()));
    // Four times 510 frames are gathered, and 8; each 510 leave the LRU in 17 batches. Without an
    // LRU they are freed in the same batches.
    for (set, calls) in [("lru=node", 69), ("lru=off", 69), ("free=single", 4 * 512)] {
        let one_worker = ["task_region=2MiB", "mode=workers", "workers=1", set];
        let document = stdout(simulated("parallel-free", &one_worker, &["--json"]));
        let specific = &result(&document)["workload_specific"];
        assert_eq!((&specific["workers"]["tasks"], specific.get("exit")), (&1.into(), None));
        assert_eq!(specific["calls"]["free"]["count"], calls, "{set}");
    }
}

#[test]
fn frames_leave_the_lru_on_their_way_to_the_allocator() {
    let freed = |sets: &[&str], more: &[&str]| {
        let sets = [&["task_region=2MiB", "batch_frames=64"], sets].concat();
        result(&stdout(simulated("parallel-free", &sets, &[&["--json"], more].concat())))
    };
    let wait = |result: &Value| result["time_share"]["lru_lock"].as_f64().unwrap_or(0.0);
    let frees = |result: &Value| result["workload_specific"]["calls"]["free"]["count"].clone();
    for mode in ["mode=workers", "mode=exit"] {
        let node = freed(&[mode], &[]);
        assert!(wait(&node) > 0.0, "{mode}: all frames are under one lock");
        assert_eq!(wait(&freed(&[mode, "lru=off"], &[])), 0.0, "{mode}");
        assert!(frees(&node).as_u64().unwrap() >= 4 * 512 / 31, "{mode}: all are freed");
    }
    let own = freed(&["mode=exit", "lru=group", "groups=tasks"], &[]);
    assert_eq!(wait(&own), 0.0, "each task has a group, and a lock");
    let one = freed(&["mode=exit", "lru=group"], &[]);
    assert!(wait(&one) > 0.0, "a container is one group");
    let host = |set| {
        let sets = ["task_region=2MiB", "rounds=2", set];
        result(&stdout(run("parallel-free", &sets, &["--cpus", "2", "--json"])))
    };
    for set in ["lru=node", "lru=group", "lru=off"] {
        assert!(frees(&host(set)).as_u64().unwrap() > 0, "{set}");
    }
}

#[test]
fn slabs_strewn_among_files_are_in_the_way_of_huge_pages() {
    let sets = ["memory_mib=128", "tree_mib=64", "delay_ms=1", "build_s=1", "pace=100"];
    let document = stdout(simulated("high-order", &sets, &["--json", "--design", "zone-lock"]));
    let specific = &result(&document)["workload_specific"];
    let before = &specific["before"];
    let frames = |of: &str| before[of].as_u64().unwrap();
    assert!(frames("slab_frames") > 1000, "{before}");
    assert!(frames("file_frames") > frames("slab_frames"), "{before}");
    assert!(before["free"]["free_frames"].as_u64().unwrap() < 32_768 / 10, "memory is full");
    for pass in ["first", "second"] {
        let pass = &specific[pass];
        let count = |of: &str| pass[of].as_u64().unwrap();
        assert_eq!(count("attempts"), 60, "{pass}");
        assert_eq!(count("got") + count("failed"), 60, "{pass}");
        assert_eq!(pass["latency"].is_null(), count("got") == 0, "{pass}");
        assert_eq!(pass["failure_latency"].is_null(), count("failed") == 0, "{pass}");
        assert!(count("failed") > 0, "not all memory can be moved or reclaimed: {pass}");
    }
}

#[test]
fn content_is_moved_out_of_the_way_where_it_can_be() {
    let contig = |unmovable| {
        let settings = ["memory_mib=64", "ranges=8", "occupancy=30", unmovable];
        let document = stdout(simulated("contig", &settings, &["--json"]));
        result(&document)["workload_specific"]["mib_2"].clone()
    };
    let movable = contig("unmovable=0");
    assert_eq!(movable["got"], 8, "{movable}");
    assert!(movable["migrated"].as_u64().unwrap() > 8 * 50, "{movable}");
    let mixed = contig("unmovable=300");
    assert!(mixed["got"].as_u64().unwrap() < 8, "{mixed}");
}

#[test]
fn more_workers_free_faster() {
    let region = ["task_region=8MiB", "mode=workers", "batch_frames=64"];
    let ns = |workers: &str| {
        let document = stdout(simulated("parallel-free", &region, &["--json", "--set", workers]));
        result(&document)["workload_specific"]["workers"]["ns"]["median"].as_f64().unwrap()
    };
    assert!(ns("workers=4") * 2.0 < ns("workers=1"), "in virtual time");
}

#[test]
fn a_huge_fault_without_a_block_comes_in_small_pages() {
    // Half of the frames stay in use, so few pageblocks can be made free.
    let settings = ["memory_mib=64", "time_ms=5", "kept=50", "used=95"];
    let with = ["--design", "zone-lock", "--json"];
    let result = result(&stdout(simulated("thp-mix", &settings, &with)));
    let huge = &result["workload_specific"]["huge"];
    let [faults, pages] = ["faults", "fallback_pages"].map(|name| huge[name].as_u64().unwrap());
    assert!(huge["success"].as_f64().unwrap() < 1.0 && pages > 0, "{huge}");
    let all = (faults * 512 + pages) as f64 * 1e9 / 5e6;
    assert_eq!(huge["pages_per_second"].as_f64().unwrap(), all);
}
