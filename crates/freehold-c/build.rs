//! Names the shared library as the linker of programs will ask for it.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let number = |part: &str| env::var(format!("CARGO_PKG_VERSION_{part}")).expect("set by cargo");
    // Before 1.0, each 0.x may break its users. rustc passes the linker a version script of its
    // own, which no other can join: the shared library of tools/install-c has versions of symbols.
    let abi = match number("MAJOR").as_str() {
        "0" => format!("0.{}", number("MINOR")),
        major => major.to_owned(),
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfreehold.so.{abi}");
}
