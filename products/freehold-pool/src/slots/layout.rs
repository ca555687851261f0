//! Which frame of the allocator stands for which slot.

use freehold::{FrameCount, MemoryRange, Order, Pfn};

use super::SlotIndex;

/// Pageblocks for each CPU. A CPU holds a pageblock while it takes frames from it, so with fewer
/// pageblocks than CPUs these would wait for each other; with a few more, each finds one that has
/// free frames.
const PAGEBLOCKS_PER_CPU: usize = 4;

/// Frames in a pageblock.
const PAGEBLOCK: usize = 1 << Order::PAGEBLOCK.get();

/// How slots are spread over pageblocks: the first frames of each stand for slots, the others do
/// not exist. A hole costs half a byte of metadata a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    slots: u32,
    in_pageblock: u32,
}

impl Layout {
    /// Spreads so many slots for so many CPUs. Neither is 0.
    pub(crate) fn new(slots: u32, cpus: usize) -> Self {
        let share = (slots as usize).div_ceil(cpus * PAGEBLOCKS_PER_CPU);
        Layout { slots, in_pageblock: share.clamp(1, PAGEBLOCK) as u32 }
    }

    /// The frame that stands for a slot.
    pub(crate) fn frame(self, slot: SlotIndex) -> Pfn {
        let (block, rest) = (slot.get() / self.in_pageblock, slot.get() % self.in_pageblock);
        Pfn::new(u64::from(block) * PAGEBLOCK as u64 + u64::from(rest))
    }

    /// The slot that a frame stands for.
    pub(crate) fn slot(self, frame: Pfn) -> SlotIndex {
        let (block, rest) = (frame.get() / PAGEBLOCK as u64, frame.get() % PAGEBLOCK as u64);
        SlotIndex::new(block as u32 * self.in_pageblock + rest as u32)
    }

    /// The frames that exist.
    pub(crate) fn ranges(self) -> Vec<MemoryRange> {
        let firsts = (0..self.slots).step_by(self.in_pageblock as usize);
        let range = |first: u32| {
            let frames = self.in_pageblock.min(self.slots - first);
            MemoryRange::new(self.frame(SlotIndex::new(first)), FrameCount::new(frames.into()))
        };
        firsts.map(range).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_a_frame_of_its_own_that_exists() {
        for (slots, cpus) in [(1, 1), (7, 112), (1000, 2), (1000, 112), (5000, 1), (100_000, 3)] {
            let layout = Layout::new(slots, cpus);
            let ranges = layout.ranges();
            let frames: u64 = ranges.iter().map(|range| range.frames.get()).sum();
            assert_eq!(frames, u64::from(slots), "{slots} slots, {cpus} CPUs");
            let mut existing = ranges
                .iter()
                .flat_map(|range| (0..range.frames.get()).map(|nth| range.start.get() + nth));
            for slot in (0..slots).map(SlotIndex::new) {
                let frame = layout.frame(slot);
                assert_eq!(existing.next(), Some(frame.get()));
                assert_eq!(layout.slot(frame), slot);
            }
        }
    }

    #[test]
    fn there_is_a_pageblock_for_each_cpu_as_far_as_slots_go() {
        assert_eq!(Layout::new(1000, 2).ranges().len(), 8);
        assert_eq!(Layout::new(2000, 112).ranges().len(), 400);
        assert_eq!(Layout::new(7, 112).ranges().len(), 7);
    }
}
