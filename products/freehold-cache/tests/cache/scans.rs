//! Scans do not evict what is used again and again: the policy and its shadows are at work.

use freehold_cache::{Block, Cache, Limits};

use crate::Random;
use crate::disk::Disk;

const BLOCKS: u64 = 1000;

/// The hit ratio over a hot set of 600 blocks, half of all reads, and a scan.
fn ratio(shadows_percent: u64) -> f64 {
    let builder = Cache::builder().memory_bytes(BLOCKS * 4096).shadows_percent(shadows_percent);
    let cache = builder.build().unwrap();
    let tenant = cache.tenant("a", Limits::new()).unwrap();
    let file = cache.open_storage(&tenant, Disk::with(Vec::new()).storage()).unwrap();
    let mut random = Random::new(7);
    for scanned in 0..20_000 {
        drop(file.read(Block(random.below(600))).unwrap());
        drop(file.read(Block(10_000 + scanned)).unwrap());
    }
    let stats = &cache.stats().tenants[0];
    assert_eq!(stats.refaults > 0, shadows_percent > 0);
    stats.hit_ratio()
}

#[test]
fn a_scan_leaves_the_hot_set_alone() {
    let (with, without) = (ratio(100), ratio(0));
    // Of 20,000 reads of the hot set, 19,400 can hit.
    assert!(with > 0.43, "{with}");
    assert!(without < with, "{without}: shadows make no difference");
}

#[test]
fn a_loop_over_more_than_there_is_room_for() {
    let cache = Cache::builder().memory_bytes(BLOCKS * 4096).build().unwrap();
    let tenant = cache.tenant("a", Limits::new()).unwrap();
    let file = cache.open_storage(&tenant, Disk::with(Vec::new()).storage()).unwrap();
    for _ in 0..20 {
        for block in 0..BLOCKS * 3 / 2 {
            drop(file.read(Block(block)).unwrap());
        }
    }
    let ratio = cache.stats().tenants[0].hit_ratio();
    assert!(ratio > 0.4, "{ratio}: LRU order would have none");
    cache.validate().unwrap();
}
