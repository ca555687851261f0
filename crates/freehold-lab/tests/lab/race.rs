//! `freehold race` as a user runs it: its JSON, its table, plug-ins that are right, and plug-ins
//! that are wrong in every way.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::available_parallelism;

use crate::common::profile;
use serde_json::Value;

/// As little as there can be.
const TINY: [&str; 6] = ["--rounds", "2", "--frames", "128", "--sample-ms", "0"];

const BENCHES: [&str; 8] = ["pair", "fill", "random", "remote", "bulk", "huge", "mixed", "churn"];

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

/// Compiles a peer; `None`, and a loud word, if there is no compiler.
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

/// Checks that a row is as the schema says, for a contestant without a fault.
fn check_row(row: &Value) {
    let bench = row["bench"].as_str().unwrap();
    assert!(BENCHES.contains(&bench), "{row}");
    assert!(row["threads"].as_u64().is_some_and(|threads| threads > 0), "{row}");
    assert_eq!(row["referee"], "ok", "{row}");
    let positive = |field: &str| row[field].as_f64().is_some_and(|number| number > 0.0);
    assert!(positive("pair_ns") && positive("lock_pairs"), "{row}");
    // Only both ways together have a time where a frame is given back at once.
    let apart = !["pair", "churn"].contains(&bench);
    for field in ["get_ns", "put_ns", "get_lock_pairs", "put_lock_pairs"] {
        assert_eq!(positive(field), apart, "{field}: {row}");
        assert_eq!(row.get(field).is_some(), apart, "{field}: {row}");
    }
    let known = [
        "bench",
        "contestant",
        "threads",
        "get_ns",
        "put_ns",
        "pair_ns",
        "get_lock_pairs",
        "put_lock_pairs",
        "lock_pairs",
        "ratio_to_freehold",
        "ratio_spread",
        "referee",
        "note",
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
    assert_eq!(document["schema"], "freehold.race/1");
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
        let single_cpu = threads() == "1" && bench == "remote";
        let expected = if single_cpu { 1 } else { 4 * threads().split(',').count() };
        assert_eq!(of_bench.count() + skipped.count(), expected, "{bench}: {document}");
    }
    let note = |contestant: &str, bench: &str| {
        let is = |row: &&Value| row["contestant"] == contestant && row["bench"] == bench;
        rows(&document).iter().find(is).unwrap()["note"].clone()
    };
    assert_eq!(note("bitmap-allocator", "bulk"), "it has no bulk calls: 64 single ones");
    assert_eq!(note("zone-lock", "bulk"), Value::Null);
    assert_ne!(note("host-kernel", "fill"), Value::Null);
}

#[test]
fn the_table_fits_and_says_what_it_shows() {
    let contestants = "zone-lock,host-kernel";
    let output = race(&["fill", "churn", "--contestants", contestants, "--threads", "1"]);
    let stdout = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    for part in [
        "zone-lock",
        &format!("Measured on this host with profile {}: medians of 2 rounds", profile()),
        "Left out: host-kernel in churn: it has no memory of its own that could be full",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
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
        assert_eq!(of("bulk").unwrap()["note"], "it has no bulk calls: 64 single ones");
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
    // Not an error where no malloc is named.
    let all = race(&["fill", "--json", "--threads", "1"]);
    assert!(all.status.success(), "{all:?}");
    let document = document(&all);
    let raced = |name: &str| rows(&document).iter().any(|row| row["contestant"] == name);
    assert!(raced("host-kernel") && !raced("mimalloc") && !raced("jemalloc"), "{document}");
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
    for bench in BENCHES.into_iter().filter(|bench| !["mixed", "remote"].contains(bench)) {
        let of_bench = own.iter().filter(|row| row["bench"] == bench);
        assert_eq!(of_bench.count(), threads().split(',').count(), "{bench}");
    }
    own.into_iter().for_each(check_row);
    // It has orders 0 and 9 only.
    let left_out =
        |skip: &Value| skip["contestant"] == "spinlock-stack" && skip["bench"] == "mixed";
    assert!(document["skipped"].as_array().unwrap().iter().any(left_out), "{document}");
}

const BAD: &str = "crates/freehold-lab/tests/peers/bad.c";

#[test]
fn a_peer_that_cheats_is_reported() {
    for (fault, benches, reason) in [
        ("TWICE", &["fill"][..], "twice"),
        ("LOSES", &["fill", "pair"], "were not to be had again"),
        ("OUTSIDE", &["fill"], "but manages"),
        ("MISALIGNED", &["huge"], "out of line"),
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
    assert_eq!(rows(&document).len(), 2, "{document}");
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
