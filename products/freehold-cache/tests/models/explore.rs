//! Programs under shuttle's schedules.

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use shuttle::scheduler::Scheduler;
use shuttle::sync::atomic::AtomicBool;

use crate::shuttle_runs;

/// A defect of the locks, for a test that must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    /// A lock that is only tried is taken in two steps.
    LatchInTwoSteps,
}

// All threads of a program run on one thread of the machine's.
thread_local! {
    static IS_EXPLORED: Cell<bool> = const { Cell::new(false) };
    static PLANTED: Cell<Planted> = const { Cell::new(Planted::Nothing) };
}

/// Whether shuttle runs this thread.
pub(crate) fn is_explored() -> bool {
    IS_EXPLORED.get()
}

pub(crate) fn is_planted(planted: Planted) -> bool {
    PLANTED.get() == planted
}

/// A step, before which another thread may run.
pub(crate) fn step() {
    if is_explored() && !std::thread::panicking() {
        // Shuttle looks for another thread before each access of an atomic.
        AtomicBool::new(false).load(SeqCst);
    }
}

/// While this is there, shuttle runs this thread.
struct Explored;

impl Explored {
    fn new(planted: Planted) -> Self {
        // The arena and the LRU have caches for each CPU: always the same one, so that a schedule
        // can be run again.
        let mut cpu = CpuSet::new();
        cpu.set(sched_getcpu());
        let _refused = sched_setaffinity(None, &cpu);
        IS_EXPLORED.set(true);
        PLANTED.set(planted);
        Explored
    }
}

impl Drop for Explored {
    fn drop(&mut self) {
        IS_EXPLORED.set(false);
        PLANTED.set(Planted::Nothing);
    }
}

/// Runs a program under random schedules, and under as many with few preemptions.
pub(crate) fn explore(
    planted: Planted,
    schedules: usize,
    program: impl Fn() + Clone + Send + Sync + 'static,
) {
    let _explored = Explored::new(planted);
    shuttle_runs::explore(schedules, program);
}

/// Runs a program under the schedules of a scheduler.
pub(crate) fn run(scheduler: impl Scheduler + 'static, program: impl Fn() + Send + Sync + 'static) {
    let _explored = Explored::new(Planted::Nothing);
    shuttle_runs::run(scheduler, program);
}
