//! A design's operations, by purpose. `PageAllocator` calls these, and documents what each one
//! means.

use crate::compact::{Compaction, Migrate};
use crate::config::MemoryRange;
use crate::designs::Context;
use crate::error::{BulkFreeError, Error};
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::stat::{
    Census, Events, FrameStatus, FreeByType, NumaEvents, Violation, ZoneLevel, ZoneStats,
};
use crate::units::{CpuId, FrameCount, ORDERS, Order, Pfn};

/// Allocation, a block at a time.
pub trait Alloc<P: Platform> {
    /// Allocates a block that the running CPU has cached, from the best zone for it: the fast path,
    /// for requests that any node may serve.
    fn alloc_fast(&self, context: Context<'_, P>, request: Request) -> Option<Pfn>;

    /// Allocates a block from the first of `zones` that can serve it.
    fn alloc(&self, context: Context<'_, P>, zones: &[u16], request: Request)
    -> Result<Pfn, Error>;
}

/// Freeing, a block at a time.
pub trait Free<P: Platform> {
    /// Frees a block, or part of one.
    fn free(&self, context: Context<'_, P>, pfn: Pfn, order: Order) -> Result<(), Error>;
}

/// Many blocks in one call.
pub trait Bulk<P: Platform> {
    /// Allocates blocks into `out` until it is full or memory runs out; returns how many.
    fn alloc_bulk(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        out: &mut [Pfn],
    ) -> usize;

    /// Allocates into `out` the blocks that the preferred node can supply quickly, and only if it
    /// has `spare` blocks more than it reserves; returns how many.
    fn alloc_quickly(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        spare: usize,
        out: &mut [Pfn],
    ) -> usize;

    /// Frees blocks of one order up to the first that cannot be freed.
    fn free_bulk(
        &self,
        context: Context<'_, P>,
        blocks: &[Pfn],
        order: Order,
    ) -> Result<(), BulkFreeError>;
}

/// Compaction.
pub trait Compact<P: Platform> {
    /// As `alloc`, compacting zones if memory is too fragmented; if it `defers`, not those where an
    /// attempt is likely to fail.
    fn alloc_compacting(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        owner: &dyn Migrate,
        defers: bool,
    ) -> Result<Pfn, Error>;

    /// Compacts a zone as far as it goes, or until so many more pageblocks are whole.
    fn compact_zone(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        owner: &dyn Migrate,
        wanted: Option<u64>,
    ) -> Compaction;
}

/// Contiguous ranges of any length, freed in whatever blocks they were allocated. How they are
/// allocated, and memory removed, is in [`places`](super::places).
pub trait Ranges<P: Platform> {
    /// Frees a contiguous range, which is not empty.
    fn free_range(
        &self,
        context: Context<'_, P>,
        first: Pfn,
        frames: FrameCount,
    ) -> Result<(), Error>;
}

/// Hotplug of memory and CPUs, and periodic work.
pub trait Upkeep<P: Platform> {
    /// Adds ranges of memory, up to the first that is refused. That range is not added, and the
    /// watermarks, which depend on how much memory there is, are then not updated.
    fn add_memory(&self, context: Context<'_, P>, ranges: &[MemoryRange]) -> Result<(), Error>;

    /// Returns what a CPU caches to the zones.
    fn drain(&self, context: Context<'_, P>, cpu: CpuId);

    /// Returns what a CPU caches to the zones, and sends nothing to it any more.
    fn offline_cpu(&self, context: Context<'_, P>, cpu: CpuId);

    /// Periodic upkeep of one CPU.
    fn tick(&self, context: Context<'_, P>, cpu: CpuId);
}

/// A copy of the metadata that is consistent: for `fork`.
pub trait Freeze<P: Platform> {
    /// Takes every lock, one after the other, so that nothing done under locks is half done. The
    /// caller is pinned until after `thaw`.
    fn freeze(&self, context: Context<'_, P>);

    /// Releases what `freeze` took.
    fn thaw(&self, context: Context<'_, P>);

    /// As `thaw`, in a copy of the memory in which no other CPU runs. First repairs what other
    /// calls had half done without a lock.
    fn thaw_copy(&self, context: Context<'_, P>);
}

/// Statistics and checks.
pub trait Inspect<P: Platform> {
    /// What a frame is, and which block it is part of.
    fn status(&self, context: Context<'_, P>, pfn: Pfn) -> FrameStatus;

    /// How full the zone at `index` is, if there is one.
    fn zone_level(&self, index: usize) -> Option<ZoneLevel>;

    /// The state of the zone at `index`, if there is one.
    fn zone_stats(&self, context: Context<'_, P>, index: usize) -> Option<ZoneStats>;

    /// The free frames of a zone, with those that CPUs cache, and how many of them lie in whole
    /// pageblocks; if there is such a zone.
    fn free_and_whole(&self, context: Context<'_, P>, zone: ZoneIndex) -> Option<[u64; 2]> {
        let zone = self.zone_stats(context, zone.index())?;
        let whole = zone.free_pageblocks() * Order::PAGEBLOCK.frames().get();
        Some([(zone.free + zone.per_cpu).get(), whole])
    }

    /// The NUMA events of the zone at `index`, if there is one.
    fn numa_events(&self, context: Context<'_, P>, index: usize) -> Option<NumaEvents>;

    /// The free blocks of the zone at `index` by migratetype, if there is one.
    fn free_by_type(&self, context: Context<'_, P>, index: usize) -> Option<FreeByType>;

    /// Whether a zone has a free block of an order, or a larger one.
    fn has_block(&self, context: Context<'_, P>, order: Order) -> bool {
        let has = |counts: &[u64; ORDERS]| counts.iter().skip(order.index()).any(|&many| many > 0);
        let mut zones = (0..).map_while(|index| self.free_by_type(context, index));
        zones.any(|zone| zone.blocks.iter().any(has))
    }

    /// What has happened so far.
    fn events(&self, context: Context<'_, P>) -> Events;

    /// Checks every invariant of the metadata.
    fn validate(&self, context: Context<'_, P>) -> Result<Census, Violation>;
}
