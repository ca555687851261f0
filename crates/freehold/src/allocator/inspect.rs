//! What an allocator tells of its state.

use core::fmt;

use crate::allocator::PageAllocator;
use crate::designs::Design;
use crate::platform::Platform;
use crate::stat::{
    Census, Events, FrameStatus, FreeByType, NumaEvents, Violation, ZoneLevel, ZoneStats,
};
use crate::units::{FrameSize, Order, Pfn};

impl<P: Platform, D: Design<P>> PageAllocator<P, D> {
    /// What a frame is, and which block it is part of.
    ///
    /// Exact for a frame that the caller has allocated, unless other parts of the same block are
    /// being freed. Of other frames it tells what was so a moment ago. A block of which parts were
    /// freed, and a range of [`PageAllocator::alloc_range`], count as the largest blocks that fit.
    ///
    /// Cost: nanoseconds for the first frame of a block. Otherwise, with `freehold`, a look at each
    /// frame of the block, or at two words for blocks of a pageblock and more; with the other
    /// designs, the lock of the zone.
    pub fn status(&self, pfn: Pfn) -> FrameStatus {
        self.design().status(self.context(), pfn)
    }

    /// The order of the allocated block that begins at a frame; `None` if none does. With it,
    /// memory can be freed by its place alone. As exact and as costly as
    /// [`PageAllocator::status`].
    pub fn order_of(&self, pfn: Pfn) -> Option<Order> {
        match self.status(pfn) {
            FrameStatus::Allocated { first, order } if first == pfn => Some(order),
            _ => None,
        }
    }

    /// Whether a frame is memory of this allocator and free. As exact and as costly as
    /// [`PageAllocator::status`].
    pub fn is_free(&self, pfn: Pfn) -> bool {
        self.status(pfn) == FrameStatus::Free
    }

    /// How many CPUs it keeps separate state for: as many as
    /// [`Config::cpu_nodes`](crate::Config::cpu_nodes) names.
    pub fn cpus(&self) -> usize {
        self.context().topology.cpus()
    }

    /// The size of a frame.
    pub fn frame_size(&self) -> FrameSize {
        self.context().topology.frame_size
    }

    /// How full every zone is.
    ///
    /// Cost: a few loads a zone; takes no lock.
    pub fn levels(&self) -> impl Iterator<Item = ZoneLevel> + '_ {
        (0..).map_while(|index| self.design().zone_level(index))
    }

    /// The state of every zone.
    ///
    /// Cost: with `freehold`, two looks at the bitmaps of every pageblock; in the other designs,
    /// the lock of each CPU's lists and that of the zone. [`PageAllocator::levels`] has what
    /// watermarks are compared with.
    pub fn zones(&self) -> impl Iterator<Item = ZoneStats> + '_ {
        (0..).map_while(|index| self.design().zone_stats(self.context(), index))
    }

    /// The NUMA events of the zone at `index` of [`PageAllocator::zones`]. `None` if there is no
    /// such zone.
    pub fn numa_events(&self, index: usize) -> Option<NumaEvents> {
        self.design().numa_events(self.context(), index)
    }

    /// The free blocks of the zone at `index` of [`PageAllocator::zones`] by migratetype, counted
    /// without a lock: exact if no call is under way. `None` if there is no such zone.
    ///
    /// Cost: visits every free block of the zone, 40 ms for 64 GiB of scattered frames.
    pub fn free_by_type(&self, index: usize) -> Option<FreeByType> {
        self.design().free_by_type(self.context(), index)
    }

    /// Whether there is a free block of an order or a larger one, as a look without locks shows:
    /// what a watermark asks before it lets a request through. With `freehold`, blocks of up to a
    /// pageblock that CPUs cache count; with the others, neither these nor what `lazy-merge` has
    /// yet to merge. An allocation has all of them.
    ///
    /// Cost: with `freehold` a few loads; a look at every pageblock if only CPUs have it, or none.
    /// With the other designs, that of [`PageAllocator::free_by_type`].
    pub fn has_block(&self, order: Order) -> bool {
        self.design().has_block(self.context(), order)
    }

    /// What has happened since the allocator was built. Exact if no call is under way. Otherwise,
    /// the frames allocated, the frames freed, and the difference of the two may each miss what
    /// concurrent calls do, and no more.
    ///
    /// Cost: takes the lock of each CPU's lists for a moment, or with `freehold` of its caches, and
    /// visits every pageblock there.
    pub fn events(&self) -> Events {
        self.design().events(self.context())
    }

    /// Checks every invariant of the metadata and reports where the frames are.
    ///
    /// Cost: visits every frame with all locks of its zone held: 20 ms for 64 GiB of scattered
    /// frames with `freehold`. Other CPUs may make calls meanwhile, and wait.
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found.
    pub fn validate(&self) -> Result<Census, Violation> {
        self.design().validate(self.context())
    }
}

impl<P: Platform, D: Design<P>> fmt::Debug for PageAllocator<P, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageAllocator").field("design", &D::NAME).finish_non_exhaustive()
    }
}
