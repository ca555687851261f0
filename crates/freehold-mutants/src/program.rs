//! The test programs: built once, and run for one test at a time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use wait_timeout::ChildExt;

/// The program with the tests that use the public API. The other one has the unit tests.
const TESTS: &str = "native";

/// Both programs.
pub(crate) struct Programs {
    unit: PathBuf,
    tests: PathBuf,
    /// Where the tests run, and where their hits are written.
    source: PathBuf,
    folder: PathBuf,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    /// It noticed nothing.
    Passed,
    /// It noticed something.
    Failed,
    /// It took too long.
    Hung,
}

/// One message of cargo's: of a program that it has built.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

impl Programs {
    /// Builds the tests of the copy in `folder/source`.
    pub(crate) fn build(folder: &Path) -> Result<Self> {
        let source = folder.join("source");
        let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
        let built = Command::new(cargo)
            .args(["test", "-p", "freehold", "--lib", "--test", TESTS, "--no-run"])
            .args(["--message-format", "json-render-diagnostics"])
            // Generated code needs more braces than hand-written code.
            .env("RUSTFLAGS", "-Awarnings")
            .env("CARGO_TARGET_DIR", folder.join("build"))
            .current_dir(&source)
            .stderr(Stdio::inherit())
            .output()
            .context("cargo does not start")?;
        ensure!(
            built.status.success(),
            "the tests with all mutants do not compile, see above: correct `find` and `replace` of \
             the mutant whose number stands there"
        );
        let (mut unit, mut tests) = (None, None);
        for line in String::from_utf8_lossy(&built.stdout).lines() {
            let message: Message = serde_json::from_str(line)?;
            if let (Some(target), Some(program)) = (message.target, message.executable) {
                *(if target.name == TESTS { &mut tests } else { &mut unit }) = Some(program);
            }
        }
        let (unit, tests) = unit.zip(tests).context("cargo has not built both programs")?;
        Ok(Programs { unit, tests, source: source.join("crates/freehold"), folder: folder.into() })
    }

    /// The names of all tests.
    pub(crate) fn names(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for program in [&self.unit, &self.tests] {
            let listed = Command::new(program).arg("--list").output()?;
            let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
            let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
            names.extend(tests.map(str::to_owned));
        }
        Ok(names)
    }

    /// The program that has a test.
    fn program_of(&self, test: &str) -> &Path {
        if test.starts_with("designs::") { &self.unit } else { &self.tests }
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
        let mut child = Command::new(self.program_of(test))
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
