//! A loss of power: what was synced is there, whatever else is.
//!
//! Each write fills a block with a number, larger ones later. The power may go after each write and
//! sync of the storage, and after each sync of the file; each sector then has a number that was
//! synced last, or one that was written since.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};
use std::thread;

use freehold_cache::{Block, Cache, CachedFile, Limits};

use crate::disk::Disk;
use crate::{Random, from_env};

const SIZE: usize = 4096;
const BLOCKS: u64 = 40;

/// A file of a cache, and its disk.
struct Machine {
    file: CachedFile,
    disk: Arc<Disk>,
    books: Arc<Books>,
}

/// The number of each block that was written last, and of those the ones that were synced.
struct Books {
    written: Vec<AtomicU64>,
    synced: Vec<AtomicU64>,
    /// The first number that must not be there. Not a panic, which the cache might catch.
    broken: OnceLock<String>,
}

impl Books {
    /// The power goes now.
    fn cut(&self, disk: &Disk) {
        let numbers = |of: &[AtomicU64]| of.iter().map(|of| of.load(SeqCst)).collect::<Vec<_>>();
        // Both grow: what was synced before, and what will have been written after.
        let synced = numbers(&self.synced);
        disk.survivors(|offset, sector| {
            let block = offset / SIZE;
            let words = sector.chunks_exact(8);
            let mut words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            let number = words.next().unwrap();
            let (synced, written) = (synced[block], self.written[block].load(SeqCst));
            if !(synced..=written).contains(&number) || words.any(|word| word != number) {
                self.broken.get_or_init(|| {
                    format!("block {block} may have {number} of {synced} to {written}")
                });
            }
        });
    }
}

impl Machine {
    fn new() -> Self {
        let numbers = || (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
        let (written, synced) = (numbers(), numbers());
        let books = Arc::new(Books { written, synced, broken: OnceLock::new() });
        let disk = Disk::with(vec![0; BLOCKS as usize * SIZE]);
        let of_hook = Arc::clone(&books);
        disk.hook(move |disk, _| of_hook.cut(disk));
        // Less than there are blocks, so that reclaim writes as well.
        let cache = Cache::builder().memory_bytes(24 * SIZE as u64).build().unwrap();
        let tenant = cache.tenant("a", Limits::new()).unwrap();
        let file = cache.open_storage(&tenant, disk.storage()).unwrap();
        Machine { file, disk, books }
    }

    fn fill(&self, block: u64, number: u64) {
        self.books.written[block as usize].store(number, SeqCst);
        let mut guard = self.file.write(Block(block)).unwrap();
        guard.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    }

    /// Syncs what the caller has written: these numbers.
    fn sync(&self, mine: &[u64]) -> bool {
        let is_ok = self.file.sync().is_ok();
        for (synced, &number) in self.books.synced.iter().zip(mine).filter(|_| is_ok) {
            synced.fetch_max(number, SeqCst);
        }
        self.books.cut(&self.disk);
        assert_eq!(self.books.broken.get(), None);
        is_ok
    }
}

#[test]
fn what_was_synced_survives_a_loss_of_power_at_each_step() {
    for seed in 0..from_env("FREEHOLD_CACHE_ROUNDS", 1) * 30 {
        let mut random = Random::new(seed);
        let machine = Machine::new();
        let mut mine = [0; BLOCKS as usize];
        // In some, the storage fails to make durable what was written, once.
        let (fails_at, mut is_lost) = (random.below(600), false);
        for number in 1..=random.below(300) {
            let block = random.below(BLOCKS);
            mine[block as usize] = number;
            machine.fill(block, number);
            machine.disk.failing_syncs.fetch_add(u64::from(number == fails_at), SeqCst);
            if random.below(20) == 0 {
                is_lost |= machine.disk.failing_syncs.load(SeqCst) > 0;
                assert_eq!(machine.sync(&mine), !is_lost);
            }
        }
        assert_eq!(machine.books.broken.get(), None);
    }
}

#[test]
fn what_was_synced_survives_while_threads_write_and_sync() {
    let threads = 3;
    for seed in 0..from_env("FREEHOLD_CACHE_ROUNDS", 1) * 8 {
        let machine = Machine::new();
        thread::scope(|scope| {
            let worker = |worker| {
                let machine = &machine;
                scope.spawn(move || {
                    let mut random = Random::new(seed * 100 + worker);
                    let mut mine = [0; BLOCKS as usize];
                    for number in 1..=200 {
                        // Each has blocks of its own, beside those of the others.
                        let block = random.below(BLOCKS / threads) * threads + worker;
                        mine[block as usize] = number;
                        machine.fill(block, number);
                        if random.below(10) == 0 {
                            assert!(machine.sync(&mine));
                        }
                    }
                })
            };
            let workers: Vec<_> = (0..threads).map(worker).collect();
            // ThreadSanitizer does not see that the end of a scope waits for them.
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
        assert_eq!(machine.books.broken.get(), None);
    }
}
