//! What is read before anybody asks for it, behind a sequential reader.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use freehold_cache::{Block, Cache, CachedFile, Limits, TenantStats};

use crate::disk::{Disk, numbered};

const SIZE: usize = 4096;

/// A cache of 64 blocks that reads 8 ahead, and a file on this disk.
fn reads_ahead(disk: &Arc<Disk>) -> (Cache, CachedFile) {
    let builder = Cache::builder().memory_bytes((64 * SIZE) as u64).read_ahead_bytes(8 * SIZE);
    let cache = builder.build().unwrap();
    let tenant = cache.tenant("a", Limits::new()).unwrap();
    let file = cache.open_storage(&tenant, disk.storage()).unwrap();
    (cache, file)
}

fn stats(cache: &Cache) -> TenantStats {
    cache.stats().tenants[0].clone()
}

/// Waits until this is so, for as long as a machine may stand still.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn read(file: &CachedFile, blocks: impl IntoIterator<Item = u64>) {
    for block in blocks {
        assert_eq!(file.read(Block(block)).unwrap()[0], block as u8);
    }
}

#[test]
fn the_next_piece_comes_while_the_reader_has_not_asked_for_it() {
    let disk = Disk::with(numbered(100));
    let (cache, file) = reads_ahead(&disk);
    // The second block in a row brings a piece of eight, whose first use asks for the next one.
    read(&file, 0..2);
    assert_eq!((stats(&cache).misses, stats(&cache).read_ahead), (2, 8));
    read(&file, 2..3);
    wait_until("the second piece", || stats(&cache).read_ahead == 16);
    let reads = disk.reads.load(SeqCst);
    read(&file, 3..10);
    assert_eq!(disk.reads.load(SeqCst), reads);
    // And so on, to the end of the file, with no miss if the reader is slow enough.
    for piece in (10..98).step_by(8) {
        read(&file, piece..piece + 1);
        wait_until("the next piece", || stats(&cache).read_ahead >= 98.min(piece + 14));
        read(&file, piece + 1..piece + 8);
    }
    read(&file, 98..100);
    assert_eq!((stats(&cache).misses, stats(&cache).read_ahead), (2, 98));
    drop(file);
    cache.validate().unwrap();
}

#[test]
fn each_block_is_read_once_however_fast_the_reader_is() {
    let disk = Disk::with(numbered(100));
    let (cache, file) = reads_ahead(&disk);
    read(&file, 0..100);
    wait_until("what is under way", || stats(&cache).misses + stats(&cache).read_ahead == 100);
    // A reader that is not sequential reads what it asks for.
    let (cache, file) = reads_ahead(&disk);
    read(&file, (0..100).rev().step_by(3));
    assert_eq!(stats(&cache).read_ahead, 0);
    drop(file);
    cache.validate().unwrap();
}

#[test]
fn a_piece_that_the_reader_has_passed_is_not_read_again() {
    let slow = Disk::with(numbered(100));
    let (cache, busy) = reads_ahead(&slow);
    let open = |name| {
        let tenant = cache.tenant(name, Limits::new()).unwrap();
        cache.open_storage(&tenant, Disk::with(numbered(100)).storage()).unwrap()
    };
    let (file, last) = (open("b"), open("c"));
    // The thread waits for another file's piece.
    read(&busy, 0..2);
    slow.close_gate();
    let reads = slow.reads.load(SeqCst);
    read(&busy, 2..3);
    wait_until("the read of the busy file", || slow.reads.load(SeqCst) > reads);
    // It is asked for the piece at block 9, which the reader reads, uses and loses meanwhile.
    read(&file, 0..100);
    let stats = |nth: usize| cache.stats().tenants[nth].clone();
    assert_eq!(stats(1).misses + stats(1).read_ahead, 100);
    assert!(stats(1).evictions >= 18, "the piece is lost");
    slow.open_gate();
    // Requests are served in turn.
    read(&last, 0..3);
    wait_until("the last file's second piece", || stats(2).read_ahead == 16);
    assert_eq!(stats(1).misses + stats(1).read_ahead, 100);
    drop((busy, file, last));
    cache.validate().unwrap();
}

#[test]
fn closing_a_file_waits_for_the_piece_under_way_and_no_other_begins() {
    let disk = Disk::with(numbered(100));
    let (cache, file) = reads_ahead(&disk);
    read(&file, 0..2);
    disk.close_gate();
    let reads = disk.reads.load(SeqCst);
    read(&file, 2..3);
    wait_until("the read of the second piece", || disk.reads.load(SeqCst) > reads);
    let closing = thread::spawn(move || drop(file));
    thread::sleep(Duration::from_millis(50));
    assert!(!closing.is_finished());
    disk.open_gate();
    closing.join().unwrap();
    assert_eq!(stats(&cache).cached, 0);
    wait_until("the end of the storage", || Arc::strong_count(&disk) == 1);
    cache.validate().unwrap();
}

#[test]
fn a_piece_that_panics_or_fails_is_read_by_the_reader() {
    let disk = Disk::with(numbered(100));
    for (failing, panicking) in [(1, 0), (0, 1)] {
        let (cache, file) = reads_ahead(&disk);
        read(&file, 0..2);
        let reads = disk.reads.load(SeqCst);
        disk.failing_reads.store(failing, SeqCst);
        disk.panics[0].store(panicking, SeqCst);
        read(&file, 2..3);
        wait_until("the piece", || disk.reads.load(SeqCst) > reads);
        read(&file, 3..40);
        assert!(stats(&cache).misses > 2);
        drop(file);
        cache.validate().unwrap();
    }
}
