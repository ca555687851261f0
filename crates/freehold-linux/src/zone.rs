//! A zone: one lock, the free lists that it guards, watermarks, and counters.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::fallback::{self, Fallbacks, Step};
use crate::buddy::{Beside, Buddy, FreeLists, Tables};
use crate::kind::Kind;
use crate::pageblock::{BlockType, pageblocks};
use freehold::compact::state::CompactionState;
use freehold::designs::hotplug::Marked;
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::End;
use freehold::platform::{CriticalSection, LockClass, Platform, RawLock, SharedCell, Word};
use freehold::units::{FrameCount, NodeId, ORDERS, Order, ZoneKind};
use freehold::zone::watermark::{Watermark, Watermarks};

/// The record of a zone. Fields that are used together share cache lines, and others do not: the
/// lock lies beside the free lists that it guards, as in Linux's `struct zone`.
#[repr(C)]
pub(crate) struct Zone<P: Platform> {
    setup: Setup<P>,
    locked: Locked<P>,
    level: Level<P>,
}

/// Written when memory is added, read by every allocation.
#[repr(C, align(64))]
struct Setup<P: Platform> {
    node: NodeId,
    kind: ZoneKind,
    managed: P::U64,
    watermarks: Watermarks<P>,
}

/// The free lists, their lock, and everything else accessed only under it.
#[repr(C, align(64))]
struct Locked<P: Platform> {
    lists: FreeLists<P>,
    lock: P::Lock,
    claims: P::Cell<u64>,
    steals: P::Cell<u64>,
    /// Free frames in isolated pageblocks.
    isolated: P::Cell<u64>,
    /// Incremented whenever pageblocks in use may have changed their type. Written under the zone
    /// lock; read without it by callers that read types first and lock later.
    retypes: P::U32,
    compaction: CompactionState<P>,
}

/// The zone's level: written at every refill and drain, read by every allocation.
#[repr(C, align(64))]
struct Level<P: Platform> {
    /// Frames on the free lists, except isolated ones. Written under the zone lock.
    free: P::U64,
    /// Whether the zone was seen below its high watermark (Linux's `ZONE_BELOW_HIGH`): a hint for
    /// the per-CPU lists to shrink.
    below_high: P::U32,
}

impl<P: Platform> Zone<P> {
    /// A zone without memory.
    pub(crate) fn new(node: NodeId, kind: ZoneKind) -> Self {
        Zone {
            setup: Setup { node, kind, managed: P::U64::new(0), watermarks: Watermarks::new() },
            locked: Locked {
                lists: FreeLists::new(),
                lock: P::Lock::new(LockClass::Zone),
                claims: P::Cell::new(0),
                steals: P::Cell::new(0),
                isolated: P::Cell::new(0),
                retypes: P::U32::new(0),
                compaction: CompactionState::new(),
            },
            level: Level { free: P::U64::new(0), below_high: P::U32::new(0) },
        }
    }

    pub(crate) const fn node(&self) -> NodeId {
        self.setup.node
    }

    pub(crate) const fn kind(&self) -> ZoneKind {
        self.setup.kind
    }

    pub(crate) const fn watermarks(&self) -> &Watermarks<P> {
        &self.setup.watermarks
    }

    /// What its watermarks follow from, and these.
    pub(crate) fn marked(&self) -> Marked<'_, P> {
        let (node, kind, managed) = (self.node(), self.kind(), self.managed());
        Marked { node, kind, managed, watermarks: self.watermarks() }
    }

    /// Attempts to compact the zone deferred since the last failure (Linux's `compact_considered`).
    /// The caller holds the zone lock.
    pub(crate) fn compact_considered(&self) -> u32 {
        self.locked.compaction.considered()
    }

    /// A count that changes whenever pageblocks in use may have changed their type. If it is
    /// unchanged under the zone lock, types read after it equal those under the lock.
    pub(crate) fn retypes(&self) -> u32 {
        // Acquire: types are read after the count, so that none older than it counts as current.
        self.locked.retypes.load(Acquire)
    }

    // Relaxed below: readers act on a recent value of these words; writers hold the lock named at
    // the field.

    /// How many frames have been added to the zone.
    pub(crate) fn managed(&self) -> FrameCount {
        FrameCount::new(self.setup.managed.load(Relaxed))
    }

    /// How many frames are on the free lists. Frames on per-CPU lists do not count.
    #[inline]
    pub(crate) fn free(&self) -> FrameCount {
        FrameCount::new(self.level.free.load(Relaxed))
    }

    /// Free blocks by order, without isolated ones.
    pub(crate) fn free_blocks(&self) -> [u64; ORDERS] {
        core::array::from_fn(|order| self.locked.lists.blocks(Order::new(order as u8)))
    }

    /// Whether a block of `order` can be taken without going below the mark of `class`.
    #[inline]
    pub(crate) fn watermark_ok(&self, order: Order, class: Watermark, limit: ZoneKind) -> bool {
        let Some(floor) = self.setup.watermarks.floor(class, limit) else {
            return self.locked.lists.can_serve(order);
        };
        // As in Linux: the whole block may not take the level below the mark.
        let others = order.frames().get() - 1;
        let above = self.free().get().saturating_sub(others);
        above > floor && (order == Order::ZERO || self.locked.lists.can_serve(order))
    }

    /// Whether the per-CPU lists should shrink because the zone runs low.
    #[inline]
    pub(crate) fn is_below_high(&self) -> bool {
        self.level.below_high.load(Relaxed) != 0
    }

    /// Notes that an allocation found the zone below its high watermark.
    pub(crate) fn note_below_high(&self) {
        self.level.below_high.store(1, Relaxed);
    }

    /// Notes, after frames were returned, that the zone may be above its high watermark again.
    #[inline]
    pub(crate) fn note_drained(&self) {
        if self.is_below_high()
            && self.watermark_ok(Order::ZERO, Watermark::High, ZoneKind::Movable)
        {
            self.level.below_high.store(0, Relaxed);
        }
    }

    /// Takes the zone lock in a section, which ends when the guard is dropped; `beside` is the
    /// design's data beside the free lists.
    pub(crate) fn lock<'a, B: Beside<P>>(
        &'a self,
        section: CriticalSection<'a, P>,
        tables: Tables<'a, P>,
        beside: B,
    ) -> ZoneGuard<'a, P, B> {
        self.locked.lock.lock();
        let buddy = Buddy { lists: &self.locked.lists, tables, beside };
        ZoneGuard { zone: self, buddy, section }
    }
}

// For freezes, which hold all locks at once.
impl<P: Platform> Zone<P> {
    /// Takes the zone lock.
    pub(crate) fn hold(&self) {
        self.locked.lock.lock();
    }

    /// Ends what [`Zone::hold`] began.
    pub(crate) fn let_go(&self) {
        self.locked.lock.unlock();
    }
}

/// The zone lock, held. Unlocks when dropped.
pub(crate) struct ZoneGuard<'a, P: Platform, B> {
    zone: &'a Zone<P>,
    pub(crate) buddy: Buddy<'a, P, B>,
    /// Ends after the lock.
    section: CriticalSection<'a, P>,
}

impl<'a, P: Platform, B: Beside<P>> ZoneGuard<'a, P, B> {
    /// Takes a block, falling back to other types. Its head is unmarked.
    #[inline]
    pub(crate) fn take(&self, kind: Kind, step: &mut Step) -> Option<FrameIndex> {
        let mut fallbacks = Fallbacks::default();
        let block = fallback::take(&self.buddy, kind, step, &mut fallbacks)?;
        if fallbacks != Fallbacks::default() {
            self.note_fallbacks(fallbacks);
        }
        Some(block)
    }

    fn note_fallbacks(&self, fallbacks: Fallbacks) {
        let Locked { claims, steals, .. } = &self.zone.locked;
        claims.set(claims.get() + fallbacks.claims);
        steals.set(steals.get() + fallbacks.steals);
        self.note_retype();
    }

    /// Puts a block on the lists, merging it; returns the frames by which the level rises, which
    /// the caller accounts with [`ZoneGuard::add_free`]. Those of an isolated pageblock are
    /// accounted here.
    pub(crate) fn put(&self, block: FrameIndex, order: Order, end: Option<End>) -> FrameCount {
        if order > Order::PAGEBLOCK && self.buddy.tables.blocks.has_isolated(block, order) {
            // Isolated pageblocks go to other lists than the rest, and each by itself: they may be
            // released one after the other.
            let parts = pageblocks(block, order);
            return parts.map(|part| self.put(part, Order::PAGEBLOCK, end)).sum();
        }
        self.buddy.put(block, order, end);
        self.available(block, order)
    }

    /// Puts a frame on a list without merging it; otherwise as [`ZoneGuard::put`].
    pub(crate) fn put_unmerged(&self, frame: FrameIndex) -> FrameCount {
        self.buddy.put_unmerged(frame);
        self.available(frame, Order::ZERO)
    }

    fn available(&self, block: FrameIndex, order: Order) -> FrameCount {
        if self.buddy.tables.blocks.block_type(block) == BlockType::Isolated {
            self.add_isolated(order.frames().get() as i64);
            return FrameCount::ZERO;
        }
        order.frames()
    }

    fn note_retype(&self) {
        let retypes = &self.zone.locked.retypes;
        // Release: pairs with the acquire in `Zone::retypes`; the types were changed before.
        retypes.store(retypes.load(Relaxed).wrapping_add(1), Release);
    }

    /// Accounts a change in the free frames of isolated pageblocks.
    pub(crate) fn add_isolated(&self, change: i64) {
        let isolated = &self.zone.locked.isolated;
        isolated.set(isolated.get().wrapping_add_signed(change));
    }

    /// Free frames in isolated pageblocks.
    pub(crate) fn isolated(&self) -> FrameCount {
        FrameCount::new(self.zone.locked.isolated.get())
    }

    /// Isolates the free frames of a pageblock; returns whether it was not isolated yet.
    pub(crate) fn isolate(&self, pageblock: FrameIndex) -> bool {
        let Some(moved) = self.buddy.isolate_pageblock(pageblock) else { return false };
        self.note_retype();
        self.sub_free(moved);
        self.add_isolated(moved.get() as i64);
        true
    }

    /// Makes the free frames of an isolated pageblock available again.
    pub(crate) fn release(&self, pageblock: FrameIndex) {
        let moved = self.buddy.release_pageblock(pageblock);
        self.note_retype();
        self.add_free(moved);
        self.add_isolated(-(moved.get() as i64));
    }

    /// Accounts new memory that was put on the free lists, of which so many frames are available.
    pub(crate) fn add_memory(&self, frames: FrameCount, available: FrameCount) {
        let managed = &self.zone.setup.managed;
        managed.store(managed.load(Relaxed) + frames.get(), Relaxed);
        self.add_free(available);
    }

    /// Accounts frames of isolated pageblocks that were taken out of use.
    pub(crate) fn remove_isolated(&self, frames: FrameCount) {
        let managed = &self.zone.setup.managed;
        managed.store(managed.load(Relaxed) - frames.get(), Relaxed);
        self.add_isolated(-(frames.get() as i64));
    }

    /// Accounts frames that were put on the free lists.
    pub(crate) fn add_free(&self, frames: FrameCount) {
        let level = &self.zone.level.free;
        level.store(level.load(Relaxed) + frames.get(), Relaxed);
    }

    /// Accounts frames that were taken off the free lists.
    pub(crate) fn sub_free(&self, frames: FrameCount) {
        let level = &self.zone.level.free;
        level.store(level.load(Relaxed) - frames.get(), Relaxed);
    }

    /// Drops the lock. Lets interrupts in only after `count` has counted what was done under it.
    #[inline]
    pub(crate) fn unlock_and_note(mut self, count: impl FnOnce()) {
        let _section = core::mem::replace(&mut self.section, CriticalSection::Inner);
        drop(self);
        count();
    }

    /// The zone's compaction state.
    pub(crate) fn compaction(&self) -> &CompactionState<P> {
        &self.zone.locked.compaction
    }

    /// Takes a free block of `from` and returns all but its first part of the order asked for, if
    /// it is of the type or can be claimed as a whole; returns whether it was. Its head is
    /// unmarked.
    pub(crate) fn capture(&self, block: FrameIndex, from: Order, kind: Kind) -> bool {
        let of = self.buddy.tables.blocks.block_type(block);
        if of == BlockType::of(kind.migratetype) {
            self.buddy.take(block, from, kind.order, of);
        } else if from >= Order::PAGEBLOCK && of != BlockType::Isolated {
            fallback::claim_whole(&self.buddy, block, from, of, kind);
            self.note_fallbacks(Fallbacks { claims: 1, steals: 0 });
        } else {
            return false;
        }
        true
    }

    /// How often the zone fell back to other types.
    pub(crate) fn fallbacks(&self) -> Fallbacks {
        let Locked { claims, steals, .. } = &self.zone.locked;
        Fallbacks { claims: claims.get(), steals: steals.get() }
    }
}

impl<P: Platform, B> Drop for ZoneGuard<'_, P, B> {
    #[inline]
    fn drop(&mut self) {
        self.zone.locked.lock.unlock();
    }
}
