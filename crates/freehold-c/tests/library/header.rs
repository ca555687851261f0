//! The header is what cbindgen makes of the sources: `FREEHOLD_BLESS=1 cargo test -p freehold-c
//! --test library header` writes it anew.

use std::path::Path;
use std::{env, fs};

/// The sources with items for C, in the order that the header has them.
const SOURCES: &[&str] = &[
    "error.rs",
    "options.rs",
    "args.rs",
    "arena.rs",
    "lease.rs",
    "report.rs",
    "ffi/life.rs",
    "ffi/blocks.rs",
    "ffi/leases.rs",
    "ffi/reports.rs",
];

fn generated() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("it is valid");
    let builder = cbindgen::Builder::new().with_config(config);
    let sources = SOURCES.iter().map(|file| root.join("src").join(file));
    let bindings = sources.fold(builder, |builder, file| builder.with_src(file)).generate();
    let mut text = Vec::new();
    bindings.expect("the sources can be parsed").write(&mut text);
    String::from_utf8(text).expect("the sources are text")
}

#[test]
fn the_header_is_what_the_sources_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/freehold.h");
    let generated = generated();
    if env::var_os("FREEHOLD_BLESS").is_some() {
        fs::write(&path, &generated).expect("the header can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "{} is stale: FREEHOLD_BLESS=1 cargo test -p freehold-c --test library header",
        path.display()
    );
}

#[test]
fn every_function_says_who_may_call_it() {
    let text = generated();
    let mut functions = 0;
    for (comment, rest) in text.split("/**").skip(1).filter_map(|part| part.split_once("*/")) {
        let declaration = rest.trim_start();
        let is_function = declaration.split(';').next().is_some_and(|first| {
            first.contains('(') && !first.contains('{') && !declaration.starts_with('#')
        });
        if !is_function {
            continue;
        }
        functions += 1;
        for word in ["Threads:", "Signals:"] {
            assert!(comment.contains(word), "{declaration}: the comment lacks {word}");
        }
        if declaration.contains("freehold_error freehold_") {
            assert!(comment.contains("Errors:"), "{declaration}: the comment lacks its errors");
        }
    }
    assert!(functions > 25, "the functions were found: {functions}");
}

#[test]
fn the_header_has_the_version_of_the_crate() {
    let number = |part: &str| part.parse::<u32>().expect("a number");
    assert_eq!(freehold_c::FREEHOLD_VERSION_MAJOR, number(env!("CARGO_PKG_VERSION_MAJOR")));
    assert_eq!(freehold_c::FREEHOLD_VERSION_MINOR, number(env!("CARGO_PKG_VERSION_MINOR")));
}
