//! The public items of the published libraries, one a line, from the JSON of rustdoc, compared with
//! `docs/api` and `products/docs/api`.
//!
//! Of what the compiler writes for each type, which would be most of the list, it has the names of
//! derived traits, and where `Send` or `Sync` is missing: losing one breaks users.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Compares the public items of the published libraries with docs/api and products/docs/api.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Write the lists anew.
    #[arg(long)]
    bless: bool,
}

const AFTER_HELP: &str = "\
Exit codes:
  0   the lists are right, or were written
  1   public items have changed
  2   the command line is invalid, or the documentation cannot be built
  77  the compiler in use does not write the JSON that is read here";

/// The format that the dependency `public-api` reads, and a compiler that writes it.
const FORMAT: &str = "\"format_version\":57";
const RUST: &str = "1.95.0";

/// rustdoc's JSON is unstable, so a stable one must be told to write it. Told to all of cargo, the
/// dependencies would be built anew.
const RUSTDOC: &str = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";

/// Returns the exit code.
pub(crate) fn run(args: &Args) -> Result<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let folder = root.join("target/public-api");
    document(&root, &folder)?;
    let of_core = fs::read_to_string(root.join("target/doc/freehold.json"))?;
    // A digit that follows would make it another format.
    let goes_on = |rest: &str| rest.starts_with(|next: char| next.is_ascii_digit());
    if of_core.split_once(FORMAT).is_none_or(|(_, rest)| goes_on(rest)) {
        eprintln!(
            "public items were not compared: rustdoc writes JSON of another format.\n\
             remedy: rustup toolchain install {RUST}; RUSTUP_TOOLCHAIN={RUST} cargo xtask \
             public-items"
        );
        return Ok(77);
    }
    let mut changed = Vec::new();
    for known in lists(&root)? {
        let name = known.file_stem().context("a list has a name")?.to_string_lossy().into_owned();
        let json = root.join(format!("target/doc/{}.json", name.replace('-', "_")));
        let list = list(&json).with_context(|| format!("reading {}", json.display()))?;
        println!("{name}: {} public items", list.lines().count());
        let new = folder.join(format!("{name}.txt"));
        fs::write(&new, &list)?;
        if args.bless {
            fs::write(&known, &list)?;
        } else if fs::read_to_string(&known)? != list {
            Command::new("diff").arg("-u").args([&known, &new]).status()?;
            changed.push(name);
        }
    }
    if changed.is_empty() {
        return Ok(0);
    }
    eprintln!(
        "public items have changed in {}.\n\
         If they should: cargo xtask public-items --bless, and docs/publishing.md for the version.",
        changed.join(", ")
    );
    Ok(1)
}

/// Has rustdoc write the JSON of both workspaces to `target/doc`.
fn document(root: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let rustdoc = folder.join("rustdoc");
    fs::write(&rustdoc, RUSTDOC)?;
    fs::set_permissions(&rustdoc, fs::Permissions::from_mode(0o755))?;
    for workspace in ["", "products"] {
        let status = Command::new("cargo")
            .args(["doc", "-q", "--workspace", "--lib", "--all-features", "--no-deps"])
            .current_dir(root.join(workspace))
            .env("CARGO_TARGET_DIR", root.join("target"))
            .env("RUSTDOC", &rustdoc)
            .env("RUSTDOCFLAGS", "-Zunstable-options --output-format json")
            .status()?;
        ensure!(status.success(), "the documentation cannot be built, see above");
    }
    Ok(())
}

/// The lists in the repository, in the order of their paths.
fn lists(root: &Path) -> Result<Vec<PathBuf>> {
    let mut lists = Vec::new();
    for folder in ["docs/api", "products/docs/api"] {
        for entry in fs::read_dir(root.join(folder)).with_context(|| format!("in {folder}"))? {
            lists.push(entry?.path());
        }
    }
    lists.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    lists.sort();
    Ok(lists)
}

/// The public items of a crate, one a line.
fn list(json: &Path) -> Result<String> {
    let written: HashSet<_> = items(json, false, false)?.into_iter().collect();
    let or_derived: HashSet<_> = items(json, true, false)?.into_iter().collect();
    // Derived for `match` alone; what users see is `PartialEq`.
    let is_seen = |item: &str| item.starts_with("impl") && !item.contains("::StructuralPartialEq");
    let is_lost =
        |item: &str| ["!core::marker::Send", "!core::marker::Sync"].map(|of| item.contains(of));
    let mut listed = items(json, true, true)?;
    listed.retain(|item| {
        let derived = or_derived.contains(item) && is_seen(item);
        written.contains(item) || derived || is_lost(item).contains(&true)
    });
    Ok(listed.into_iter().map(|item| item + "\n").collect())
}

/// The items of a crate, without blanket impls.
fn items(json: &Path, derived: bool, auto: bool) -> Result<Vec<String>, public_api::Error> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_derived_impls(!derived)
        .omit_auto_trait_impls(!auto)
        .build()?;
    Ok(api.items().map(ToString::to_string).collect())
}
