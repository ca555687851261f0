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
