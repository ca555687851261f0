//! Programs under shuttle's schedules.

use std::cell::Cell;
use std::str::FromStr;
use std::sync::atomic::Ordering::SeqCst;

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use shuttle::Runner;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::AtomicBool;

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

/// Restores what this thread of the machine's is otherwise.
struct Explored;

impl Drop for Explored {
    fn drop(&mut self) {
        IS_EXPLORED.set(false);
        PLANTED.set(Planted::Nothing);
    }
}

fn from_env<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Runs a program under random schedules, and under as many with few preemptions.
pub(crate) fn explore(
    planted: Planted,
    schedules: usize,
    program: impl Fn() + Clone + Send + Sync + 'static,
) {
    let seed = from_env("FREEHOLD_SEED", 0x5eed);
    let schedules = from_env("FREEHOLD_SCHEDULES", schedules);
    run(RandomScheduler::new_from_seed(seed, schedules), planted, program.clone());
    run(PctScheduler::new_from_seed(seed, 4, schedules), planted, program);
}

/// Runs a program under the schedules of a scheduler.
pub(crate) fn run(
    scheduler: impl Scheduler + 'static,
    planted: Planted,
    program: impl Fn() + Send + Sync + 'static,
) {
    // The arena and the LRU have caches for each CPU: always the same one, so that a schedule can
    // be run again.
    let mut cpu = CpuSet::new();
    cpu.set(sched_getcpu());
    let _refused = sched_setaffinity(None, &cpu);
    let _explored = Explored;
    IS_EXPLORED.set(true);
    PLANTED.set(planted);
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(program);
}
