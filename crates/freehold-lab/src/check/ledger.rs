//! A ledger of the frames in use, kept independently of the allocator.

use std::ops::Range;

use fastrand::Rng;
use freehold::{FrameCount, MemoryRange, NodeId, Order, Pfn, ZoneKind};

use super::scenario::span;

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
    /// Frames that are no memory at the moment.
    gone: Vec<bool>,
    pub(super) pool: Vec<Block>,
}

impl Ledger {
    /// The ledger of this memory, and of some that is added later.
    pub(super) fn new(now: &[MemoryRange], late: Option<MemoryRange>) -> Self {
        let ranges: Vec<_> = now.iter().copied().chain(late).collect();
        let (first, frames) = span(now, late);
        let (first, none) = (first.get(), || vec![false; frames.get() as usize]);
        let (used, gone) = (none(), none());
        let mut ledger = Ledger { ranges, first, used, gone, pool: Vec::new() };
        late.into_iter().for_each(|range| ledger.remove_memory(range));
        ledger
    }

    /// A part of the memory that has at most so many frames, whether it is there or not.
    pub(super) fn pick(&self, rng: &mut Rng, most: u64) -> MemoryRange {
        let all = self.ranges[rng.usize(..self.ranges.len())];
        let first = rng.u64(..all.frames.get());
        let frames = rng.u64(1..=most.min(all.frames.get() - first));
        let (start, frames) = (all.start.offset(FrameCount::new(first)), FrameCount::new(frames));
        MemoryRange::new(start, frames).on_node(all.node).in_zone(all.zone)
    }

    /// Notes that a range has been removed. None of its frames is in use.
    pub(super) fn remove_memory(&mut self, range: MemoryRange) {
        for at in self.places(range) {
            assert!(!self.used[at], "a frame of {range:?} is in use, and was removed");
            assert!(!self.gone[at], "a frame of {range:?} was removed twice");
            self.gone[at] = true;
        }
    }

    /// Notes that a range is about to be added again.
    pub(super) fn add_memory(&mut self, range: MemoryRange) {
        self.places(range).for_each(|at| self.gone[at] = false);
    }

    fn places(&self, range: MemoryRange) -> Range<usize> {
        let start = (range.start.get() - self.first) as usize;
        start..start + range.frames.get() as usize
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
            let at = (frame - self.first) as usize;
            assert!(!self.gone[at], "pfn {frame:#x} was removed, but was allocated");
            let used = &mut self.used[at];
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

    /// Where among the blocks that are left for others a block is.
    pub(super) fn place_of(&self, block: Block) -> Option<usize> {
        self.pool.iter().position(|&left| left == block)
    }

    /// How many frames are in use.
    pub(super) fn used(&self) -> FrameCount {
        FrameCount::new(self.used.iter().filter(|&&used| used).count() as u64)
    }

    /// How many frames are neither in use nor removed, and the first of them.
    pub(super) fn missing(&self) -> (FrameCount, Option<u64>) {
        let is_missing = |frame: &u64| {
            let at = (frame - self.first) as usize;
            !self.used[at] && !self.gone[at] && self.zone_of(*frame).is_some()
        };
        let mut frames = (self.first..self.first + self.used.len() as u64).filter(is_missing);
        let first = frames.next();
        (FrameCount::new(u64::from(first.is_some()) + frames.count() as u64), first)
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
