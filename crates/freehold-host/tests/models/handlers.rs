//! Handlers of forks, which several threads want installed at once.

use freehold::platform::{SharedCell, Word};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use crate::install::{Installed, Installer};
use crate::loom_platform::{LoomCell, LoomWord};
use crate::loom_runs::explore;

/// A word as it is, one that orders nothing, and one that changes in two steps.
type State = LoomWord<AtomicU64, true, true>;
type Unordered = LoomWord<AtomicU64, true, false>;
type InTwoSteps = LoomWord<AtomicU64, false, true>;

/// The process's handlers, and how often they were installed.
struct Process<W: Word<u64>> {
    installed: Installed<W>,
    times: LoomCell<u32>,
}

impl<W: Word<u64>> Process<W> {
    /// A thread wants them installed; returns whether they are. The first attempt may fail.
    fn ensure(&self, thread: u32, fails: bool) -> bool {
        let install = || {
            if fails && thread == 1 {
                return Err("too many");
            }
            self.times.set(self.times.get() + 1);
            Ok(())
        };
        let here = Installer { process: 1, thread };
        let done = self.installed.ensure(here, install, thread::yield_now);
        assert!(done.is_err() || self.times.get() == 1, "a fork would not be noticed");
        done.is_ok()
    }
}

fn two_threads<W: Word<u64> + Send + Sync + 'static>(fails: bool) {
    explore(3, move || {
        let process = Process { installed: Installed::of(W::new(0)), times: LoomCell::new(0) };
        let process = Arc::new(process);
        let same = Arc::clone(&process);
        let other = thread::spawn(move || same.ensure(2, fails));
        let mine = process.ensure(1, fails);
        assert!(other.join().expect("the thread is well"));
        assert!(mine || fails);
    });
}

#[test]
fn no_thread_goes_on_before_the_handlers_are_installed() {
    two_threads::<State>(false);
}

#[test]
fn a_thread_that_fails_to_install_them_leaves_it_to_others() {
    two_threads::<State>(true);
}

#[test]
#[should_panic]
fn a_state_that_orders_nothing_is_caught() {
    two_threads::<Unordered>(false);
}

#[test]
#[should_panic]
fn a_state_that_changes_in_two_steps_is_caught() {
    two_threads::<InTwoSteps>(false);
}
