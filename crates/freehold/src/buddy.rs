//! The buddy system of one zone: free lists by order and pageblock type, split and merge.
//!
//! Knows no lock and no watermark; the caller holds the zone lock. After Linux's
//! `mm/page_alloc.c` (`__free_one_page`, `expand`, `__rmqueue_smallest`), version 6.12: the list
//! that a block is on always equals the type of its pageblock.

use core::sync::atomic::Ordering::Relaxed;

use crate::memmap::block::{BlockTable, BlockType, pageblocks};
use crate::memmap::frame::{FrameIndex, FrameState, FrameTable, Tag};
use crate::memmap::list::{End, ListHead};
use crate::platform::{Platform, Word};
use crate::units::{FrameCount, MigrateType, Order};

/// How many orders the buddy system keeps: 0 to 10.
pub(crate) const ORDERS: usize = Order::BUDDY_MAX.index() + 1;

/// The free blocks of one order.
struct FreeArea<P: Platform> {
    lists: [ListHead<P::Cell<u32>>; BlockType::COUNT],
    /// How many blocks all lists have, but for isolated ones. Written under the zone lock; read
    /// without by the watermark check, which is why it is a word.
    blocks: P::U64,
}

/// The free blocks of one zone. Guarded by the zone lock.
pub(crate) struct FreeLists<P: Platform> {
    areas: [FreeArea<P>; ORDERS],
}

impl<P: Platform> FreeLists<P> {
    /// No free blocks.
    pub(crate) fn new() -> Self {
        let area = |_| FreeArea {
            lists: core::array::from_fn(|_| ListHead::new()),
            blocks: P::U64::new(0),
        };
        FreeLists { areas: core::array::from_fn(area) }
    }

    pub(crate) fn list(&self, order: Order, of: BlockType) -> &ListHead<P::Cell<u32>> {
        &self.areas[order.index()].lists[of.index()]
    }

    /// How many free blocks of `order` there are, of all types but isolated ones.
    #[inline]
    pub(crate) fn blocks(&self, order: Order) -> u64 {
        // Relaxed: exact under the zone lock; without, a recent value is all that is asked for.
        self.areas[order.index()].blocks.load(Relaxed)
    }

    /// Whether a block of at least `order` is free. All three types can stand in for each other,
    /// so any list will do.
    pub(crate) fn can_serve(&self, order: Order) -> bool {
        order.to(Order::BUDDY_MAX).any(|order| self.blocks(order) != 0)
    }

    /// Notes that `blocks` more blocks are free, or fewer.
    pub(crate) fn count(&self, order: Order, of: BlockType, change: i64) {
        if of == BlockType::Isolated {
            return;
        }
        let blocks = &self.areas[order.index()].blocks;
        // Relaxed: the zone lock makes this load and store one step for all writers.
        blocks.store(blocks.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }
}

/// What a design keeps beside the free lists of a zone and brings up to date with every block that
/// comes and goes. All calls are made under the zone lock.
pub trait Beside<P: Platform> {
    /// A block was linked at this end of the list for its order and type.
    #[inline(always)]
    fn inserted(&self, _buddy: &Tables<'_, P>, _block: FrameIndex, _order: Order, _end: End) {}

    /// A block is about to be unlinked.
    #[inline(always)]
    fn removing(&self, _buddy: &Tables<'_, P>, _block: FrameIndex, _order: Order) {}

    /// All frames of a pageblock have come to be free.
    #[inline(always)]
    fn completed(&self, _buddy: &Tables<'_, P>, _pageblock: FrameIndex) {}
}

/// Nothing is kept beside the lists.
impl<P: Platform> Beside<P> for () {}

/// The tables that the free lists link through.
pub struct Tables<'a, P: Platform> {
    pub(crate) frames: &'a FrameTable<P>,
    pub(crate) blocks: &'a BlockTable<P>,
}

/// The free lists of a zone, the tables that they link through, and what a design keeps beside.
pub(crate) struct Buddy<'a, P: Platform, B> {
    pub(crate) lists: &'a FreeLists<P>,
    pub(crate) tables: Tables<'a, P>,
    pub(crate) beside: B,
}

impl<P: Platform, B: Beside<P>> Buddy<'_, P, B> {
    /// Puts a block on its list. Its head must be unmarked or claimed.
    fn insert(&self, block: FrameIndex, order: Order, of: BlockType, end: End) {
        self.insert_as(block, FrameState::head(Tag::Buddy, order, of), order, of, end);
    }

    fn insert_as(
        &self,
        block: FrameIndex,
        state: FrameState,
        order: Order,
        of: BlockType,
        end: End,
    ) {
        self.tables.frames.set_state(block, state);
        self.lists.list(order, of).push(self.tables.frames, block, end);
        self.lists.count(order, of, 1);
        self.beside.inserted(&self.tables, block, order, end);
    }

    /// Takes a block off its list and leaves its head unmarked.
    fn remove(&self, block: FrameIndex, order: Order, of: BlockType) {
        self.beside.removing(&self.tables, block, order);
        self.lists.list(order, of).remove(self.tables.frames, block);
        self.tables.frames.set_state(block, FrameState::TAIL);
        self.lists.count(order, of, -1);
    }

    /// Takes a free block off whatever list it is on and leaves its head unmarked; says of which
    /// order it is.
    pub(crate) fn remove_any(&self, block: FrameIndex) -> Option<Order> {
        let state = self.tables.frames.state(block);
        let order = state.order().filter(|_| state.tag() == Tag::Buddy)?;
        self.remove(block, order, state.block_type());
        Some(order)
    }

    /// The free block of exactly `order` that a block of this type could merge with, and its type.
    fn free_buddy(
        &self,
        block: FrameIndex,
        order: Order,
        of: BlockType,
    ) -> Option<(FrameIndex, BlockType)> {
        let Tables { frames, blocks } = self.tables;
        let buddy = block.buddy(order);
        let state = frames.state(buddy);
        if !state.is(Tag::Buddy, order) {
            return None;
        }
        let theirs = state.block_type();
        // A pageblock has one zone and one type, so only larger blocks can meet a border. Isolated
        // frames stay among themselves.
        let isolated = BlockType::Isolated;
        let mergeable = order < Order::PAGEBLOCK
            || blocks.zone(buddy) == blocks.zone(block)
                && (of == theirs || (of != isolated && theirs != isolated));
        mergeable.then_some((buddy, theirs))
    }

    /// Frees a block, merging it with its buddy as long as that is free; returns what it became.
    /// `end` overrides the end of the list that it goes to: memory that is added goes to the back.
    ///
    /// Cost: up to ten merges, each of which reads one record and unlinks it from its list.
    pub(crate) fn free(
        &self,
        block: FrameIndex,
        order: Order,
        end: Option<End>,
    ) -> (FrameIndex, Order) {
        let Tables { frames, blocks } = self.tables;
        let of = blocks.block_type(block);
        let (mut head, mut order) = (block, order);
        while order < Order::BUDDY_MAX {
            let Some((buddy, theirs)) = self.free_buddy(head, order, of) else { break };
            self.remove(buddy, order, theirs);
            if theirs != of
                && let Some(migratetype) = of.migratetype()
            {
                // Possible from the order of a pageblock up: the whole buddy takes our type.
                blocks.set_migratetype(buddy, order, migratetype);
            }
            order = order.up();
            head = head.head(order);
        }
        if head != block {
            frames.set_state(block, FrameState::TAIL);
        }
        if order >= Order::PAGEBLOCK {
            pageblocks(head, order).for_each(|block| self.beside.completed(&self.tables, block));
        }
        let end = end.unwrap_or_else(|| self.end_for(head, order, of));
        self.insert(head, order, of, end);
        (head, order)
    }

    /// A block goes to the back if it is likely to merge soon: when the next larger block's buddy
    /// is free, only our own buddy is missing.
    fn end_for(&self, head: FrameIndex, order: Order, of: BlockType) -> End {
        if order.up() >= Order::BUDDY_MAX {
            return End::Front;
        }
        let larger = head.head(order.up());
        if self.free_buddy(larger, order.up(), of).is_some() { End::Back } else { End::Front }
    }

    /// Frees one frame to the front of its list without looking at its buddy, and marks it so.
    pub(crate) fn free_unmerged(&self, frame: FrameIndex) {
        let of = self.tables.blocks.block_type(frame);
        let state = FrameState::head(Tag::Buddy, Order::ZERO, of).unmerged();
        self.insert_as(frame, state, Order::ZERO, of, End::Front);
    }

    /// Makes up for a merge that was put off, if the buddy is free by now; says whether it was.
    pub(crate) fn merge_late(&self, frame: FrameIndex) -> bool {
        let state = self.tables.frames.state(frame);
        let due = state.is(Tag::Buddy, Order::ZERO)
            && state.is_unmerged()
            && self.free_buddy(frame, Order::ZERO, state.block_type()).is_some();
        if due {
            self.remove(frame, Order::ZERO, state.block_type());
            self.free(frame, Order::ZERO, None);
        }
        due
    }

    /// Takes the smallest sufficient block of this type, splitting it; its head is unmarked.
    pub(crate) fn take_smallest(
        &self,
        order: Order,
        migratetype: MigrateType,
    ) -> Option<FrameIndex> {
        let of = BlockType::of(migratetype);
        for from in order.to(Order::BUDDY_MAX) {
            if let Some(block) = self.lists.list(from, of).first() {
                self.take(block, from, order, of);
                return Some(block);
            }
        }
        None
    }

    /// Takes one free block of order `from` off its list and returns all but its first `order` to
    /// the lists of its type.
    pub(crate) fn take(&self, block: FrameIndex, from: Order, order: Order, of: BlockType) {
        self.remove(block, from, of);
        self.give_back_rest(block, from, order, of);
    }

    /// Takes the frames of a block, all of which are free, from whatever lists they are on: they
    /// may be part of a larger free block, or lie in smaller ones. No head is left marked.
    pub(crate) fn take_frames(&self, block: FrameIndex, order: Order) {
        for from in order.to(Order::BUDDY_MAX) {
            let head = block.head(from);
            let state = self.tables.frames.state(head);
            if state.is(Tag::Buddy, from) {
                self.remove(head, from, state.block_type());
                for half in (order.get()..from.get()).rev().map(Order::new) {
                    self.insert(block.head(half).buddy(half), half, state.block_type(), End::Front);
                }
                return;
            }
        }
        let mut at = block;
        while at < block.after(order) {
            let taken = self.remove_any(at);
            at = at.after(taken.expect("the caller knows that all frames are free"));
        }
    }

    /// Returns all but the first `order` of a block of order `from` to the lists of a type.
    pub(crate) fn give_back_rest(
        &self,
        block: FrameIndex,
        from: Order,
        order: Order,
        of: BlockType,
    ) {
        for half in (order.get()..from.get()).rev().map(Order::new) {
            self.insert(block.after(half), half, of, End::Front);
        }
    }

    /// Moves the free blocks within a pageblock to the lists of another type; returns how many
    /// frames they have. The caller retypes the pageblock.
    fn move_free(&self, pageblock: FrameIndex, to: BlockType, end: End) -> FrameCount {
        let mut moved = FrameCount::ZERO;
        self.for_each_in_pageblock(pageblock, |frame, state| {
            if let Some(order) = self.remove_any(frame) {
                let new = FrameState::head(Tag::Buddy, order, to);
                let new = if state.is_unmerged() { new.unmerged() } else { new };
                self.insert_as(frame, new, order, to, end);
                moved += order.frames();
            }
        });
        moved
    }

    /// Moves the free blocks within a pageblock to the lists of another type, and retypes the
    /// pageblock.
    pub(crate) fn convert_pageblock(&self, block: FrameIndex, to: MigrateType) {
        let head = block.head(Order::PAGEBLOCK);
        self.move_free(head, BlockType::of(to), End::Back);
        self.tables.blocks.set_migratetype(head, Order::PAGEBLOCK, to);
    }

    /// Takes the free frames of a pageblock out of circulation, as those that are freed from now
    /// on; returns how many there were. `None` if the block is isolated already.
    pub(crate) fn isolate_pageblock(&self, pageblock: FrameIndex) -> Option<FrameCount> {
        if self.tables.blocks.block_type(pageblock) == BlockType::Isolated {
            return None;
        }
        self.split_at_pageblock(pageblock);
        self.tables.blocks.set_isolated(pageblock, true);
        Some(self.move_free(pageblock, BlockType::Isolated, End::Front))
    }

    /// Puts the free frames of an isolated pageblock back into circulation; returns how many.
    pub(crate) fn release_pageblock(&self, pageblock: FrameIndex) -> FrameCount {
        self.split_at_pageblock(pageblock);
        self.tables.blocks.set_isolated(pageblock, false);
        let of = self.tables.blocks.block_type(pageblock);
        let moved = self.move_free(pageblock, of, End::Front);
        // A pageblock that has come to be free as a whole merges with its neighbour.
        if self.tables.frames.state(pageblock).is(Tag::Buddy, Order::PAGEBLOCK) {
            self.remove(pageblock, Order::PAGEBLOCK, of);
            self.free(pageblock, Order::PAGEBLOCK, None);
        }
        moved
    }

    /// Splits a free block that reaches beyond a pageblock, so that none does.
    fn split_at_pageblock(&self, pageblock: FrameIndex) {
        for order in Order::PAGEBLOCK.up().to(Order::BUDDY_MAX) {
            let head = pageblock.head(order);
            let state = self.tables.frames.state(head);
            if state.is(Tag::Buddy, order) {
                let of = state.block_type();
                self.remove(head, order, of);
                for part in pageblocks(head, order) {
                    self.insert(part, Order::PAGEBLOCK, of, End::Front);
                }
            }
        }
    }

    /// How many frames of a pageblock are free, and how many are in use for movable content.
    pub(crate) fn census_of_pageblock(&self, block: FrameIndex) -> (FrameCount, FrameCount) {
        let (mut free, mut movable) = (FrameCount::ZERO, FrameCount::ZERO);
        self.for_each_in_pageblock(block.head(Order::PAGEBLOCK), |_, state| {
            let frames = state.order().map_or(FrameCount::ZERO, Order::frames);
            match (state.tag(), state.block_type()) {
                (Tag::Buddy, _) => free += frames,
                (Tag::Allocated, BlockType::Movable) => movable += frames,
                _ => {}
            }
        });
        (free, movable)
    }

    /// Visits the heads within a pageblock, skipping what lies behind each of them.
    pub(crate) fn for_each_in_pageblock(
        &self,
        head: FrameIndex,
        mut visit: impl FnMut(FrameIndex, FrameState),
    ) {
        let end = head.after(Order::PAGEBLOCK);
        let mut at = head;
        while at < end {
            let state = self.tables.frames.state(at);
            visit(at, state);
            at = at.after(state.order().unwrap_or(Order::ZERO));
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::config::{Config, MemoryRange};
    use crate::memmap::block::{BlockTablePlan, ZoneIndex};
    use crate::memmap::frame::FrameTablePlan;
    use crate::memmap::region::{Carver, LayoutBuilder, Metadata};
    use crate::testing::TestPlatform;
    use crate::units::{NodeId, Pfn};
    use core::mem::MaybeUninit;
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
            let mut builder = LayoutBuilder::new(Pfn::new(0));
            let blocks = BlockTablePlan::new(&config, &mut builder).unwrap();
            let frames = FrameTablePlan::new(&config, &mut builder).unwrap();
            let layout = builder.finish();
            let buffer = vec![MaybeUninit::uninit(); layout.size() + layout.align()].leak();
            let skip = buffer.as_ptr().align_offset(layout.align());
            let mut carver =
                Carver::new(Metadata::from_static(&mut buffer[skip..]), &layout).unwrap();
            let blocks = BlockTable::carve(&blocks, &mut carver);
            let frames = FrameTable::carve(&frames, &mut carver);
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
            buddy.free(FrameIndex(head), order(10), None);
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
    fn frames_that_are_freed_to_isolated_pageblocks_merge_among_themselves() {
        let memory = Memory::new();
        let buddy = memory.buddy();
        buddy.tables.blocks.set_migratetype(FrameIndex(0), order(10), MigrateType::Movable);
        buddy.free(FrameIndex(3), order(0), None);
        for pageblock in [0, 512] {
            buddy.isolate_pageblock(FrameIndex(pageblock)).expect("it is not isolated");
        }
        buddy.free(FrameIndex(2), order(0), None);
        assert_eq!(memory.free(ISOLATED), [(2, 1)]);
        buddy.free(FrameIndex(0), order(1), None);
        for part in [2, 3, 4, 5, 6, 7, 8, 9] {
            buddy.free(FrameIndex(1 << part), order(part), None);
        }
        assert_eq!(memory.free(ISOLATED), [(0, 10)]);
        assert_eq!(memory.lists.blocks(order(10)), 0, "isolated blocks do not count");
        assert_eq!(buddy.release_pageblock(FrameIndex(512)), FrameCount::new(512));
        assert_eq!((memory.free(ISOLATED), memory.free(MOVABLE)), (vec![(0, 9)], vec![(512, 9)]));
        assert_eq!(memory.blocks.migratetype(FrameIndex(0)), MigrateType::Movable);
    }

    #[test]
    fn frames_are_taken_from_within_a_block_and_across_small_ones() {
        let memory = Memory::new();
        let buddy = memory.buddy();
        buddy.tables.blocks.set_migratetype(FrameIndex(0), order(10), MigrateType::Movable);
        buddy.free(FrameIndex(0), order(10), None);
        buddy.take_frames(FrameIndex(20), order(2));
        assert_eq!(
            memory.free(MOVABLE),
            [(0, 4), (16, 2), (24, 3), (32, 5), (64, 6), (128, 7), (256, 8), (512, 9)]
        );
        buddy.take_frames(FrameIndex(32), order(5));
        // Unmerged frames are taken like others.
        buddy.free_unmerged(FrameIndex(20));
        buddy.free_unmerged(FrameIndex(21));
        buddy.free(FrameIndex(22), order(1), None);
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
            buddy.free_unmerged(frame);
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
