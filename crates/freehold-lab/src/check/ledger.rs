//! A ledger of the frames in use, kept independently of the allocator.

use std::ops::Range;

use freehold::{FrameCount, MemoryRange, NodeId, Order, Pfn, ZoneKind};

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) pfn: Pfn,
    pub(super) order: Order,
}

/// The frames in use, and the blocks that CPUs have left for others to free.
pub(super) struct Ledger {
    ranges: Vec<MemoryRange>,
    first: u64,
    used: Vec<bool>,
    pub(super) pool: Vec<Block>,
}

impl Ledger {
    pub(super) fn new(ranges: Vec<MemoryRange>) -> Self {
        let first = ranges.iter().map(|range| range.start.get()).min().unwrap_or(0);
        let end = |range: &MemoryRange| range.start.offset(range.frames).get();
        let last = ranges.iter().map(end).max().unwrap_or(0);
        Ledger { ranges, first, used: vec![false; (last - first) as usize], pool: Vec::new() }
    }

    /// Enters a block that the allocator has allocated for a request limited to zones up to
    /// `limit`.
    ///
    /// # Panics
    ///
    /// If it must not have been allocated: this command looks for that.
    pub(super) fn enter(&mut self, block: Block, limit: ZoneKind) {
        let Block { pfn, order } = block;
        assert!(pfn.is_aligned(order), "{pfn} was allocated as a block of {order}");
        for frame in frames(block) {
            let Some((_, zone)) = self.zone_of(frame) else {
                panic!("pfn {frame:#x} is no memory, but was allocated")
            };
            assert!(zone <= limit, "pfn {frame:#x} of {zone:?} was allocated up to {limit:?}");
            let used = &mut self.used[(frame - self.first) as usize];
            assert!(!*used, "pfn {frame:#x} was allocated twice");
            *used = true;
        }
    }

    /// Removes a block before it is freed: from then on any CPU may get it.
    pub(super) fn strike(&mut self, block: Block) {
        for frame in frames(block) {
            let used = &mut self.used[(frame - self.first) as usize];
            assert!(*used, "the work itself freed pfn {frame:#x}, which it does not hold");
            *used = false;
        }
    }

    /// How many frames are in use.
    pub(super) fn used(&self) -> FrameCount {
        FrameCount::new(self.used.iter().filter(|&&used| used).count() as u64)
    }

    /// A frame past all memory.
    pub(super) fn foreign(&self) -> Pfn {
        Pfn::new((self.first + self.used.len() as u64).next_multiple_of(1 << 20))
    }

    /// How many frames the memory has.
    pub(super) fn managed(&self) -> FrameCount {
        self.ranges.iter().map(|range| range.frames).sum()
    }

    /// How many free blocks of the largest order there are when all memory is free and merged.
    pub(super) fn largest_blocks(&self) -> u64 {
        let size = Order::BUDDY_MAX.frames().get();
        let last = self.first + self.used.len() as u64;
        let is_whole = |block: &u64| {
            let zone = self.zone_of(block * size);
            let same = |frame| self.zone_of(frame) == zone;
            zone.is_some() && (block * size..(block + 1) * size).all(same)
        };
        (self.first / size..last.div_ceil(size)).filter(is_whole).count() as u64
    }

    fn zone_of(&self, pfn: u64) -> Option<(NodeId, ZoneKind)> {
        let has = |range: &&MemoryRange| {
            let start = range.start.get();
            (start..start + range.frames.get()).contains(&pfn)
        };
        self.ranges.iter().find(has).map(|range| (range.node, range.zone))
    }
}

fn frames(block: Block) -> Range<u64> {
    let start = block.pfn.get();
    start..start + block.order.frames().get()
}
