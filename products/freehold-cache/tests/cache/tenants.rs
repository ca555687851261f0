//! Limits that hold at every moment, protection, and counters.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use freehold_cache::{Block, Cache, Limits, LruPolicy};

use crate::disk::Disk;
use crate::{Random, from_env};

const SIZE: u64 = 4096;

#[test]
fn a_tenant_at_its_limit_evicts_its_own() {
    for policy in [LruPolicy::TwoLists, LruPolicy::ScanResistant] {
        let builder = Cache::builder().memory_bytes(1000 * SIZE).policy(policy);
        let cache = builder.build().unwrap();
        let [small, large] = [("small", 50), ("large", 900)].map(|(name, blocks)| {
            let limits = Limits::new().max_bytes(blocks * SIZE);
            let tenant = cache.tenant(name, limits).unwrap();
            cache.open_storage(&tenant, Disk::with(Vec::new()).storage()).unwrap()
        });
        for block in 0..900 {
            drop(large.read(Block(block)).unwrap());
        }
        for block in 0..5000 {
            drop(small.read(Block(block)).unwrap());
            assert!(cache.stats().tenants[0].cached <= 50);
        }
        for block in 0..900 {
            drop(large.read(Block(block)).unwrap());
        }
        assert_eq!(cache.stats().tenant("large").unwrap().hits, 900, "{policy:?}");
        cache.validate().unwrap();
    }
}

#[test]
fn what_is_protected_stays() {
    let cache = Cache::builder().memory_bytes(1000 * SIZE).build().unwrap();
    let open = |name, limits| {
        let tenant = cache.tenant(name, limits).unwrap();
        cache.open_storage(&tenant, Disk::with(Vec::new()).storage()).unwrap()
    };
    let quiet = open("quiet", Limits::new().protected_bytes(400 * SIZE));
    let noisy = open("noisy", Limits::new());
    for block in 0..300 {
        drop(quiet.read(Block(block)).unwrap());
    }
    for block in 0..20_000 {
        drop(noisy.read(Block(block)).unwrap());
    }
    for block in 0..300 {
        drop(quiet.read(Block(block)).unwrap());
    }
    assert_eq!(cache.stats().tenant("quiet").unwrap().hits, 300);
    assert_eq!(cache.stats().free, 0, "all of the memory is used");
}

#[test]
fn limits_change_while_blocks_are_cached() {
    let cache = Cache::builder().memory_bytes(200 * SIZE).build().unwrap();
    let tenant = cache.tenant("a", Limits::new()).unwrap();
    let file = cache.open_storage(&tenant, Disk::with(Vec::new()).storage()).unwrap();
    for block in 0..200 {
        drop(file.read(Block(block)).unwrap());
    }
    tenant.set_limits(Limits::new().max_bytes(20 * SIZE)).unwrap();
    drop(file.read(Block(1000)).unwrap());
    assert!(cache.stats().tenants[0].cached <= 20);
    assert!(tenant.set_limits(Limits::new().max_bytes(1)).is_err());
    tenant.set_limits(Limits::new()).unwrap();
    for block in 0..200 {
        drop(file.read(Block(block)).unwrap());
    }
    assert!(cache.stats().tenants[0].cached >= 199);
}

#[test]
fn guards_on_all_that_a_tenant_may_have() {
    let wait = Duration::from_millis(20);
    let cache = Cache::builder().memory_bytes(100 * SIZE).wait(wait).build().unwrap();
    let tenant = cache.tenant("a", Limits::new().max_bytes(4 * SIZE)).unwrap();
    let file = cache.open_storage(&tenant, Disk::with(Vec::new()).storage()).unwrap();
    let guards: Vec<_> = (0..4).map(|block| file.read(Block(block)).unwrap()).collect();
    let refused = file.read(Block(9)).map(drop).unwrap_err().to_string();
    assert_eq!(refused, "all blocks that the tenant \"a\" may have are in use");
    drop(guards);
    drop(file.read(Block(9)).unwrap());
    cache.validate().unwrap();
}

#[test]
fn limits_hold_while_threads_work() {
    let rounds = from_env("FREEHOLD_CACHE_ROUNDS", 1) * 3000;
    let cache = Cache::builder().memory_bytes(100 * SIZE).build().unwrap();
    let files = [30, 60].map(|blocks| {
        let limits = Limits::new().max_bytes(blocks * SIZE);
        let tenant = cache.tenant(&blocks.to_string(), limits).unwrap();
        cache.open_storage(&tenant, Disk::with(Vec::new()).storage()).unwrap()
    });
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let file = &files[worker % 2];
                scope.spawn(move || {
                    let mut random = Random::new(worker as u64 + 1);
                    for _ in 0..rounds {
                        let block = Block(random.below(200));
                        match random.below(4) {
                            0 => drop(file.write(block).unwrap()),
                            _ => drop(file.read(block).unwrap()),
                        }
                    }
                })
            })
            .collect();
        let (cache, done) = (&cache, &done);
        scope.spawn(move || {
            while !done.load(SeqCst) {
                for of in cache.stats().tenants {
                    assert!(of.cached <= of.max.unwrap(), "{of:?}");
                }
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, SeqCst);
    });
    cache.validate().unwrap();
    drop(files);
    cache.validate().unwrap();
    assert_eq!(cache.stats().free, 100);
}
