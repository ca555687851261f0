//! `--csv`: one table, whatever the command.

use std::collections::HashMap;

use serde_json::Value;

use crate::common::{SIMULATED, document, freehold, stdout};

/// The rows of a command's table, by heading. Fails if a row has more or fewer cells than headings.
fn rows(arguments: &[&str]) -> Vec<HashMap<String, String>> {
    let text = stdout(freehold(&[arguments, &["--csv"]].concat()));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<_> = reader.deserialize().collect::<Result<_, _>>().expect(&text);
    assert!(!rows.is_empty(), "{arguments:?}");
    rows
}

fn number(cell: &str) -> f64 {
    cell.parse().unwrap_or_else(|error| panic!("{cell:?}: {error}"))
}

#[test]
fn a_run_has_a_row_a_cell_with_the_figures_of_the_document() {
    let (rows, document) = (rows(&SIMULATED), document(&SIMULATED));
    let results = document["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, result) in rows.iter().zip(results) {
        for name in ["workload", "design", "machine"] {
            assert_eq!(result[name], row[name], "{name}");
        }
        for (name, at) in [
            ("cpus", "/cpus"),
            ("per_second", "/work/per_second"),
            ("alloc_ns", "/workload_specific/calls/alloc/mean_ns"),
            ("zone_lock_wait_share", "/time_share/zone_lock"),
            ("irq_off_max_ns", "/irq_off/ns_max"),
        ] {
            // In full: not one digit is lost.
            let there = result.pointer(at).and_then(Value::as_f64);
            let here = Some(&row[name]).filter(|cell| !cell.is_empty()).map(|cell| number(cell));
            assert_eq!(here, there, "{name}");
        }
        assert!(row["options"].contains("task_bytes=1MiB "), "{row:?}");
        assert_eq!((&*row["unit"], &*row["seed"], &*row["profile"]), ("faults", "1", ""));
    }
}

#[test]
fn bulk_has_a_row_a_step() {
    let small = ["--cpus", "1", "--set", "rounds=1", "--set", "round_frames=500"];
    let rows = rows(&[&["run", "bulk", "--design", "zone-lock,freehold"][..], &small].concat());
    assert_eq!(rows.len(), 4 * 9 + 9, "four ways of locking and counting, and one");
    assert_eq!(rows[0]["variant"], "locking=irq counters=exact");
    assert_eq!((&*rows[8]["step"], &*rows[44]["step"]), ("128", "128"));
    for row in rows {
        assert!(number(&row["single_ns"]) > 0.0 && number(&row["pair_ns"]) > 0.0, "{row:?}");
    }
}

#[test]
fn compare_adds_contestants_and_ratios() {
    let small = ["--set", "task_bytes=1MiB", "--set", "node_memory=64MiB"];
    let arguments = ["compare", "page-fault", "--machine", "uma-2", "--no-host", "--seeds", "1"];
    let rows = rows(&[&arguments[..], &["--design", "zone-lock,freehold"], &small].concat());
    let contestants: Vec<_> = rows.iter().map(|row| row["contestant"].as_str()).collect();
    assert_eq!(contestants, ["zone-lock pcp=auto", "freehold", "zone-lock pcp=fixed"]);
    assert_eq!(rows[0]["ratio_to_baseline"], "1");
    let ratio = number(&rows[1]["per_second"]) / number(&rows[0]["per_second"]);
    assert_eq!(number(&rows[1]["ratio_to_baseline"]), ratio);
    let mut places: Vec<_> = rows.iter().map(|row| row["place"].as_str()).collect();
    places.sort_unstable();
    assert_eq!(places, ["1", "2", "3"]);
}

#[test]
fn a_race_has_a_row_a_contestant_and_heat() {
    let small = ["--threads", "1", "--rounds", "1", "--frames", "64", "--sample-ms", "0"];
    let rows = rows(
        &[&["race", "fill", "bulk", "--contestants", "zone-lock,freehold"][..], &small].concat(),
    );
    assert_eq!(rows.len(), 2 * 2 * 2, "two benches, two sizes of memory, two contestants");
    for row in rows {
        let [get, put, pair] = ["get_ns", "put_ns", "pair_ns"].map(|name| number(&row[name]));
        assert!((get + put - pair).abs() < 1e-6, "{row:?}");
        assert_eq!((&*row["referee"], &*row["best_peer"]), ("ok", ""), "{row:?}");
    }
}

#[test]
fn lists_have_the_rows_of_their_documents() {
    for what in ["workloads", "designs", "machines", "settings", "benches", "peers"] {
        let document = document(&["list", what]);
        let rows = rows(&["list", what]);
        assert_eq!(rows.len(), document.as_array().unwrap().len(), "{what}");
        assert_eq!(document[0]["name"], rows[0]["name"], "{what}");
        assert_eq!(document[0]["description"], rows[0]["description"], "{what}");
    }
    let figures = rows(&["list", "machines", "--details"]);
    let latency = figures.iter().find(|row| row["unit"] == "ns").unwrap();
    assert!(number(&latency["value"]) > 0.0 && !latency["source"].is_empty(), "{latency:?}");
}
