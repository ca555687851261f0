//! Where tasks on the host meet, and who looks on.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};

use anyhow::Result;

use super::abandoned;
use crate::report::progress::Progress;

/// A barrier that fails when a task fails, so that no task waits for one that never arrives.
pub(super) struct Meeting {
    parties: usize,
    state: Mutex<Arrivals>,
    changed: Condvar,
    failed: AtomicBool,
}

#[derive(Default)]
struct Arrivals {
    arrived: usize,
    round: u64,
}

impl Meeting {
    /// A barrier for so many tasks.
    pub(super) fn new(parties: usize) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Meeting { parties, state, changed, failed: AtomicBool::new(false) }
    }

    /// Whether a task has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Says that a task has failed.
    pub(super) fn fail(&self) {
        // Under the lock, so that no waiter misses it between its check and its sleep.
        let _state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.failed.store(true, Relaxed);
        self.changed.notify_all();
    }

    /// Waits until all tasks have come.
    pub(super) fn wait(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        if state.arrived == self.parties {
            state.arrived = 0;
            state.round += 1;
            self.changed.notify_all();
        } else {
            let round = state.round;
            let here = |state: &mut Arrivals| state.round == round && !self.has_failed();
            state = self.changed.wait_while(state, here).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        if self.has_failed() { Err(abandoned()) } else { Ok(()) }
    }
}

/// What can be seen of the tasks while they run.
pub(crate) struct Watch<'a> {
    pub(crate) progress: &'a Progress,
    pub(super) meeting: &'a Meeting,
}

impl Watch<'_> {
    /// Whether a task has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.meeting.has_failed()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    /// Three threads meet a hundred times, and none is early.
    pub(crate) fn three_meet(wait: impl Fn() + Sync) {
        let came = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=100 {
                        came.fetch_add(1, Relaxed);
                        wait();
                        assert!(came.load(Relaxed) >= 3 * round);
                        wait();
                    }
                });
            }
        });
    }

    #[test]
    fn a_meeting_waits_for_all_and_ends_when_one_fails() {
        let meeting = Meeting::new(3);
        three_meet(|| meeting.wait().unwrap());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| meeting.wait());
            meeting.fail();
            assert!(waiter.join().unwrap().is_err());
        });
        assert!(meeting.wait().is_err(), "no task waits forever after that");
    }
}
