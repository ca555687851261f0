//! The LRU and an allocator beneath it on threads of the operating system.
//!
//! The seed of a run is printed when it fails; `FREEHOLD_SEED` makes the threads take the same
//! decisions again, though the scheduler may not.

mod common;
#[path = "common/lru_cache.rs"]
mod lru_cache;
#[path = "common/machine.rs"]
mod machine;
#[path = "common/lru.rs"]
mod room;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use common::TestPlatform;
use freehold::lru::{BATCH_MAX, LruLock};
use lru_cache::{Done, Size, play};

/// What threads are made of.
mod threads {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    pub(crate) use std::sync::{Mutex, MutexGuard};
    pub(crate) use std::thread::{scope, yield_now};

    pub(crate) use crate::common::run_on;
}

fn run(lock: LruLock) {
    let given = std::env::var("FREEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("FREEHOLD_SEED={seed}");
    let size = Size { node_frames: 512, threads: 6, steps: 30_000, batch: BATCH_MAX as u32 };
    let done = Done::default();
    play(|| TestPlatform, lock, size, seed, &done);
    done.check();
}

#[test]
fn everything_at_once_with_a_lock_a_group() {
    run(LruLock::Group);
}

#[test]
fn everything_at_once_with_a_lock_a_node() {
    run(LruLock::Node);
}
