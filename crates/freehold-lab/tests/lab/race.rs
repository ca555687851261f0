//! `freehold race` as a user runs it: its JSON, its table, valid plug-ins, and plug-ins that are
//! invalid in every way.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::available_parallelism;

use crate::common::profile;
use serde_json::Value;

/// The smallest possible race.
const TINY: [&str; 6] = ["--rounds", "2", "--frames", "128", "--sample-ms", "0"];

const BENCHES: [&str; 10] =
    ["pair", "cold", "fill", "random", "remote", "bulk", "order3", "huge", "mixed", "churn"];

/// The sizes of memory that are raced by default.
const MEMORIES: [f64; 2] = [1.5, 16.0];

fn race(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.arg("race").args(TINY).args(arguments).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("what is printed is text")
}

/// The document of a race, whatever its exit code.
fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn rows(document: &Value) -> &Vec<Value> {
    document["results"].as_array().expect("results are a list")
}

/// A path of the repository, from its root.
fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Compiles a peer; `None`, with a warning, if there is no compiler.
fn compile(source: &str, fault: Option<&str>) -> Option<PathBuf> {
    let name = fault.unwrap_or("none");
    let stem = Path::new(source).file_stem().expect("a file").to_string_lossy().into_owned();
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{stem}_{name}.so"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]);
    compiler.args(fault.map(|fault| format!("-D{fault}")));
    compiler.arg("-I").arg(root("include")).arg("-o").arg(&library).arg(root(source));
    match compiler.output() {
        Err(error) => {
            eprintln!("SKIPPED: no peer can be compiled without `cc`: {error}");
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{source}: {}", text(&output.stderr));
            Some(library)
        }
    }
}

/// Threads that this machine has CPUs for.
fn threads() -> &'static str {
    if available_parallelism().is_ok_and(|cpus| cpus.get() > 1) { "1,2" } else { "1" }
}

/// Checks a row against the schema, for a contestant without a fault.
fn check_row(row: &Value) {
    let bench = row["bench"].as_str().unwrap();
    assert!(BENCHES.contains(&bench), "{row}");
    assert!(row["threads"].as_u64().is_some_and(|threads| threads > 0), "{row}");
    assert!(MEMORIES.contains(&row["memory"].as_f64().unwrap()), "{row}");
    assert_eq!(row["referee"], "ok", "{row}");
    let positive = |field: &str| row[field].as_f64().is_some_and(|number| number > 0.0);
    assert!(positive("pair_ns") && positive("lock_pairs"), "{row}");
    let samples = row["samples_pair_ns"].as_array().unwrap().iter().filter_map(Value::as_f64);
    let mut samples: Vec<_> = samples.collect();
    samples.sort_by(f64::total_cmp);
    let middle = (samples[(samples.len() - 1) / 2] + samples[samples.len() / 2]) / 2.0;
    let is_middle = |ns: f64| (ns - middle).abs() <= 1e-9 * middle;
    assert!(row["pair_ns"].as_f64().is_some_and(is_middle), "the median of its samples: {row}");
    // If a frame is freed at once, only both ways together have a time.
    let apart = !["pair", "churn"].contains(&bench);
    for field in ["get_ns", "put_ns", "get_lock_pairs", "put_lock_pairs"] {
        assert_eq!(positive(field), apart, "{field}: {row}");
        assert_eq!(row.get(field).is_some(), apart, "{field}: {row}");
    }
    if apart {
        let number = |field: &str| row[field].as_f64().unwrap();
        let adds_up = |get: &str, put: &str, pair: &str| {
            (number(get) + number(put) - number(pair)).abs() <= 1e-9 * number(pair)
        };
        assert!(adds_up("get_ns", "put_ns", "pair_ns"), "{row}");
        assert!(adds_up("get_lock_pairs", "put_lock_pairs", "lock_pairs"), "{row}");
    }
    let known = [
        "bench",
        "contestant",
        "threads",
        "memory",
        "get_ns",
        "put_ns",
        "pair_ns",
        "samples_pair_ns",
        "get_lock_pairs",
        "put_lock_pairs",
        "lock_pairs",
        "ratio_to_freehold",
        "ratio_spread",
        "best_peer",
        "ratio_to_best_peer",
        "best_peer_spread",
        "referee",
        "notes",
    ];
    assert!(row.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{row}");
}

#[test]
fn the_document_is_as_its_schema_says() {
    let contestants = "zone-lock,buddy_system_allocator,bitmap-allocator,host-kernel";
    let output = race(&["--json", "--contestants", contestants, "--threads", threads()]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "nothing but results: {output:?}");
    let document = document(&output);
    assert_eq!(document["schema"], "freehold.race/2");
    assert_eq!(document["machine"], "host");
    assert_eq!(document["profile"], profile());
    assert_eq!((&document["rounds"], &document["frames"]), (&2.into(), &128.into()));
    for yard in ["lock_pair_ns", "vec_pair_ns"] {
        assert!(document[yard].as_f64().is_some_and(|ns| ns > 0.0), "{yard}");
    }
    rows(&document).iter().for_each(check_row);
    for bench in BENCHES {
        let of_bench = rows(&document).iter().filter(|row| row["bench"] == bench);
        let skipped = document["skipped"].as_array().unwrap();
        let skipped = skipped.iter().filter(|skip| skip["bench"] == bench);
        let heats = MEMORIES.len() * threads().split(',').count();
        let expected = match bench {
            "remote" if threads() == "1" => heats,
            // With the larger memory it is left out as a whole.
            "churn" => 5 * heats / 2,
            _ => 4 * heats,
        };
        assert_eq!(of_bench.count() + skipped.count(), expected, "{bench}: {document}");
    }
    let notes = |contestant: &str, bench: &str| {
        let is = |row: &&Value| row["contestant"] == contestant && row["bench"] == bench;
        rows(&document).iter().find(is).unwrap()["notes"].clone()
    };
    assert_eq!(notes("bitmap-allocator", "bulk")[0], "it has no bulk calls: 64 single ones");
    assert_eq!(notes("zone-lock", "bulk"), Value::Null);
    let bitmap = notes("bitmap-allocator", "fill")[0].clone();
    assert_eq!(bitmap, "of type BitAlloc64K, with bits for 2^16 frames");
    assert_ne!(notes("host-kernel", "fill"), Value::Null);

    let metadata = document["metadata"].as_array().unwrap();
    let sizes = |contestant: &str| -> Vec<_> {
        let of = metadata.iter().filter(|row| row["contestant"] == contestant);
        of.map(|row| row["frame_metadata_bytes"].as_f64().unwrap()).collect()
    };
    assert!(sizes("zone-lock").iter().all(|bytes| (16.0..64.0).contains(bytes)), "{document}");
    assert!(sizes("bitmap-allocator").iter().all(|bytes| (0.1..8.0).contains(bytes)), "{document}");
    assert_eq!((sizes("zone-lock").len(), sizes("bitmap-allocator").len()), (2, 2));
    assert_eq!((sizes("host-kernel"), sizes("buddy_system_allocator")), (vec![], vec![]));
    assert!(document.get("standing").is_none(), "freehold takes no part: {document}");
}

#[test]
fn freehold_stands_against_the_best_peer_of_each_row() {
    let benches = ["fill", "cold", "order3"];
    let contestants = "freehold,freehold-lease,zone-lock,bitmap-allocator,host-kernel";
    let options = ["--contestants", contestants, "--threads", "1", "--memory", "1.5", "--json"];
    let document = document(&race(&[&benches[..], &options].concat()));
    for bench in benches {
        let of_bench: Vec<_> = rows(&document).iter().filter(|row| row["bench"] == bench).collect();
        let pair_ns = |of: &Value| {
            let row = of_bench.iter().find(|row| row["contestant"] == *of).unwrap();
            row["pair_ns"].as_f64().unwrap()
        };
        let best = &of_bench[0]["best_peer"];
        let least = pair_ns(&"bitmap-allocator".into()).min(pair_ns(&"host-kernel".into()));
        assert_eq!(pair_ns(best), least, "{document}");
        for row in of_bench {
            check_row(row);
            assert_eq!(row["best_peer"], *best);
            let is_best = row["contestant"] == *best;
            assert_eq!(row["ratio_to_best_peer"] == 1.0, is_best, "{row}");
            assert!(row["best_peer_spread"].as_f64().is_some_and(|spread| spread >= 0.0));
        }
    }
    let standing = document["standing"].as_array().unwrap();
    let of: Vec<_> = standing.iter().map(|of| (&of["contestant"], &of["against"])).collect();
    let [lease, own] = [("freehold-lease", "freehold"), ("freehold", "the best peer")];
    let expected = [lease, own].map(|(one, other)| (Value::from(one), Value::from(other)));
    assert_eq!(of, expected.each_ref().map(|(one, other)| (one, other)));
    for standing in standing {
        let lost = standing["lost"].as_array().unwrap().len() as u64;
        let all = standing["won"].as_u64().unwrap() + standing["tied"].as_u64().unwrap() + lost;
        assert_eq!(all, 3, "a row each: {standing}");
    }

    // Without a peer there is no comparison.
    let options = ["fill", "--contestants", "freehold,zone-lock", "--threads", "1", "--json"];
    let document = self::document(&race(&options));
    assert!(document.get("standing").is_none(), "{document}");
    assert!(rows(&document).iter().all(|row| row.get("best_peer").is_none()), "{document}");
}

#[test]
fn the_table_fits_and_says_what_it_shows() {
    let contestants = "freehold,zone-lock,bitmap-allocator,host-kernel";
    let output = race(&["fill", "churn", "--contestants", contestants, "--threads", "1"]);
    let stdout = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let heading = format!("Measured on this host with profile {}: medians of 2 rounds", profile());
    assert!(stdout.starts_with(&heading), "{stdout}");
    for part in [
        "zone-lock",
        "\nfill, 1 thread, memory 1.5x; best peer: ",
        "\nfill, 1 thread, memory 16x; best peer: ",
        "\nchurn, 1 thread, memory 1.5x; best peer: bitmap-allocator\n",
        "* bitmap-allocator: of type BitAlloc64K",
        "metadata, bytes a frame",
        "Left out: host-kernel in churn: it has no memory of its own that could be full",
        "Left out: churn, 1 thread, memory 16x: it fills the memory",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let standing = stdout.rfind("\nfreehold against the best peer: ").expect(&stdout);
    assert!(!stdout[standing..].contains("Left out"), "it comes last: {stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 100), "{stdout}");
}

#[cfg(feature = "mallocs")]
#[test]
fn the_mallocs_race() {
    let output = race(&["--json", "--contestants", "mimalloc,jemalloc", "--threads", threads()]);
    assert!(output.status.success(), "{output:?}");
    let document = document(&output);
    rows(&document).iter().for_each(check_row);
    for malloc in ["mimalloc", "jemalloc"] {
        let of = |bench: &str| {
            let is = |row: &&Value| row["contestant"] == malloc && row["bench"] == bench;
            rows(&document).iter().find(is)
        };
        assert!(of("fill").is_some(), "{malloc}: {document}");
        assert_eq!(of("bulk").unwrap()["notes"][0], "it has no bulk calls: 64 single ones");
        assert!(of("churn").is_none(), "{malloc} has no memory of its own that could be full");
    }
}

#[cfg(not(feature = "mallocs"))]
#[test]
fn a_malloc_that_was_not_built_in_is_named_with_its_feature() {
    for malloc in ["mimalloc", "jemalloc"] {
        let output = race(&["fill", "--contestants", &format!("zone-lock,{malloc}")]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr.contains(&format!("--contestants {malloc}: ")), "{stderr}");
        assert!(stderr.contains("build it with --features mallocs"), "{stderr}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
    // Not an error if no malloc is named.
    let all = race(&["fill", "--json", "--threads", "1"]);
    assert!(all.status.success(), "{all:?}");
    let document = document(&all);
    let raced = |name: &str| rows(&document).iter().any(|row| row["contestant"] == name);
    assert!(raced("host-kernel") && !raced("mimalloc") && !raced("jemalloc"), "{document}");
}

#[test]
fn two_peers_race_and_one_of_them_twice_is_a_mistake() {
    // Separate libraries, since other tests compile the same sources meanwhile.
    let Some(stack) = compile("examples/peers/spinlock_stack.c", Some("TWO_PEERS")) else { return };
    let Some(other) = compile(BAD, Some("NO_FAULT")) else { return };
    let [stack, other] = [&stack, &other].map(|library| library.to_str().unwrap());
    let options = ["fill", "--contestants", "zone-lock", "--threads", "1", "--memory", "1.5"];
    let peers = ["--peer", stack, "--peer", other];
    let output = race(&[&options[..], &peers, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let document = document(&output);
    let names: Vec<_> = rows(&document).iter().map(|row| row["contestant"].clone()).collect();
    assert_eq!(names, ["zone-lock", "spinlock-stack", "bad"]);
    rows(&document).iter().for_each(check_row);

    let output = race(&[&options[..], &peers, &["--peer", stack]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let reason = "there is another contestant named spinlock-stack";
    assert!(text(&output.stderr).contains(reason), "{output:?}");
}

#[test]
fn the_example_peer_races() {
    let Some(library) = compile("examples/peers/spinlock_stack.c", None) else { return };
    let library = library.to_str().unwrap();
    let arguments = ["--contestants", "zone-lock", "--threads", threads(), "--peer", library];
    let output = race(&[&arguments[..], &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let document = document(&output);
    let own: Vec<_> =
        rows(&document).iter().filter(|row| row["contestant"] == "spinlock-stack").collect();
    for bench in BENCHES.into_iter().filter(|bench| !["mixed", "remote", "order3"].contains(bench))
    {
        let of_bench = own.iter().filter(|row| row["bench"] == bench);
        let memories = if bench == "churn" { 1 } else { MEMORIES.len() };
        assert_eq!(of_bench.count(), memories * threads().split(',').count(), "{bench}");
    }
    own.into_iter().for_each(check_row);
    // It has only orders 0 and 9.
    for (bench, reason) in [
        ("mixed", "it lacks some of the orders asked for"),
        ("order3", "it has no blocks of order 3"),
    ] {
        let left_out = |skip: &Value| {
            let of_bench = skip["contestant"] == "spinlock-stack" && skip["bench"] == bench;
            of_bench && skip["reason"] == reason
        };
        assert!(document["skipped"].as_array().unwrap().iter().any(left_out), "{document}");
    }
}

const BAD: &str = "crates/freehold-lab/tests/peers/bad.c";

#[test]
fn a_peer_that_cheats_is_reported() {
    for (fault, benches, reason) in [
        ("TWICE", &["fill"][..], "twice"),
        ("LOSES", &["fill", "pair"], "could not be allocated again"),
        ("OUTSIDE", &["fill"], "but manages"),
        ("MISALIGNED", &["huge"], "misaligned"),
    ] {
        let Some(library) = compile(BAD, Some(fault)) else { return };
        // Often enough for those that cheat once in a thousand calls.
        let library = ["--frames", "4096", "--peer", library.to_str().unwrap()];
        let honest = ["--contestants", "zone-lock", "--threads", "1"];
        let arguments = [benches, &honest, &library].concat();
        let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
        command.args(["race", "--rounds", "2", "--sample-ms", "0", "--json"]).args(&arguments);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{fault}: {output:?}");
        assert_eq!(text(&output.stderr), "error: the referee has found a fault in bad\n");
        let document = document(&output);
        for row in rows(&document) {
            if row["contestant"] == "bad" {
                assert!(row["referee"].as_str().unwrap().contains(reason), "{fault}: {row}");
                assert!(row.get("pair_ns").is_none(), "a cheat has no figures: {row}");
            } else {
                check_row(row);
            }
        }
    }
}

#[test]
fn without_a_fault_the_same_peer_passes() {
    let Some(library) = compile(BAD, None) else { return };
    let library = library.to_str().unwrap();
    let arguments = ["fill", "--contestants", "zone-lock", "--threads", "1", "--peer", library];
    let output = race(&[&arguments[..], &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let document = document(&output);
    assert_eq!(rows(&document).len(), 2 * MEMORIES.len(), "{document}");
    rows(&document).iter().for_each(check_row);
}

#[test]
fn a_library_that_is_wrong_is_named_with_its_fault() {
    for (fault, reason) in [
        ("VERSION", "has version 2 of the peer interface, this program version 1"),
        ("NO_SYMBOL", "exports no symbol `freehold_peer`"),
        ("NO_FREE", "the field `free` of the library's table is missing"),
        ("CRASHES", "crashed while it was loaded and tried (signal 11)"),
        ("CRASHES_IN_CREATE", "crashed while it was loaded and tried (signal 6)"),
        ("EXITS", "ended the process while it was loaded and tried (exit code 0)"),
        ("REFUSES", "`create` returned NULL"),
        ("CLASHES", "there is another contestant named mimalloc"),
    ] {
        let Some(library) = compile(BAD, Some(fault)) else { return };
        let library = library.to_str().unwrap();
        let output = race(&["fill", "--peer", library]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{fault}: {output:?}");
        assert!(stderr.starts_with(&format!("error: --peer {library}: ")), "{fault}: {stderr}");
        assert!(stderr.contains(reason), "{fault}: {stderr}");
        assert!(output.stdout.is_empty(), "{fault}: {output:?}");
    }
}
