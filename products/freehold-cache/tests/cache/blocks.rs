//! Guards, look-ups, reads that are shared, write-back in runs, reading ahead.

use std::sync::Barrier;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use freehold_cache::{Block, Cache, CacheBuilder, CacheError, CachedFile, IoEngine, Limits};

use crate::disk::{Disk, numbered};

const SIZE: usize = 4096;

fn builder(blocks: u64) -> CacheBuilder {
    Cache::builder().memory_bytes(blocks * SIZE as u64).write_back_every(None)
}

fn one_file(builder: CacheBuilder, disk: &std::sync::Arc<Disk>) -> (Cache, CachedFile) {
    let cache = builder.build().unwrap();
    let tenant = cache.tenant("all", Limits::new()).unwrap();
    let file = cache.open_storage(&tenant, disk.storage()).unwrap();
    (cache, file)
}

#[test]
fn what_is_written_is_read_and_outlives_eviction() {
    let disk = Disk::with(numbered(10));
    let (cache, file) = one_file(builder(8), &disk);
    assert!(file.read(Block(3)).unwrap().iter().all(|&byte| byte == 3));
    assert!(file.read(Block(100)).unwrap().iter().all(|&byte| byte == 0));
    for block in 0..100 {
        file.write(Block(block)).unwrap()[7] = block as u8 + 100;
    }
    for block in 0..100 {
        let guard = file.read(Block(block)).unwrap();
        let rest = if block < 10 { block as u8 } else { 0 };
        assert_eq!((guard[6], guard[7]), (rest, block as u8 + 100));
    }
    let stats = cache.stats();
    assert!(stats.tenants[0].evictions >= 180, "{stats:?}");
    assert_eq!(stats.tenants[0].hits + stats.tenants[0].misses, 202);
    drop(file);
    assert_eq!(disk.content()[99 * SIZE + 7], 199, "a file that is dropped is written back");
    cache.validate().unwrap();
    assert_eq!(cache.stats().free, 8);
}

#[test]
fn bytes_over_blocks() {
    let disk = Disk::with(numbered(4));
    let (_cache, file) = one_file(builder(8), &disk);
    let written: Vec<_> = (0..3 * SIZE).map(|byte| byte as u8).collect();
    file.write_at(100, &written).unwrap();
    let mut read = vec![0; written.len() + 200];
    file.read_at(0, &mut read).unwrap();
    assert_eq!(read[..100], [0; 100]);
    assert_eq!(read[100..100 + written.len()], written);
    assert_eq!(read[100 + written.len()..], [3; 100]);
    // The two blocks in the middle are written as a whole, and not read.
    assert_eq!(disk.reads.load(SeqCst), 2);
    assert!(file.read_at(u64::MAX, &mut read).is_err());
}

#[test]
fn threads_that_miss_a_block_read_it_once() {
    let disk = Disk::with(numbered(10));
    let (cache, file) = one_file(builder(64), &disk);
    disk.close_gate();
    let threads = 8;
    let barrier = Barrier::new(threads + 1);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(file.read(Block(5)).unwrap()[0], 5);
            });
        }
        barrier.wait();
        // The gate holds the reader of the block, so all others find it on its way.
        while disk.reads.load(SeqCst) == 0 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        disk.open_gate();
    });
    assert_eq!(disk.reads.load(SeqCst), 1);
    let stats = &cache.stats().tenants[0];
    assert_eq!((stats.misses, stats.hits + stats.coalesced), (1, threads as u64 - 1));
    cache.validate().unwrap();
}

#[test]
fn a_guard_keeps_its_block_and_no_other() {
    let disk = Disk::with(numbered(100));
    let (cache, file) = one_file(builder(8), &disk);
    let kept = file.read(Block(1)).unwrap();
    let same = file.read(Block(1)).unwrap();
    for block in 10..90 {
        assert_eq!(file.read(Block(block)).unwrap()[0], block as u8);
    }
    assert_eq!((kept[0], same[SIZE - 1]), (1, 1));
    drop((kept, same));
    let reads = disk.reads.load(SeqCst);
    drop(file.read(Block(1)).unwrap());
    assert_eq!(disk.reads.load(SeqCst), reads, "it was still there");
    cache.validate().unwrap();
}

#[test]
fn guards_on_everything_leave_no_room() {
    let disk = Disk::with(numbered(20));
    let wait = Duration::from_millis(20);
    let (cache, file) = one_file(builder(8).wait(wait), &disk);
    let mut guards: Vec<_> = (0..8).map(|block| file.read(Block(block)).unwrap()).collect();
    assert!(matches!(file.read(Block(9)), Err(CacheError::NoRoom)));
    assert!(matches!(file.write(Block(9)), Err(CacheError::NoRoom)));
    drop(guards.pop());
    assert_eq!(file.read(Block(9)).unwrap()[0], 9);
    drop(guards);
    cache.validate().unwrap();
}

#[test]
fn a_file_is_closed_by_a_thread_with_guards_of_another() {
    let disks = [(); 2].map(|()| Disk::with(numbered(10)));
    let (cache, file) = one_file(builder(16), &disks[0]);
    let tenant = cache.tenant("other", Limits::new()).unwrap();
    let other = cache.open_storage(&tenant, disks[1].storage()).unwrap();
    for block in 0..5 {
        other.write(Block(block)).unwrap()[0] = 99;
    }
    let mut guard = file.write(Block(1)).unwrap();
    drop(other);
    guard[0] = 98;
    drop(guard);
    assert_eq!((disks[1].content()[0], file.read(Block(1)).unwrap()[0]), (99, 98));
    assert_eq!(cache.stats().tenant("other").unwrap().cached, 0);
    cache.validate().unwrap();
}

#[test]
fn dirty_blocks_are_written_in_order_and_adjacent_ones_at_once() {
    let disk = Disk::with(Vec::new());
    let (cache, file) = one_file(builder(64).dirty_percent(90, 90), &disk);
    for block in [9, 3, 5, 4, 20, 8] {
        file.overwrite(Block(block)).unwrap().fill(block as u8);
    }
    assert_eq!(disk.reads.load(SeqCst), 0);
    assert_eq!((file.dirty_blocks(), cache.stats().tenants[0].dirty), (6, 6));
    assert_eq!(file.write_back().unwrap(), 0);
    let size = SIZE as u64;
    let runs = vec![(3 * size, 3 * SIZE), (8 * size, 2 * SIZE), (20 * size, SIZE)];
    assert_eq!(*disk.runs.lock(), runs);
    assert_eq!(cache.stats().tenants[0].written_back, 6);
    assert_eq!(disk.syncs.load(SeqCst), 0);
    file.sync().unwrap();
    assert_eq!((disk.runs.lock().len(), disk.syncs.load(SeqCst)), (3, 1));
}

#[test]
fn reclaim_writes_neighbours_as_well() {
    let disk = Disk::with(Vec::new());
    let (_cache, file) = one_file(builder(64).dirty_percent(90, 90), &disk);
    for block in 0..57 {
        file.overwrite(Block(block)).unwrap().fill(1);
    }
    for block in 100..164 {
        assert_eq!(file.read(Block(block)).unwrap()[0], 0);
    }
    assert_eq!(disk.writes.load(SeqCst), 1, "{:?}", disk.runs.lock());
}

#[test]
fn no_more_is_dirty_than_may_be() {
    let disk = Disk::with(Vec::new());
    let (cache, file) = one_file(builder(100).dirty_percent(20, 20), &disk);
    for block in 0..1000 {
        file.overwrite(Block(block)).unwrap().fill(1);
        assert!(cache.stats().tenants[0].dirty <= 20);
    }
}

#[test]
fn much_that_is_dirty_is_written_in_the_background() {
    let disk = Disk::with(Vec::new());
    let (cache, file) = one_file(builder(100).dirty_percent(10, 90), &disk);
    for block in 0..50 {
        file.overwrite(Block(block)).unwrap().fill(1);
    }
    while cache.stats().tenants[0].dirty > 5 {
        // Only a write wakes the thread, and only if ten are dirty: fewer may have come after its
        // last pass.
        (0..10).for_each(|block| file.write(Block(block)).unwrap()[0] = 2);
        thread::sleep(Duration::from_millis(1));
    }
    let every = Some(Duration::from_millis(5));
    let (_cache, other) = one_file(builder(100).write_back_every(every), &disk);
    other.write(Block(1)).unwrap()[0] = 3;
    while other.dirty_blocks() > 0 {
        thread::yield_now();
    }
}

#[test]
fn files_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let cache = builder(64).build().unwrap();
    let tenant = cache.tenant("a", Limits::new()).unwrap();
    let file = cache.open(&tenant, &path).unwrap();
    file.write_at(10_000, b"hello").unwrap();
    assert!(matches!(cache.open(&tenant, &path), Err(CacheError::AlreadyOpen)));
    file.clone().close().unwrap();
    file.write_at(10_000, b"H").unwrap();
    file.close().unwrap();
    let content = std::fs::read(&path).unwrap();
    assert_eq!((content.len(), &content[10_000..10_005]), (3 * SIZE, &b"Hello"[..]));
    let file = cache.open(&tenant, &path).unwrap();
    assert_eq!(&file.read(Block(2)).unwrap()[10_000 - 2 * SIZE..][..5], b"Hello");
    let read_only = std::fs::File::open(&path).unwrap();
    drop(file);
    let file = cache.open_file(&tenant, read_only).unwrap();
    file.write(Block(0)).unwrap()[0] = 1;
    assert!(file.sync().is_err());
    drop(file);
    assert_eq!(cache.stats().tenants[0].lost, 1);
    cache.validate().unwrap();
}

#[test]
fn blocks_of_64_kib_and_direct_io() {
    // Not in a tmpfs, which may refuse it.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![7; 100_000]).unwrap();
    let builder = Cache::builder().memory_bytes(1 << 20).block_bytes(64 << 10).direct(true);
    let cache = builder.build().unwrap();
    let tenant = cache.tenant("a", Limits::new()).unwrap();
    let file = match cache.open(&tenant, &path) {
        Ok(file) => file,
        Err(CacheError::Io(_)) => return, // the file system has no direct I/O
        Err(error) => panic!("{error}"),
    };
    assert_eq!(file.read(Block(0)).unwrap()[65_535], 7);
    let tail = file.read(Block(1)).unwrap();
    assert_eq!((tail[100_000 - 65_536 - 1], tail[100_000 - 65_536]), (7, 0));
    drop(tail);
    for block in 2..100 {
        file.overwrite(Block(block)).unwrap().fill(block as u8);
    }
    file.sync().unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[99 << 16], 99);
}

#[test]
fn settings_out_of_range_are_refused() {
    let bad = [
        builder(7),
        builder(8).block_bytes(2048),
        builder(1 << 20).block_bytes(2 << 20),
        builder(8).tenants(0),
        builder(8).dirty_percent(50, 40),
        builder(8).shadows_percent(1001),
    ];
    for builder in bad {
        assert!(matches!(builder.build(), Err(CacheError::BadSetting(..))));
    }
    let cache = builder(8).tenants(1).build().unwrap();
    let limits = Limits::new().max_bytes(5);
    assert!(matches!(cache.tenant("a", limits), Err(CacheError::BadSetting(..))));
    let tenant = cache.tenant("a", Limits::new()).unwrap();
    assert!(matches!(cache.tenant("a", Limits::new()), Err(CacheError::TenantExists(_))));
    assert!(matches!(cache.tenant("b", Limits::new()), Err(CacheError::TooManyTenants)));
    let other = builder(8).build().unwrap();
    let disk = Disk::with(Vec::new());
    assert!(other.open_storage(&tenant, disk.storage()).is_err());
}

/// With the feature `io-uring` and a kernel that permits it, by io_uring; otherwise it falls back.
#[test]
fn io_uring_or_the_reason_why_not() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for direct in [false, true] {
        let builder = builder(300).engine(IoEngine::Uring).direct(direct);
        let cache = builder.read_ahead_bytes(8 * SIZE).build().unwrap();
        let report = cache.engine();
        assert_eq!(report.engine == IoEngine::Uring && report.registered, report.reason.is_none());
        let tenant = cache.tenant("a", Limits::new()).unwrap();
        let path = folder.path().join(direct.to_string());
        std::fs::write(&path, [9; 5000]).unwrap();
        let Ok(file) = cache.open(&tenant, &path) else { continue };
        assert_eq!(file.read(Block(0)).unwrap()[0], 9);
        let tail = file.read(Block(1)).unwrap();
        assert_eq!((tail[5000 - SIZE - 1], tail[5000 - SIZE]), (9, 0));
        drop(tail);
        thread::scope(|scope| {
            for thread in 0..3 {
                let file = &file;
                scope.spawn(move || {
                    for block in (thread..900).step_by(3) {
                        file.overwrite(Block(block)).unwrap().fill(block as u8);
                    }
                    file.sync().unwrap();
                    for block in (thread..900).step_by(3) {
                        assert!(file.read(Block(block)).unwrap().iter().all(|&b| b == block as u8));
                    }
                });
            }
        });
        let content = std::fs::read(&path).unwrap();
        assert!(content.chunks(SIZE).enumerate().all(|(nth, block)| block[5] == nth as u8));
        println!("{report}");
        cache.validate().unwrap();
    }
}
