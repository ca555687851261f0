//! What threads work on: an allocator, its frames, and what their owners write on them.

use anyhow::Result;
use freehold::platform::Platform;
use freehold::{
    BulkFreeError, Census, Design, Error, FrameCount, FrameStatus, MemoryRange, Order,
    PageAllocator, Pfn, RangeRequest, Request, Violation,
};
use freehold_conformance::{Counts, Stamps, Subject};

use super::crew::Crew;
use crate::check::case::Cuts;

/// An allocator and its memory.
pub(super) trait Ground: Sync + Sized {
    type Platform: Platform;
    type Design: Design<Self::Platform>;
    /// A thread that was let in.
    type Inside;

    fn allocator(&self) -> &PageAllocator<Self::Platform, Self::Design>;

    /// All of its memory.
    fn ranges(&self) -> Vec<MemoryRange>;

    /// Plants the bug, if there is to be one.
    fn arm(&self) {}

    /// Lets a thread in: it is inside until the result is dropped.
    fn enter(&self, seed: u64) -> Self::Inside;

    /// Notes that a thread inside begins another call.
    fn begin_call(&self) {}

    /// Allocates as a user of this ground does.
    fn alloc(&self, request: Request) -> Result<Pfn, Error>;

    /// Frees as a user of this ground does.
    fn free(&self, first: Pfn, order: Order) -> Result<(), Error>;

    /// Who owns a frame: 0 if it is free.
    fn owner(&self, frame: Pfn) -> u64;

    /// Notes who does.
    fn set_owner(&self, frame: Pfn, owner: u64);

    /// Adds all memory that was taken away. No thread is inside.
    fn settle(&self) -> Result<()>;

    /// Lets threads free the same blocks at once, whole and in parts; returns how many blocks.
    fn fight(&self, _crew: &Crew, _cuts: &Cuts, _seed: u64) -> Result<u64> {
        Ok(0)
    }
}

/// A ground under torture.
pub(super) struct Trodden<'a, G>(pub(super) &'a G);

/// The torture of a ground.
pub(super) type Torture<'a, G> = freehold_conformance::Torture<'a, Trodden<'a, G>, Trodden<'a, G>>;

impl<G: Ground> Stamps for Trodden<'_, G> {
    fn read(&self, frame: Pfn) -> u64 {
        self.0.owner(frame)
    }

    fn write(&self, frame: Pfn, stamp: u64) {
        self.0.set_owner(frame, stamp);
    }
}

impl<G: Ground> Subject for Trodden<'_, G> {
    fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        self.0.alloc(request)
    }

    fn free(&self, first: Pfn, order: Order) -> Result<(), Error> {
        self.0.free(first, order)
    }

    fn order_max(&self) -> Order {
        self.0.allocator().order_max()
    }

    fn counts(&self) -> Counts {
        self.0.allocator().counts()
    }

    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error> {
        self.0.allocator().alloc_bulk(request, out)
    }

    fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError> {
        self.0.allocator().free_bulk(blocks, order)
    }

    fn alloc_range(&self, request: RangeRequest) -> Result<Pfn, Error> {
        Subject::alloc_range(self.0.allocator(), request)
    }

    fn free_range(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        self.0.allocator().free_range(first, frames)
    }

    fn reserve(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        self.0.allocator().reserve(first, frames)
    }

    fn drain_all(&self) {
        self.0.allocator().drain_all();
    }

    fn status(&self, frame: Pfn) -> FrameStatus {
        self.0.allocator().status(frame)
    }

    fn validate(&self) -> Result<Census, Violation> {
        self.0.allocator().validate()
    }
}
