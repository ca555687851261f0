//! `freehold diff`: what of the difference of two documents counts, and what is no document.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{SIMULATED, document, freehold};

/// Documents in files.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, document: &Value) {
        fs::write(self.path(name), document.to_string()).unwrap();
    }

    /// Exit code, stdout and stderr of the comparison of two of them.
    fn diff(&self, a: &str, b: &str, more: &[&str]) -> (i32, String, String) {
        let (a, b) = (self.path(a), self.path(b));
        let files = ["diff", a.to_str().unwrap(), b.to_str().unwrap()];
        let output = freehold(&[&files[..], more].concat());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// The exit code, and the document of the comparison.
    fn diff_json(&self, a: &str, b: &str, more: &[&str]) -> (i32, Value) {
        let (code, stdout, stderr) = self.diff(a, b, &[more, &["--json"]].concat());
        (code, serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stderr}")))
    }

    /// The error for two documents that are not compared.
    fn refused(&self, a: &str, b: &str, code: i32) -> String {
        let (is, stdout, stderr) = self.diff(a, b, &[]);
        assert_eq!((is, &*stdout), (code, ""), "{stderr}");
        stderr
    }
}

/// A race of contestants with these times of a pair, round by round.
fn race(contestants: &[(&str, &[f64])]) -> Value {
    let row = |(contestant, samples): &(&str, &[f64])| {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        json!({
            "bench": "fill", "contestant": contestant, "threads": 1, "memory": 1.5,
            "pair_ns": sorted[samples.len() / 2], "samples_pair_ns": samples, "referee": "ok",
        })
    };
    let rows: Vec<_> = contestants.iter().map(row).collect();
    json!({
        "schema": "freehold.race/2", "profile": "release", "frames": 512, "lock_pair_ns": 6.0,
        "results": rows,
    })
}

const STEADY: &[f64] = &[10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.0];
const NOISY: &[f64] = &[10.0, 14.0, 7.0, 12.0, 8.0, 15.0, 9.0];

fn times(samples: &[f64], factor: f64) -> Vec<f64> {
    samples.iter().map(|sample| sample * factor).collect()
}

#[test]
fn a_regression_is_exit_code_3_and_is_named() {
    let files = Files::new();
    let of = [
        ("slower", STEADY, 1.1, "worse"),
        ("faster", STEADY, 0.9, "better"),
        ("hardly-slower", STEADY, 1.03, "same"),
        ("noisy", NOISY, 1.1, "same"),
        ("rarely-measured", &STEADY[..4], 2.0, "unknown"),
    ];
    let after = of.map(|(name, samples, factor, _)| (name, times(samples, factor)));
    files.put("a.json", &race(&of.map(|(name, samples, ..)| (name, samples))));
    files.put("b.json", &race(&after.each_ref().map(|(name, samples)| (*name, &samples[..]))));

    let (code, diff) = files.diff_json("a.json", "b.json", &[]);
    assert_eq!(code, 3, "{diff}");
    for (figure, (name, .., verdict)) in diff["figures"].as_array().unwrap().iter().zip(of) {
        assert_eq!(
            (&figure["cell"]["contestant"], &figure["verdict"]),
            (&json!(name), &json!(verdict))
        );
        assert_eq!(figure["interval"].is_null(), verdict == "unknown", "{figure}");
    }
    let bound = |nth: usize, end: &str| diff["figures"][nth]["interval"][end].as_f64();
    assert!(bound(0, "low") > Some(1.05) && bound(0, "high") < Some(1.15), "{diff}");
    assert!(bound(3, "low") < Some(1.0) && bound(3, "high") > Some(1.0), "{diff}");
    let (_, stdout, stderr) = files.diff("a.json", "b.json", &[]);
    assert!(stderr.ends_with("b.json is worse in 1 of 5 figures\n"), "{stderr}");
    let lines: Vec<_> = stdout.lines().collect();
    assert!(lines.contains(&"fill, 1 thread, memory 1.5x"), "{stdout}");
    let row = lines.iter().find(|line| line.contains(" slower ")).unwrap();
    let row: Vec<_> = row.split_whitespace().collect();
    assert_eq!(row[..6], ["slower", "pair", "ns", "10.0", "11.0", "1.100"], "{stdout}");
    assert_eq!(row.last(), Some(&"worse"), "{stdout}");
    assert!(lines.contains(&"Higher is worse: pair ns."), "{stdout}");
    assert!(stdout.contains("5 figures: 1 worse, 1 better, 2 the same, 1 unknown."), "{stdout}");
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{stdout}");

    // Below its threshold, a change does not count however sure it is.
    for (threshold, code, worse, better) in [("15%", 0, 0, 0), ("1%", 3, 2, 1)] {
        let (is, diff) = files.diff_json("a.json", "b.json", &["--threshold", threshold]);
        let counts = (&diff["worse"], &diff["better"]);
        assert_eq!((is, counts), (code, (&json!(worse), &json!(better))), "{threshold}: {diff}");
    }
    // The other way round, what was faster is slower.
    assert_eq!(files.diff_json("b.json", "a.json", &[]).1["figures"][1]["verdict"], "worse");
    assert_eq!(files.diff("a.json", "a.json", &[]).0, 0);
    files.put("slow.json", &race(&[("freehold", &times(STEADY, 1.5))]));
    files.put("fast.json", &race(&[("freehold", STEADY)]));
    assert_eq!(files.diff("slow.json", "fast.json", &[]).0, 0, "faster is no regression");
}

#[test]
fn no_change_of_a_simulated_machine_is_chance() {
    let files = Files::new();
    let mut run = document(&SIMULATED);
    files.put("a.json", &run);
    files.put("again.json", &document(&SIMULATED));
    let (code, diff) = files.diff_json("a.json", "again.json", &["--threshold", "0%"]);
    assert_eq!((code, &diff["worse"], &diff["better"]), (0, &json!(0), &json!(0)), "{diff}");
    let figures = diff["figures"].as_array().unwrap();
    assert!(figures.len() >= 6, "two cells with three figures each: {diff}");
    assert!(figures.iter().all(|of| of["exact"] == true && of["ratio"] == 1.0), "{diff}");

    // Of a rate, less is worse; of a time, more.
    let change = |of: &mut Value, factor: f64| *of = json!(of.as_f64().unwrap() * factor);
    change(&mut run["results"][0]["work"]["per_second"], 0.9);
    change(&mut run["results"][1]["workload_specific"]["calls"]["alloc"]["mean_ns"], 1.1);
    change(&mut run["results"][1]["workload_specific"]["calls"]["free"]["mean_ns"], 0.9);
    files.put("b.json", &run);
    let (code, diff) = files.diff_json("a.json", "b.json", &[]);
    let changed = |verdict: &str| -> Vec<_> {
        let figures = diff["figures"].as_array().unwrap().iter();
        let found = figures.filter(|of| of["verdict"] == verdict);
        found.map(|of| (of["cell"]["cpus"].as_str(), of["figure"].as_str())).collect()
    };
    assert_eq!(code, 3);
    let worse = [(Some("1"), Some("per_second")), (Some("2"), Some("alloc_ns"))];
    assert_eq!(changed("worse"), worse, "{diff}");
    assert_eq!(changed("better"), [(Some("2"), Some("free_ns"))], "{diff}");
    assert_eq!(diff["figures"][0]["unit"], "faults/s");
    let (_, stdout, _) = files.diff("a.json", "b.json", &[]);
    assert!(stdout.contains("\nLower is worse: faults/s.\n"), "{stdout}");
    assert!(stdout.contains("exact: simulated, so that no change is chance."), "{stdout}");
}

#[test]
fn measured_documents_have_the_samples_of_an_interval() {
    let files = Files::new();
    // Not too small: what takes as long as the clock that is read around it may come out as 0.
    let small = ["--set", "task_bytes=4MiB", "--set", "samples=5", "--set", "sample_ms=20"];
    files.put("run", &document(&[&["run", "page-fault", "--cpus", "1"][..], &small].concat()));
    let small = ["--set", "rounds=5", "--set", "round_frames=20000"];
    files.put("bulk", &document(&[&["run", "bulk", "--cpus", "1"][..], &small].concat()));
    let small = ["--set", "rounds=5", "--set", "task_region=32MiB"];
    let parallel = ["run", "parallel-free", "--cpus", "1"];
    files.put("parallel", &document(&[&parallel[..], &small].concat()));
    let small = ["--threads", "1", "--rounds", "5", "--frames", "8192", "--sample-ms", "1"];
    let race = ["race", "pair", "--contestants", "freehold"];
    files.put("race", &document(&[&race[..], &small].concat()));
    for (file, sampled) in [
        ("run", &["per_second", "allocator_ns", "pair_ns"][..]),
        ("bulk", &["pair_ns", "single_ns", "array_ns", "bulk_ns"]),
        ("parallel", &["per_second", "workers_ns", "exit_ns"]),
        ("race", &["pair_ns"]),
    ] {
        let (code, diff) = files.diff_json(file, file, &[]);
        assert_eq!(code, 0, "{diff}");
        let mut found: Vec<_> = Vec::new();
        for of in diff["figures"].as_array().unwrap() {
            let name = of["figure"].as_str().unwrap();
            if sampled.contains(&name) {
                found.push(name);
                let [low, high] = ["low", "high"].map(|end| of["interval"][end].as_f64().unwrap());
                assert!(low <= 1.0 && 1.0 <= high, "{of}");
                assert_eq!((&of["verdict"], &of["exact"]), (&json!("same"), &json!(false)));
            }
        }
        assert!(sampled.iter().all(|name| found.contains(name)), "{file}: {diff}");
    }
    let (_, stdout, _) = files.diff("bulk", "bulk", &[]);
    for title in ["bulk on host, 1 CPU", "bulk on host, 1 CPU, step 128"] {
        assert!(stdout.lines().any(|line| line == title), "{title}: {stdout}");
    }
}

#[test]
fn what_only_one_side_has_is_listed() {
    let files = Files::new();
    let mut a = document(&[&SIMULATED[..], &["--design", "zone-lock,freehold"]].concat());
    files.put("a.json", &a);
    let fixed = ["--design", "zone-lock,freehold", "--set", "pcp=fixed"];
    files.put("fixed.json", &document(&[&SIMULATED[..], &fixed].concat()));
    let (code, stdout, _) = files.diff("a.json", "fixed.json", &[]);
    assert_eq!(code, 0, "{stdout}");
    for (file, settings) in [("a.json", "pcp=auto, not fixed"), ("fixed.json", "pcp=fixed, not a")]
    {
        // The path may be longer than the line.
        let text = stdout.replace('\n', " ");
        let words = format!("{file}: zone-lock in page-fault on uma-2, 1 CPU ({settings}");
        assert!(text.contains(&words), "{words}: {stdout}");
    }
    let (_, diff) = files.diff_json("a.json", "fixed.json", &[]);
    let missing = |side: &str| diff[side].as_array().unwrap().len();
    assert_eq!((missing("only_in_a"), missing("only_in_b")), (2, 2), "{diff}");
    assert_eq!(diff["only_in_a"][0]["cell"]["settings"]["pcp"], "auto");

    // A setting that only one version of the program has does not keep cells apart.
    files.put("new.json", &a);
    a["results"][0]["settings"]["added"] = json!("later");
    files.put("later.json", &a);
    let (_, diff) = files.diff_json("new.json", "later.json", &[]);
    assert_eq!((&diff["only_in_a"], &diff["only_in_b"]), (&json!([]), &json!([])));

    // A contestant that has failed has no figure.
    let mut failed = race(&[("freehold", STEADY), ("bad", STEADY)]);
    files.put("ok.json", &failed);
    failed["results"][1].as_object_mut().unwrap().remove("pair_ns");
    files.put("failed.json", &failed);
    let (_, stdout, _) = files.diff("ok.json", "failed.json", &[]);
    assert!(stdout.contains("ok.json: pair ns of bad in fill, 1 thread"), "{stdout}");
}

#[test]
fn documents_that_cannot_be_compared_are_refused_with_the_remedy() {
    let files = Files::new();
    files.put("race.json", &race(&[("freehold", STEADY)]));
    files.put("other.json", &race(&[("zone-lock", STEADY)]));
    files.put("twice.json", &race(&[("freehold", STEADY), ("freehold", STEADY)]));
    files.put("run.json", &document(&SIMULATED));
    files.put("old.json", &json!({"schema": "freehold.race/1", "results": []}));
    fs::write(files.path("text.json"), "faults/s 17").unwrap();
    for (a, b, code, file, words) in [
        ("none.json", "race.json", 2, "none.json", "cannot read it: No such file"),
        ("text.json", "race.json", 1, "text.json", "no document of freehold: store what"),
        ("race.json", "text.json", 1, "text.json", "no document of freehold: store what"),
        ("race.json", "old.json", 1, "old.json", "its schema is \"freehold.race/1\": give"),
        ("race.json", "run.json", 1, "run.json", "give two documents of one command"),
        (
            "twice.json",
            "race.json",
            1,
            "twice.json",
            "has freehold in fill, 1 thread, memory 1.5x tw",
        ),
        ("race.json", "other.json", 1, "other.json", "no cell in common, such as freehold in fill"),
    ] {
        let error = files.refused(a, b, code);
        assert!(error.contains(file) && error.contains(words), "{file}: {words}: {error}");
    }
    // Another machine or another schedule is another cell.
    let seed = ["--set", "node_memory=64MiB", "--seed=2"];
    for (name, given) in [("memory", &["--set", "node_memory=128MiB"][..]), ("seed", &seed)] {
        files.put(name, &document(&[&SIMULATED[..8], given].concat()));
    }
    files.put("a.json", &document(&SIMULATED));
    let error = files.refused("a.json", "memory", 1);
    assert!(error.contains("(node_bytes=") && error.contains(", not 134217728)"), "{error}");
    let error = files.refused("a.json", "seed", 1);
    assert!(error.contains("freehold in page-fault on uma-2, 1 CPU, seed 2"), "{error}");
    for threshold in ["5", "x%", "-1%", "nan%", "%", "1e9%"] {
        let argument = format!("--threshold={threshold}");
        let (code, _, stderr) = files.diff("race.json", "race.json", &[&argument]);
        assert_eq!(code, 2, "{threshold}: {stderr}");
        assert!(stderr.contains("write, for example, 5%"), "{threshold}: {stderr}");
    }
}

#[test]
fn other_programs_and_slower_machines_are_pointed_out() {
    let files = Files::new();
    let mut other = race(&[("freehold", STEADY)]);
    files.put("a.json", &other);
    other["profile"] = json!("debug");
    other["lock_pair_ns"] = json!(12.0);
    files.put("b.json", &other);
    let (_, stdout, _) = files.diff("a.json", "b.json", &[]);
    assert!(stdout.contains("profile release, B with debug."), "{stdout}");
    assert!(stdout.contains("lock pair took 6.00 ns in A, 12.0 ns in B."), "{stdout}");
    let (_, stdout, _) = files.diff("a.json", "a.json", &[]);
    assert!(!stdout.contains("The programs differ"), "{stdout}");
}
