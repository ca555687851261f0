//! What failed: found again by itself, made small, and saved.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

use super::batch::Batch;
use super::child::{self, End};
use crate::cli::TortureKind;
use crate::designs::DesignName;

/// A defect, or what looks like one.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    /// `failed`, `crashed` or `hung`.
    pub(super) kind: &'static str,
    /// The kind of batch that found it, and on which design.
    pub(super) by: TortureKind,
    pub(super) design: DesignName,
    /// When, in seconds since the run began.
    pub(super) seconds: f64,
    /// What the check said, or how its process ended.
    pub(super) what: String,
    /// The command that plays the seed again. Not every schedule of threads comes again.
    pub(super) replay: String,
    /// Where a small case was saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) case: Option<PathBuf>,
}

/// What looks at a batch that failed.
pub(super) struct Examiner<'a> {
    pub(super) program: &'a Path,
    /// Where cases are saved.
    pub(super) folder: &'a Path,
    /// A batch that takes longer never ends.
    pub(super) hang_after: Duration,
    pub(super) stop: &'a AtomicBool,
}

impl Examiner<'_> {
    /// Looks for the seed of a batch that failed, and makes a small case of it.
    pub(super) fn examine(&self, (batch, end): (&Batch, &End), seconds: f64) -> Finding {
        let (kind, what) = self.describe(end);
        let (by, design) = (batch.kind, batch.design);
        match end {
            End::Failed(text) => {
                let seed = text.split("seed ").nth(1).and_then(|rest| rest.split(' ').next());
                let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(batch.first_seed);
                let one = Batch { first_seed: seed, seeds: 1, ..batch.clone() };
                let case = self.shrink(&one);
                Finding { kind, by, design, seconds, what, replay: command(&one), case }
            }
            _ => {
                // A process that is gone has not said which seed it was. One seed is a small part
                // of a batch, so it gets part of a batch's time.
                let alone = (0..batch.seeds).map(|nth| batch.one(nth)).find(|one| {
                    let end = self.run(&one.arguments(), self.hang_after / 5);
                    !matches!(end, End::Passed(_) | End::Interrupted)
                });
                let replay = command(alone.as_ref().unwrap_or(batch));
                Finding { kind, by, design, seconds, what, replay, case: None }
            }
        }
    }

    fn describe(&self, end: &End) -> (&'static str, String) {
        match end {
            End::Failed(text) => ("failed", text.trim().to_owned()),
            End::Crashed(text) => ("crashed", text.trim().to_owned()),
            End::TimedOut => ("hung", format!("no end after {} s", self.hang_after.as_secs())),
            End::Passed(_) | End::Interrupted => ("none", String::new()),
        }
    }

    /// Plays a seed again and has it made small; returns where the case is, if it failed again.
    fn shrink(&self, one: &Batch) -> Option<PathBuf> {
        std::fs::create_dir_all(self.folder).ok()?;
        let path = free_name(self.folder);
        let mut arguments = one.arguments();
        arguments.extend(["--shrink".to_owned(), path.display().to_string()]);
        let end = self.run(&arguments, self.hang_after / 2);
        let is_there = matches!(end, End::Failed(_)) && path.exists();
        is_there.then_some(path)
    }

    fn run(&self, arguments: &[String], time_max: Duration) -> End {
        child::run(self.program, arguments, time_max, self.stop)
    }
}

/// A name in a folder that no case has.
fn free_name(folder: &Path) -> PathBuf {
    /// Taken by threads of this process, whose files may not be there yet.
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    loop {
        // Relaxed: the counter only assigns numbers.
        let path = folder.join(format!("{}.json", TAKEN.fetch_add(1, Relaxed) + 1));
        if !path.exists() {
            return path;
        }
    }
}

fn command(batch: &Batch) -> String {
    format!("freehold {}", batch.arguments().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_seed_that_never_ends_is_found() {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let program = folder.path().join("freehold");
        // Written by another process: this one may fork while the file is open, and a file that is
        // open for writing is not executed.
        let script =
            "#!/bin/sh\ncase \"$*\" in *'--first-seed 12 '*) exec sleep 60;; *) echo {};; esac";
        let write = r#"printf '%s\n' "$1" > "$0" && chmod +x "$0""#;
        let status = Command::new("sh").arg("-c").arg(write).arg(&program).arg(script).status();
        assert!(status.is_ok_and(|status| status.success()));
        let examiner = Examiner {
            program: &program,
            folder: folder.path(),
            hang_after: Duration::from_secs(5),
            stop: &AtomicBool::new(false),
        };
        let batch = Batch {
            kind: TortureKind::Lru,
            design: DesignName::Cluster,
            first_seed: 10,
            seeds: 4,
            canary: None,
        };
        let finding = examiner.examine((&batch, &End::TimedOut), 1.0);
        assert_eq!((finding.kind, &finding.what[..]), ("hung", "no end after 5 s"));
        assert!(finding.replay.contains("--first-seed 12 --seeds 1 "), "{}", finding.replay);
    }
}
