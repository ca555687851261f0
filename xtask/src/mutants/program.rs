//! The test programs: built once, and run for one test at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use wait_timeout::ChildExt;

/// The programs of the core: those of the unit tests, and that of the tests that use the public
/// API. Then those of the products' models.
const CORE: [&str; 11] = [
    "-p",
    "freehold",
    "-p",
    "freehold-linux",
    "-p",
    "freehold-llfree",
    "-p",
    "freehold-lru",
    "--lib",
    "--test",
    "mutants",
];
const PRODUCTS: [&str; 6] = ["-p", "freehold-cache", "-p", "freehold-malloc", "--test", "models"];

/// The programs.
pub(crate) struct Programs {
    /// The program of each test.
    tests: BTreeMap<String, PathBuf>,
    /// Where the tests run, and where their hits are written.
    source: PathBuf,
    folder: PathBuf,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It noticed nothing.
    Passed,
    /// It noticed something.
    Failed,
    /// It took too long.
    Hung,
}

/// One message of cargo's.
#[derive(Deserialize)]
struct Message {
    /// Of a program that it has built.
    executable: Option<PathBuf>,
}

/// Cargo, for the copy in `folder/source`.
fn cargo(folder: &Path, command: &[&str], format: &str) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .args(command)
        .args(["--message-format", format])
        // Generated code needs more braces than hand-written code.
        .env("RUSTFLAGS", "-Awarnings")
        .env("CARGO_TARGET_DIR", folder.join("build"))
        .current_dir(folder.join("source"))
        .stderr(Stdio::inherit());
    cargo
}

fn messages(stdout: &[u8]) -> Result<Vec<Message>> {
    let text = String::from_utf8_lossy(stdout);
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Builds programs of the copy, and adds the program of each of their tests.
fn add_tests(
    folder: &Path,
    programs: &[&str],
    tests: &mut BTreeMap<String, PathBuf>,
) -> Result<()> {
    let command = [&["test", "--no-run"], programs].concat();
    let built = cargo(folder, &command, "json-render-diagnostics").output();
    let built = built.context("cargo does not start")?;
    ensure!(
        built.status.success(),
        "the tests with all mutants do not compile, see above: correct `find` and `replace` of \
         the mutant whose number stands there"
    );
    for program in messages(&built.stdout)?.into_iter().filter_map(|of| of.executable) {
        let listed = Command::new(&program).arg("--list").output()?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        for name in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
            let other = tests.insert(name.to_owned(), program.clone());
            ensure!(other.is_none(), "two programs have a test {name}: rename one of them");
        }
    }
    Ok(())
}

impl Programs {
    /// Builds the tests of the copy in `folder/source`, which may have the products.
    pub(crate) fn build(folder: &Path, has_products: bool) -> Result<Self> {
        let mut tests = BTreeMap::new();
        add_tests(folder, &CORE, &mut tests)?;
        if has_products {
            add_tests(folder, &PRODUCTS, &mut tests)?;
        }
        let source = folder.join("source/crates/freehold");
        Ok(Programs { tests, source, folder: folder.into() })
    }

    /// The names of all tests.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.tests.keys().map(String::as_str).collect()
    }

    /// Runs one test with a mutant, with a time limit.
    pub(crate) fn run(
        &self,
        test: &str,
        mutant: usize,
        limit: Duration,
    ) -> Result<(End, Duration)> {
        let mutant = mutant.to_string();
        self.run_with(test, ("FREEHOLD_MUTANT", mutant.as_ref()), limit)
    }

    /// Runs one test without a mutant; also returns the numbers of the places that it reached.
    pub(crate) fn run_sound(
        &self,
        test: &str,
        limit: Duration,
    ) -> Result<(End, Duration, BTreeSet<usize>)> {
        let hits = self.folder.join(format!("hits-{}", test.replace("::", "-")));
        // Left over if a run was interrupted.
        let _ = fs::remove_file(&hits);
        let (end, took) = self.run_with(test, ("FREEHOLD_HITS", hits.as_ref()), limit)?;
        // Absent if the test reaches nothing.
        let reached = fs::read_to_string(&hits).unwrap_or_default();
        let _ = fs::remove_file(&hits);
        let reached = reached.lines().map(str::parse).collect::<Result<_, _>>();
        Ok((end, took, reached.context("the hits are numbers")?))
    }

    fn run_with(
        &self,
        test: &str,
        (variable, value): (&str, &std::ffi::OsStr),
        limit: Duration,
    ) -> Result<(End, Duration)> {
        let start = Instant::now();
        let program = self.tests.get(test).with_context(|| format!("there is no test {test}"))?;
        let mut child = Command::new(program)
            .args(["--exact", test])
            .env_remove("FREEHOLD_MUTANT")
            .env(variable, value)
            .current_dir(&self.source)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{test} does not start"))?;
        let end = match child.wait_timeout(limit)? {
            Some(status) if status.success() => End::Passed,
            Some(_) => End::Failed,
            None => {
                child.kill()?;
                child.wait()?;
                End::Hung
            }
        };
        Ok((end, start.elapsed()))
    }
}
