//! The command as it is called: on the sources as they are, and on a repository with one function.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_xtask");
    Command::new(program).arg("mutants").args(arguments).output().expect("it was built")
}

/// What it says, with its exit code.
fn said(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    (output.status.code(), text.concat())
}

#[test]
fn the_tables_fit_the_sources() {
    let (code, text) = said(&run(&["--check"]));
    assert_eq!(code, Some(0), "{text}");
}

/// What `tools/planted` replaces is in its file, once.
#[test]
fn planted_defects_fit_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(root.join(path)).expect(path);
    let table: toml::Table = read("tests/planted/defects.toml").parse().expect("it is TOML");
    let defects = table["defect"].as_array().expect("a list");
    assert!(!defects.is_empty());
    for defect in defects {
        let text = |key: &str| defect[key].as_str().expect(key);
        let count = read(text("file")).matches(text("find").trim()).count();
        assert_eq!(count, 1, "{}: `find` in {}", text("name"), text("file"));
    }
}

/// A repository with an allocator that is a function, a test of it, and mutants.
fn repository(table: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("there is room");
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("it is below the folder")).expect("there is room");
        fs::write(path, text).expect("there is room");
    };
    let manifest = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n";
    write("Cargo.toml", manifest);
    write("Cargo.lock", "version = 4\n");
    write(".cargo/config.toml", "");
    for name in ["freehold", "freehold-linux", "freehold-llfree", "freehold-lru"] {
        let package =
            format!("[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\n");
        write(&format!("crates/{name}/Cargo.toml"), &package);
        write(&format!("crates/{name}/src/lib.rs"), "");
        write(&format!("crates/{name}/tests/native/main.rs"), "");
    }
    let source = "\
#![no_std]

mod designs {
    fn half(number: u32) -> u32 {
        let rounded = number + 1;
        rounded / 2
    }

    mod tests {
        #[test]
        fn half_of_three_is_two() {
            assert_eq!(super::half(3), 2);
        }
    }
}
";
    write("crates/freehold/src/lib.rs", source);
    write("xtask/mutants/lib.toml", table);
    folder
}

fn run_in(repository: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let root = repository.to_str().expect("its name is plain");
    said(&run(&[&["--root", root], arguments].concat()))
}

const MISSING: &str = "\
file = \"crates/freehold/src/lib.rs\"
[[mutant]]
name = \"half: not rounded\"
find = 'number + 2'
replace = 'number'
killed_by = \"designs::tests::half_of_three_is_two\"
";

#[test]
fn a_text_that_is_gone_is_named_with_a_remedy() {
    let repository = repository(MISSING);
    let (code, text) = run_in(repository.path(), &["--check"]);
    assert_eq!(code, Some(2), "{text}");
    for part in ["half: not rounded", "crates/freehold/src/lib.rs", "number + 2", "correct `find`"]
    {
        assert!(text.contains(part), "{text}");
    }
    let fits = MISSING.replace("number + 2", "number + 1");
    let table = repository.path().join("xtask/mutants/lib.toml");
    fs::write(table, fits).expect("there is room");
    let (code, text) = run_in(repository.path(), &["--check"]);
    assert_eq!(code, Some(0), "{text}");
    let copy = repository.path().join("target/mutants/source/crates/freehold/src/lib.rs");
    let copy = fs::read_to_string(copy).expect("it was written");
    assert!(copy.contains("if crate::mutants::is_active(0) { number } else { number + 1 }"));
    let (code, text) = run_in(repository.path(), &["no such mutant"]);
    assert_eq!((code, text.contains("no mutant has that")), (Some(2), true), "{text}");
}
