//! The command `freehold` as tests start it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

pub(crate) fn freehold(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_freehold")).args(arguments).output();
    output.expect("the binary starts")
}

/// The cargo profile of the command: the name of its folder.
pub(crate) fn profile() -> &'static str {
    let folder = Path::new(env!("CARGO_BIN_EXE_freehold")).parent().and_then(Path::file_name);
    folder.and_then(OsStr::to_str).expect("cargo puts binaries into target/PROFILE")
}

/// The output of a command that succeeded.
pub(crate) fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a command prints that succeeds.
pub(crate) fn succeeds(arguments: &[&str]) -> String {
    stdout(freehold(arguments))
}

/// The document that a command prints.
pub(crate) fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&succeeds(arguments)).expect("it is JSON")
}

/// The document of a command that prints one with `--json`.
pub(crate) fn document(arguments: &[&str]) -> serde_json::Value {
    json(&[arguments, &["--json"]].concat())
}

/// What a command says that fails with this code.
pub(crate) fn fails(arguments: &[&str], code: i32) -> String {
    failed(&freehold(arguments), code)
}

/// What a command said that failed with this code.
pub(crate) fn failed(output: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// The results of a document.
pub(crate) fn results(document: &str) -> Vec<serde_json::Value> {
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    assert_eq!(document["schema"], "freehold.run/1");
    document["results"].as_array().unwrap().clone()
}

/// The command that replays what has failed.
pub(crate) fn replay(said: &str) -> Vec<&str> {
    let command = said.lines().find_map(|line| line.strip_prefix("replay: freehold "));
    command.expect("a command that replays").split(' ').collect()
}

/// A run on a simulated machine, in which no change is chance.
pub(crate) const SIMULATED: [&str; 10] = [
    "run",
    "page-fault",
    "--machine",
    "uma-2",
    "--cpus",
    "1,2",
    "--set",
    "task_bytes=1MiB",
    "--set",
    "node_memory=64MiB",
];
