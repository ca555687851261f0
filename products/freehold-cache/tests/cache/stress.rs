//! Threads that read and write the same blocks: no torn content, no lost write, books that balance.

use std::thread;

use freehold_cache::{Block, Cache, Limits, LruPolicy};

use crate::disk::Disk;
use crate::{Random, from_env};

const SIZE: usize = 4096;
const BLOCKS: u64 = 64;
const THREADS: u64 = 4;

#[test]
fn writes_are_neither_torn_nor_lost() {
    for (policy, read_ahead) in [(LruPolicy::ScanResistant, 0), (LruPolicy::TwoLists, 4)] {
        let disk = Disk::with(Vec::new());
        let builder = Cache::builder().memory_bytes(40 * SIZE as u64).policy(policy);
        let cache = builder.read_ahead_bytes(read_ahead * SIZE).build().unwrap();
        let tenant = cache.tenant("a", Limits::new()).unwrap();
        let file = cache.open_storage(&tenant, disk.storage()).unwrap();
        let rounds = from_env("FREEHOLD_CACHE_ROUNDS", 1) * 4000;
        let sums = thread::scope(|scope| {
            let worker = |seed| {
                let file = &file;
                move || {
                    let (mut random, mut added) = (Random::new(seed), 0);
                    for round in 0..rounds {
                        let block = Block(random.below(BLOCKS));
                        let word = |bytes: &[u8], at: usize| {
                            u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
                        };
                        if random.below(3) == 0 {
                            let mut guard = file.write(block).unwrap();
                            let count = word(&guard, 0) + 1;
                            assert_eq!(word(&guard, SIZE - 8) + 1, count, "torn");
                            guard[..8].copy_from_slice(&count.to_le_bytes());
                            guard[SIZE - 8..].copy_from_slice(&count.to_le_bytes());
                            added += 1;
                        } else {
                            let guard = file.read(block).unwrap();
                            assert_eq!(word(&guard, 0), word(&guard, SIZE - 8), "torn");
                        }
                        if round % 500 == 0 {
                            file.sync().unwrap();
                        }
                    }
                    added
                }
            };
            let workers: Vec<_> = (1..=THREADS).map(|seed| scope.spawn(worker(seed))).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum::<u64>()
        });
        file.sync().unwrap();
        let content = disk.content();
        let counts =
            content.chunks(SIZE).map(|block| u64::from_le_bytes(block[..8].try_into().unwrap()));
        assert_eq!(counts.sum::<u64>(), sums, "no write is lost");
        cache.validate().unwrap();
        let stats = &cache.stats().tenants[0];
        assert_eq!(stats.hits + stats.misses + stats.coalesced, THREADS * rounds);
    }
}

#[test]
fn files_come_and_go_while_others_are_read() {
    let cache = Cache::builder().memory_bytes(40 * SIZE as u64).build().unwrap();
    let tenant = cache.tenant("a", Limits::new()).unwrap();
    thread::scope(|scope| {
        for seed in 1..=3 {
            let (cache, tenant) = (&cache, &tenant);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..from_env("FREEHOLD_CACHE_ROUNDS", 1) * 60 {
                    let disk = Disk::with(vec![seed as u8; 30 * SIZE]);
                    let file = cache.open_storage(tenant, disk.storage()).unwrap();
                    for _ in 0..60 {
                        let block = Block(random.below(30));
                        assert_eq!(file.read(block).unwrap()[9], seed as u8);
                        file.write(block).unwrap()[8] = seed as u8 + 100;
                    }
                    drop(file);
                    assert!(disk.content().chunks(SIZE).any(|block| block[8] == seed as u8 + 100));
                }
            });
        }
    });
    cache.validate().unwrap();
    let stats = cache.stats();
    assert_eq!((stats.free, stats.tenants[0].dirty, stats.tenants[0].lost), (40, 0, 0));
}
