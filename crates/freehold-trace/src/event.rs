//! What a kernel's page allocator did, one event at a time.

use std::fmt;

use crate::gfp::Gfp;

/// The largest order of a block. No kernel comes near it.
pub const ORDER_MAX: u8 = 16;

/// One event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds since the start of the recording.
    pub time_ns: u64,
    /// The CPU that did it.
    pub cpu: u32,
    /// The process in whose name it did so; 0 if the CPU was idle.
    pub pid: u32,
    /// What the CPU was busy with.
    pub context: Context,
    /// What it did.
    pub what: What,
}

/// What a CPU was busy with when an event occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Context {
    /// A process, or a thread of the kernel.
    #[default]
    Task,
    /// A soft interrupt.
    SoftIrq,
    /// A hard interrupt, or one that cannot be masked.
    HardIrq,
}

/// The migratetype of an allocation, in the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MigrateType(pub u8);

impl MigrateType {
    /// Content that cannot move.
    pub const UNMOVABLE: Self = Self(0);
    /// Content that can move.
    pub const MOVABLE: Self = Self(1);
    /// Content that cannot move, but can be given up.
    pub const RECLAIMABLE: Self = Self(2);
    /// Content that can move out of memory that is kept for contiguous ranges.
    pub const CMA: Self = Self(4);

    /// The name, as in `/proc/pagetypeinfo`.
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "Unmovable",
            1 => "Movable",
            2 => "Reclaimable",
            3 => "HighAtomic",
            4 => "CMA",
            5 => "Isolate",
            _ => "unknown",
        }
    }
}

impl fmt::Display for MigrateType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What happened: the kernel's events of the group `kmem` about pages, and what was lost of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// `mm_page_alloc`: an allocation, served or refused.
    Alloc {
        /// The first frame; none if the allocation failed.
        pfn: Option<u64>,
        /// A block of 2^order frames.
        order: u8,
        /// What the caller allowed.
        gfp: Gfp,
        /// The kind of content.
        migratetype: MigrateType,
    },
    /// `mm_page_free`: a block comes back.
    Free {
        /// The first frame.
        pfn: u64,
        /// A block of 2^order frames.
        order: u8,
    },
    /// `mm_page_free_batched`: that frame, whose `mm_page_free` has been seen, was one of a group.
    FreeBatched {
        /// The frame.
        pfn: u64,
    },
    /// `mm_page_pcpu_drain`: a block leaves a per-CPU list for the free lists of its zone.
    PcpuDrain {
        /// The first frame.
        pfn: u64,
        /// A block of 2^order frames.
        order: u8,
        /// The list.
        migratetype: MigrateType,
    },
    /// `mm_page_alloc_zone_locked`: a block leaves the free lists of a zone, under its lock.
    ZoneLocked {
        /// The first frame.
        pfn: u64,
        /// A block of 2^order frames.
        order: u8,
        /// The list.
        migratetype: MigrateType,
        /// Whether it fills a per-CPU list.
        refill: bool,
    },
    /// The kernel lost this many events of this CPU here, since nobody read them in time.
    Lost {
        /// How many; 0 if the kernel does not say.
        events: u64,
    },
}

/// A kind of event: [`What`] without its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// [`What::Alloc`].
    Alloc,
    /// [`What::Free`].
    Free,
    /// [`What::FreeBatched`].
    FreeBatched,
    /// [`What::PcpuDrain`].
    PcpuDrain,
    /// [`What::ZoneLocked`].
    ZoneLocked,
    /// [`What::Lost`].
    Lost,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 6] =
        [Kind::Alloc, Kind::Free, Kind::FreeBatched, Kind::PcpuDrain, Kind::ZoneLocked, Kind::Lost];

    /// The kinds that a kernel reports.
    pub const OF_KERNEL: [Kind; 5] =
        [Kind::Alloc, Kind::Free, Kind::FreeBatched, Kind::PcpuDrain, Kind::ZoneLocked];

    /// The name of the kernel's event.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Alloc => "mm_page_alloc",
            Kind::Free => "mm_page_free",
            Kind::FreeBatched => "mm_page_free_batched",
            Kind::PcpuDrain => "mm_page_pcpu_drain",
            Kind::ZoneLocked => "mm_page_alloc_zone_locked",
            Kind::Lost => "lost",
        }
    }

    /// The kind with this name of an event.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::OF_KERNEL.into_iter().find(|kind| kind.name() == name)
    }
}

impl What {
    /// Whether a block is one that a kernel can have: it begins at a multiple of its size. Frames
    /// and losses are always possible.
    pub fn is_possible(&self) -> bool {
        match *self {
            What::Alloc { pfn: Some(pfn), order, .. }
            | What::Free { pfn, order }
            | What::PcpuDrain { pfn, order, .. }
            | What::ZoneLocked { pfn, order, .. } => {
                order <= ORDER_MAX && pfn.trailing_zeros() >= order.into()
            }
            What::Alloc { pfn: None, order, .. } => order <= ORDER_MAX,
            What::FreeBatched { .. } | What::Lost { .. } => true,
        }
    }

    /// What kind of event this is.
    pub fn kind(&self) -> Kind {
        match self {
            What::Alloc { .. } => Kind::Alloc,
            What::Free { .. } => Kind::Free,
            What::FreeBatched { .. } => Kind::FreeBatched,
            What::PcpuDrain { .. } => Kind::PcpuDrain,
            What::ZoneLocked { .. } => Kind::ZoneLocked,
            What::Lost { .. } => Kind::Lost,
        }
    }
}
