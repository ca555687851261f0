//! `freehold record`, `import`, `trace info` and `replay`, as a user types them.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{fails, freehold, json, succeeds};

/// The recording of a real compile that comes with the project.
fn compile() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("examples/traces/compile.fht").display().to_string()
}

/// A folder, and a path in it.
fn place(name: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join(name).display().to_string();
    (folder, path)
}

const FTRACE: &str = "\
# tracer: nop
 a-1 [000] d.h1. 5.000001: mm_page_alloc: page=0x1 pfn=0x8 order=2 migratetype=1 gfp_flags=GFP_NOFS
 a-1 [000] ..... 5.000002: sched_switch: prev_comm=a
 b-2 [001] ..... 5.000003: mm_page_free: page=0x1 pfn=0x9 order=0
CPU:1 [LOST 3 EVENTS]
 b-2 [001] ..... 5.000004: mm_page_free: page=0x1 pfn=0x8 order=0
 b-2 [001] ..... 5.000005: mm_page_free: page=0x1 pfn=0xa order=1
 b-2 [001] ..... 5.000006: mm_page_free: page=0x1 pfn=0x40 order=0
";

fn imported() -> (TempDir, String) {
    let (folder, text) = place("trace.txt");
    fs::write(&text, FTRACE).expect("the text can be written");
    let trace = folder.path().join("a.fht").display().to_string();
    let told = succeeds(&["import", &text, "-o", &trace]);
    assert!(told.contains("6 events, 3 lost; 1 of other kinds"), "{told}");
    (folder, trace)
}

#[test]
fn text_becomes_a_recording_that_says_what_it_has() {
    let (_folder, trace) = imported();
    let info = json(&["trace", "info", &trace, "--json"]);
    let summary = &info["summary"];
    assert_eq!(summary["allocations_by_order"], serde_json::json!([0, 0, 1]));
    assert_eq!(summary["frees_of_unknown"], 1);
    assert_eq!(summary["events_in_interrupts"], 1);
    assert_eq!(info["header"]["machine"]["cpus"], serde_json::json!([0, 1]));
    assert_eq!(info["trailer"]["elapsed_ns"], 5000);
    let text = succeeds(&["trace", "info", &trace]);
    assert!(text.contains("LOST: 3 events, in 1 gaps"), "{text}");
}

#[test]
fn a_recording_is_replayed_block_by_block() {
    let (_folder, trace) = imported();
    for machine in ["host", "uma-2"] {
        let design = ["--design", "freehold,zone-lock", "--machine", machine];
        let replay = [&["replay", &trace, "--json", "--set", "rounds=1"], &design[..]].concat();
        for result in json(&replay)["results"].as_array().expect("a list") {
            let own = &result["workload_specific"];
            // One allocation, three frees of its parts, and one of a frame from before.
            assert_eq!(result["work"]["count"], 5, "{result}");
            assert_eq!(own["recording"]["frees_from_before"], 1);
            assert_eq!((&own["refused"], &own["copies"]), (&0.into(), &1.into()));
        }
    }
}

#[test]
fn copies_of_the_recorded_cpus_run_side_by_side() {
    let trace = compile();
    let arguments = ["replay", &trace, "--machine", "uma-8", "--scale", "4", "--events", "20000"];
    let designs = ["--design", "freehold,cluster", "--json", "--set", "memory=512MiB"];
    let run = || succeeds(&[&arguments[..], &designs].concat());
    let text = run();
    assert_eq!(text, run(), "one seed, one result");
    let document: Value = serde_json::from_str(&text).expect("it is JSON");
    let results = document["results"].as_array().expect("a list");
    assert_eq!(results.len(), 2);
    for result in results {
        let own = &result["workload_specific"];
        let recorded = &own["recording"];
        assert_eq!((&result["cpus"], &own["copies"]), (&8.into(), &4.into()));
        assert!(recorded["left_out"].as_u64() > Some(200_000), "{recorded}");
        // The copies keep to the recorded times: none is faster.
        let ns = |field: &str| own[field].as_u64().expect("a number");
        assert!(ns("replayed_ns") >= ns("recorded_ns") * 9 / 10, "{own}");
        let looks = own["looks"].as_array().expect("a list");
        assert!(looks.len() > 10 && looks.len() <= 21, "{} looks", looks.len());
    }
    let count = |at: usize| &results[at]["work"]["count"];
    assert_eq!(count(0), count(1), "both designs make the same calls");
}

#[test]
fn the_recording_of_the_project_is_what_its_page_says() {
    let info = json(&["trace", "info", &compile(), "--json"]);
    assert_eq!(info["summary"]["events"]["mm_page_alloc"], 78_577);
    assert_eq!(info["trailer"]["lost"], serde_json::json!({}));
    assert!(info["bytes"].as_u64() < Some(2 << 20));
    assert!(info["header"]["machine"]["kernel"].as_str().is_some_and(|name| !name.is_empty()));
}

/// A text of perf: a loss, a line that a mail program has broken, and no free.
const PERF: &str = "\
a 1 [700] 5.000001: kmem:mm_page_alloc: pfn=0x8 order=0 migratetype=1 gfp_flags=GFP_NOFS
a 1/1 [700] 5.000002: PERF_RECORD_LOST lost 812
a 1 [700] 5.000003: kmem:mm_page_alloc: pfn=0x9 order=0 migratetype=1
 gfp_flags=GFP_NOFS
";

#[test]
fn what_is_left_out_or_cannot_be_is_said() {
    let (folder, text) = place("perf.txt");
    fs::write(&text, PERF).expect("the text can be written");
    let trace = folder.path().join("a.fht").display().to_string();
    let told = fails(&["import", &text, "-o", &trace], 1);
    assert!(told.contains("line 3: it has no gfp_flags="), "{told}");
    let read = freehold(&["import", &text, "-o", &trace, "--skip-bad", "--json"]);
    let told = String::from_utf8_lossy(&read.stderr);
    for words in [
        "warning: ",
        "perf.txt: 1 bad lines were left out; line 3: it has no gfp_flags=\n",
        "perf.txt: 1 allocations and no free: record kmem:mm_page_free as well\n",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let document: Value = serde_json::from_slice(&read.stdout).expect("it is JSON");
    assert_eq!((&document["bad_lines"], &document["events"]), (&1.into(), &2.into()));
    assert_eq!(document["lost"]["700"]["overrun"], 812);
    assert_eq!(document["doubts"].as_array().map(Vec::len), Some(1));
    assert_eq!(read.status.code(), Some(0));
}

#[test]
fn a_recording_of_more_cpus_than_there_are_names_a_machine() {
    let (folder, text) = place("many.txt");
    let alloc = PERF.lines().next().expect("it has a line");
    let many: Vec<_> = (0..113).map(|cpu| alloc.replace("700", &cpu.to_string())).collect();
    fs::write(&text, many.join("\n")).expect("the text can be written");
    let trace = folder.path().join("a.fht").display().to_string();
    succeeds(&["import", &text, "-o", &trace]);
    let told = fails(&["replay", &trace, "--machine", "uma-8"], 2);
    assert!(told.contains("113 recorded ones, but uma-8 has 8: name a larger machine"), "{told}");
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 113) {
        let told = fails(&["replay", &trace], 2);
        assert!(told.contains("but this process has"), "{told}");
        assert!(told.contains("such as --machine "), "{told}");
    }
}

#[test]
fn mistakes_are_named() {
    let (folder, trace) = imported();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("a file can be written");
        path.display().to_string()
    };
    let good = fs::read(&trace).expect("the recording is there");
    let mut damaged = good.clone();
    *damaged.last_mut().expect("it is not empty") ^= 1;
    let foreign = file("foreign.fht", b"#!/bin/sh\n");
    let short = file("short.fht", &good[..good.len() - 1]);
    let damaged = file("damaged.fht", &damaged);
    let empty = file("empty.txt", b"nothing\n");
    let binary = file("perf.data", b"PERFILE2\x68\0");
    let output = file("out.fht", b"");
    for (arguments, code, words) in [
        (&["trace", "info", &foreign][..], 1, "foreign.fht: this is no recording of freehold's"),
        (&["replay", &short], 1, "short.fht: the file is cut short"),
        (&["replay", &damaged], 1, "the checksum of the part that begins here is wrong"),
        (&["trace", "info", "/nonexistent"], 1, "/nonexistent: No such file"),
        (&["import", &empty, "-o", &output], 1, "there are no events such as mm_page_alloc"),
        (&["import", &binary, "-o", &output], 1, "perf.data: this is perf's own file, not text"),
        (&["replay", &trace, "--machine", "uma-2", "--scale", "2"], 2, "--scale 1 at most"),
        (&["replay", &trace, "--set", "memory=1KiB"], 2, "a size of at least 4MiB"),
        (&["run", "replay"], 2, "freehold replay TRACE"),
        (&["record", "-o", &output, "--seconds", "0"], 2, "0 is not from 0.001 to 1000000"),
    ] {
        let told = fails(arguments, code);
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
    assert_eq!(fs::read(&output).expect("it is there"), b"", "nothing half-written");
}

/// Whether this machine can be recorded; says so loudly if not.
fn can_record() -> bool {
    let (_folder, trace) = place("try.fht");
    let tried = freehold(&["record", "--seconds", "0.05", "-o", &trace]);
    let can = tried.status.code() != Some(5);
    if !can {
        let why = String::from_utf8_lossy(&tried.stderr).into_owned();
        eprintln!("SKIPPED, since this machine cannot be recorded: {why}");
    }
    can
}

#[test]
fn the_running_kernel_is_recorded() {
    if !can_record() {
        return;
    }
    let (_folder, trace) = place("a.fht");
    // 16 MiB written are at least 8 allocations, with the largest pages.
    let command = ["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=16M", "count=4", "status=none"];
    let told = json(&[&["record", "--json", "-o", &trace][..], &command].concat());
    assert_eq!(told["exit_code"], 0);
    let info = json(&["trace", "info", &trace, "--json"]);
    assert!(info["summary"]["events"]["mm_page_alloc"].as_u64() >= Some(8), "{info}");
    assert_eq!(info["header"]["command"][0], "dd");
    for when in [&info["header"]["before"], &info["trailer"]["after"]] {
        assert!(when["zones"].as_array().is_some_and(|zones| !zones.is_empty()), "{when}");
    }
    json(&["replay", &trace, "--json", "--design", "freehold", "--set", "rounds=1"]);
}

#[test]
fn a_command_that_fails_is_recorded_and_fails() {
    if !can_record() {
        return;
    }
    let (_folder, trace) = place("a.fht");
    let told = fails(&["record", "-o", &trace, "--", "false"], 1);
    assert!(told.contains("false: exit status: 1"), "{told}");
    json(&["trace", "info", &trace, "--json"]);
    let told = fails(&["record", "-o", &trace, "--", "/nonexistent/command"], 1);
    assert!(told.contains("/nonexistent/command: No such file"), "{told}");
}

#[test]
fn without_privilege_the_remedy_is_named() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let trace = folder.path().join("a.fht");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.args(["record", "--seconds", "0.05", "-o"]).arg(&trace);
    if rustix::process::geteuid().is_root() {
        // Nobody: may write here, and not trace.
        command.uid(65534).gid(65534);
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(folder.path(), everybody).expect("it is ours");
    }
    let told = match command.output() {
        Ok(output) => output,
        Err(error) => return eprintln!("SKIPPED, since nobody may not run the program: {error}"),
    };
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.status.code(), Some(5), "{text}");
    assert!(text.contains("sudo") || text.contains("mount -t tracefs"), "{text}");
    assert!(!trace.exists());
}
