//! Holding up all callers while the metadata is copied.

use crate::allocator::PageAllocator;
use crate::designs::Design;
use crate::platform::Platform;

impl<P: Platform, D: Design<P>> PageAllocator<P, D> {
    /// Holds up all other callers, so that the memory of the metadata can be copied: by a `fork`,
    /// for instance, in whose parent [`PageAllocator::thaw`] follows, and in whose child
    /// [`PageAllocator::thaw_copy`]. The caller makes no other call before.
    ///
    /// Calls that need a lock wait, or do without. Calls that take none go on, which does no harm:
    /// `thaw_copy` puts right what they had half done when the copy was made, even if parts of it
    /// were made one after the other. Revocable leases end, as for a drain. A
    /// [`Lease`](crate::designs::Lease) goes on.
    ///
    /// Cost: takes every lock, and so waits for what others do under them; a
    /// [`Platform::heavy_barrier`] for each revocable lease.
    ///
    /// Wants a machine whose callers are threads: a handler of interrupts that interrupts the
    /// holder of a lock and calls this waits for ever.
    pub fn freeze(&self) {
        self.design().freeze(self.context());
    }

    /// Ends what [`PageAllocator::freeze`] began. Without that it confuses the books.
    pub fn thaw(&self) {
        self.design().thaw(self.context());
    }

    /// Ends in a copy of the memory what [`PageAllocator::freeze`] began in the original. In the
    /// copy there is only one thread, which makes no other call meanwhile.
    ///
    /// What other threads of the original had allocated stays allocated, and so do the few frames
    /// that they were just about to allocate or to free. Pageblocks that they had out of
    /// circulation come back. The caches of a [`Lease`](crate::designs::Lease) that another thread
    /// has stay leased, with what they hold. Counts of events may lack what calls under way did.
    ///
    /// Two things must not go on in the original meanwhile: a call of the copy's own thread, from
    /// within which it is copied; and, with `freehold`, frees of parts of a block of a pageblock or
    /// more whose other parts other threads own. The copy may take these for free.
    ///
    /// Cost: with the design `freehold`, a look at each pageblock, some 0.04 µs; with the others,
    /// at the type of each.
    pub fn thaw_copy(&self) {
        self.design().thaw_copy(self.context());
    }
}
