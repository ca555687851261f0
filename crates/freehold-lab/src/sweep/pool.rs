//! Runs cells: simulated ones side by side, those on the host alone after them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::campaign::Cell;
use crate::host::memory_available;
use crate::panics::message_of;
use crate::signals::{Interrupted, stop_flag};

/// How soon a signal is noticed.
const GLANCE: Duration = Duration::from_millis(50);

/// What a cell came to: its document, or why there is none.
pub(super) type Outcome = Result<String, String>;

/// Runs cells, up to `jobs` at a time, and hands over each outcome as it comes.
///
/// # Errors
///
/// [`Interrupted`] if a signal came. Cells in progress are abandoned: their threads end with the
/// process, and have written nothing.
pub(super) fn run(
    cells: &[Arc<Cell>],
    jobs: usize,
    mut done: impl FnMut(&Cell, Outcome) -> Result<()>,
) -> Result<()> {
    let stop = stop_flag()?;
    let (alone, side_by_side): (Vec<_>, Vec<_>) =
        cells.iter().cloned().partition(|cell| cell.job.runs_alone());
    // Known when the file was read: a cell that cannot say it does not get here.
    let bytes_of = |cell: &Cell| cell.job.host_bytes().unwrap_or(0);
    let work = |cell: &Cell| caught(|| cell.job.run());
    let spare_bytes = memory_available().map_or(u64::MAX, |bytes| bytes / 2);
    for (cells, jobs) in [(&side_by_side, jobs), (&alone, 1)] {
        let limits = Limits { jobs, spare_bytes };
        run_group(cells, &limits, &stop, bytes_of, work, &mut done)?;
    }
    Ok(())
}

/// How much may go on at a time.
struct Limits {
    jobs: usize,
    /// What fits into memory; a job that is larger runs alone.
    spare_bytes: u64,
}

/// Does the work of each job in a thread of its own, starting in their order.
fn run_group<J: Send + Sync + 'static, R: Send + 'static>(
    jobs: &[Arc<J>],
    limits: &Limits,
    stop: &AtomicBool,
    bytes_of: impl Fn(&J) -> u64,
    work: impl Fn(&J) -> R + Copy + Send + 'static,
    done: &mut impl FnMut(&J, R) -> Result<()>,
) -> Result<()> {
    let (sender, outcomes) = mpsc::channel();
    let mut waiting = jobs.iter().peekable();
    let (mut running, mut used_bytes) = (0, 0);
    loop {
        while let Some(&job) = waiting.peek().filter(|_| running < limits.jobs) {
            let bytes = bytes_of(job);
            if running > 0 && used_bytes + bytes > limits.spare_bytes {
                break;
            }
            waiting.next();
            (running, used_bytes) = (running + 1, used_bytes + bytes);
            let (job, sender) = (Arc::clone(job), sender.clone());
            let work = move || {
                let outcome = work(&job);
                // The receiver is gone once the run was interrupted.
                let _ = sender.send((job, bytes, outcome));
            };
            thread::Builder::new().spawn(work).context("cannot start a thread for a cell")?;
        }
        if running == 0 {
            return Ok(());
        }
        // The sender above keeps the channel open, so an error is only that time is up.
        if let Ok((job, bytes, outcome)) = outcomes.recv_timeout(GLANCE) {
            (running, used_bytes) = (running - 1, used_bytes - bytes);
            done(&job, outcome)?;
        }
        if stop.load(Relaxed) {
            return Err(Interrupted("; the same command goes on from here").into());
        }
    }
}

/// A panic of a cell is its own failure, not that of the others.
fn caught(run: impl FnOnce() -> Result<String>) -> Outcome {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(document) => document.map_err(|error| format!("{error:#}")),
        Err(panic) => {
            let text = message_of(&*panic).unwrap_or("without a message");
            Err(format!("it panicked: {text}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Runs 12 jobs of 10 bytes; returns how many ran at a time at most, and how many ended.
    fn most_at_a_time(jobs: usize, spare_bytes: u64, stop_after: usize) -> (usize, usize) {
        let counts: Arc<(AtomicUsize, AtomicUsize)> = Arc::default();
        let all: Vec<_> = (0..12).map(|_| Arc::new(Arc::clone(&counts))).collect();
        let stop = AtomicBool::new(false);
        let work = |counts: &Arc<(AtomicUsize, AtomicUsize)>| {
            let (now, most) = &**counts;
            most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
            thread::sleep(Duration::from_millis(5));
            now.fetch_sub(1, Relaxed);
        };
        let mut ended = 0;
        let limits = Limits { jobs, spare_bytes };
        let outcome = run_group(&all, &limits, &stop, |_| 10, work, &mut |_, ()| {
            ended += 1;
            stop.store(ended == stop_after, Relaxed);
            Ok(())
        });
        assert_eq!(outcome.is_err(), stop_after <= 12);
        (counts.1.load(Relaxed), ended)
    }

    #[test]
    fn as_many_run_at_a_time_as_are_allowed_and_fit() {
        assert_eq!(most_at_a_time(1, u64::MAX, 99), (1, 12));
        assert_eq!(most_at_a_time(3, u64::MAX, 99), (3, 12));
        assert_eq!(most_at_a_time(8, 25, 99), (2, 12));
        assert_eq!(most_at_a_time(8, 5, 99), (1, 12), "one that does not fit runs alone");
        assert_eq!(most_at_a_time(1, u64::MAX, 4), (1, 4), "interrupted");
    }

    #[test]
    fn a_panic_is_an_error_of_its_cell() {
        assert_eq!(caught(|| Ok("document".to_owned())), Ok("document".to_owned()));
        let panicked = caught(|| panic!("at {}", 7));
        assert_eq!(panicked, Err("it panicked: at 7".to_owned()));
    }
}
