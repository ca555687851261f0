//! Several threads that use the same few blocks, under random schedules.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use freehold_host::FrameCount;
use freehold_host::lru::Scope;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::explore::{Planted, explore};
use crate::world::{FILE_BLOCKS, LIMIT, World};
use crate::{Block, CacheError, LruPolicy};

/// What must have happened in some of the schedules.
#[derive(Default)]
struct Done {
    evictions: AtomicU64,
    coalesced: AtomicU64,
    written_back: AtomicU64,
    read_ahead: AtomicU64,
    pieces: AtomicU64,
    refaults: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Done {
    fn check(&self) {
        let Done { evictions, coalesced, written_back, refaults, refused, failed, .. } = self;
        let Done { read_ahead, pieces, .. } = self;
        let all = [
            ("evictions", evictions),
            ("coalesced", coalesced),
            ("written back", written_back),
            ("read ahead", read_ahead),
            ("pieces", pieces),
            ("refaults", refaults),
            ("refused", refused),
            ("failed", failed),
        ];
        for (what, count) in all {
            assert!(count.load(SeqCst) > 0, "never: {what}");
        }
    }

    fn note(&self, result: Result<(), CacheError>) {
        match result {
            Ok(()) => {}
            Err(CacheError::NoRoom | CacheError::TenantFull(_)) => {
                self.refused.fetch_add(1, SeqCst);
            }
            Err(CacheError::Io(_)) => _ = self.failed.fetch_add(1, SeqCst),
            Err(error) => panic!("{error}"),
        }
    }

    fn sum(&self, world: &World) {
        for tenant in world.cache.stats().tenants {
            self.evictions.fetch_add(tenant.evictions, SeqCst);
            self.coalesced.fetch_add(tenant.coalesced, SeqCst);
            self.written_back.fetch_add(tenant.written_back, SeqCst);
            self.read_ahead.fetch_add(tenant.read_ahead, SeqCst);
            self.refaults.fetch_add(tenant.refaults, SeqCst);
        }
    }
}

/// One call, whichever.
fn call(world: &World, done: &Done) {
    let mut random = thread_rng();
    let (of, block) = (random.gen_range(0..2), random.gen_range(0..FILE_BLOCKS));
    match random.gen_range(0..20) {
        0..6 => done.note(world.read(of, block)),
        6..10 => done.note(world.write(of, block)),
        10..12 => done.note(world.overwrite(of, block)),
        12..14 => {
            // Two guards at a time, in the order of their blocks.
            let next = random.gen_range(block..FILE_BLOCKS);
            done.note(world.reads(of, block).and_then(|_guard| match next == block {
                true => Ok(()),
                false => world.write(of, next),
            }));
        }
        14 => _ = world.sync(of),
        // A failure, which the next call of `sync` reports.
        15 => _ = world.files[of].file.write_back(),
        16 => {
            let blocks = (block..FILE_BLOCKS).take(3).map(|block| Block(block as u64));
            world.files[of].file.prefetch(blocks);
        }
        17 => world.limit(random.gen_range(2..=LIMIT)),
        18 => world.files[of].disk.failing_reads.store(1, SeqCst),
        _ => world.files[of].disk.failing_writes.store(1, SeqCst),
    }
}

/// So many threads, each of which makes so many calls.
fn everything_at_once(schedules: usize, planted: Planted, threads: u64, calls: u64) {
    let done = Arc::new(Done::default());
    let sum = Arc::clone(&done);
    explore(planted, schedules, move || {
        let mut random = thread_rng();
        let policy = [LruPolicy::ScanResistant, LruPolicy::TwoLists][random.gen_range(0..2)];
        let world = Arc::new(World::new(policy, random.gen_range(0..3)));
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                let (world, done) = (Arc::clone(&world), Arc::clone(&sum));
                thread::spawn(move || (0..calls).for_each(|_| call(&world, &done)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
        sum.pieces.fetch_add(world.pieces(), SeqCst);
        world.check();
        sum.sum(&world);
    });
    done.check();
}

#[test]
fn three_threads_use_the_same_blocks() {
    everything_at_once(800, Planted::Nothing, 3, 12);
}

#[test]
fn five_threads_use_the_same_blocks() {
    everything_at_once(500, Planted::Nothing, 5, 8);
}

#[test]
#[should_panic]
fn a_latch_that_is_taken_in_two_steps_is_caught() {
    everything_at_once(150, Planted::LatchInTwoSteps, 3, 12);
}

/// Storage that fails to make durable what was written says so to one caller.
#[test]
fn three_threads_sync_a_file_of_storage_that_fails() {
    let lost = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&lost);
    explore(Planted::Nothing, 400, move || {
        let world = Arc::new(World::new(LruPolicy::ScanResistant, 0));
        let disk = &world.files[0].disk;
        disk.failing_syncs.store(thread_rng().gen_range(0..2), SeqCst);
        let threads: Vec<_> = (0..3)
            .map(|block| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    world.write(0, block).expect("there is room");
                    // What is durable by then, it checks itself.
                    world.sync(0)
                })
            })
            .collect();
        let synced = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        sum.fetch_add(synced.filter(|is_ok| !is_ok).count() as u64, SeqCst);
    });
    assert!(lost.load(SeqCst) > 0);
}

/// Files are closed and opened again while others need the room of their blocks.
#[test]
fn files_come_and_go() {
    explore(Planted::Nothing, 400, || {
        let world = Arc::new(World::new(LruPolicy::TwoLists, 0));
        let threads: Vec<_> = (0..3)
            .map(|of| {
                let world = Arc::clone(&world);
                thread::spawn(move || match of {
                    0 => (0..3).for_each(|_| world.go(world.come(), 3, thread_rng().gen_bool(0.2))),
                    1 => (0..16).for_each(|_| {
                        let _no_room = world.write(0, thread_rng().gen_range(0..FILE_BLOCKS));
                    }),
                    // Has blocks in hand that the first one wants to take out.
                    _ => (0..16).for_each(|_| {
                        let _few = world.cache.shared.lru.reclaim(Scope::All, FrameCount::new(4));
                    }),
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
        world.check();
    });
}
