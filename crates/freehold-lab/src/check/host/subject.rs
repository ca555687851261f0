//! An arena as the subject of the torture test: calls of threads go through their leases.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use freehold::{
    BulkFreeError, Census, Design, Error, FrameCount, FrameStatus, Order, Pfn, RangeRequest,
    Request, Violation,
};
use freehold_conformance::{Counts, Subject};
use freehold_host::{FrameArena, Host};

use crate::cli::Canary;

/// Of so many calls, one does what a planted bug says.
const CANARY_CALLS: u64 = 1000;

/// An arena.
pub(super) struct Arena<'a, D: Design<Host>> {
    pub(super) frames: &'a FrameArena<D>,
    canary: Option<Canary>,
    /// Whether the bug is there by now.
    is_armed: AtomicBool,
    calls: AtomicU64,
    /// The frame that was allocated last.
    last: AtomicU64,
}

impl<'a, D: Design<Host>> Arena<'a, D> {
    pub(super) fn new(frames: &'a FrameArena<D>, canary: Option<Canary>) -> Self {
        let (calls, last) = (AtomicU64::new(0), AtomicU64::new(0));
        Arena { frames, canary, is_armed: AtomicBool::new(false), calls, last }
    }

    /// Plants the bug, if there is to be one.
    pub(super) fn arm(&self) {
        // Relaxed: threads that start later see it.
        self.is_armed.store(true, Relaxed);
    }

    /// Whether this call has the planted bug.
    fn is_wrong(&self, bug: Canary) -> bool {
        // Relaxed: it only counts.
        self.canary == Some(bug)
            && self.is_armed.load(Relaxed)
            && self.calls.fetch_add(1, Relaxed) % CANARY_CALLS == CANARY_CALLS - 1
    }
}

impl<D: Design<Host>> Subject for Arena<'_, D> {
    fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        let pfn = self.frames.alloc(request)?;
        if self.canary.is_some() && request.order() == Order::ZERO {
            // Relaxed: the frame's new user takes it from the allocator, in whatever order.
            let last = self.last.swap(pfn.get(), Relaxed);
            if self.is_wrong(Canary::Race) {
                return Ok(Pfn::new(last));
            }
        }
        Ok(pfn)
    }

    fn free(&self, first: Pfn, order: Order) -> Result<(), Error> {
        if self.is_wrong(Canary::Loss) {
            return Ok(());
        }
        self.frames.free(first, order)
    }

    fn order_max(&self) -> Order {
        self.frames.allocator().order_max()
    }

    fn counts(&self) -> Counts {
        self.frames.allocator().counts()
    }

    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error> {
        Subject::alloc_bulk(self.frames.allocator(), request, out)
    }

    fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError> {
        Subject::free_bulk(self.frames.allocator(), blocks, order)
    }

    fn alloc_range(&self, request: RangeRequest) -> Result<Pfn, Error> {
        Subject::alloc_range(self.frames.allocator(), request)
    }

    fn free_range(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        Subject::free_range(self.frames.allocator(), first, frames)
    }

    fn reserve(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        Subject::reserve(self.frames.allocator(), first, frames)
    }

    fn drain_all(&self) {
        Subject::drain_all(self.frames.allocator());
    }

    fn status(&self, frame: Pfn) -> FrameStatus {
        Subject::status(self.frames.allocator(), frame)
    }

    fn validate(&self) -> Result<Census, Violation> {
        Subject::validate(self.frames.allocator())
    }
}
