//! What is checked: an allocator, by the calls that the checks make.

use freehold::designs::Design;
use freehold::platform::Platform;
use freehold::{
    BulkFreeError, Census, Error, FrameCount, FrameStatus, Immovable, Order, PageAllocator, Pfn,
    RangeRequest, Request, Violation,
};

/// Frames, by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Free frames that zones or CPUs have.
    pub free: FrameCount,
    /// Of these, those that CPUs cache.
    pub per_cpu: FrameCount,
    /// Frames handed out since the beginning, less those that came back.
    pub in_use: u64,
}

/// An allocator, by the calls that the checks make; each means what the method of the same name of
/// [`PageAllocator`] does.
///
/// A kernel that wraps the allocator implements this for its wrapper, so that what is checked is
/// what the kernel uses.
#[expect(missing_docs, reason = "the methods of `PageAllocator` have the documentation")]
pub trait Subject {
    /// The largest order that can be requested.
    fn order_max(&self) -> Order;
    /// Where frames are: exact if no call is under way.
    fn counts(&self) -> Counts;
    fn alloc(&self, request: Request) -> Result<Pfn, Error>;
    fn free(&self, first: Pfn, order: Order) -> Result<(), Error>;
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error>;
    fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError>;
    fn alloc_range(&self, request: RangeRequest) -> Result<Pfn, Error>;
    fn free_range(&self, first: Pfn, frames: FrameCount) -> Result<(), Error>;
    fn reserve(&self, first: Pfn, frames: FrameCount) -> Result<(), Error>;
    fn drain_all(&self);
    fn status(&self, frame: Pfn) -> FrameStatus;
    fn validate(&self) -> Result<Census, Violation>;
}

impl<P: Platform, D: Design<P>> Subject for PageAllocator<P, D> {
    fn order_max(&self) -> Order {
        D::ORDER_MAX
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for zone in self.zones() {
            counts.free += zone.free + zone.per_cpu;
            counts.per_cpu += zone.per_cpu;
        }
        let events = self.events();
        counts.in_use = events.allocated.get().wrapping_sub(events.freed.get());
        counts
    }

    fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        PageAllocator::alloc(self, request)
    }

    fn free(&self, first: Pfn, order: Order) -> Result<(), Error> {
        PageAllocator::free(self, first, order)
    }

    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error> {
        PageAllocator::alloc_bulk(self, request, out)
    }

    fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError> {
        PageAllocator::free_bulk(self, blocks, order)
    }

    fn alloc_range(&self, request: RangeRequest) -> Result<Pfn, Error> {
        PageAllocator::alloc_range(self, request, &Immovable)
    }

    fn free_range(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        PageAllocator::free_range(self, first, frames)
    }

    fn reserve(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        PageAllocator::reserve(self, first, frames)
    }

    fn drain_all(&self) {
        PageAllocator::drain_all(self);
    }

    fn status(&self, frame: Pfn) -> FrameStatus {
        PageAllocator::status(self, frame)
    }

    fn validate(&self) -> Result<Census, Violation> {
        PageAllocator::validate(self)
    }
}
