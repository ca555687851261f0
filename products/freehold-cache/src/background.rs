//! The thread that writes back what has been dirty for a while, or when much is.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::shared::Shared;
use crate::signal::Signal;
use crate::sync::{Instant, thread};

/// How long it leaves a storage alone that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The least time between two write-backs of all that is dirty.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Starts the thread. It ends with the cache, whichever thread drops that.
pub(crate) fn start(
    shared: Weak<Shared>,
    signal: Arc<Signal>,
    interval: Option<Duration>,
) -> io::Result<()> {
    let run = move || {
        let next = || Instant::now().checked_add(interval?.max(INTERVAL_MIN));
        let mut due = next();
        while let Some(wanted) = signal.wait(due) {
            let Some(shared) = shared.upgrade() else { return };
            let half = shared.dirty_background_percent / 2;
            let is_ok = shared.write_back_until(if wanted.write_back { half } else { 0 });
            if !wanted.write_back {
                due = next();
            }
            drop(shared);
            if !is_ok {
                thread::sleep(PAUSE);
            }
        }
    };
    thread::Builder::new().name("freehold-cache".into()).spawn(run).map(drop)
}

impl Shared {
    /// Writes back, file by file, as long as so many percent are dirty, and one block at least;
    /// says whether nothing failed. Blocks that writers have are left out.
    fn write_back_until(&self, percent: u64) -> bool {
        let mut is_ok = true;
        for file in self.open_files() {
            if self.is_dirty_for(&file.tenant, percent) {
                // A storage that panics loses nothing: its blocks stay dirty, and others follow.
                let write = AssertUnwindSafe(|| self.write_back(&file, false).1.is_none());
                is_ok &= catch_unwind(write).unwrap_or(false);
            }
        }
        is_ok
    }
}
