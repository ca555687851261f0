//! Blocks that a caller names in advance are read together, and nothing is waited for.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use freehold_cache::{Block, Cache, CachedFile, IoEngine, Limits};

use crate::Random;
use crate::disk::{Disk, numbered};

const SIZE: usize = 4096;

fn cached(blocks: u64, disk: &Arc<Disk>) -> (Cache, CachedFile) {
    let builder = Cache::builder().memory_bytes(blocks * SIZE as u64).write_back_every(None);
    let cache = builder.build().unwrap();
    let tenant = cache.tenant("all", Limits::new()).unwrap();
    let file = cache.open_storage(&tenant, disk.storage()).unwrap();
    (cache, file)
}

fn list(blocks: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Block> {
    blocks.into_iter().map(Block)
}

#[test]
fn adjacent_blocks_are_one_read_and_later_reads_hit() {
    let disk = Disk::with(numbered(100));
    let (cache, file) = cached(200, &disk);
    drop(file.read(Block(21)).unwrap());
    // Any order, some of them twice, one there, two behind the end.
    let blocks = [50, 22, 20, 7, 21, 50, 23, 99, 100, 5000];
    assert_eq!(file.prefetch(list(blocks)), 6);
    assert_eq!(disk.reads.load(SeqCst), 1 + 6, "7, 20, 22 and 23, 50, 99 and 100, 5000");
    for block in [50, 22, 20, 7, 21, 23, 99] {
        assert!(file.read(Block(block)).unwrap().iter().all(|&byte| byte == block as u8));
    }
    let stats = &cache.stats().tenants[0];
    assert_eq!((stats.hits, stats.misses, stats.read_ahead), (7, 1, 6));
    assert_eq!(file.prefetch(list(blocks.into_iter().take(8))), 0, "all there");
    cache.validate().unwrap();
}

#[test]
fn no_more_than_a_quarter_of_the_cache() {
    let disk = Disk::with(numbered(2000));
    let (cache, file) = cached(1000, &disk);
    assert_eq!(file.prefetch(list(0..2000)), 250);
    assert_eq!(disk.reads.load(SeqCst), 2, "batches of 128");
    drop(file.read(Block(249)).unwrap());
    assert_eq!(cache.stats().tenants[0].misses, 0);
    cache.validate().unwrap();
}

#[test]
fn guards_on_everything_are_not_waited_for() {
    let disk = Disk::with(numbered(100));
    let (cache, file) = cached(8, &disk);
    let guards: Vec<_> = (0..8).map(|block| file.read(Block(block)).unwrap()).collect();
    assert_eq!(file.prefetch(list(8..20)), 0);
    drop(guards);
    assert_eq!(file.prefetch(list(8..20)), 2);
    cache.validate().unwrap();
}

/// The caller's iterator may use the file, even the blocks that it names.
#[test]
fn an_iterator_that_reads() {
    let disk = Disk::with(numbered(100));
    let (cache, file) = cached(200, &disk);
    let next = (0..20).map(|block| {
        drop(file.read(Block(block / 2)).unwrap());
        Block(block)
    });
    assert_eq!(file.prefetch(next), 10);
    cache.validate().unwrap();
}

#[test]
fn what_cannot_be_read_is_left_to_the_read() {
    let disk = Disk::with(numbered(100));
    let (cache, file) = cached(200, &disk);
    disk.failing_reads.store(1, SeqCst);
    assert_eq!(file.prefetch(list([1, 2, 50])), 1, "the first run fails, the second does not");
    assert_eq!(cache.stats().tenants[0].read_errors, 1);
    assert_eq!(file.read(Block(1)).unwrap()[0], 1);
    disk.panics[0].store(1, SeqCst);
    let panics = std::panic::AssertUnwindSafe(|| file.prefetch(list([60, 61])));
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(file.read(Block(61)).unwrap()[0], 61);
    cache.validate().unwrap();
}

/// With each engine, or the one that it falls back to; the last block is there in part.
#[test]
fn files_of_the_machine() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, &numbered(1000)[..999 * SIZE + 1000]).unwrap();
    for (engine, direct) in
        [(IoEngine::Pread, false), (IoEngine::Uring, false), (IoEngine::Uring, true)]
    {
        let builder = Cache::builder().memory_bytes(2000 * SIZE as u64).direct(direct);
        let cache = builder.engine(engine).build().unwrap();
        let tenant = cache.tenant("all", Limits::new()).unwrap();
        let Ok(file) = cache.open(&tenant, &path) else { continue };
        let mut random = Random::new(3);
        let blocks: Vec<_> = (0..300).map(|_| random.below(1000)).chain([999, 1000]).collect();
        let read = file.prefetch(list(blocks.clone()));
        let stats = &cache.stats().tenants[0];
        assert_eq!((stats.cached, stats.read_ahead, stats.misses), (read, read, 0));
        for block in blocks {
            let content = file.read(Block(block)).unwrap();
            let there = SIZE.min((999 * SIZE + 1000_usize).saturating_sub(block as usize * SIZE));
            assert!(content[..there].iter().all(|&byte| byte == block as u8));
            assert!(content[there..].iter().all(|&byte| byte == 0));
        }
        assert_eq!(cache.stats().tenants[0].misses, 1, "the one behind the end");
        cache.validate().unwrap();
    }
}
