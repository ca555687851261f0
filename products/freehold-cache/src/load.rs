//! Looking blocks up, and reading in what is missing, once however many threads want it.
//!
//! A thread that misses a block enters a frame for it in the index, with its exclusive latch held,
//! before it reads. Others find the frame there and wait for the latch, so no block is read twice,
//! and no lock but those of the blocks concerned is held while the storage works.

use std::sync::Arc;
use std::time::Duration;

use freehold_host::lru::{Kind, LruError, LruPolicy, Scope, Shadow};
use freehold_host::{FrameCount, OwnedPages};

use crate::counters::Count;
use crate::error::CacheError;
use crate::file_state::FileState;
use crate::index::{Entered, Entry};
use crate::key::{Block, Key, SlotIndex};
use crate::shared::Shared;
use crate::slot::{Flag, Page, Slot};
use crate::sync::{Instant, RwLockReadGuard, RwLockWriteGuard, thread};

/// The part of the cache that is evicted at a time when it is full: the LRU's own for a limit, with
/// the scan-resistant policy, which judges its lists by the evictions from them.
const EVICT_PART: u64 = 512;
const EVICT_MAX: u64 = 31;

/// How long a look-up waits for a latch before it looks again. The block may go meanwhile, and
/// another one come in its place, whose guard the caller must not wait for: the thread that has it
/// may wait for one of the caller's.
pub(crate) const LATCH_WAIT: Duration = Duration::from_millis(10);

/// What a block that is not cached begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// What is on storage.
    Read,
    /// Zeroes: the caller overwrites it.
    Zero,
}

/// A block that is being brought in: entered, charged, and latched. Dropped before it has arrived,
/// because of an error or a panic of the storage, it is given up: those who wait for it look again,
/// and bring it in themselves.
pub(crate) struct Coming<'a> {
    shared: &'a Shared,
    index: SlotIndex,
    pub(crate) slot: &'a Slot,
    /// `None` once it has arrived.
    page: Option<RwLockWriteGuard<'a, Page>>,
    shadow: Option<Shadow>,
    is_charged: bool,
}

impl Coming<'_> {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.page.as_mut().map_or(&mut [], |page| page.bytes_mut())
    }

    pub(crate) fn block(&self) -> Block {
        self.page.as_ref().map_or(Block(0), |page| page.key.block())
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let Some(mut page) = self.page.take() else { return };
        let (lru, frame) = (&self.shared.lru, self.index.frame());
        // Another thread's frame for the same block stays.
        lru.owner().index.remove(page.key, Entry::Cached(self.index));
        page.key = Key::NONE;
        self.slot.clear(Flag::Loading);
        self.slot.clear(Flag::ReadAhead);
        let file = page.file.take();
        if let Some(file) = file.filter(|_| self.is_charged) {
            file.remove_cached();
        }
        // A reclaim that panicked may have been followed by the charge.
        if self.is_charged || (thread::panicking() && lru.frame_stats(frame).is_ok()) {
            drop(page);
            // The reference of the index: the frame returns to the pool.
            let _none = lru.put(frame);
        } else {
            let memory = page.memory.take();
            drop(page);
            lru.owner().give_back(memory);
        }
    }
}

impl Shared {
    /// A block, shared.
    pub(crate) fn shared_page<'a>(
        &'a self,
        file: &Arc<FileState>,
        block: Block,
    ) -> Result<RwLockReadGuard<'a, Page>, CacheError> {
        let (pool, key) = (self.lru.owner(), file.key(block)?);
        let mut waited = false;
        loop {
            let Some(index) = pool.index.find(key) else {
                match self.load(file, key, Fill::Read)? {
                    Some(page) => return Ok(RwLockWriteGuard::downgrade(page)),
                    None => continue,
                }
            };
            let slot = pool.slot(index);
            let page = slot.latch.try_read().or_else(|| {
                waited |= slot.has(Flag::Loading);
                slot.latch.try_read_for(LATCH_WAIT)
            });
            // Otherwise the block went in between, or its writer takes long.
            if let Some(page) = page.filter(|page| page.key == key) {
                self.note_use(file, block, index, waited);
                return Ok(page);
            }
        }
    }

    /// A block, exclusive, and marked dirty.
    pub(crate) fn exclusive_page<'a>(
        &'a self,
        file: &Arc<FileState>,
        block: Block,
        fill: Fill,
    ) -> Result<RwLockWriteGuard<'a, Page>, CacheError> {
        self.throttle(file)?;
        let (pool, key) = (self.lru.owner(), file.key(block)?);
        let (mut is_filled, mut waited) = (true, false);
        let (mut page, index) = loop {
            let Some(index) = pool.index.find(key) else {
                match self.load(file, key, fill)? {
                    Some(page) => {
                        let memory = page.memory.as_ref().ok_or(CacheError::NoRoom)?;
                        let index = SlotIndex::of(memory.pfn());
                        break (page, index);
                    }
                    None => continue,
                }
            };
            let slot = pool.slot(index);
            let page = slot.latch.try_write().or_else(|| {
                waited |= slot.has(Flag::Loading);
                slot.latch.try_write_for(LATCH_WAIT)
            });
            if let Some(page) = page.filter(|page| page.key == key) {
                self.note_use(file, block, index, waited);
                is_filled = fill == Fill::Read;
                break (page, index);
            }
        };
        // Before the caller writes, so that nothing is lost if it panics.
        pool.slot(index).set(Flag::Dirty);
        file.insert_dirty(block, index);
        if !is_filled {
            page.bytes_mut().fill(0);
        }
        Ok(page)
    }

    /// Notes a use of a block, under its latch.
    fn note_use(&self, file: &Arc<FileState>, block: Block, index: SlotIndex, waited: bool) {
        let slot = self.lru.owner().slot(index);
        // What was read ahead has its first use now, as what was read when it was asked for.
        let is_first = slot.has(Flag::ReadAhead) && slot.clear(Flag::ReadAhead);
        if is_first {
            self.note_arrival(file, block);
        }
        file.tenant.counters.add(if waited { Count::Coalesced } else { Count::Hit }, 1);
        // A wait is the same use as that of the thread that read it, as far as recency goes.
        if is_first || waited {
            return;
        }
        // The index has a reference as long as the latch is held, so the only error is that there
        // are too many, and then the use is not noted.
        let _full = self.lru.mark_accessed(index.frame());
    }

    /// Brings a block in that was not there; `None` if another thread was faster.
    fn load<'a>(
        &'a self,
        file: &Arc<FileState>,
        key: Key,
        fill: Fill,
    ) -> Result<Option<RwLockWriteGuard<'a, Page>>, CacheError> {
        let block = key.block();
        let memory = self.allocate()?;
        let entered = self.enter(file, key, memory, self.patience)?;
        let Some(first) = entered else { return Ok(None) };
        file.tenant.counters.add(Count::Miss, 1);
        if fill == Fill::Read && self.read_ahead_blocks > 0 && file.is_sequential(block) {
            return self.load_ahead(file, block, first);
        }
        let mut first = first;
        let filled = match fill {
            Fill::Read => file.read_one(block, first.bytes_mut()),
            Fill::Zero => {
                first.bytes_mut().fill(0);
                Ok(())
            }
        };
        match filled {
            Ok(()) => Ok(self.arrive(first)),
            Err(error) => {
                file.tenant.counters.add(Count::ReadError, 1);
                Err(error.into())
            }
        }
    }

    /// A free frame. Evicts blocks if there is none, and waits if all are in use.
    fn allocate(&self) -> Result<OwnedPages, CacheError> {
        let mut patience = Patience::new(self.patience);
        loop {
            if let Some(memory) = self.allocate_once() {
                return Ok(memory);
            }
            if !patience.wait() {
                return Err(CacheError::NoRoom);
            }
        }
    }

    pub(crate) fn allocate_once(&self) -> Option<OwnedPages> {
        let pool = self.lru.owner();
        let wanted = (self.blocks / EVICT_PART).clamp(1, EVICT_MAX);
        loop {
            if let Some(memory) = pool.allocate() {
                return Some(memory);
            }
            match self.lru.reclaim(Scope::All, FrameCount::new(wanted)) {
                Ok(done) if done.reclaimed > 0 => {}
                // Or too many are under way.
                _ => return None,
            }
        }
    }

    /// Enters a frame for a block and charges it; `None` if there is another one.
    pub(crate) fn enter<'a>(
        &'a self,
        file: &Arc<FileState>,
        key: Key,
        memory: OwnedPages,
        patience: Duration,
    ) -> Result<Option<Coming<'a>>, CacheError> {
        let pool = self.lru.owner();
        let index = SlotIndex::of(memory.pfn());
        let slot = pool.slot(index);
        // Others have this latch for a moment only, if they have looked up what was in the frame.
        let mut page = slot.latch.write();
        (page.key, page.file) = (key, Some(Arc::clone(file)));
        page.memory = Some(memory);
        slot.set(Flag::Loading);
        let (page, shadow) = (Some(page), None);
        let mut coming = Coming { shared: self, index, slot, page, shadow, is_charged: false };
        match pool.index.enter(key, index) {
            Entered::Now(shadow) => coming.shadow = shadow,
            Entered::Taken => return Ok(None),
        }
        self.charge(file, index, patience)?;
        file.add_cached();
        coming.is_charged = true;
        Ok(Some(coming))
    }

    /// Charges a frame to the tenant, which makes room for it within its limit.
    fn charge(
        &self,
        file: &FileState,
        index: SlotIndex,
        patience: Duration,
    ) -> Result<(), CacheError> {
        let mut patience = Patience::new(patience);
        loop {
            match self.lru.add_reclaiming(index.frame(), file.tenant.group, Kind::File) {
                Ok(()) => return Ok(()),
                // Guards keep all blocks of the tenant, or many threads reclaim at once.
                Err(LruError::GroupLimit(_) | LruError::TooManyReclaims) if patience.wait() => {}
                Err(LruError::GroupLimit(_)) => {
                    return Err(CacheError::TenantFull(file.tenant.name.clone()));
                }
                Err(_) => return Err(CacheError::NoRoom),
            }
        }
    }

    /// The content is there: always some.
    pub(crate) fn arrive<'a>(
        &'a self,
        mut coming: Coming<'a>,
    ) -> Option<RwLockWriteGuard<'a, Page>> {
        let frame = coming.index.frame();
        if let Some(shadow) = coming.shadow {
            let _known = self.lru.refault(frame, shadow);
        }
        if self.policy == LruPolicy::TwoLists && !coming.slot.has(Flag::ReadAhead) {
            // As in Linux, the read that brings a block in is a use.
            let _full = self.lru.mark_accessed(frame);
        }
        coming.slot.clear(Flag::Loading);
        coming.page.take()
    }

    /// Takes all blocks of a file out of the cache, of which there are no guards any more; returns
    /// how many were dirty.
    pub(crate) fn purge(&self, file: &Arc<FileState>) -> u64 {
        let (pool, mut lost) = (self.lru.owner(), 0);
        let is_of = |page: &Page| page.file.as_ref().is_some_and(|of| Arc::ptr_eq(of, file));
        // Another pass is rare: reclaim, or a write-back, had a block just then.
        while file.cached() > 0 {
            for (index, slot) in pool.slots() {
                // No latch is waited for: it may be of another file's block, and this thread's.
                if !slot.latch.try_read_recursive().is_some_and(|page| is_of(&page)) {
                    continue;
                }
                let page = slot.latch.try_write().filter(|page| is_of(page));
                let Some(mut page) = page else { continue };
                let key = page.key;
                pool.index.remove(key, Entry::Cached(index));
                (page.key, page.file) = (Key::NONE, None);
                file.remove_cached();
                slot.clear(Flag::ReadAhead);
                if slot.clear(Flag::Dirty) {
                    lost += u64::from(file.remove_dirty(key.block()));
                }
                drop(page);
                let _none = self.lru.put(index.frame());
            }
            thread::yield_now();
        }
        // Blocks that came in just now may still wait in a batch of the LRU's.
        self.lru.drain_all();
        lost
    }
}

/// Waits a little longer each time, up to a time in all.
struct Patience {
    time: Duration,
    /// Since the first wait: most calls need none, and no clock.
    until: Option<Instant>,
    waits: u32,
}

impl Patience {
    fn new(time: Duration) -> Self {
        Patience { time, until: None, waits: 0 }
    }

    /// Whether to look again.
    fn wait(&mut self) -> bool {
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.time);
        self.waits += 1;
        match self.waits {
            _ if self.time == Duration::ZERO => {}
            0..10 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(100)),
        }
        Instant::now() < until
    }
}
