//! The command `freehold` as tests start it.

use std::process::{Command, Output};

pub(crate) fn freehold(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_freehold")).args(arguments).output();
    output.expect("the binary starts")
}

/// What a command printed that succeeded.
pub(crate) fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
