//! Stopping all callers while the metadata is copied.

use crate::allocator::PageAllocator;
use crate::designs::Design;
use crate::platform::{Pinned, Platform};

/// A freeze under way: what [`PageAllocator::thaw`] or [`PageAllocator::thaw_copy`] ends.
#[must_use = "all other callers are stopped until it is passed to `thaw` or `thaw_copy`"]
#[derive(Debug)]
pub struct Frozen<P: Platform> {
    pin: P::PinState,
}

impl<P: Platform, D: Design<P>> PageAllocator<P, D> {
    /// Stops all other callers, so that the memory of the metadata can be copied: by a `fork`, for
    /// instance. [`PageAllocator::thaw`] follows in the parent, [`PageAllocator::thaw_copy`] in the
    /// child. The caller makes no other call before.
    ///
    /// Calls that need a lock wait, or do without. Calls that take none proceed, which does no
    /// harm: `thaw_copy` repairs what they had half done when the copy was made, even if parts of
    /// the copy were made one after the other. Leases are revoked, as by a drain.
    ///
    /// Cost: takes every lock, and so waits for what others do under them; one
    /// [`Platform::heavy_barrier`] for each lease.
    ///
    /// Requires that callers are threads: an interrupt handler that calls this after it interrupted
    /// the holder of a lock deadlocks.
    ///
    /// The caller stays pinned to its CPU ([`Platform::pin`]) until the thaw.
    pub fn freeze(&self) -> Frozen<P> {
        let Pinned { state, .. } = self.platform().pin();
        self.design().freeze(self.context());
        Frozen { pin: state }
    }

    /// Ends what [`PageAllocator::freeze`] began, on this allocator. A freeze of another one
    /// corrupts the state.
    pub fn thaw(&self, frozen: Frozen<P>) {
        self.design().thaw(self.context());
        self.platform().unpin(frozen.pin);
    }

    /// Ends in a copy of the memory what [`PageAllocator::freeze`] began in the original. The copy
    /// has only one thread, which makes no other call meanwhile.
    ///
    /// What other threads of the original had allocated stays allocated, and so do the few frames
    /// that they were just about to allocate or to free. Pageblocks that they had out of
    /// circulation come back. Caches of a lease that the machine refused to revoke stay leased,
    /// with what they hold. Counts of events may lack what calls under way did.
    ///
    /// Two things must not be under way in the original when it is copied: a call of the copy's own
    /// thread, from within which the copy is made; and, with `freehold`, frees of parts of a block
    /// of a pageblock or more whose other parts other threads own. The copy may take these for
    /// free.
    ///
    /// Cost: with the design `freehold`, a visit of each pageblock, some 0.04 µs; with the others,
    /// a read of the type of each.
    pub fn thaw_copy(&self, frozen: Frozen<P>) {
        self.design().thaw_copy(self.context());
        self.platform().unpin(frozen.pin);
    }
}
