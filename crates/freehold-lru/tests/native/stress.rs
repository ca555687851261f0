//! The LRU and an allocator beneath it on threads of the operating system.
//!
//! A failing run prints its seed; `FREEHOLD_SEED` makes the threads take the same decisions again,
//! though the scheduler may not. `FREEHOLD_STRESS_SECONDS` asks for more runs, for about so long:
//! `FREEHOLD_STRESS_SECONDS=3600 cargo test --release -p freehold-lru --test native stress`.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use crate::cache::{Done, Size, play};
use crate::common::{TestPlatform, Yield};
use freehold::CpuId;
use freehold::platform::native::{NativeCell, SpinLock};
use freehold::platform::{Pinned, Platform, Scalar, SharedCell};
use freehold_lru::{BATCH_MAX, LruLock};

std::thread_local! {
    static WRITES: Cell<u16> = const { Cell::new(0) };
}

/// A cell that notices an access during a write: its lock was not held. Some writes take long.
struct WatchedCell<T: Scalar> {
    value: NativeCell<T>,
    is_being_written: AtomicBool,
}

impl<T: Scalar> SharedCell<T> for WatchedCell<T> {
    fn new(value: T) -> Self {
        WatchedCell { value: NativeCell::new(value), is_being_written: AtomicBool::new(false) }
    }

    fn get(&self) -> T {
        assert!(!self.is_being_written.load(Relaxed), "data race: a cell is read during a write");
        self.value.get()
    }

    fn set(&self, value: T) {
        let raced = self.is_being_written.swap(true, Relaxed);
        assert!(!raced, "data race: a cell is written during a write");
        WRITES.set(WRITES.get().wrapping_add(1));
        if WRITES.get() == 0 {
            yield_now();
        }
        self.value.set(value);
        self.is_being_written.store(false, Relaxed);
    }
}

/// The platform of the other tests, with such cells.
struct Watched;

impl Platform for Watched {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Cell<T: Scalar> = WatchedCell<T>;
    type LocalCell<T: Scalar> = WatchedCell<T>;
    type Lock = SpinLock<Yield>;
    type PinState = ();
    type IrqState = ();

    fn cpu(&self) -> CpuId {
        TestPlatform.cpu()
    }

    fn pin(&self) -> Pinned<()> {
        TestPlatform.pin()
    }

    fn unpin(&self, (): ()) {}

    fn relax(&self) {
        TestPlatform.relax();
    }

    fn heavy_barrier(&self) -> bool {
        TestPlatform.heavy_barrier()
    }

    fn irq_save(&self) {}

    fn irq_restore(&self, (): ()) {}
}

/// Of each thread.
const STEPS: usize = 5000;

/// Runs threads so often; returns how often a group was found divided.
fn run(lock: LruLock, runs_min: u32) -> u64 {
    let given = std::env::var("FREEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let seconds = std::env::var("FREEHOLD_STRESS_SECONDS").ok().and_then(|all| all.parse().ok());
    let (begin, most) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(0)));
    let (mut runs, mut divided) = (0, 0);
    // Even seeds and odd ones have different policies.
    for seed in (0..).map(|nth| seed.wrapping_add(nth)) {
        println!("FREEHOLD_SEED={seed}");
        let size = Size { node_frames: 512, threads: 6, steps: STEPS, batch: BATCH_MAX as u32 };
        let done = Done::default();
        play(|| Watched, lock, size, seed, &done);
        done.check();
        divided += done.divided.load(SeqCst);
        runs += 1;
        if runs >= runs_min && begin.elapsed() >= most {
            break;
        }
    }
    println!("{runs} runs of 6 threads, {STEPS} steps each");
    divided
}

#[test]
fn everything_at_once_with_a_lock_a_group() {
    assert_eq!(run(LruLock::Group, 1), 0);
}

#[test]
fn everything_at_once_in_shards_that_come_and_go() {
    assert_ne!(run(LruLock::Shards, 2), 0, "no group was divided");
}

#[test]
fn everything_at_once_with_a_lock_a_node() {
    assert_eq!(run(LruLock::Node, 1), 0);
}
