//! Index, count and size are different types: a frame number is not a number of frames.

use core::fmt;

use crate::geometry::{FRAME_BYTES, PAGEBLOCK_ORDER};

/// The number of a page frame: its physical address divided by the frame size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(u64);

impl Pfn {
    /// The frame with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Pfn(number)
    }

    /// The number itself.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The frame `count` frames above this one. Saturates at the largest number.
    #[inline]
    pub const fn offset(self, count: FrameCount) -> Self {
        Pfn(self.0.saturating_add(count.0))
    }

    /// Whether a block of `order` may start here: blocks lie at multiples of their size.
    #[inline]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & (order.frames().0 - 1) == 0
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn {:#x}", self.0)
    }
}

/// A number of page frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameCount(u64);

impl FrameCount {
    /// No frames.
    pub const ZERO: Self = FrameCount(0);

    /// So many frames.
    #[inline]
    pub const fn new(count: u64) -> Self {
        FrameCount(count)
    }

    /// The count itself.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl core::ops::Add for FrameCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        FrameCount(self.0 + other.0)
    }
}

impl core::ops::AddAssign for FrameCount {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl core::iter::Sum for FrameCount {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(FrameCount::ZERO, |a, b| a + b)
    }
}

impl fmt::Display for FrameCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames", self.0)
    }
}

/// The size of a frame: a power of two from 4 KiB to 1 GiB, the same for all frames of an
/// allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameSize {
    /// The size in bytes as a power of two.
    shift: u8,
}

impl FrameSize {
    /// The smallest size: 4 KiB.
    pub const MIN: Self = FrameSize { shift: 12 };

    /// The largest size: 1 GiB.
    pub const MAX: Self = FrameSize { shift: 30 };

    /// The default: [`FRAME_BYTES`].
    pub const DEFAULT: Self = match FrameSize::new(FRAME_BYTES) {
        Some(size) => size,
        None => panic!("FRAME_BYTES is not the size of a frame"),
    };

    /// The size of so many bytes; `None` unless that is a power of two from 4 KiB to 1 GiB.
    #[inline]
    pub const fn new(bytes: usize) -> Option<Self> {
        if !bytes.is_power_of_two() || bytes < Self::MIN.bytes() || bytes > Self::MAX.bytes() {
            return None;
        }
        Some(FrameSize { shift: bytes.ilog2() as u8 })
    }

    /// The size in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        1 << self.shift
    }

    /// The size of so many frames in bytes. Saturates.
    #[inline]
    pub const fn bytes_of(self, frames: FrameCount) -> usize {
        let frames = if frames.0 > usize::MAX as u64 { usize::MAX } else { frames.0 as usize };
        frames.saturating_mul(self.bytes())
    }

    /// The size in KiB: 4 or more.
    #[inline]
    pub const fn kib(self) -> u64 {
        1 << (self.shift - 10)
    }
}

impl Default for FrameSize {
    fn default() -> Self {
        FrameSize::DEFAULT
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB", self.kib())
    }
}

/// The size of a block as a power of two: order 0 is one frame, order 3 is eight.
///
/// Any number can be named; an allocator answers
/// [`Error::OrderTooLarge`](crate::Error::OrderTooLarge) to one that it does not serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(u8);

/// How many orders the buddy system keeps: 0 to [`Order::BUDDY_MAX`].
pub(crate) const ORDERS: usize = Order::BUDDY_MAX.index() + 1;

impl Order {
    /// One frame.
    pub const ZERO: Self = Order(0);

    /// The order of a pageblock, the unit of migratetypes, as [`PAGEBLOCK_ORDER`] has it: 512
    /// frames by default, 2 MiB with 4 KiB frames.
    pub const PAGEBLOCK: Self = Order(PAGEBLOCK_ORDER);

    /// The largest block that the buddy system keeps: 1024 frames, or a pageblock if that is
    /// larger, as in Linux.
    pub const BUDDY_MAX: Self = Order(if PAGEBLOCK_ORDER > 10 { PAGEBLOCK_ORDER } else { 10 });

    /// This order. Values above 63 are held as 63: no address space has such blocks.
    #[inline]
    pub const fn new(order: u8) -> Self {
        Order(if order > 63 { 63 } else { order })
    }

    /// The order as a number.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The order as an index of tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// How many frames a block of this order has.
    #[inline]
    pub const fn frames(self) -> FrameCount {
        FrameCount(1 << (self.0 & 63))
    }

    /// The next larger order.
    #[inline]
    pub const fn up(self) -> Self {
        Order::new(self.0 + 1)
    }

    /// All orders from this one to `last`, upwards.
    pub fn to(self, last: Order) -> impl DoubleEndedIterator<Item = Order> {
        (self.0..=last.0).map(Order)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}

/// The number of a CPU, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(u32);

impl CpuId {
    /// The CPU with this number.
    #[inline]
    pub const fn new(number: u32) -> Self {
        CpuId(number)
    }

    /// The number as an index of tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}", self.0)
    }
}

/// The number of a memory node, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u16);

impl NodeId {
    /// The node with this number.
    #[inline]
    pub const fn new(number: u16) -> Self {
        NodeId(number)
    }

    /// The number as an index of tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// What the content of a frame can do when memory has to be defragmented. Frames of one kind are
/// kept together, a pageblock at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum MigrateType {
    /// The frame must stay where it is: a kernel's own data.
    Unmovable = 0,
    /// The content can be copied elsewhere: the memory of processes.
    #[default]
    Movable = 1,
    /// The content can be dropped and made again: caches.
    Reclaimable = 2,
}

impl MigrateType {
    /// How many types there are.
    pub const COUNT: usize = 3;

    /// All types, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// The type as an index of tables.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in reports and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmovable => "unmovable",
            Self::Movable => "movable",
            Self::Reclaimable => "reclaimable",
        }
    }
}

/// The class of a zone: which users can address its frames. Larger is less restricted to the
/// machine and more restricted in use, as in Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneKind {
    /// Frames that the most limited devices can address.
    Dma = 0,
    /// Frames that 32-bit devices can address.
    Dma32 = 1,
    /// Ordinary memory.
    #[default]
    Normal = 2,
    /// Memory for movable content only, so that it can be taken away again.
    Movable = 3,
}

impl ZoneKind {
    /// How many kinds there are.
    pub const COUNT: usize = 4;

    /// All kinds, most restricted to the machine first.
    pub const ALL: [Self; Self::COUNT] = [Self::Dma, Self::Dma32, Self::Normal, Self::Movable];

    /// The kind as an index of tables.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
            Self::Movable => "Movable",
        }
    }
}
