//! The command line as a user types it: its output, and its exit codes.

use std::process::Command;

use crate::common::{fails, freehold, profile, stdout, succeeds};

/// The document of a command that says nothing else where there is no terminal.
fn only_json(arguments: &[&str]) -> serde_json::Value {
    let output = freehold(arguments);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    serde_json::from_str(&stdout(output)).expect("one JSON document")
}

const SMALL: [&str; 6] =
    ["--set", "task_bytes=2MiB", "--set", "samples=2", "--set", "sample_ms=20"];

/// Help, lists, and mistakes: byte for byte.
#[test]
fn transcripts() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}

#[test]
fn page_fault_reports_one_result_for_each_cell() {
    let arguments = ["run", "page-fault", "--cpus", "1,1", "--json", "--design", "zone-lock"];
    let fixed = ["--set", "pcp=fixed"];
    let document = only_json(&[&arguments[..], &fixed, &SMALL].concat());
    assert_eq!(document["schema"], "freehold.run/1");
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    let result = &results[0];
    assert_eq!(result["workload"], "page-fault");
    assert_eq!(result["design"], "zone-lock");
    assert_eq!(result["machine"], "host");
    assert_eq!(result["profile"], profile());
    assert_eq!(result["cpus"], 1);
    assert_eq!(result["settings"], serde_json::json!({"batch": 31, "high": 186, "pcp": "fixed"}));
    assert_eq!(result["work"]["unit"], "faults");
    assert!(result["work"]["count"].as_u64().unwrap() > 0);
    assert!(result["work"]["per_second"].as_f64().unwrap() > 0.0);
    let specific = &result["workload_specific"];
    assert_eq!(specific["task_bytes"], 2 << 20);
    assert_eq!(specific["samples_per_second"].as_array().unwrap().len(), 2);
    for field in ["fault_ns", "allocator_ns", "allocator_lock_pairs"] {
        assert!(specific[field].as_f64().unwrap() > 0.0, "{field}");
    }
    assert_eq!(result["seed"], 1, "which tasks draw from");
    for field in ["time_share", "locks", "irq_off", "result_hash"] {
        assert!(result.get(field).is_none(), "{field} does not apply on the host");
    }
}

#[test]
fn page_fault_prints_a_table() {
    let stdout = succeeds(&[&["run", "page-fault", "--cpus", "1"][..], &SMALL].concat());
    assert!(stdout.contains("freehold"), "{stdout}");
    let origin = format!("Measured on this host with profile {}. ", profile());
    assert!(stdout.contains(&origin), "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 100), "{stdout}");
}

#[test]
fn compare_shows_both_machines() {
    let arguments = ["compare", "page-fault", "--machine", "uma-2"];
    let more = ["--set", "node_memory=64MiB", "--seeds", "2"];
    let output = freehold(&[&arguments[..], &SMALL, &more].concat());
    let rows = String::from_utf8_lossy(&output.stderr).into_owned();
    let stdout = stdout(output);
    // Seven designs and the baseline's second setting, with each seed, on each machine.
    for machine in ["uma-2 ", "host "] {
        let own = rows.lines().filter(|row| row.starts_with(machine));
        assert_eq!(own.filter(|row| row.ends_with(" faults/s")).count(), 2 * 8, "{rows}");
    }
    assert_eq!(rows.lines().count(), 2 * 2 * 8, "{rows}");
    let text = stdout.replace('\n', " ");
    for part in [
        "Settings on the host: task_bytes=2MiB samples=2 sample_ms=20.",
        "Settings of the simulation: task_bytes=2MiB node_memory=64MiB.",
        "; measured on this host with ",
        &format!(" and profile {}, 2 seeds.", profile()),
        "; simulated with 2 CPUs, a prediction, 2 seeds.",
        "first on uma-2: ",
    ] {
        let there =
            text.contains(part) || text.contains(&part.replace("first", "too close to rank"));
        assert!(there, "{part}: {stdout}");
    }
    assert!(text.find("on uma-2") < text.find("on host"), "the simulated part is first: {text}");
    assert!(!stdout.contains("What goes with the places"), "{stdout}");
    assert!(stdout.lines().count() <= 40, "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 100), "{stdout}");
}

#[test]
fn compare_gives_its_reasons_and_all_settings_when_asked() {
    let arguments = ["compare", "page-fault", "--machine", "uma-2", "--no-host"];
    let more =
        ["--set", "node_memory=64MiB", "--set", "task_bytes=2MiB", "--all-settings", "--why"];
    let stdout = succeeds(&[&arguments[..], &more].concat());
    assert!(stdout.contains("What goes with the places on uma-2:"), "{stdout}");
    let fixed = stdout.lines().filter(|line| line.contains(" pcp=fixed  "));
    assert_eq!(fixed.count(), 5, "each design that has the setting: {stdout}");
    assert!(stdout.contains("one seed, which gives no interval"), "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 100), "{stdout}");
}

#[test]
fn bulk_reports_every_step() {
    let arguments = ["run", "bulk", "--cpus", "1", "--json"];
    let small = ["--set", "rounds=2", "--set", "round_frames=500"];
    let document = only_json(&[&arguments[..], &small].concat());
    let specific = &document["results"][0]["workload_specific"];
    let variants = specific["variants"].as_array().unwrap();
    assert_eq!((variants.len(), &variants[0]["name"]), (1, &"".into()), "freehold has no choice");
    let steps = variants[0]["steps"].as_array().unwrap();
    let sizes: Vec<_> = steps.iter().map(|step| step["step"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [1, 2, 3, 4, 8, 16, 32, 64, 128]);
    for step in steps {
        for way in ["single_ns", "array_ns", "bulk_ns", "gain"] {
            let [min, median, max] =
                ["min", "median", "max"].map(|field| step[way][field].as_f64().unwrap());
            assert!(0.0 < min && min <= median && median <= max, "{step}");
        }
    }
}

#[test]
fn bulk_compares_what_protects_lists_and_counters() {
    let names = |machine: &[&str], settings: &[&str]| {
        let arguments = ["run", "bulk", "--cpus", "1", "--design", "zone-lock", "--json"];
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        let arguments: Vec<_> = arguments.into_iter().chain(settings).collect();
        let document = only_json(&[&arguments[..], machine].concat());
        let specific = document["results"][0]["workload_specific"].clone();
        let variants = specific["variants"].as_array().unwrap().clone();
        let name = |variant: &serde_json::Value| variant["name"].as_str().unwrap().to_owned();
        (variants.iter().map(name).collect::<Vec<_>>(), variants)
    };
    let small = ["rounds=1", "round_frames=500"];
    let all = [
        "locking=irq counters=exact",
        "locking=irq counters=relaxed",
        "locking=local counters=exact",
        "locking=local counters=relaxed",
    ];
    assert_eq!(names(&[], &small).0, all);
    let (simulated, variants) = names(&["--machine", "uma-2"], &["step_frames=256"]);
    assert_eq!(simulated, all);
    let share = |nth: usize| variants[nth]["irq_off"]["share"].as_f64().unwrap();
    assert!(share(0) > share(1) && share(1) > share(3), "{variants:?}");
    let single = |nth: usize| variants[nth]["steps"][0]["single_ns"]["median"].as_f64().unwrap();
    assert!(single(0) > single(3), "interrupts cost time to disable");
    let rt = names(&[], &["rounds=1", "round_frames=500", "locking=rt"]).0;
    assert_eq!(rt, ["locking=rt counters=relaxed"]);
}

#[test]
fn more_memory_than_there_is_ends_in_advice() {
    let output = freehold(&["run", "page-fault", "--cpus", "1", "--set", "task_bytes=1PiB"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("lower --cpus or --set task_bytes"), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    use std::io::Read;
    let mut child = Command::new(env!("CARGO_BIN_EXE_freehold"))
        .args(["list", "machines", "--details"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Reads one byte and closes the pipe.
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// What a command prints, in a file.
fn kept(arguments: &[&str]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept.json");
    std::fs::write(&file, succeeds(arguments)).unwrap();
    let file = file.display().to_string();
    (folder, file)
}

#[test]
fn stat_shows_a_run_and_what_was_kept_of_it() {
    let arguments = ["run", "page-fault", "--cpus", "1", "--design", "zone-lock", "--json"];
    let machine = ["--machine", "uma-2", "--set", "task_bytes=2MiB", "--set", "node_memory=64MiB"];
    let (_folder, file) = kept(&[&arguments[..], &machine].concat());
    let kept = succeeds(&["stat", &file]);
    let run = ["stat", "page-fault", "--cpus", "1", "--design", "zone-lock"];
    assert_eq!(succeeds(&[&run[..], &machine].concat()), kept, "one seed, one state");
    for part in [
        "zone-lock, page-fault on uma-2 with 1 CPU, before its tasks freed everything:",
        "\nbuddyinfo\nNode 0, zone   Normal ",
        "  pages free     ",
        "\nPages per block:  512\n",
        "\npgalloc 1024\n",
        "\nnuma_hit 1024\n",
        "\nnuma_miss 0\n",
    ] {
        assert!(kept.contains(part), "{part}: {kept}");
    }
    let metrics = succeeds(&["stat", &file, "--show", "prometheus"]);
    assert!(metrics.contains("# TYPE freehold_pgalloc_total counter\nfreehold_pgalloc_total 1024"));

    assert!(fails(&["stat", "no-such-thing"], 2).contains("is no workload, and cannot be read"));
    for (given, problem) in [
        (["--cpus", "2"], "in the document already"),
        (["--show", "prometheus,vmstat"], "choose nothing else"),
        (["--seed", "1"], "already: omit --seed"),
        (["--machine", "host"], "already: omit --machine"),
        (["--design", "cluster,freehold"], "no result of cluster, freehold; there are zone-lock"),
    ] {
        let error = fails(&[&["stat", &file][..], &given].concat(), 2);
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn one_design_of_a_kept_document_goes_to_prometheus() {
    let arguments = ["run", "page-fault", "--cpus", "1", "--design", "freehold,zone-lock"];
    let machine = ["--machine", "uma-2", "--set", "task_bytes=2MiB", "--set", "node_memory=64MiB"];
    let (_folder, file) = kept(&[&arguments[..], &machine, &["--json"]].concat());
    let shown = ["stat", &file, "--show", "prometheus"];
    let advice = "(freehold with 1 CPU, zone-lock with 1 CPU) choose one design with --design";
    let error = fails(&shown, 2);
    assert!(error.contains(advice), "{error}");
    let metrics = succeeds(&[&shown[..], &["--design", "zone-lock"]].concat());
    let run = ["stat", "page-fault", "--cpus", "1", "--design", "zone-lock"];
    assert_eq!(metrics, succeeds(&[&run[..], &machine, &["--show", "prometheus"]].concat()));
    assert!(metrics.contains("freehold_pgalloc_total 1024\n"), "{metrics}");
}
