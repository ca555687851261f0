//! The LRU and an allocator beneath it on threads of the operating system.
//!
//! A failing run prints its seed; `FREEHOLD_SEED` makes the threads take the same decisions again,
//! though the scheduler may not. `FREEHOLD_STRESS_SECONDS` asks for more runs, for about so long:
//! `FREEHOLD_STRESS_SECONDS=3600 cargo test --release -p freehold-lru --test native stress`.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use crate::cache::{Done, Size, play};
use crate::common::TestPlatform;
use freehold_lru::{BATCH_MAX, LruLock};

fn run(lock: LruLock) {
    let given = std::env::var("FREEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let seconds = std::env::var("FREEHOLD_STRESS_SECONDS").ok().and_then(|all| all.parse().ok());
    let (begin, most) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(0)));
    let mut runs = 0;
    // Even seeds and odd ones have different policies: at least one of each.
    for seed in (0..).map(|nth| seed.wrapping_add(nth)) {
        println!("FREEHOLD_SEED={seed}");
        let size = Size { node_frames: 512, threads: 6, steps: 15_000, batch: BATCH_MAX as u32 };
        let done = Done::default();
        play(|| TestPlatform, lock, size, seed, &done);
        done.check();
        runs += 1;
        if runs >= 2 && begin.elapsed() >= most {
            break;
        }
    }
    println!("{runs} runs of 6 threads, 15000 steps each");
}

#[test]
fn everything_at_once_with_a_lock_a_group() {
    run(LruLock::Group);
}

#[test]
fn everything_at_once_with_a_lock_a_node() {
    run(LruLock::Node);
}
