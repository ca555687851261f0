//! Storage that fails: who is told, and that nothing is lost silently.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use freehold_cache::{Block, Cache, CacheError, CachedFile, Limits, SyncState};
use parking_lot::Mutex;

use crate::disk::{Call, Disk};

const SIZE: usize = 4096;

fn open(disk: &Arc<Disk>) -> (Cache, CachedFile) {
    let builder = Cache::builder().memory_bytes(16 * SIZE as u64).write_back_every(None);
    let cache = builder.dirty_percent(50, 50).build().unwrap();
    let tenant = cache.tenant("all", Limits::new()).unwrap();
    let file = cache.open_storage(&tenant, disk.storage()).unwrap();
    (cache, file)
}

#[test]
fn a_read_that_fails_is_told_and_tried_again() {
    let disk = Disk::with(vec![1; 10 * SIZE]);
    let (cache, file) = open(&disk);
    disk.failing_reads.store(1, SeqCst);
    assert!(matches!(file.read(Block(2)), Err(CacheError::Io(_))));
    assert_eq!(file.read(Block(2)).unwrap()[0], 1);
    assert_eq!(cache.stats().tenants[0].read_errors, 1);
    // Those who wait for a reader that fails try themselves.
    disk.failing_reads.store(1, SeqCst);
    disk.close_gate();
    let results = thread::scope(|scope| {
        let read = || scope.spawn(|| file.read(Block(3)).map(|guard| guard[0]));
        let before = disk.reads.load(SeqCst);
        let first = read();
        while disk.reads.load(SeqCst) == before {
            thread::yield_now();
        }
        let readers = [first, read(), read()];
        thread::sleep(std::time::Duration::from_millis(20));
        disk.open_gate();
        readers.map(|reader| reader.join().unwrap())
    });
    assert_eq!(results.iter().filter(|result| matches!(result, Ok(1))).count(), 2);
    // Writers as well.
    disk.failing_reads.store(1, SeqCst);
    disk.close_gate();
    let before = disk.reads.load(SeqCst);
    let results = thread::scope(|scope| {
        let write = || scope.spawn(|| file.write(Block(5)).map(|mut guard| guard[0] += 1));
        let first = write();
        while disk.reads.load(SeqCst) == before {
            thread::yield_now();
        }
        let writers = [first, write(), write()];
        // They wait for the first one's read. If they do not yet, the test sees less.
        thread::sleep(std::time::Duration::from_millis(20));
        disk.open_gate();
        writers.map(|writer| writer.join().unwrap())
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 2);
    assert_eq!(file.read(Block(5)).unwrap()[0], 3);
    cache.validate().unwrap();
}

#[test]
fn a_failed_write_back_keeps_the_block_and_the_next_sync_tells() {
    let disk = Disk::with(Vec::new());
    let (cache, file) = open(&disk);
    file.overwrite(Block(0)).unwrap().fill(9);
    disk.failing_writes.store(1, SeqCst);
    assert!(file.write_back().is_err());
    assert_eq!(file.dirty_blocks(), 1);
    let error = file.sync().unwrap_err();
    assert_eq!((error.state, error.error.raw_os_error()), (SyncState::Repaired, Some(5)));
    assert_eq!(disk.content()[0], 9);
    file.sync().unwrap();
    // A sync that cannot write says so, and the next one writes.
    file.write(Block(0)).unwrap()[0] = 10;
    file.write(Block(1)).unwrap()[0] = 11;
    disk.failing_writes.store(1, SeqCst);
    assert_eq!(file.sync().unwrap_err().state, SyncState::Dirty(2));
    assert_eq!(file.dirty_blocks(), 2);
    file.sync().unwrap();
    assert_eq!((disk.content()[0], disk.content()[SIZE]), (10, 11));
    assert_eq!(cache.stats().tenants[0].write_errors, 3);
}

#[test]
fn reclaim_that_cannot_write_keeps_dirty_blocks() {
    let disk = Disk::with(vec![1; 100 * SIZE]);
    let (cache, file) = open(&disk);
    for block in 0..6 {
        file.overwrite(Block(block)).unwrap().fill(50 + block as u8);
    }
    disk.failing_writes.store(u64::MAX, SeqCst);
    for block in 20..100 {
        assert_eq!(file.read(Block(block)).unwrap()[0], 1);
    }
    assert_eq!(file.dirty_blocks(), 6);
    let reads = disk.reads.load(SeqCst);
    for block in 0..6 {
        assert_eq!(file.read(Block(block)).unwrap()[0], 50 + block as u8);
    }
    assert_eq!(disk.reads.load(SeqCst), reads);
    // As many as may be dirty are: a writer is told why it cannot go on.
    for block in 6..8 {
        drop(file.write(Block(block)).unwrap());
    }
    assert!(matches!(file.write(Block(8)), Err(CacheError::Io(_))));
    disk.failing_writes.store(0, SeqCst);
    assert_eq!(file.sync().unwrap_err().state, SyncState::Repaired);
    file.sync().unwrap();
    assert_eq!(disk.content()[5 * SIZE], 55);
    cache.validate().unwrap();
}

#[test]
fn a_failed_sync_of_the_storage_is_never_forgotten() {
    let disk = Disk::with(Vec::new());
    let (_cache, file) = open(&disk);
    file.write(Block(0)).unwrap()[0] = 1;
    disk.failing_syncs.store(1, SeqCst);
    assert_eq!(file.sync().unwrap_err().state, SyncState::Lost);
    // The storage would succeed now, and has forgotten the block.
    assert_eq!(file.sync().unwrap_err().state, SyncState::Lost);
    file.write(Block(0)).unwrap()[0] = 2;
    assert_eq!(file.sync().unwrap_err().state, SyncState::Lost);
}

#[test]
fn of_two_syncs_at_once_none_forgets_what_the_other_one_lost() {
    let disk = Disk::with(Vec::new());
    let (_cache, file) = open(&disk);
    file.write(Block(0)).unwrap()[0] = 1;
    file.write(Block(1)).unwrap()[0] = 2;
    disk.failing_syncs.store(1, SeqCst);
    let (first_is_back, second_is_back) = (Arc::new(Barrier::new(2)), Arc::<AtomicBool>::default());
    let (barrier, is_back) = (Arc::clone(&first_is_back), Arc::clone(&second_is_back));
    disk.hook(move |disk, call| {
        if call == Call::Sync && disk.syncs.load(SeqCst) == 1 {
            // On its way back from the failure, until the second one has returned, or does not.
            barrier.wait();
            let end = Instant::now() + Duration::from_millis(50);
            while !is_back.load(SeqCst) && Instant::now() < end {
                thread::yield_now();
            }
        }
    });
    thread::scope(|scope| {
        let first = scope.spawn(|| file.sync().unwrap_err().state);
        first_is_back.wait();
        let second = file.sync().map_err(|error| error.state);
        second_is_back.store(true, SeqCst);
        assert_eq!((first.join().unwrap(), second), (SyncState::Lost, Err(SyncState::Lost)));
    });
}

#[test]
fn a_sync_that_the_storage_panics_in_is_one_that_failed() {
    let disk = Disk::with(Vec::new());
    let (_cache, file) = open(&disk);
    disk.hook(|disk, call| assert!(call == Call::Write || disk.syncs.load(SeqCst) > 1));
    file.write(Block(0)).unwrap()[0] = 1;
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| file.sync())).is_err());
    assert_eq!(file.sync().unwrap_err().state, SyncState::Lost);
}

#[test]
fn what_fails_behind_a_sync_is_left_to_the_next_one() {
    let disk = Disk::with(Vec::new());
    let (cache, file) = open(&disk);
    file.write(Block(0)).unwrap()[0] = 1;
    let other = Mutex::new(Some(file.clone()));
    disk.hook(move |disk, call| {
        // In the first sync, when its blocks are written.
        let Some(other) = other.lock().take_if(|_| call == Call::Sync) else { return };
        other.write(Block(1)).unwrap()[0] = 2;
        disk.failing_writes.store(1, SeqCst);
        assert!(other.write_back().is_err());
    });
    file.sync().unwrap();
    assert_eq!(file.dirty_blocks(), 1);
    assert_eq!(file.sync().unwrap_err().state, SyncState::Repaired);
    assert_eq!((disk.content()[SIZE], cache.stats().tenants[0].dirty), (2, 0));
    file.sync().unwrap();
}

#[test]
fn a_writer_that_panics_leaves_its_block_dirty() {
    let disk = Disk::with(Vec::new());
    let (_cache, file) = open(&disk);
    let panics = || {
        let mut guard = file.write(Block(0)).unwrap();
        guard[0] = 1;
        panic!("half done");
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    assert_eq!(file.dirty_blocks(), 1);
    file.sync().unwrap();
    assert_eq!(disk.content()[0], 1);
}

#[test]
fn a_sync_waits_for_writers_of_dirty_blocks() {
    let disk = Disk::with(Vec::new());
    let (_cache, file) = open(&disk);
    file.write(Block(0)).unwrap()[0] = 1;
    let mut again = file.write(Block(0)).unwrap();
    thread::scope(|scope| {
        let sync = scope.spawn(|| file.sync().map(|()| disk.content()[0]));
        thread::sleep(std::time::Duration::from_millis(20));
        assert!(!sync.is_finished(), "what was written before is not on storage");
        again[0] = 2;
        drop(again);
        assert_eq!(sync.join().unwrap().unwrap(), 2);
    });
}

#[test]
fn a_storage_that_panics_loses_nothing() {
    let disk = Disk::with(vec![7; 100 * SIZE]);
    let (cache, file) = open(&disk);
    let (reads, writes) = (&disk.panics[0], &disk.panics[1]);
    let panics = |of: &AtomicU64, call: &dyn Fn()| {
        of.store(1, SeqCst);
        let call = std::panic::AssertUnwindSafe(call);
        assert!(std::panic::catch_unwind(call).is_err());
        cache.validate().unwrap();
    };
    panics(reads, &|| drop(file.read(Block(1))));
    assert_eq!(file.read(Block(1)).unwrap()[0], 7);
    panics(reads, &|| drop(file.write(Block(2))));
    assert_eq!((file.dirty_blocks(), file.write(Block(2)).unwrap()[0]), (0, 7));
    file.write(Block(3)).unwrap()[0] = 8;
    panics(writes, &|| drop(file.sync()));
    // Reclaim, on its way to make room: the block that was to come is not there.
    panics(writes, &|| (10..40).for_each(|block| drop(file.read(Block(block)).unwrap())));
    for block in 10..40 {
        assert_eq!(file.read(Block(block)).unwrap()[0], 7);
    }
    file.sync().unwrap();
    assert_eq!(disk.content()[3 * SIZE], 8);
    drop(file);
    assert_eq!((cache.stats().free, cache.stats().tenants[0].cached), (16, 0));
}
