//! Runs cells: simulated ones side by side, those on the host alone after them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::Interrupted;
use super::campaign::Cell;
use crate::host::memory_available;

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
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second one ends the program at once.
        flag::register_conditional_default(signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    let (alone, side_by_side): (Vec<_>, Vec<_>) =
        cells.iter().cloned().partition(|cell| cell.job.runs_alone());
    let spare_bytes = memory_available().map_or(u64::MAX, |bytes| bytes / 2);
    run_group(&side_by_side, jobs, spare_bytes, &stop, &mut done)?;
    run_group(&alone, 1, spare_bytes, &stop, &mut done)
}

fn run_group(
    cells: &[Arc<Cell>],
    jobs: usize,
    spare_bytes: u64,
    stop: &AtomicBool,
    done: &mut impl FnMut(&Cell, Outcome) -> Result<()>,
) -> Result<()> {
    let (sender, outcomes) = mpsc::channel();
    let mut waiting = cells.iter().peekable();
    let (mut running, mut used_bytes) = (0, 0);
    loop {
        while let Some(&cell) = waiting.peek().filter(|_| running < jobs) {
            // Known when the file was read: a cell that cannot say it does not get here.
            let bytes = cell.job.host_bytes().unwrap_or(0);
            if running > 0 && used_bytes + bytes > spare_bytes {
                break;
            }
            waiting.next();
            (running, used_bytes) = (running + 1, used_bytes + bytes);
            let (cell, sender) = (Arc::clone(cell), sender.clone());
            let work = move || {
                let outcome = outcome(&cell);
                // Nobody listens any more once the run was interrupted.
                let _ = sender.send((cell, bytes, outcome));
            };
            thread::Builder::new().spawn(work).context("cannot start a thread for a cell")?;
        }
        if running == 0 {
            return Ok(());
        }
        match outcomes.recv_timeout(GLANCE) {
            Ok((cell, bytes, outcome)) => {
                (running, used_bytes) = (running - 1, used_bytes - bytes);
                done(&cell, outcome)?;
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if stop.load(Relaxed) {
            return Err(Interrupted.into());
        }
    }
}

/// Runs one cell. A panic is its own failure, not that of the others.
fn outcome(cell: &Cell) -> Outcome {
    match catch_unwind(AssertUnwindSafe(|| cell.job.run())) {
        Ok(document) => document.map_err(|error| format!("{error:#}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("it panicked: {}", text.unwrap_or("without a message")))
        }
    }
}
