//! An arena as the subject of the torture test: calls of threads go through their leases.

use freehold::{
    BulkFreeError, Census, Design, Error, FrameCount, FrameStatus, Order, Pfn, RangeRequest,
    Request, Violation,
};
use freehold_conformance::{Counts, Subject};
use freehold_host::{FrameArena, Host};

/// An arena.
pub(super) struct Arena<'a, D: Design<Host>>(pub(super) &'a FrameArena<D>);

impl<D: Design<Host>> Subject for Arena<'_, D> {
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
        Subject::alloc_bulk(self.0.allocator(), request, out)
    }

    fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError> {
        Subject::free_bulk(self.0.allocator(), blocks, order)
    }

    fn alloc_range(&self, request: RangeRequest) -> Result<Pfn, Error> {
        Subject::alloc_range(self.0.allocator(), request)
    }

    fn free_range(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        Subject::free_range(self.0.allocator(), first, frames)
    }

    fn reserve(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        Subject::reserve(self.0.allocator(), first, frames)
    }

    fn drain_all(&self) {
        Subject::drain_all(self.0.allocator());
    }

    fn status(&self, frame: Pfn) -> FrameStatus {
        Subject::status(self.0.allocator(), frame)
    }

    fn validate(&self) -> Result<Census, Violation> {
        Subject::validate(self.0.allocator())
    }
}
