//! The allocator's statistics: levels by zone, events since it was built, and the results of a
//! consistency check.

use core::fmt;
use core::ops::AddAssign;

use crate::units::{FrameCount, MigrateType, NodeId, ORDERS, Order, Pfn, ZoneKind};
use crate::zone::watermark::Marks;

pub use numa::NumaEvents;
#[doc(hidden)]
pub use numa::NumaExceptions;

mod numa;

/// How full one zone is, without what CPUs cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLevel {
    /// The node that the zone belongs to.
    pub node: NodeId,
    /// Its kind.
    pub kind: ZoneKind,
    /// Frames added to the zone.
    pub managed: FrameCount,
    /// Frames on the zone's free lists. Exact whenever no call is under way.
    pub free: FrameCount,
    /// The watermarks and reserves.
    pub marks: Marks,
}

/// The state of one zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneStats {
    /// The node that the zone belongs to.
    pub node: NodeId,
    /// Its kind.
    pub kind: ZoneKind,
    /// Frames added to the zone.
    pub managed: FrameCount,
    /// Frames on the zone's free lists. Exact whenever no call is under way.
    pub free: FrameCount,
    /// Free frames that CPUs cache. Exact whenever no call is under way.
    pub per_cpu: FrameCount,
    /// Free frames in isolated pageblocks; no request is served from them.
    pub isolated: FrameCount,
    /// Free blocks by order, without those that CPUs cache and isolated ones.
    pub free_blocks: [u64; ORDERS],
    /// The watermarks and reserves.
    pub marks: Marks,
    /// How often pageblocks changed their migratetype for lack of free blocks of another type: one,
    /// or all of a larger block.
    pub claims: u64,
    /// Chunks taken from a pageblock of another migratetype.
    pub steals: u64,
}

/// What a frame is: [`PageAllocator::status`](crate::PageAllocator::status).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FrameStatus {
    /// No memory of this allocator.
    Foreign,
    /// Free, or on its way from one user to the next.
    Free,
    /// Part of a block that a user holds.
    Allocated {
        /// The first frame of the block.
        first: Pfn,
        /// The size of the block.
        order: Order,
    },
}

/// The free blocks of one zone by migratetype, without those that CPUs cache and isolated ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeByType {
    /// By migratetype and order.
    pub blocks: [[u64; ORDERS]; MigrateType::COUNT],
    /// Pageblocks by migratetype, without isolated ones.
    pub pageblocks: [u64; MigrateType::COUNT],
}

/// What has happened since the allocator was built. Counts of frames, unless the name says
/// otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Frames allocated. Includes the migration targets of attempts at a range, even failed ones.
    pub allocated: FrameCount,
    /// Frames freed.
    pub freed: FrameCount,
    /// Of those allocated, how many bypassed the per-CPU lists.
    pub allocated_directly: FrameCount,
    /// Of those freed, how many bypassed the per-CPU lists.
    pub freed_directly: FrameCount,
    /// How often a per-CPU list was refilled from its zone.
    pub refills: u64,
    /// Frames that refills moved.
    pub refilled: FrameCount,
    /// How often a per-CPU list was drained to its zone.
    pub drains: u64,
    /// Frames that drains moved.
    pub drained: FrameCount,
    /// Of the drains, how many moved frames of only one migratetype, by type. Counted by the design
    /// `cluster`.
    pub single_type_drains: [u64; MigrateType::COUNT],
    /// Of those, how many put all frames on a free list as one cluster.
    pub clustered_drains: u64,
    /// How often a zone was compacted, in whole or in part.
    pub compactions: u64,
    /// Frames whose content was migrated.
    pub migrated: FrameCount,
    /// Contiguous ranges allocated.
    pub ranges: u64,
    /// Frames of which two concurrent frees were detected too late to refuse one of them. Counted
    /// by the design `freehold`; the others always refuse one.
    pub double_frees_late: FrameCount,
}

impl Events {
    /// All counts by name: Linux's names for the events that it has.
    pub fn by_name(&self) -> [(&'static str, u64); 16] {
        // All fields by name, so that a new one cannot be forgotten here.
        let Events {
            allocated,
            freed,
            allocated_directly,
            freed_directly,
            refills,
            refilled,
            drains,
            drained,
            single_type_drains: [unmovable_drains, movable_drains, reclaimable_drains],
            clustered_drains,
            compactions,
            migrated,
            ranges,
            double_frees_late,
        } = *self;
        [
            ("pgalloc", allocated.get()),
            ("pgfree", freed.get()),
            ("pgalloc_direct", allocated_directly.get()),
            ("pgfree_direct", freed_directly.get()),
            ("pcp_refill", refills),
            ("pcp_refill_pages", refilled.get()),
            ("pcp_drain", drains),
            ("pcp_drain_pages", drained.get()),
            ("pcp_drain_unmovable", unmovable_drains),
            ("pcp_drain_movable", movable_drains),
            ("pcp_drain_reclaimable", reclaimable_drains),
            ("pcp_drain_clustered", clustered_drains),
            ("compact_zone", compactions),
            ("pgmigrate_success", migrated.get()),
            ("alloc_contig_range", ranges),
            ("double_free_late", double_frees_late.get()),
        ]
    }

    /// Adds another count to this one.
    #[doc(hidden)]
    pub fn add(&mut self, other: &Events) {
        let drains_of = |of| self.single_type_drains[of] + other.single_type_drains[of];
        *self = Events {
            allocated: self.allocated + other.allocated,
            freed: self.freed + other.freed,
            allocated_directly: self.allocated_directly + other.allocated_directly,
            freed_directly: self.freed_directly + other.freed_directly,
            refills: self.refills + other.refills,
            refilled: self.refilled + other.refilled,
            drains: self.drains + other.drains,
            drained: self.drained + other.drained,
            single_type_drains: core::array::from_fn(drains_of),
            clustered_drains: self.clustered_drains + other.clustered_drains,
            compactions: self.compactions + other.compactions,
            migrated: self.migrated + other.migrated,
            ranges: self.ranges + other.ranges,
            double_frees_late: self.double_frees_late + other.double_frees_late,
        };
    }
}

/// Where every frame is, as found by a consistency check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Frames that the allocator manages.
    pub managed: FrameCount,
    /// Frames on the free lists of zones, without isolated ones.
    pub free: FrameCount,
    /// Frames that CPUs cache.
    pub per_cpu: FrameCount,
    /// Free frames in isolated pageblocks.
    pub isolated: FrameCount,
    /// Frames that callers hold, including those being freed.
    pub allocated: FrameCount,
}

impl AddAssign for Census {
    fn add_assign(&mut self, other: Self) {
        // All fields by name, so that a new one cannot be forgotten here.
        let Census { managed, free, per_cpu, isolated, allocated } = other;
        self.managed += managed;
        self.free += free;
        self.per_cpu += per_cpu;
        self.isolated += isolated;
        self.allocated += allocated;
    }
}

/// A violated invariant of the metadata: a defect of the allocator, or of other code that writes to
/// its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant that does not hold.
    pub rule: Rule,
    /// The frame at which it was detected; for counters, the first frame of the zone's memory that
    /// was examined.
    pub at: Pfn,
}

/// An invariant of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A free block lies on the list of its order and of its pageblock's migratetype.
    ListMatchesMark,
    /// The links of a list agree in both directions, and it ends.
    LinksAgree,
    /// A block lies at a multiple of its size.
    BlockAligned,
    /// The frames behind a head carry no mark.
    TailsUnmarked,
    /// A frame belongs to exactly one block.
    FrameInOneBlock,
    /// A pageblock with memory has the zone that manages it.
    ZoneOfBlock,
    /// Two free buddies of one size have been merged.
    BuddiesMerged,
    /// The number of free blocks of an order equals what the lists hold.
    BlocksCounted,
    /// The zone's free frames equal what the lists hold.
    FreeCounted,
    /// A CPU's frames equal what its lists hold.
    PerCpuCounted,
    /// Every frame that the zone was given is accounted for.
    ManagedCounted,
    /// A design's additional data agree with its lists.
    KeptBeside,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.rule {
            Rule::ListMatchesMark => "a free block is on the wrong list",
            Rule::LinksAgree => "the links of a list disagree",
            Rule::BlockAligned => "a block is misaligned",
            Rule::TailsUnmarked => "a frame within a block carries a mark",
            Rule::FrameInOneBlock => "a frame belongs to no block",
            Rule::ZoneOfBlock => "a pageblock belongs to another zone than its frames",
            Rule::BuddiesMerged => "two free buddies were not merged",
            Rule::BlocksCounted => "the count of free blocks is wrong",
            Rule::FreeCounted => "the zone's count of free frames is wrong",
            Rule::PerCpuCounted => "a CPU's count of frames is wrong",
            Rule::ManagedCounted => "frames of the zone are missing",
            Rule::KeptBeside => "what the design keeps beside its lists disagrees with them",
        };
        write!(f, "{rule}, seen at {}", self.at)
    }
}

impl core::error::Error for Violation {}
