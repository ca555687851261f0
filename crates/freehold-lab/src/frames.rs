//! The allocator under test, whatever its design.
//!
//! Workloads call it through this trait, so that they are compiled once and not once for each
//! design. On the host that costs an indirect call; whoever measures single calls there, as
//! `page-fault` and `bulk` do, uses the allocator itself.

use std::ops::Deref;

use freehold::platform::Platform;
use freehold::{
    BulkFreeError, Census, Compaction, Design, Error, Events, FrameCount, Migrate, Order,
    PageAllocator, Pfn, RangeRequest, Request, Violation, ZoneLevel, ZoneStats,
};
use freehold_host::Snapshot;

/// The calls of [`PageAllocator`] that workloads make, under the same names, and its state.
pub(crate) trait Frames {
    fn alloc(&self, request: Request) -> Result<Pfn, Error>;
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error>;
    fn alloc_compacting(&self, request: Request, owner: &dyn Migrate) -> Result<Pfn, Error>;
    fn compact_proactively(&self, unusable_max: u32, owner: &dyn Migrate) -> Compaction;
    fn alloc_range(&self, request: RangeRequest, owner: &dyn Migrate) -> Result<Pfn, Error>;
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error>;
    fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError>;
    fn free_range(&self, first: Pfn, frames: FrameCount) -> Result<(), Error>;
    fn drain_all(&self);
    fn levels(&self) -> Vec<ZoneLevel>;
    fn zones(&self) -> Vec<ZoneStats>;
    fn events(&self) -> Events;
    fn snapshot(&self) -> Snapshot;
    fn validate(&self) -> Result<Census, Violation>;
}

/// A reference to an allocator, or what owns one and its memory. Calls that are timed singly are
/// inlined where the type is known.
impl<A, P, D> Frames for A
where
    A: Deref<Target = PageAllocator<P, D>>,
    P: Platform,
    D: Design<P>,
{
    #[inline(always)]
    fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        (**self).alloc(request)
    }

    #[inline(always)]
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error> {
        (**self).alloc_bulk(request, out)
    }

    fn alloc_compacting(&self, request: Request, owner: &dyn Migrate) -> Result<Pfn, Error> {
        (**self).alloc_compacting(request, owner)
    }

    fn compact_proactively(&self, unusable_max: u32, owner: &dyn Migrate) -> Compaction {
        (**self).compact_proactively(unusable_max, owner)
    }

    fn alloc_range(&self, request: RangeRequest, owner: &dyn Migrate) -> Result<Pfn, Error> {
        (**self).alloc_range(request, owner)
    }

    #[inline(always)]
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        (**self).free(pfn, order)
    }

    #[inline(always)]
    fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError> {
        (**self).free_bulk(blocks, order)
    }

    fn free_range(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        (**self).free_range(first, frames)
    }

    fn drain_all(&self) {
        (**self).drain_all();
    }

    fn levels(&self) -> Vec<ZoneLevel> {
        (**self).levels().collect()
    }

    fn zones(&self) -> Vec<ZoneStats> {
        (**self).zones().collect()
    }

    fn events(&self) -> Events {
        (**self).events()
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::of(self)
    }

    fn validate(&self) -> Result<Census, Violation> {
        (**self).validate()
    }
}

/// Frames that a workload reclaims at a time (`SWAP_CLUSTER_MAX`).
pub(crate) const CLUSTER: u64 = 32;

/// How many frames all zones lack up to their high watermarks.
pub(crate) fn below_high(frames: &(impl Frames + ?Sized)) -> u64 {
    let lacks = |zone: &ZoneLevel| zone.marks.high.get().saturating_sub(zone.free.get());
    frames.levels().iter().map(lacks).sum()
}
