//! The LRU and an allocator beneath it on threads of the operating system.
//!
//! A failing run prints its seed; `FREEHOLD_SEED` makes the threads take the same decisions again,
//! though the scheduler may not.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use crate::common::TestPlatform;
use crate::lru_cache::{Done, Size, play};
use freehold::lru::{BATCH_MAX, LruLock};

fn run(lock: LruLock) {
    let given = std::env::var("FREEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    // Even seeds and odd ones have different policies.
    for seed in [seed, seed ^ 1] {
        println!("FREEHOLD_SEED={seed}");
        let size = Size { node_frames: 512, threads: 6, steps: 15_000, batch: BATCH_MAX as u32 };
        let done = Done::default();
        play(|| TestPlatform, lock, size, seed, &done);
        done.check();
    }
}

#[test]
fn everything_at_once_with_a_lock_a_group() {
    run(LruLock::Group);
}

#[test]
fn everything_at_once_with_a_lock_a_node() {
    run(LruLock::Node);
}
