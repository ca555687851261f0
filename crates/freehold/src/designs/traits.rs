//! What a design does, by purpose. The front door calls these, and documents what each call means.

use crate::compact::{Compaction, Migrate};
use crate::config::MemoryRange;
use crate::designs::Context;
use crate::error::{BulkFreeError, Error};
use crate::platform::Platform;
use crate::request::{RangeRequest, Request};
use crate::stat::{Census, Events, FreeByType, NumaEvents, Violation, ZoneStats};
use crate::units::{CpuId, FrameCount, Order, Pfn};

/// Allocation, a block at a time.
pub trait Alloc<P: Platform> {
    /// Allocates a block that the running CPU has at hand, from the zone that is best for it: the
    /// fast path, for requests that any node may serve.
    fn alloc_fast(&self, context: Context<'_, P>, request: Request) -> Option<Pfn>;

    /// Allocates a block from the first of `zones` that will give one.
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

    /// Allocates blocks into `out` as far as they can be had without ado from the preferred node,
    /// and only if that has `spare` blocks more than it keeps back; returns how many.
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
    /// As `alloc`, compacting zones if memory is too fragmented.
    fn alloc_compacting(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        owner: &dyn Migrate,
    ) -> Result<Pfn, Error>;

    /// Compacts all memory.
    fn compact(&self, context: Context<'_, P>, owner: &dyn Migrate) -> Compaction;
}

/// Contiguous ranges of any length, freed in whatever blocks they were allocated.
pub trait Ranges<P: Platform> {
    /// Allocates a contiguous range from the first of `zones` that has a place for it.
    fn alloc_range(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &RangeRequest,
        owner: &dyn Migrate,
    ) -> Result<Pfn, Error>;

    /// Frees a contiguous range, which is not empty.
    fn free_range(
        &self,
        context: Context<'_, P>,
        first: Pfn,
        frames: FrameCount,
    ) -> Result<(), Error>;
}

/// Memory and CPUs that come and go, and periodic work.
pub trait Upkeep<P: Platform> {
    /// Brings ranges of memory into use, up to the first that is refused: that one, and the marks
    /// that depend on how much memory there is, stay as they are then.
    fn add_memory(&self, context: Context<'_, P>, ranges: &[MemoryRange]) -> Result<(), Error>;

    /// Returns what a CPU caches to the zones.
    fn drain(&self, context: Context<'_, P>, cpu: CpuId);

    /// Returns what a CPU caches to the zones and sends nothing to it any more.
    fn offline_cpu(&self, context: Context<'_, P>, cpu: CpuId);

    /// Periodic upkeep of one CPU.
    fn tick(&self, context: Context<'_, P>, cpu: CpuId);
}

/// A copy of the metadata that is consistent: for `fork`.
pub trait Freeze<P: Platform> {
    /// Takes every lock, one after the other: of what calls do under locks, nothing is half done
    /// then.
    fn freeze(&self, context: Context<'_, P>);

    /// Releases what `freeze` took.
    fn thaw(&self, context: Context<'_, P>);

    /// The same in a copy of the memory in which no other CPU runs. First repairs what calls of
    /// others had half done without locks.
    fn thaw_copy(&self, context: Context<'_, P>);
}

/// What the design says of itself.
pub trait Inspect<P: Platform> {
    /// What the design knows of the zone at `index`, if there is one.
    fn zone_stats(&self, context: Context<'_, P>, index: usize) -> Option<ZoneStats>;

    /// Where the frames of the zone at `index` were wanted, if there is one.
    fn numa_events(&self, context: Context<'_, P>, index: usize) -> Option<NumaEvents>;

    /// The free blocks of the zone at `index` by migratetype, if there is one.
    fn free_by_type(&self, context: Context<'_, P>, index: usize) -> Option<FreeByType>;

    /// What has happened so far.
    fn events(&self, context: Context<'_, P>) -> Events;

    /// Checks every invariant of the accounting.
    fn validate(&self, context: Context<'_, P>) -> Result<Census, Violation>;
}
