//! A separate workspace with the allocator, its tests and all mutants, so that the sources stay as
//! they are.
//!
//! Only changed files are written, so that cargo rebuilds only what it must.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};
use walkdir::WalkDir;

use crate::generated::{self, Generated};
use crate::schemata::{with_mutants, with_variants};
use crate::table::Place;

/// The crate whose sources have the mutants.
const CRATE: &str = "crates/freehold";

/// The test program; and the module that counts passes, and knows which mutant is active.
const TESTS: &str = include_str!("../copied/tests.rs");
const COUNTER: &str = include_str!("../copied/mutants.rs");

/// What the copy consists of, by path.
type Files = BTreeMap<PathBuf, String>;

/// Writes the copy of the repository at `root` to `folder`, with these places, each numbered by its
/// position in the list. Its tests are those of the design `freehold` and its models.
pub(crate) fn write(root: &Path, folder: &Path, places: &[Place]) -> Result<()> {
    let mut files = read(root, &["loom"])?;
    let mut by_file = BTreeMap::<&str, Vec<_>>::new();
    for (number, place) in places.iter().enumerate() {
        by_file.entry(&place.file).or_default().push((number, place));
    }
    for (file, places) in by_file {
        let text = files.get_mut(Path::new(file)).with_context(|| {
            format!("{} is in {file}, which is no source of the allocator", places[0].1)
        })?;
        *text = with_mutants(text, &places)?;
    }
    let names: Vec<_> = places.iter().map(|place| place.name.as_str()).collect();
    add_mutants(&mut files, &names);
    files.insert(Path::new(CRATE).join("tests/native/main.rs"), TESTS.to_owned());
    update(folder, &files)
}

/// Writes a copy with generated mutants, but for those of these numbers. It has all tests of
/// `native`. Returns the numbers of the mutants that it has.
pub(crate) fn write_generated(
    root: &Path,
    folder: &Path,
    mutants: &[Generated],
    without: &BTreeSet<usize>,
) -> Result<BTreeSet<usize>> {
    let mut files = read(root, &["loom", "proptest"])?;
    let mut by_file = BTreeMap::<&str, Vec<_>>::new();
    for (number, mutant) in mutants.iter().enumerate().filter(|(n, _)| !without.contains(n)) {
        by_file.entry(&mutant.file).or_default().push((number, mutant));
    }
    let mut built = BTreeSet::new();
    for (file, mutants) in by_file {
        let text = files.get_mut(Path::new(file)).with_context(|| {
            format!("{file} is no source of the allocator: list mutants with `-p freehold`")
        })?;
        let variants = generated::variants(text, &mutants)?;
        built.extend(variants.iter().map(|variant| variant.number));
        *text = with_variants(text, variants).with_context(|| format!("in {file}"))?;
    }
    let names: Vec<_> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
    add_mutants(&mut files, &names);
    update(folder, &files)?;
    Ok(built)
}

/// Adds the module that knows which mutant is active.
fn add_mutants(files: &mut Files, names: &[&str]) {
    let names: String = names.iter().map(|name| format!("    {name:?},\n")).collect();
    let source = |path: &str| Path::new(CRATE).join(path);
    files.insert(
        source("src/mutants.rs"),
        format!("{COUNTER}\nconst NAMES: &[&str] = &[\n{names}];\n"),
    );
    if let Some(lib) = files.get_mut(&source("src/lib.rs")) {
        // A mutant may be wrong in every run, as `u64::MAX * 2`: that is for a test to notice.
        lib.insert_str(0, "#![allow(arithmetic_overflow, unconditional_panic)]\n");
        lib.push_str("\nmod mutants;\n");
    }
}

/// The files of the repository that the copy has, with these of the dependencies of tests.
fn read(root: &Path, dependencies: &[&str]) -> Result<Files> {
    let mut files = Files::new();
    for part in ["Cargo.lock", ".cargo/config.toml", "crates/freehold/src", "crates/freehold/tests"]
    {
        // Corpora of fuzzers are no text.
        let is_source = |name: &OsStr| name != "__fuzz__";
        let walk = WalkDir::new(root.join(part)).into_iter();
        for entry in walk.filter_entry(|entry| is_source(entry.file_name())) {
            let entry = entry?;
            if entry.file_type().is_file() {
                let path = entry.path().strip_prefix(root)?.to_owned();
                files.insert(path, text_of(entry.path())?);
            }
        }
    }
    let workspace = "Cargo.toml";
    files.insert(workspace.into(), workspace_manifest(&text_of(&root.join(workspace))?)?);
    let manifest = Path::new(CRATE).join("Cargo.toml");
    let text = crate_manifest(&text_of(&root.join(&manifest))?, dependencies)?;
    files.insert(manifest, text);
    Ok(files)
}

fn text_of(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// The manifest of a workspace with only this crate.
fn workspace_manifest(text: &str) -> Result<String> {
    let mut manifest: Table = text.parse()?;
    if let Some(Value::Table(workspace)) = manifest.get_mut("workspace") {
        workspace.insert("members".into(), vec![CRATE].into());
        workspace.remove("default-members");
        workspace.remove("dependencies");
    }
    // It configures packages that are absent from the copy.
    if let Some(Value::Table(dev)) = manifest.get_mut("profile").and_then(|all| all.get_mut("dev"))
    {
        dev.remove("package");
    }
    Ok(manifest.to_string())
}

/// The crate's manifest with the required dependencies.
fn crate_manifest(text: &str, dependencies: &[&str]) -> Result<String> {
    let mut manifest: Table = text.parse()?;
    if let Some(Value::Table(all)) = manifest.get_mut("dev-dependencies") {
        all.retain(|name, _| dependencies.contains(&name));
    }
    // The copy has none.
    manifest.remove("example");
    Ok(manifest.to_string())
}

/// Makes the sources below a folder equal to these files.
fn update(folder: &Path, files: &Files) -> Result<()> {
    for (path, text) in files {
        let path = folder.join(path);
        if fs::read(&path).is_ok_and(|before| before == text.as_bytes()) {
            continue;
        }
        fs::create_dir_all(path.parent().expect("it is below the folder"))?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    for entry in WalkDir::new(folder.join(CRATE)) {
        let entry = entry?;
        let path = entry.path().strip_prefix(folder)?;
        if entry.file_type().is_file() && !files.contains_key(path) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_one_crate_and_what_its_tests_need() {
        let root = "[workspace]\nmembers = [\"crates/*\"]\ndefault-members = [\"x\"]\n\
                    [workspace.package]\nversion = \"1\"\n[profile.dev]\nopt-level = 1\n\
                    [profile.dev.package]\nx.opt-level = 0\n";
        let manifest = workspace_manifest(root).expect("it is right");
        assert!(manifest.contains("crates/freehold") && manifest.contains("opt-level = 1"));
        assert!(!manifest.contains('x') && manifest.contains("version"), "{manifest}");
        let of_crate = "[dev-dependencies]\nloom = \"1\"\nproptest = \"1\"\n";
        let manifest = crate_manifest(of_crate, &["loom"]).expect("it is right");
        assert!(manifest.contains("loom") && !manifest.contains("proptest"));
    }

    #[test]
    fn what_has_not_changed_is_not_written() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = |name: &str| Path::new(CRATE).join(name);
        let files = |of: &[(&str, &str)]| -> Files {
            of.iter().map(|(name, text)| (path(name), (*text).to_owned())).collect()
        };
        update(folder.path(), &files(&[("a", "1"), ("b", "1"), ("c", "1")]))
            .expect("it is written");
        let written = |name| {
            let file = fs::metadata(folder.path().join(path(name))).expect("it is there");
            file.modified().expect("the system knows")
        };
        let before = written("a");
        update(folder.path(), &files(&[("a", "1"), ("b", "2")])).expect("it is written");
        assert_eq!(written("a"), before);
        let text = |name| fs::read_to_string(folder.path().join(path(name)));
        assert_eq!(text("b").expect("it is there"), "2");
        text("c").expect_err("it is gone");
    }
}
