//! A separate workspace with the allocator and what else has mutants, their tests, and all mutants,
//! so that the sources stay as they are.
//!
//! Only changed files are written, so that cargo rebuilds only what it must.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};
use walkdir::WalkDir;

use crate::mutants::schemata::with_mutants;
use crate::mutants::table::Place;

/// A crate of the copy.
struct Part {
    path: &'static str,
    /// Those of its folders that are copied, and of its dependencies of tests.
    folders: &'static [&'static str],
    dependencies: &'static [&'static str],
    /// Its file that declares the modules of the sources, and which sees which mutant is active;
    /// beside that of the library.
    models: Option<&'static str>,
}

/// The allocator, the other designs, and the LRU.
const CORE: [Part; 4] = [
    Part {
        path: "crates/freehold",
        folders: &["src", "tests"],
        dependencies: &["loom"],
        models: None,
    },
    Part { path: "crates/freehold-linux", folders: &["src"], dependencies: &[], models: None },
    Part { path: "crates/freehold-llfree", folders: &["src"], dependencies: &[], models: None },
    Part {
        path: "crates/freehold-lru",
        folders: &["src", "tests"],
        dependencies: &["freehold-linux", "freehold-llfree", "loom"],
        models: None,
    },
];

/// The products with mutants, and what they are built on.
const PRODUCTS: [Part; 3] = [
    Part { path: "crates/freehold-host", folders: &["src"], dependencies: &[], models: None },
    Part {
        path: "products/freehold-cache",
        folders: &["src", "tests/models"],
        dependencies: &["rustix", "shuttle", "tempfile"],
        models: Some("tests/models/main.rs"),
    },
    Part {
        path: "products/freehold-malloc",
        folders: &["src", "tests/models"],
        dependencies: &["freehold-linux", "loom"],
        models: Some("tests/models/main.rs"),
    },
];

/// The test program, which can use all of the core; and the module that counts passes, and knows
/// which mutant is active.
const TESTS: (&str, &str) =
    ("crates/freehold-lru/tests/mutants/main.rs", include_str!("../../copied/tests.rs"));
const COUNTER: &str = include_str!("../../copied/mutants.rs");

/// What the copy consists of, by path.
type Files = BTreeMap<PathBuf, String>;

/// Writes the copy of the repository at `root` to `folder`, with these places, each numbered by its
/// position in the list. Its tests are those of the design `freehold` and the models; the products
/// are there with their models if one of them has mutants.
pub(crate) fn write(root: &Path, folder: &Path, places: &[Place]) -> Result<()> {
    let has_products = places.iter().any(is_of_products);
    let products = PRODUCTS.into_iter().filter(|_| has_products);
    let parts: Vec<_> = CORE.into_iter().chain(products).collect();
    let mut files = read(root, &parts)?;
    if has_products {
        // It names all dependencies of the products, and of the core.
        files.insert("Cargo.lock".into(), text_of(&root.join("products/Cargo.lock"))?);
    }
    let mut by_file = BTreeMap::<&str, Vec<_>>::new();
    for (number, place) in places.iter().enumerate() {
        by_file.entry(&place.file).or_default().push((number, place));
    }
    for (file, places) in by_file {
        let text = files.get_mut(Path::new(file)).with_context(|| {
            format!("{} is in {file}, which is no source of the copy", places[0].1)
        })?;
        *text = with_mutants(text, &places)?;
    }
    let names: Vec<_> = places.iter().map(|place| place.name.as_str()).collect();
    parts.iter().for_each(|part| add_mutants(&mut files, part, &names));
    files.insert(TESTS.0.into(), TESTS.1.to_owned());
    update(folder, &files)
}

/// Whether a place is in a product.
pub(crate) fn is_of_products(place: &Place) -> bool {
    PRODUCTS.iter().any(|part| Path::new(&place.file).starts_with(part.path))
}

/// Adds the module that knows which mutant is active to a crate.
fn add_mutants(files: &mut Files, part: &Part, names: &[&str]) {
    let names: String = names.iter().map(|name| format!("    {name:?},\n")).collect();
    let source = |path: &str| Path::new(part.path).join(path);
    files.insert(
        source("src/mutants.rs"),
        format!("{COUNTER}\nconst NAMES: &[&str] = &[\n{names}];\n"),
    );
    if let Some(lib) = files.get_mut(&source("src/lib.rs")) {
        // A mutant may be wrong in every run, as `u64::MAX * 2`: that is for a test to notice.
        lib.insert_str(0, "#![allow(arithmetic_overflow, unconditional_panic)]\n");
        lib.push_str("\nmod mutants;\n");
    }
    if let Some(models) = part.models.and_then(|path| files.get_mut(&source(path))) {
        models.push_str("\n#[path = \"../../src/mutants.rs\"]\nmod mutants;\n");
    }
}

/// The files of the repository that the copy has.
fn read(root: &Path, parts: &[Part]) -> Result<Files> {
    let mut files = Files::new();
    let folders = parts.iter().flat_map(|of| of.folders.iter().map(|folder| (of.path, folder)));
    let folders = folders.map(|(path, folder)| format!("{path}/{folder}"));
    for path in ["Cargo.lock", ".cargo/config.toml"].map(String::from).into_iter().chain(folders) {
        // Corpora of fuzzers are no text.
        let is_source = |name: &OsStr| name != "__fuzz__";
        let walk = WalkDir::new(root.join(path)).into_iter();
        for entry in walk.filter_entry(|entry| is_source(entry.file_name())) {
            let entry = entry?;
            if entry.file_type().is_file() {
                let path = entry.path().strip_prefix(root)?.to_owned();
                files.insert(path, text_of(entry.path())?);
            }
        }
    }
    let (workspace, paths) = ("Cargo.toml", parts.iter().map(|part| part.path));
    let text = text_of(&root.join(workspace))?;
    files.insert(workspace.into(), workspace_manifest(&text, &paths.collect::<Vec<_>>())?);
    for part in parts {
        let manifest = Path::new(part.path).join("Cargo.toml");
        let text = crate_manifest(&text_of(&root.join(&manifest))?, part.dependencies)?;
        files.insert(manifest, text);
    }
    Ok(files)
}

fn text_of(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// The manifest of a workspace with only these crates.
fn workspace_manifest(text: &str, crates: &[&str]) -> Result<String> {
    let mut manifest: Table = text.parse()?;
    if let Some(Value::Table(workspace)) = manifest.get_mut("workspace") {
        let members: Vec<_> = crates.iter().map(|&path| Value::from(path)).collect();
        workspace.insert("members".into(), members.into());
        workspace.remove("default-members");
        workspace.remove("exclude");
        if let Some(Value::Table(all)) = workspace.get_mut("dependencies") {
            all.retain(|_, of| of["path"].as_str().is_some_and(|path| crates.contains(&path)));
        }
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
    // The copy has none of these.
    for programs in ["example", "bench", "test"] {
        manifest.remove(programs);
    }
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
    let folders = ["crates", "products"].map(|name| folder.join(name));
    for entry in folders.iter().filter(|path| path.exists()).flat_map(WalkDir::new) {
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
                    [workspace.dependencies]\nfreehold = { path = \"crates/freehold\" }\n\
                    freehold-host = { path = \"crates/freehold-host\" }\n\
                    [profile.dev.package]\nx.opt-level = 0\n";
        let manifest = workspace_manifest(root, &["crates/freehold"]).expect("it is right");
        assert!(manifest.contains("crates/freehold\"") && manifest.contains("opt-level = 1"));
        assert!(!manifest.contains('x') && manifest.contains("version"), "{manifest}");
        assert!(manifest.contains("[workspace.dependencies.freehold]"), "{manifest}");
        let of_crate = "[dev-dependencies]\nloom = \"1\"\nproptest = \"1\"\n";
        let manifest = crate_manifest(of_crate, &["loom"]).expect("it is right");
        assert!(manifest.contains("loom") && !manifest.contains("proptest"));
    }

    #[test]
    fn what_has_not_changed_is_not_written() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = |name: &str| Path::new(CORE[0].path).join(name);
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
