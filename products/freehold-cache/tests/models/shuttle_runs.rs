//! Programs under shuttle's schedules.

use std::str::FromStr;

use shuttle::Runner;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};

fn from_env<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Runs `program` under random schedules, and under as many with few preemptions.
pub(crate) fn explore(schedules: usize, program: impl Fn() + Clone + Send + Sync + 'static) {
    let seed = from_env("FREEHOLD_SEED", 0x5eed);
    let schedules = from_env("FREEHOLD_SCHEDULES", schedules);
    run(RandomScheduler::new_from_seed(seed, schedules), program.clone());
    run(PctScheduler::new_from_seed(seed, 4, schedules), program);
}

/// Runs `program` under the schedules of a scheduler.
pub(crate) fn run(scheduler: impl Scheduler + 'static, program: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    // Bulk calls have arrays on the stack.
    config.stack_size = 256 << 10;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(program);
}
