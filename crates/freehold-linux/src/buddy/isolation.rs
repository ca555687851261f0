//! Isolating pageblocks, and taking frames wherever they lie.

use super::{Beside, Buddy};
use crate::frame::Tag;
use crate::pageblock::BlockType;
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::End;
use freehold::platform::Platform;
use freehold::units::{FrameCount, Order};

impl<P: Platform, B: Beside<P>> Buddy<'_, P, B> {
    /// Isolates the free frames of a pageblock, including those freed from now on; returns how many
    /// there were. `None` if the block is isolated already.
    pub(crate) fn isolate_pageblock(&self, pageblock: FrameIndex) -> Option<FrameCount> {
        if self.tables.blocks.block_type(pageblock) == BlockType::Isolated {
            return None;
        }
        self.split_at_pageblock(pageblock);
        self.beside.retyped(&self.tables, pageblock);
        self.tables.blocks.set_isolated(pageblock, true);
        Some(self.move_free(pageblock, BlockType::Isolated, End::Front))
    }

    /// Makes the free frames of an isolated pageblock available again; returns how many.
    pub(crate) fn release_pageblock(&self, pageblock: FrameIndex) -> FrameCount {
        self.tables.blocks.set_isolated(pageblock, false);
        let of = self.tables.blocks.block_type(pageblock);
        let moved = self.move_free(pageblock, of, End::Front);
        // A pageblock that is free as a whole merges with its neighbour.
        if self.tables.frames.state(pageblock).is(Tag::Buddy, Order::PAGEBLOCK) {
            self.remove(pageblock, Order::PAGEBLOCK, of);
            self.put(pageblock, Order::PAGEBLOCK, None);
        }
        moved
    }

    /// Splits a free block that extends beyond a pageblock, so that none does. Its other parts stay
    /// as large as can be.
    fn split_at_pageblock(&self, pageblock: FrameIndex) {
        let order = Order::PAGEBLOCK;
        if let Some(of) = self.take_part(pageblock, order, order.up()) {
            self.insert(pageblock, order, of, End::Front);
        }
    }

    /// Takes a block out of the free block of at least `from` that it lies in, if there is one, and
    /// leaves the rest on the lists; returns its type. Its head is unmarked.
    fn take_part(&self, block: FrameIndex, order: Order, from: Order) -> Option<BlockType> {
        for from in from.to(Order::BUDDY_MAX) {
            let head = block.head(from);
            let state = self.tables.frames.state(head);
            if state.is(Tag::Buddy, from) {
                let of = state.block_type();
                self.remove(head, from, of);
                for half in (order.get()..from.get()).rev().map(Order::new) {
                    self.insert(block.head(half).buddy(half), half, of, End::Front);
                }
                return Some(of);
            }
        }
        None
    }

    /// Takes the frames of a block, all of which are free, from whatever lists they are on: they
    /// may be part of a larger free block, or lie in smaller ones. No head is left marked.
    pub(crate) fn take_frames(&self, block: FrameIndex, order: Order) {
        if self.take_part(block, order, order).is_some() {
            return;
        }
        let mut at = block;
        while at < block.after(order) {
            let taken = self.remove_any(at);
            at = at.after(taken.expect("the caller knows that all frames are free"));
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::buddy::{FreeLists, Tables};
    use crate::frame::{FrameState, FrameTable, FrameTablePlan};
    use crate::pageblock::{BlockTable, BlockTablePlan};
    use crate::testing::TestPlatform;
    use core::mem::MaybeUninit;
    use freehold::config::{Config, MemoryRange};
    use freehold::memmap::index::ZoneIndex;
    use freehold::memmap::region::{Carver, LayoutBuilder, Metadata};
    use freehold::units::{MigrateType, NodeId, Pfn};
    use std::vec;
    use std::vec::Vec;

    const FRAMES: u64 = 4096;

    /// The tables of a zone whose memory is all in use.
    struct Memory {
        frames: FrameTable<TestPlatform>,
        blocks: BlockTable<TestPlatform>,
        lists: FreeLists<TestPlatform>,
    }

    impl Memory {
        fn new() -> Self {
            let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(FRAMES))];
            let cpus = [NodeId::new(0)];
            let config = Config::new(&ranges, &cpus);
            let mut builder = LayoutBuilder::new();
            let blocks = BlockTablePlan::new(&config, false, &mut builder).unwrap();
            let frames = FrameTablePlan::new(&config, &mut builder).unwrap();
            let layout = builder.finish();
            let buffer = vec![MaybeUninit::uninit(); layout.size_unaligned()].leak();
            let mut carver = Carver::new(Metadata::from_static(buffer), &layout).unwrap();
            let blocks = BlockTable::carve(&blocks, &mut carver);
            let frames = FrameTable::carve(&frames, &config, &mut carver);
            for frame in (0..FRAMES as u32).map(FrameIndex) {
                blocks.set_zone(frame, ZoneIndex(0));
                frames.set_state(frame, FrameState::TAIL);
            }
            Memory { frames, blocks, lists: FreeLists::new() }
        }

        fn buddy(&self) -> Buddy<'_, TestPlatform, ()> {
            let tables = Tables { frames: &self.frames, blocks: &self.blocks };
            Buddy { lists: &self.lists, tables, beside: () }
        }

        /// The free blocks of a type as pairs of head and order, lowest first.
        fn free(&self, of: BlockType) -> Vec<(u32, u8)> {
            let orders = Order::ZERO.to(Order::BUDDY_MAX);
            let mut blocks: Vec<_> = orders
                .flat_map(|order| {
                    let list = self.lists.list(order, of).iter(&self.frames);
                    list.map(move |block| (block, order)).collect::<Vec<_>>()
                })
                .inspect(|&(block, order)| {
                    assert!(self.frames.state(block).is(Tag::Buddy, order));
                    assert_eq!(self.frames.state(block).block_type(), of);
                })
                .map(|(block, order)| (block.0, order.get()))
                .collect();
            blocks.sort_unstable();
            blocks
        }
    }

    const MOVABLE: BlockType = BlockType::Movable;
    const ISOLATED: BlockType = BlockType::Isolated;

    fn order(order: u8) -> Order {
        Order::new(order)
    }

    #[test]
    fn isolating_a_pageblock_splits_what_reaches_beyond_and_releasing_merges_it_again() {
        let memory = Memory::new();
        let buddy = memory.buddy();
        for head in [0, 1024] {
            buddy.tables.blocks.set_migratetype(FrameIndex(head), order(10), MigrateType::Movable);
            buddy.put(FrameIndex(head), order(10), None);
        }
        let upper = FrameIndex(512);
        assert_eq!(buddy.isolate_pageblock(upper), Some(FrameCount::new(512)));
        assert_eq!(buddy.isolate_pageblock(upper), None, "only one can isolate it");
        assert_eq!(memory.free(MOVABLE), [(0, 9), (1024, 10)]);
        assert_eq!(memory.free(ISOLATED), [(512, 9)]);
        assert_eq!((memory.lists.blocks(order(9)), memory.lists.blocks(order(10))), (1, 1));
        assert_eq!(buddy.isolate_pageblock(FrameIndex(0)), Some(FrameCount::new(512)));
        assert_eq!(memory.free(ISOLATED), [(0, 9), (512, 9)]);
        assert_eq!(buddy.release_pageblock(upper), FrameCount::new(512));
        assert_eq!(memory.free(MOVABLE), [(512, 9), (1024, 10)], "the other one stays isolated");
        assert_eq!(buddy.release_pageblock(FrameIndex(0)), FrameCount::new(512));
        assert_eq!(memory.free(MOVABLE), [(0, 10), (1024, 10)]);
        assert_eq!(memory.free(ISOLATED), []);
        assert_eq!((memory.lists.blocks(order(9)), memory.lists.blocks(order(10))), (0, 2));
    }

    #[test]
    fn frames_that_are_freed_to_isolated_pageblocks_merge_up_to_a_pageblock() {
        let memory = Memory::new();
        let buddy = memory.buddy();
        buddy.tables.blocks.set_migratetype(FrameIndex(0), order(10), MigrateType::Movable);
        buddy.put(FrameIndex(3), order(0), None);
        for pageblock in [0, 512] {
            buddy.isolate_pageblock(FrameIndex(pageblock)).expect("it is not isolated");
        }
        buddy.put(FrameIndex(2), order(0), None);
        assert_eq!(memory.free(ISOLATED), [(2, 1)]);
        buddy.put(FrameIndex(0), order(1), None);
        for part in [2, 3, 4, 5, 6, 7, 8, 9] {
            buddy.put(FrameIndex(1 << part), order(part), None);
        }
        assert_eq!(memory.free(ISOLATED), [(0, 9), (512, 9)]);
        assert_eq!(memory.lists.blocks(order(9)), 0, "isolated blocks do not count");
        assert_eq!(buddy.release_pageblock(FrameIndex(512)), FrameCount::new(512));
        assert_eq!((memory.free(ISOLATED), memory.free(MOVABLE)), (vec![(0, 9)], vec![(512, 9)]));
        assert_eq!(memory.blocks.migratetype(FrameIndex(0)), MigrateType::Movable);
    }

    #[test]
    fn frames_are_taken_from_within_a_block_and_across_small_ones() {
        let memory = Memory::new();
        let buddy = memory.buddy();
        buddy.tables.blocks.set_migratetype(FrameIndex(0), order(10), MigrateType::Movable);
        buddy.put(FrameIndex(0), order(10), None);
        buddy.take_frames(FrameIndex(20), order(2));
        assert_eq!(
            memory.free(MOVABLE),
            [(0, 4), (16, 2), (24, 3), (32, 5), (64, 6), (128, 7), (256, 8), (512, 9)]
        );
        buddy.take_frames(FrameIndex(32), order(5));
        // Unmerged frames are taken like others.
        buddy.put_unmerged(FrameIndex(20));
        buddy.put_unmerged(FrameIndex(21));
        buddy.put(FrameIndex(22), order(1), None);
        assert_eq!(memory.free(MOVABLE)[1..5], [(16, 2), (20, 0), (21, 0), (22, 1)]);
        buddy.take_frames(FrameIndex(16), order(4));
        assert_eq!(memory.free(MOVABLE), [(0, 4), (64, 6), (128, 7), (256, 8), (512, 9)]);
        for frame in 16..32 {
            assert_eq!(memory.frames.state(FrameIndex(frame)), FrameState::TAIL);
        }
    }

    #[test]
    fn a_merge_that_was_put_off_is_made_up_for() {
        let memory = Memory::new();
        let buddy = memory.buddy();
        for frame in (0..512).map(FrameIndex) {
            buddy.put_unmerged(frame);
        }
        let of = MOVABLE;
        assert_eq!(memory.free(of).len(), 512);
        assert!(!buddy.merge_late(FrameIndex(600)), "a frame in use");
        // Isolation and release leave the mark in place.
        buddy.isolate_pageblock(FrameIndex(0)).expect("it is not isolated");
        buddy.release_pageblock(FrameIndex(0));
        let merged = (0..512).filter(|&frame| buddy.merge_late(FrameIndex(frame))).count();
        assert_eq!(merged, 256, "each merge takes two frames");
        assert_eq!(memory.free(of), [(0, 9)]);
        assert_eq!(memory.lists.blocks(order(0)), 0);
    }
}
