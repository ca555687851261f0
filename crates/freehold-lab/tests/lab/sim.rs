//! Simulated runs as a user types them: the same bytes for the same seed, the same counts for every
//! seed, machines from files, and the checker with and without a planted bug.

use crate::common::{fails, freehold, json, replay, results, stdout, succeeds};
use serde_json::{Value, json};

/// A run of `page-fault` on 16 CPUs of two sockets, small enough for a test.
fn run(seed: &str, more: &[&str]) -> String {
    let arguments = ["run", "page-fault", "--machine", "skylake-2s", "--cpus", "16,48", "--json"];
    let small = ["--set", "task_bytes=1MiB", "--set", "node_memory=256MiB", "--seed", seed];
    stdout(freehold(&[&arguments[..], &small, more].concat()))
}

#[test]
fn one_seed_gives_the_same_bytes() {
    assert_eq!(run("7", &[]), run("7", &[]));
}

#[test]
fn another_seed_differs_in_schedule_but_not_in_books() {
    let (one, other) = (run("1", &[]), run("2", &[]));
    for (one, other) in results(&one).iter().zip(&results(&other)) {
        assert_ne!(one["result_hash"], other["result_hash"]);
        assert_ne!(one["work"]["per_second"], other["work"]["per_second"]);
        assert_eq!(one["work"]["count"], other["work"]["count"]);
        assert_eq!(one["workload_specific"]["books"], other["workload_specific"]["books"]);
    }
}

#[test]
fn a_simulated_result_says_where_the_time_went() {
    let document = run("1", &["--design", "zone-lock", "--set", "pcp=fixed"]);
    let results = results(&document);
    let result = &results[1];
    assert_eq!((&result["machine"], &result["cpus"]), (&"skylake-2s".into(), &48.into()));
    assert_eq!((&result["seed"], &result["settings"]["pcp"]), (&1.into(), &"fixed".into()));
    let share = |name: &str| result["time_share"][name].as_f64().unwrap();
    let zone = share("zone_lock");
    assert!(zone > 0.2, "48 CPUs contend for two zone locks: {zone}");
    let parts: f64 =
        ["alloc", "free", "other"].map(|path| share(&format!("zone_lock.{path}"))).iter().sum();
    assert!((zone - parts).abs() < 1e-9);
    let lock = |name: &str| {
        let locks = result["locks"].as_array().unwrap();
        locks.iter().find(|lock| lock["name"] == name).unwrap().clone()
    };
    assert_eq!(lock("zone_lock")["instances"], 2);
    assert_eq!(lock("pcp_lock")["instances"], 48);
    for field in ["acquisitions", "contended", "wait_ns", "hold_ns", "hold_ns_max"] {
        assert!(lock("zone_lock")[field].as_f64().unwrap() > 0.0, "{field}");
    }
    let irq = &result["irq_off"];
    assert!(irq["share"].as_f64().unwrap() > 0.0 && irq["ns_max"].as_f64().unwrap() > 0.0);
    for path in ["alloc", "free"] {
        let of = |field: &str| result["latency_ns"][path][field].as_u64().unwrap();
        assert!(of("p50") <= of("p99") && of("p99") <= of("p999") && of("p999") <= of("max"));
    }
    let data = result["workload_specific"]["data"].as_array().unwrap();
    let frames = data.iter().find(|data| data["data"] == "frames").unwrap();
    assert!(frames["misses_under_lock"].as_u64().unwrap() > 0);
    assert!(result.get("fragmentation").is_none());
}

#[test]
fn a_table_fits_100_columns() {
    let small = ["--set", "task_bytes=256KiB", "--set", "node_memory=64MiB"];
    let arguments = ["run", "page-fault", "--machine", "uma-2", "--cpus", "1,2"];
    let table = stdout(freehold(&[&arguments[..], &small].concat()));
    assert!(table.contains("Simulated on uma-2: a prediction."), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}

#[test]
fn a_machine_file_is_used_and_its_mistakes_are_named_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slow.toml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "name = \"slow\"\nbase = \"uma-2\"\n[latency]\nllc_ns = 500\n").unwrap();
    let small = ["--set", "task_bytes=256KiB", "--set", "node_memory=64MiB", "--json"];
    let document =
        stdout(freehold(&[&["run", "page-fault", "--machine", path][..], &small].concat()));
    assert_eq!(results(&document)[0]["machine"], "slow");

    std::fs::write(&file, "name = \"slow\"\nbase = \"uma-2\"\n[latency]\nllc_nz = 500\n").unwrap();
    let stderr = fails(&["run", "page-fault", "--machine", path], 2);
    assert!(stderr.contains("slow.toml:4:") && stderr.contains("llc_ns"), "{stderr}");
}

#[test]
fn a_comparison_ranks_and_explains_and_repeats() {
    let arguments = ["compare", "page-fault", "--machine", "uma-4", "--no-host", "--json"];
    let small = ["--set", "task_bytes=1MiB", "--set", "pcp=fixed", "--seeds", "2"];
    let compare = |more: &[&str]| stdout(freehold(&[&arguments[..], &small, more].concat()));
    let document: Value = serde_json::from_str(&compare(&[])).unwrap();
    assert_eq!(document["schema"], "freehold.compare/2");
    assert_eq!(document["baseline"], "zone-lock");
    let designs = json(&["list", "designs", "--json"]);
    let designs = designs.as_array().unwrap().iter();
    let designs = designs.filter(|design| design["name"] != "free-lunch").count();
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 2 * designs, "each design with each seed");
    let again = compare(&["--design", "zone-lock"]);
    assert_eq!(again, compare(&["--design", "zone-lock"]));
    let again: Value = serde_json::from_str(&again).unwrap();
    let of_zone_lock = results.iter().filter(|of| of["design"] == "zone-lock");
    assert!(of_zone_lock.eq(again["results"].as_array().unwrap()), "whatever runs beside it");
    assert_eq!((&results[0]["seed"], &results[designs]["seed"]), (&1.into(), &2.into()));
    // Compare reduces the memory to a sixteenth of the 96 GiB that the machine has.
    assert_eq!(results[0]["workload_specific"]["node_bytes"], 6_u64 << 30);
    assert_eq!(results[0]["workload_specific"]["task_bytes"], 1 << 20);
    assert_eq!(results[0]["cpus"], 4);
    let ranking = document["ranking"].as_array().unwrap();
    assert_eq!(ranking.len(), designs);
    let baseline = ranking.iter().find(|ranked| ranked["design"] == "zone-lock").unwrap();
    assert_eq!(baseline["machine"], "uma-4");
    assert_eq!(baseline["seeds"], 2);
    let standing = &baseline["standings"][0];
    assert_eq!((&standing["figure"], &standing["ratio"]), (&"per_second".into(), &1.0.into()));
    let rate = |result: &Value| result["work"]["per_second"].as_f64().unwrap();
    let (one, other) = (rate(&results[0]), rate(&results[designs]));
    assert_eq!(standing["min"], one.min(other));
    assert_eq!(standing["max"], one.max(other));
    for ranked in ranking {
        let place = |which: &str| ranked["standings"][0][which].as_u64().unwrap() as usize;
        let (first, last) = (place("place_first"), place("place_last"));
        assert!((1..=designs).contains(&first) && (first..=designs).contains(&last), "{ranked}");
    }
    let reasons = baseline["reasons"].as_array().unwrap();
    assert!(reasons[0].as_str().unwrap().contains("of the time for"), "{reasons:?}");
}

#[test]
fn a_result_of_compare_is_that_of_run() {
    let small = ["task_bytes=1MiB", "node_memory=64MiB", "pcp=auto"].map(|set| ["--set", set]);
    let small = [&small.concat()[..], &["--json"]].concat();
    let on = ["page-fault", "--machine", "uma-4", "--cpus", "2", "--design", "zone-lock"];
    let of_run = stdout(freehold(&[&["run"][..], &on, &small].concat()));
    let one = ["compare", "--no-host", "--seeds", "1"];
    let compared = stdout(freehold(&[&one[..], &on, &small].concat()));
    let compared: Value = serde_json::from_str(&compared).unwrap();
    assert_eq!(compared["results"], Value::from(results(&of_run)));
}

#[test]
fn a_version_of_linux_has_its_lru_in_struct_page() {
    let run = |more: &[&str]| {
        let on = ["run", "page-fault", "--machine", "uma-4", "--design", "zone-lock,freehold"];
        let small = ["--set", "task_bytes=1MiB", "--set", "node_memory=64MiB", "--json"];
        results(&stdout(freehold(&[&on[..], &small, more].concat())))
    };
    let records = |result: &Value| {
        let data = result["workload_specific"]["data"].as_array().unwrap();
        let records = data.iter().find(|of| of["data"] == "lru_frames");
        records.map_or(0, |of| of["accesses"].as_u64().unwrap())
    };
    let (own, linux) = (run(&[]), run(&["--set", "kernel=4.16", "--set", "groups=one"]));
    assert!(records(&own[0]) > 0);
    assert_eq!(records(&linux[0]), 0, "they are those of the allocator's records");
    assert!(records(&linux[1]) > 0, "freehold has none");
    let options = &linux[1]["workload_specific"]["options"];
    assert_eq!((&options["lru_batch"], &options["gather"]), (&15.into(), &9690.into()));
}

#[test]
fn sensitivity_says_which_places_hold() {
    let on = ["compare", "page-fault", "--machine", "uma-2", "--design", "zone-lock,freehold"];
    let small = ["--set", "task_bytes=512KiB", "--set", "node_memory=64MiB"];
    let with = [&small[..], &["--set", "start=together", "--sensitivity"]].concat();
    let document = stdout(freehold(&[&on[..], &with, &["--json"]].concat()));
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["schema"], "freehold.sensitivity/1");
    let runs = document["runs"].as_array().unwrap();
    assert_eq!((&runs[0], runs.len()), (&"as it is".into(), 16), "without start=spread");
    let designs = document["places"][0]["designs"].as_array().unwrap();
    let baseline = designs.iter().find(|of| of["design"] == "zone-lock").unwrap();
    assert!(baseline["ratios"].as_array().unwrap().iter().all(|ratio| *ratio == 1.0));
    assert_eq!(baseline["ratios"].as_array().unwrap().len(), runs.len());
    let text = stdout(freehold(&[&on[..], &with].concat()));
    assert!(text.contains("hold in all runs: "), "{text}");
}

#[test]
fn a_varied_setting_makes_contestants() {
    let on = ["compare", "page-fault", "--machine", "uma-4", "--no-host", "--json"];
    let with = ["--design", "zone-lock,lazy-merge", "--vary", "compact-history=off,on"];
    let small = ["--set", "task_bytes=1MiB", "--set", "node_memory=64MiB"];
    let compared = stdout(freehold(&[&on[..], &with, &small].concat()));
    let compared: Value = serde_json::from_str(&compared).unwrap();
    let ranking = compared["ranking"].as_array().unwrap();
    let mut names: Vec<_> = ranking.iter().map(|of| of["contestant"].as_str().unwrap()).collect();
    names.sort_unstable();
    let expected = ["lazy-merge compact-history=off", "lazy-merge compact-history=on", "zone-lock"];
    assert_eq!(names, expected, "a design without the setting takes part once");
    assert_eq!(compared["baseline"], "zone-lock");
}

/// Without the locks of the workload not at all; if tasks queue for them anyway, the order of
/// arrival may make a small difference.
#[test]
fn no_design_beats_the_free_lunch() {
    let of_lru = ["lru_batch_lock", "lru_lock"];
    for (lru, cpus, locks, luck) in
        [("lru=off", "48", &[][..], 1.0), ("lru=node", "16", &of_lru[..], 1.01)]
    {
        let on = ["run", "page-fault", "--machine", "skylake-2s", "--cpus", cpus, "--json"];
        let with = ["--design", "free-lunch,all", "--set", lru, "--set", "node_memory=256MiB"];
        let much = ["--set", "task_bytes=4MiB"];
        let results = results(&stdout(freehold(&[&on[..], &with, &much].concat())));
        let per_second = |result: &Value| result["work"]["per_second"].as_f64().unwrap();
        let (free, designs) = results.split_first().unwrap();
        assert_eq!(free["design"], "free-lunch");
        for design in designs {
            assert!(per_second(free) * luck >= per_second(design), "{lru}, {}", design["design"]);
        }
        let named = free["locks"].as_array().unwrap().iter().map(|lock| &lock["name"]);
        assert!(named.eq(locks), "{lru}: {}", free["locks"]);
        let specific = &free["workload_specific"];
        let data = specific["data"].as_array().unwrap();
        let is_metadata = |of: &&Value| {
            let kind = of["data"].as_str().unwrap();
            kind != "workload" && !kind.starts_with("lru")
        };
        assert!(!data.iter().any(|of| is_metadata(&of)), "no metadata: {data:?}");
        let irq_off = free["irq_off"]["share"].as_f64().unwrap();
        assert_eq!((irq_off > 0.0, &free["settings"]), (lru == "lru=node", &json!({})));
        let paths = ["alloc", "free"].map(|path| specific["paths"][path].as_object().unwrap());
        assert!(paths.into_iter().all(|path| path.values().all(|ns| *ns == 0.0)));
        assert_eq!(specific["books"]["allocated"], specific["books"]["freed"]);
    }
}

#[test]
fn a_comparison_shows_where_a_design_does_not_run() {
    let arguments = ["compare", "page-fault", "--machine", "uma-2", "--design"];
    let small = ["--set", "task_bytes=1MiB", "--set", "node_memory=64MiB", "--why"];
    let compare = |designs, more: &[&str]| {
        stdout(freehold(&[&arguments[..], &[designs], &small, more].concat()))
    };
    let on_host = ["--set", "samples=1", "--set", "sample_ms=20"];
    let text = compare("free-lunch,zone-lock", &on_host);
    assert!(text.contains("free-lunch runs on simulated machines only."), "{text}");
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with(" free-lunch ")).collect();
    assert_eq!(rows.len(), 1, "it does not run on the host: {text}");
    let cells: Vec<_> = rows[0].split_whitespace().collect();
    assert!(cells[1].parse::<f64>().unwrap() > 0.0 && cells[3].ends_with('x'), "{text}");
    assert!(text.contains(" on host") && text.contains("free-lunch, 1."), "{text}");
    assert!(!compare("zone-lock", &on_host).contains("free-lunch"));
    let alone = compare("free-lunch", &[]);
    assert!(!alone.contains("host") && alone.contains("1. free-lunch: waits"), "{alone}");
}

#[test]
fn a_workload_with_several_goals_is_ranked_by_each() {
    let arguments = ["compare", "thp-mix", "--machine", "uma-4", "--no-host"];
    let small = ["--set", "memory_mib=128", "--set", "time_ms=2", "--design", "zone-lock,freehold"];
    let compare = |more: &[&str]| stdout(freehold(&[&arguments[..], &small, more].concat()));
    let document: Value = serde_json::from_str(&compare(&["--json"])).unwrap();
    for ranked in document["ranking"].as_array().unwrap() {
        let figures = ranked["standings"].as_array().unwrap().iter();
        let figures: Vec<_> = figures.map(|of| of["figure"].as_str().unwrap()).collect();
        assert_eq!(figures, ["huge_per_second", "small_per_second"]);
    }
    for result in document["results"].as_array().unwrap() {
        let specific = &result["workload_specific"];
        let share = specific["allocator_share"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&share), "calls count within the window: {share}");
        let all_ns = specific["time"]["all_ns"].as_f64().unwrap();
        assert_eq!(all_ns, 4.0 * 2e6, "four CPUs for two milliseconds");
    }
    let text = compare(&["--why"]);
    assert!(text.contains("First in small/s: "), "{text}");
    assert!(text.contains("huge/s") && text.contains("small/s"), "{text}");
    assert!(text.contains(" zone-lock pcp=auto in small/s"), "{text}");
}

#[test]
fn nothing_is_reduced_in_a_whole_comparison() {
    let on = ["compare", "page-fault", "--machine", "uma-2", "--no-host", "--seeds", "1"];
    let small = ["--design", "freehold", "--cpus", "1", "--set", "node_memory=1GiB"];
    let compare = |more: &[&str]| stdout(freehold(&[&on[..], &small, more].concat()));
    assert!(compare(&[]).contains("task_bytes=8MiB"));
    assert!(!compare(&["--whole"]).contains("task_bytes="));
}

#[test]
fn every_figure_has_a_source() {
    let document = json(&["list", "machines", "--details", "--json"]);
    let machines = document.as_array().unwrap();
    assert_eq!(machines.len(), 14);
    for machine in &machines[1..] {
        for figure in machine["figures"].as_array().unwrap() {
            assert!(figure["source"].as_str().unwrap().len() > 9, "{machine}: {figure}");
        }
    }
    let table = succeeds(&["list", "machines", "--details"]);
    assert!(table.contains("workload.trap_ns"));
    assert!(table.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn seeds_are_played_and_replayed() {
    let text = succeeds(&["check", "--seeds", "3"]);
    assert!(text.contains("3 seeds from 0, no failure"), "{text}");
    let one = succeeds(&["check", "--seed", "10", "--json"]);
    assert_eq!(one, succeeds(&["check", "--seed", "10", "--json"]));
    let document: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(document["schema"], "freehold.check/1");
    assert!(document["allocations"].as_u64().unwrap() > 0);
}

#[test]
fn a_planted_bug_is_found_and_the_replay_command_replays_it() {
    let planted = ["check", "--design", "zone-lock", "--canary", "--seeds", "3"];
    let stderr = fails(&[&planted[..], &["--failures", "preempt,leave"]].concat(), 1);
    let replay = replay(&stderr);
    let seed = replay[2];
    assert!(fails(&replay, 1).contains(&format!("seed {seed} failed")));
}

#[test]
fn a_frame_that_is_lost_is_missed_whatever_the_counts_say() {
    for design in ["freehold", "zone-lock"] {
        let stderr = fails(&["check", "--seeds", "1", "--canary=loss", "--design", design], 1);
        assert!(stderr.contains("lost frames: 1 of "), "{stderr}");
        let replay = format!("replay: freehold check --seed 0 --design {design} --canary=loss");
        assert!(stderr.contains(&replay), "{stderr}");
    }
}

#[test]
fn frames_of_a_node_without_cpus_are_used_and_cost_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    // A job of two nodes' memory, of which most is behind CXL in the second machine.
    let run = |name: &str, latency: u32| {
        let text = format!(
            "base = 'skylake-2s'\n[memory]\nnode_gib = [1, 1, 6]\n\
             [latency]\nmemory_only_ns = {latency}\n"
        );
        std::fs::write(path(name), text).unwrap();
        let machine = path(name);
        let arguments = ["run", "build", "--machine", &machine, "--cpus", "4", "--json"];
        results(&succeeds(&arguments))[0].clone()
    };
    let (near, far) = (run("near.toml", 90), run("far.toml", 900));
    let read = &far["workload_specific"]["memory"][2];
    assert!(read["bytes_written"].as_u64().unwrap() > 1 << 20, "node 2 is used: {read}");
    let rate = |result: &Value| result["work"]["per_second"].as_f64().unwrap();
    assert!(rate(&far) < rate(&near), "{} and {}", rate(&far), rate(&near));
}

#[test]
fn a_machine_from_lscpu_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let lscpu = "> Architecture: ppc64le\n> CPU(s): 80\n> Thread(s) per core: 8\n\
        > Core(s) per socket: 1\n> Socket(s): 10\n> NUMA node(s): 1\n\
        > Model name: POWER9 (architected), altivec supported\n> NUMA node0 CPU(s): 0-79\n";
    let numactl = "available: 1 nodes (0)\nnode 0 cpus: 0 1 2\nnode 0 size: 2048 MB\n";
    std::fs::write(path("lscpu"), lscpu).unwrap();
    std::fs::write(path("numactl"), numactl).unwrap();
    let machine = succeeds(&["machine", "from-lscpu", &path("lscpu"), &path("numactl")]);
    std::fs::write(path("m.toml"), &machine).unwrap();
    let file = path("m.toml");
    let arguments = ["run", "page-fault", "--machine", &file, "--cpus", "80", "--json"];
    let document = stdout(freehold(&[&arguments[..], &["--set", "task_bytes=1MiB"]].concat()));
    assert_eq!(results(&document)[0]["work"]["count"].as_u64().unwrap() % 80, 0, "{machine}");
}
