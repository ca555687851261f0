//! A small cache with two tenants and a file of each, and what must be in the blocks.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::disk::{Disk, OnDisk, SIZE, number_at, place};
use crate::explore::step;
use crate::file_state::FileState;
use crate::slot::Flag;
use crate::sync::thread;
use crate::{
    Block, BlockMut, BlockRef, Cache, CacheError, CachedFile, Limits, LruPolicy, Tenant,
    TenantStats,
};

/// The size of the cache, of a file, and of what the first tenant may have, in blocks.
const BLOCKS: u64 = 8;
pub(crate) const FILE_BLOCKS: usize = 14;
pub(crate) const LIMIT: u64 = 5;

/// How often a call looks for room before it fails.
const PATIENCE: Duration = Duration::from_millis(40);

/// A file and its disk.
pub(crate) struct Opened {
    pub(crate) file: CachedFile,
    pub(crate) disk: Arc<Disk>,
    /// The number of each block that was written last. Changes under the block's guard.
    numbers: [AtomicU64; FILE_BLOCKS],
}

/// All of it.
pub(crate) struct World {
    pub(crate) cache: Cache,
    pub(crate) tenants: [Tenant; 2],
    pub(crate) files: [Opened; 2],
    /// Blocks that were brought in or found.
    uses: AtomicU64,
}

impl Opened {
    fn new(cache: &Cache, tenant: &Tenant) -> Self {
        let disk = Disk::new(FILE_BLOCKS);
        let storage = Box::new(OnDisk(Arc::clone(&disk)));
        let file = cache.open_storage(tenant, storage).expect("there are few files");
        Opened { file, disk, numbers: Default::default() }
    }

    /// The number that a block must have, for the holder of its guard.
    fn number(&self, block: usize) -> u64 {
        self.numbers[block].load(SeqCst)
    }

    /// Checks what a guard shows.
    fn check(&self, bytes: &[u8], block: usize) {
        for half in 0..2 {
            assert_eq!(number_at(bytes, half), self.number(block), "block {block}, half {half}");
            step();
        }
    }

    /// Gives a block the next number, half by half.
    fn change(&self, mut guard: BlockMut<'_>, block: usize) {
        let number = self.number(block) + 1;
        for half in 0..2 {
            guard[place(half)].copy_from_slice(&number.to_le_bytes());
            step();
        }
        self.numbers[block].store(number, SeqCst);
    }

    /// Writes a block; returns whether there was room for it.
    fn write(&self, block: usize) -> Result<(), CacheError> {
        let guard = self.file.write(Block(block as u64))?;
        self.check(&guard, block);
        self.change(guard, block);
        Ok(())
    }

    /// The numbers of all blocks, now.
    fn numbers(&self) -> [u64; FILE_BLOCKS] {
        std::array::from_fn(|block| self.number(block))
    }

    /// Checks that what was written before survives.
    fn check_durable(&self, before: &[u64; FILE_BLOCKS]) {
        for (block, number) in before.iter().enumerate() {
            let durable = self.disk.durable(block);
            assert!(
                durable >= *number,
                "block {block}: {durable} is durable, {number} was written"
            );
        }
    }
}

impl World {
    pub(crate) fn new(policy: LruPolicy, read_ahead: usize) -> Self {
        let builder = Cache::builder().memory_bytes(BLOCKS * SIZE as u64).policy(policy);
        let builder = builder.read_ahead_bytes(read_ahead * SIZE).write_back_every(None);
        let cache = builder.wait(PATIENCE).shards(2).build().expect("there is memory");
        let limited = Limits::new().max_bytes(LIMIT * SIZE as u64);
        let tenants = [("a", limited), ("b", Limits::new())]
            .map(|(name, limits)| cache.tenant(name, limits).expect("there are few tenants"));
        let files = [0, 1].map(|of| Opened::new(&cache, &tenants[of]));
        World { cache, tenants, files, uses: AtomicU64::new(0) }
    }

    /// Opens one more file.
    pub(crate) fn come(&self) -> Opened {
        Opened::new(&self.cache, &self.tenants[1])
    }

    /// Writes some blocks of a file that came, and closes it; storage may fail. Then another file
    /// has its number, and none of its blocks.
    pub(crate) fn go(&self, opened: Opened, blocks: usize, fails: bool) {
        for block in 0..blocks {
            let _no_room = self.note(opened.write(block));
        }
        // The model may stop here as well.
        thread::yield_now();
        opened.disk.failing_writes.store(u32::from(fails), SeqCst);
        let disk = Arc::clone(&opened.disk);
        let numbers = opened.numbers();
        let states = self.cache.shared.open_files();
        drop(opened.file);
        let mut closed = states.iter().skip(self.files.len());
        assert!(closed.any(|state| state.cached() == 0), "blocks of a closed file are cached");
        // Or else its number would stay taken.
        drop(states);
        let lost = (0..blocks).filter(|&block| disk.number(block) != numbers[block]).count();
        assert!(lost == 0 || fails, "{lost} blocks are lost");
        let other = self.come();
        for block in 0..blocks {
            let guard = self.note(other.file.read(Block(block as u64)));
            let _no_room = guard.map(|guard| other.check(&guard, block));
        }
    }

    /// Counts a use, if it is one.
    pub(crate) fn note<T>(&self, result: Result<T, CacheError>) -> Result<T, CacheError> {
        self.uses.fetch_add(u64::from(result.is_ok()), SeqCst);
        result
    }

    pub(crate) fn reads(&self, of: usize, block: usize) -> Result<BlockRef<'_>, CacheError> {
        let opened = &self.files[of];
        let guard = self.note(opened.file.read(Block(block as u64)))?;
        opened.check(&guard, block);
        Ok(guard)
    }

    pub(crate) fn read(&self, of: usize, block: usize) -> Result<(), CacheError> {
        self.reads(of, block).map(drop)
    }

    pub(crate) fn write(&self, of: usize, block: usize) -> Result<(), CacheError> {
        self.note(self.files[of].write(block))
    }

    pub(crate) fn overwrite(&self, of: usize, block: usize) -> Result<(), CacheError> {
        let opened = &self.files[of];
        let guard = self.note(opened.file.overwrite(Block(block as u64)))?;
        assert_eq!([0, 1].map(|half| number_at(&guard, half)), [0, 0], "what is overwritten");
        opened.change(guard, block);
        Ok(())
    }

    /// Which blocks of a file are there.
    pub(crate) fn cached(&self, of: usize) -> Vec<usize> {
        let (shared, blocks) = (&self.cache.shared, 0..FILE_BLOCKS);
        let file = &shared.open_files()[of];
        let key = |block: &usize| file.key(Block(*block as u64)).expect("its number is small");
        blocks.filter(|block| shared.lru.owner().index.find(key(block)).is_some()).collect()
    }

    /// Which of them are dirty.
    pub(crate) fn dirty(&self, of: usize) -> Vec<usize> {
        let dirty = self.cache.shared.open_files()[of].dirty_from(Block(0), FILE_BLOCKS);
        dirty.into_iter().map(|(block, _)| block.0 as usize).collect()
    }

    /// Syncs a file; says whether it succeeded.
    pub(crate) fn sync(&self, of: usize) -> bool {
        let opened = &self.files[of];
        let before = opened.numbers();
        let is_ok = opened.file.sync().is_ok();
        if is_ok {
            opened.check_durable(&before);
        }
        is_ok
    }

    pub(crate) fn limit(&self, blocks: u64) {
        let limits = Limits::new().max_bytes(blocks * SIZE as u64);
        self.tenants[0].set_limits(limits).expect("it is a block at least");
    }

    /// How many pieces were read in the background.
    pub(crate) fn pieces(&self) -> u64 {
        let of = |file: &Arc<FileState>| file.pieces.lock().unwrap_or_default();
        self.cache.shared.open_files().iter().map(of).sum()
    }

    /// Checks all of it, once no call is under way.
    pub(crate) fn check(&self) {
        // What is read in the background has no part in this.
        let states = self.cache.shared.open_files();
        states.iter().for_each(|file| file.stop_reading_on());
        for (of, opened) in self.files.iter().enumerate() {
            // They may report a failure of the past, and one that the thread in the background
            // notes meanwhile.
            opened.disk.failing_writes.store(0, SeqCst);
            assert!((0..3).any(|_| self.sync(of)), "nothing fails any more");
            for block in 0..FILE_BLOCKS {
                assert_eq!(opened.disk.number(block), opened.number(block), "block {block}");
            }
            assert_eq!(opened.file.dirty_blocks(), 0);
        }
        self.cache.validate().expect("the books are right");
        // The thread in the background may be at the end of a write-back.
        let pool = self.cache.shared.lru.owner();
        let marks = [Flag::Dirty, Flag::Loading];
        let is_marked = || pool.slots().any(|(_, slot)| marks.iter().any(|&mark| slot.has(mark)));
        let looks = (0..20).take_while(|_| is_marked());
        looks.for_each(|_| thread::yield_now());
        assert!(!is_marked(), "a mark is left");
        let stats = self.cache.stats();
        let sum = |count: fn(&TenantStats) -> u64| stats.tenants.iter().map(count).sum::<u64>();
        let uses = sum(|of| of.hits + of.misses + of.coalesced);
        // A miss that fails is one; a failure of what is read ahead is none.
        let succeeded = self.uses.load(SeqCst);
        assert!((succeeded..=succeeded + sum(|of| of.read_errors)).contains(&uses));
        assert_eq!(sum(|of| of.dirty), 0);
        assert_eq!(stats.free + sum(|of| of.cached), BLOCKS);
    }
}
