//! The LRU and an allocator beneath it under shuttle: more threads and longer programs than loom
//! can explore, under random schedules and under schedules with a few preemptions (PCT).
//!
//! Seeds are fixed, so every run is the same; `FREEHOLD_SEED` and `FREEHOLD_SCHEDULES` choose other
//! seeds and more schedules. A failing schedule is printed, for `shuttle::replay`.

use std::sync::Arc;

use crate::cache::{Done, Size, play};
use crate::shuttle_platform::ShuttlePlatform;
use crate::shuttle_runs::explore;
use freehold_lru::LruLock;
use shuttle::rand::{Rng, thread_rng};

/// A cache of so few frames that all threads want the same ones.
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

// A data race or an invariant broken by it, whichever a schedule shows first.
#[test]
#[should_panic]
fn a_lock_taken_in_two_steps_is_caught() {
    everything_at_once::<false>(100, LruLock::Group, 4);
}
