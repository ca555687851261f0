//! Tells the lab the profile that it is built with, so that reports can name it.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo names the profile only in the path of OUT_DIR: target/PROFILE/build/PACKAGE-HASH/out.
    // Its PROFILE variable has the built-in profile from which that one inherits.
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let build = out_dir.ancestors().find(|path| path.file_name() == Some(OsStr::new("build")));
    let folder = build.and_then(|path| path.parent()?.file_name()?.to_str());
    println!("cargo::rustc-env=FREEHOLD_PROFILE={}", folder.expect("OUT_DIR is as said above"));
}
