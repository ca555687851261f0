//! A storage that cannot be written to: whom it stops, and whom it does not.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use freehold_cache::{Block, Cache, CacheError, CachedFile, Limits, SyncState, Tenant};

use crate::disk::Disk;

const SIZE: u64 = 4096;

fn cache() -> Cache {
    let builder = Cache::builder().memory_bytes(100 * SIZE).write_back_every(None);
    builder.build().unwrap()
}

fn bad_disk() -> Arc<Disk> {
    let disk = Disk::with(Vec::new());
    disk.failing_writes.store(u64::MAX, SeqCst);
    disk
}

fn open(cache: &Cache, tenant: &Tenant, disk: &Arc<Disk>) -> CachedFile {
    cache.open_storage(tenant, disk.storage()).unwrap()
}

/// Writes blocks until it is refused; returns how many are dirty.
fn fill(file: &CachedFile) -> u64 {
    let error = (0..1000).find_map(|block| file.write(Block(block)).map(drop).err());
    assert!(matches!(error, Some(CacheError::Io(_))), "{error:?}");
    file.dirty_blocks()
}

/// Reads and writes more blocks than there are in the cache.
fn work(file: &CachedFile) {
    for block in 0..300 {
        file.write(Block(block)).unwrap()[0] = block as u8;
        drop(file.read(Block(block + 1000)).unwrap());
    }
    (0..300).for_each(|block| assert_eq!(file.read(Block(block)).unwrap()[0], block as u8));
}

#[test]
fn it_does_not_stop_other_tenants() {
    for limits in [Limits::new().max_bytes(45 * SIZE), Limits::new()] {
        let (cache, bad, good) = (cache(), bad_disk(), Disk::with(Vec::new()));
        let [broken, other] = ["broken", "other"].map(|name| cache.tenant(name, limits).unwrap());
        let [broken, other] = [(broken, &bad), (other, &good)].map(|of| open(&cache, &of.0, of.1));
        let dirty = fill(&broken);
        assert_eq!(dirty, if limits == Limits::new() { 40 } else { 18 });
        work(&other);
        other.sync().unwrap();
        assert_eq!(broken.dirty_blocks(), dirty);
        // Nothing is lost, once it works again.
        bad.failing_writes.store(0, SeqCst);
        assert_eq!(broken.sync().unwrap_err().state, SyncState::Repaired);
        work(&broken);
        cache.validate().unwrap();
    }
}

#[test]
fn its_tenant_reads_on_and_writes_to_other_storage() {
    let (cache, bad, good) = (cache(), bad_disk(), Disk::with(Vec::new()));
    let tenant = cache.tenant("small", Limits::new().max_bytes(30 * SIZE)).unwrap();
    let [broken, other] = [&bad, &good].map(|disk| open(&cache, &tenant, disk));
    assert_eq!(fill(&broken), 12);
    let tried = bad.writes.load(SeqCst);
    for block in 0..1000 {
        other.write(Block(block % 10)).unwrap()[0] = 1;
    }
    // The thread in the background does, a few times a second.
    assert!(bad.writes.load(SeqCst) < tried + 100, "others try a storage that fails");
    (1000..1100).for_each(|block| drop(broken.read(Block(block)).unwrap()));
    work(&other);
    other.sync().unwrap();
}

/// Each of them has one block dirty before it is known to fail.
#[test]
fn many_files_on_it_leave_room_to_read() {
    let (cache, bad) = (cache(), bad_disk());
    let small = cache.tenant("small", Limits::new().max_bytes(30 * SIZE)).unwrap();
    let large = cache.tenant("large", Limits::new()).unwrap();
    // Halfway between what `dirty_percent` permits and all: of the small one, then of the cache.
    let mut opened = Vec::new();
    for (tenant, dirty_of_all) in [(&small, 21), (&large, 70)] {
        let files: Vec<_> = (0..100).map(|_| open(&cache, tenant, &bad)).collect();
        let write = |file: &CachedFile| file.write(Block(0)).map(drop).is_ok();
        let dirty = files.iter().filter(|file| write(file)).count();
        let stats = cache.stats();
        assert_eq!(stats.tenant(tenant.name()).unwrap().dirty, dirty as u64);
        assert_eq!(stats.tenants.iter().map(|of| of.dirty).sum::<u64>(), dirty_of_all);
        (0..100).for_each(|nth| drop(files[nth].read(Block(1)).unwrap()));
        opened.push(files);
    }
    let good = cache.tenant("good", Limits::new()).unwrap();
    work(&open(&cache, &good, &Disk::with(Vec::new())));
}

#[test]
fn the_background_goes_on_to_other_files() {
    let good = [(); 2].map(|()| Disk::with(Vec::new()));
    let bad = bad_disk();
    let panics = Disk::with(Vec::new());
    panics.panics[1].store(u64::MAX, SeqCst);
    let cache = Cache::builder().memory_bytes(100 * SIZE).dirty_percent(10, 90).build().unwrap();
    let tenant = cache.tenant("a", Limits::new()).unwrap();
    let disks = [&good[0], &bad, &panics, &good[1]];
    let files = disks.map(|disk| open(&cache, &tenant, disk));
    for file in &files {
        (0..10).for_each(|block| drop(file.write(Block(block)).unwrap()));
    }
    let end = Instant::now() + Duration::from_secs(20);
    let is_left = || files[0].dirty_blocks() + files[3].dirty_blocks() > 0;
    while is_left() && Instant::now() < end {
        // Only a write wakes the thread.
        drop(files[1].write(Block(0)).unwrap());
        std::thread::yield_now();
    }
    panics.panics[1].store(0, SeqCst);
    assert!(!is_left(), "it stops at what fails");
}
