//! The LRU and an allocator beneath it under shuttle: more threads and longer programs than loom
//! can explore, under random schedules and under schedules with a few preemptions (PCT).
//!
//! Seeds are fixed, so every run is the same; `FREEHOLD_SEED` and `FREEHOLD_SCHEDULES` choose other
//! seeds and more schedules. A failing schedule is printed, for `shuttle::replay`.

#[path = "common/lru_cache.rs"]
mod lru_cache;
#[path = "common/machine.rs"]
mod machine;
#[path = "common/lru.rs"]
mod room;
#[path = "common/shuttle_platform.rs"]
mod shuttle_platform;
#[path = "common/shuttle_runs.rs"]
mod shuttle_runs;

use std::sync::Arc;

use freehold::lru::LruLock;
use lru_cache::{Done, Size, play};
use shuttle::rand::{Rng, thread_rng};
use shuttle_platform::ShuttlePlatform;
use shuttle_runs::explore;

/// What threads are made of.
mod threads {
    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{scope, yield_now};

    pub(crate) use crate::shuttle_platform::run_on;
}

/// A cache of so few frames that everybody wants the same ones.
fn everything_at_once<const ATOMIC: bool>(schedules: usize, lock: LruLock, threads: u64) {
    let done = Arc::new(Done::default());
    let sum = Arc::clone(&done);
    explore(schedules, move || {
        let batch = thread_rng().gen_range(1..4);
        let size = Size { node_frames: 6, threads, steps: 24, batch };
        play(|| ShuttlePlatform::<ATOMIC>, lock, size, thread_rng().r#gen(), &sum);
    });
    done.check();
}

#[test]
fn four_threads_with_a_lock_a_group() {
    everything_at_once::<true>(100, LruLock::Group, 4);
}

#[test]
fn six_threads_with_a_lock_a_group() {
    everything_at_once::<true>(100, LruLock::Group, 6);
}

#[test]
fn five_threads_with_a_lock_a_node() {
    everything_at_once::<true>(100, LruLock::Node, 5);
}

// A data race or an invariant that it broke, whichever a schedule shows first.
#[test]
#[should_panic]
fn a_lock_taken_in_two_steps_is_caught() {
    everything_at_once::<false>(100, LruLock::Group, 4);
}
