//! A loss of power: what was synced is there, whatever else is.
//!
//! Each write fills a block with a number, larger ones later. After a crash, each sector has a
//! number that was synced last, or one that was written since.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use freehold_cache::{Block, Cache, CachedFile, Limits};

use crate::disk::{Disk, SECTOR};
use crate::{Random, from_env};

const SIZE: usize = 4096;
const BLOCKS: u64 = 40;

fn open(disk: &std::sync::Arc<Disk>) -> (Cache, CachedFile) {
    // Less than there are blocks, so that reclaim writes as well.
    let cache = Cache::builder().memory_bytes(24 * SIZE as u64).build().unwrap();
    let tenant = cache.tenant("a", Limits::new()).unwrap();
    let file = cache.open_storage(&tenant, disk.storage()).unwrap();
    (cache, file)
}

fn fill(file: &CachedFile, block: u64, number: u64) {
    let mut guard = file.write(Block(block)).unwrap();
    guard.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
}

/// Checks that the sectors of a block, each of one number, are between these.
fn check(image: &[u8], block: u64, synced: u64, written: u64) {
    let (start, none) = (block as usize * SIZE, [0; SIZE]);
    for (nth, sector) in image.get(start..start + SIZE).unwrap_or(&none).chunks(SECTOR).enumerate()
    {
        let words: Vec<_> = sector
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        let number = words[0];
        assert!(words.iter().all(|&word| word == number), "a torn sector");
        assert!(
            (synced..=written).contains(&number),
            "sector {nth} of block {block} has {number}: {synced} was synced, {written} written"
        );
    }
}

#[test]
fn what_was_synced_survives_by_seed() {
    for seed in 0..from_env("FREEHOLD_CACHE_ROUNDS", 1) * 60 {
        let mut random = Random::new(seed);
        let disk = Disk::with(Vec::new());
        let (_cache, file) = open(&disk);
        let (mut synced, mut written) = ([0; BLOCKS as usize], [0; BLOCKS as usize]);
        for number in 1..=random.below(300) {
            let block = random.below(BLOCKS);
            written[block as usize] = number;
            fill(&file, block, number);
            if random.below(20) == 0 {
                file.sync().unwrap();
                synced = written;
            }
            if random.below(40) == 0 {
                let image = disk.after_crash(&mut random);
                for block in 0..BLOCKS {
                    check(&image, block, synced[block as usize], written[block as usize]);
                }
            }
        }
    }
}

#[test]
fn what_was_synced_survives_while_threads_write_and_sync() {
    let threads = 3;
    let numbers = || (0..BLOCKS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    for seed in 0..from_env("FREEHOLD_CACHE_ROUNDS", 1) * 8 {
        let disk = Disk::with(Vec::new());
        let (_cache, file) = open(&disk);
        let (synced, written) = (numbers(), numbers());
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|worker| {
                    let (file, synced, written) = (&file, &synced, &written);
                    scope.spawn(move || {
                        let mut random = Random::new(seed * 100 + worker);
                        let mut mine = [0; BLOCKS as usize];
                        for number in 1..=200 {
                            // Each has blocks of its own, beside those of the others.
                            let block = random.below(BLOCKS / threads) * threads + worker;
                            written[block as usize].store(number, SeqCst);
                            fill(file, block, number);
                            mine[block as usize] = number;
                            if random.below(10) == 0 {
                                file.sync().unwrap();
                                for (block, &number) in mine.iter().enumerate() {
                                    synced[block].fetch_max(number, SeqCst);
                                }
                            }
                        }
                    })
                })
                .collect();
            let mut random = Random::new(seed);
            while !workers.iter().all(|worker| worker.is_finished()) {
                let synced: Vec<_> = synced.iter().map(|number| number.load(SeqCst)).collect();
                let image = disk.after_crash(&mut random);
                for block in 0..BLOCKS {
                    let written = written[block as usize].load(SeqCst);
                    check(&image, block, synced[block as usize], written);
                }
            }
            // ThreadSanitizer does not see that the end of a scope waits for them.
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
    }
}
