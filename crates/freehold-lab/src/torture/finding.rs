//! What failed: found again by itself, made small, and saved.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

use super::batch::Batch;
use super::child::{self, End};
use crate::cli::TortureKind;
use crate::designs::DesignName;

/// A seed by itself that takes longer never ends.
const SEED_TIME_MAX: Duration = Duration::from_secs(120);

/// Playing a seed again and shrinking it takes less.
const SHRINK_TIME_MAX: Duration = Duration::from_secs(300);

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

/// Looks for the seed of a batch that failed, and makes a small case of it.
pub(super) fn examine(
    program: &Path,
    (batch, end): (&Batch, &End),
    seconds: f64,
    folder: &Path,
    stop: &AtomicBool,
) -> Finding {
    let (kind, what) = describe(end);
    let (by, design) = (batch.kind, batch.design);
    match end {
        End::Failed(text) => {
            let seed = text.split("seed ").nth(1).and_then(|rest| rest.split(' ').next());
            let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(batch.first_seed);
            let one = Batch { first_seed: seed, seeds: 1, ..batch.clone() };
            let case = shrink(program, &one, folder, stop);
            Finding { kind, by, design, seconds, what, replay: command(&one), case }
        }
        _ => {
            // A process that is gone has not said which seed it was.
            let alone = (0..batch.seeds).map(|nth| batch.one(nth)).find(|one| {
                let end = child::run(program, &one.arguments(), SEED_TIME_MAX, stop);
                !matches!(end, End::Passed(_) | End::Interrupted)
            });
            let replay = command(alone.as_ref().unwrap_or(batch));
            Finding { kind, by, design, seconds, what, replay, case: None }
        }
    }
}

fn describe(end: &End) -> (&'static str, String) {
    match end {
        End::Failed(text) => ("failed", text.trim().to_owned()),
        End::Crashed(text) => ("crashed", text.trim().to_owned()),
        End::TimedOut => ("hung", format!("no end after {} s", super::BATCH_TIME_MAX.as_secs())),
        End::Passed(_) | End::Interrupted => ("none", String::new()),
    }
}

/// Plays a seed again and has it made small; returns where the case is, if it failed again.
fn shrink(program: &Path, one: &Batch, folder: &Path, stop: &AtomicBool) -> Option<PathBuf> {
    std::fs::create_dir_all(folder).ok()?;
    let path = free_name(folder);
    let mut arguments = one.arguments();
    arguments.extend(["--shrink".to_owned(), path.display().to_string()]);
    let end = child::run(program, &arguments, SHRINK_TIME_MAX, stop);
    let is_there = matches!(end, End::Failed(_)) && path.exists();
    is_there.then_some(path)
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
