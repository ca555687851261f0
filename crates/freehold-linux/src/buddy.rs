//! The buddy system of one zone: free lists by order and pageblock type, split and merge.
//!
//! This module takes no lock and checks no watermark; the caller holds the zone lock. After Linux's
//! `mm/page_alloc.c` (`__free_one_page`, `expand`, `__rmqueue_smallest`), version 6.12: the list
//! that a block is on always equals the type of its pageblock.

use core::sync::atomic::Ordering::Relaxed;

use crate::frame::{FrameState, FrameTable, Tag};
use crate::kind::Kind;
use crate::pageblock::{BlockTable, BlockType, pageblocks};
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::{End, ListHead};
use freehold::platform::{Platform, Word};
use freehold::units::{FrameCount, MigrateType, ORDERS, Order};

mod isolation;

/// The free blocks of one order.
struct FreeArea<P: Platform> {
    lists: [ListHead<P::Cell<u32>>; BlockType::COUNT],
    /// How many blocks all lists have, without isolated ones. Written under the zone lock. The
    /// watermark check reads it without the lock, so it is a word.
    blocks: P::U64,
}

/// The free blocks of one zone. Guarded by the zone lock.
pub struct FreeLists<P: Platform> {
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

    /// How many free blocks of `order` there are, of all types except isolated ones.
    #[inline]
    pub(crate) fn blocks(&self, order: Order) -> u64 {
        // Relaxed: exact under the zone lock; without it, a recent value suffices.
        self.areas[order.index()].blocks.load(Relaxed)
    }

    /// Whether a block of at least `order` is free. All three types can stand in for each other, so
    /// any list counts.
    #[inline]
    pub(crate) fn can_serve(&self, order: Order) -> bool {
        order.to(Order::BUDDY_MAX).any(|order| self.blocks(order) != 0)
    }

    /// Notes a change in the number of free blocks.
    pub(crate) fn note(&self, order: Order, of: BlockType, change: i64) {
        if of == BlockType::Isolated {
            return;
        }
        let blocks = &self.areas[order.index()].blocks;
        // Relaxed: the zone lock makes this load and store atomic for all writers.
        blocks.store(blocks.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }
}

/// A design's data beside the free lists of a zone, updated with every block that is inserted or
/// removed. All calls are made under the zone lock.
pub trait Beside<P: Platform> {
    /// A block was linked at this end of the list for its order and type.
    #[inline(always)]
    fn inserted(&self, _tables: &Tables<'_, P>, _block: FrameIndex, _order: Order, _end: End) {}

    /// A block is about to be unlinked.
    #[inline(always)]
    fn removing(&self, _tables: &Tables<'_, P>, _block: FrameIndex, _order: Order) {}

    /// The caller is about to rely on marks of single frames: waits until none is stale.
    #[inline(always)]
    fn settle(&self) {}

    /// A pageblock, parts of which may be in use, changed its type.
    #[inline(always)]
    fn retyped(&self, _tables: &Tables<'_, P>, _pageblock: FrameIndex) {}

    /// All frames of a pageblock have become free.
    #[inline(always)]
    fn completed(&self, _tables: &Tables<'_, P>, _pageblock: FrameIndex) {}
}

/// No data beside the lists.
impl<P: Platform> Beside<P> for () {}

/// The tables that the free lists link through.
pub struct Tables<'a, P: Platform> {
    pub(crate) frames: &'a FrameTable<P>,
    pub(crate) blocks: &'a BlockTable<P>,
}

/// The free lists of a zone, the tables that they link through, and the design's data beside them.
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
        self.lists.note(order, of, 1);
        self.beside.inserted(&self.tables, block, order, end);
    }

    /// Takes a block off its list and leaves its head unmarked.
    fn remove(&self, block: FrameIndex, order: Order, of: BlockType) {
        self.beside.removing(&self.tables, block, order);
        self.lists.list(order, of).remove(self.tables.frames, block);
        self.tables.frames.set_state(block, FrameState::TAIL);
        self.lists.note(order, of, -1);
    }

    /// Takes a free block off whatever list it is on and leaves its head unmarked; returns its
    /// order.
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
        // pageblocks are not merged: each is isolated and released by itself.
        let isolated = BlockType::Isolated;
        let mergeable = order < Order::PAGEBLOCK
            || blocks.zone(buddy) == blocks.zone(block) && of != isolated && theirs != isolated;
        mergeable.then_some((buddy, theirs))
    }

    /// Puts a block on its list, merging it with its buddy while that is free. `end` overrides the
    /// end of the list that it goes to: memory that is added goes to the back. All pageblocks of
    /// the result get the type of the block's first one.
    ///
    /// Cost: up to ten merges, each of which reads one record and unlinks it from its list.
    pub(crate) fn put(&self, block: FrameIndex, order: Order, end: Option<End>) {
        let Tables { frames, blocks } = self.tables;
        let of = blocks.block_type(block);
        if order == Order::ZERO {
            self.beside.settle();
        }
        if order > Order::PAGEBLOCK
            && let Some(migratetype) = of.migratetype()
        {
            // A range, or memory that was removed and is back, has pageblocks of any types.
            blocks.set_migratetype(block, order, migratetype);
        }
        let (mut head, mut order) = (block, order);
        while order < Order::BUDDY_MAX {
            let Some((buddy, theirs)) = self.free_buddy(head, order, of) else { break };
            self.remove(buddy, order, theirs);
            if theirs != of
                && let Some(migratetype) = of.migratetype()
            {
                // Possible from pageblock order up: the whole buddy takes this block's type.
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
    }

    /// A block goes to the back if it is likely to merge soon: if the next larger block's buddy is
    /// free, only this block's buddy is missing.
    fn end_for(&self, head: FrameIndex, order: Order, of: BlockType) -> End {
        if order.up() >= Order::BUDDY_MAX {
            return End::Front;
        }
        let larger = head.head(order.up());
        if self.free_buddy(larger, order.up(), of).is_some() { End::Back } else { End::Front }
    }

    /// Puts one frame at the front of its list without checking its buddy, and marks it as
    /// unmerged.
    pub(crate) fn put_unmerged(&self, frame: FrameIndex) {
        let of = self.tables.blocks.block_type(frame);
        self.tables.blocks.note_unmerged(frame);
        let state = FrameState::head(Tag::Buddy, Order::ZERO, of).unmerged();
        self.insert_as(frame, state, Order::ZERO, of, End::Front);
    }

    /// Does a deferred merge, if the buddy is free by now; returns whether it was.
    pub(crate) fn merge_late(&self, frame: FrameIndex) -> bool {
        let state = self.tables.frames.state(frame);
        let due = state.is(Tag::Buddy, Order::ZERO)
            && state.is_unmerged()
            && self.free_buddy(frame, Order::ZERO, state.block_type()).is_some();
        if due {
            self.remove(frame, Order::ZERO, state.block_type());
            self.put(frame, Order::ZERO, None);
        }
        due
    }

    /// Takes the smallest sufficient block of this type, splitting it; its head is unmarked.
    pub(crate) fn take_smallest(&self, kind: Kind) -> Option<FrameIndex> {
        let of = BlockType::of(kind.migratetype);
        for from in kind.order.to(Order::BUDDY_MAX) {
            if let Some(block) = self.lists.list(from, of).first() {
                self.take(block, from, kind.order, of);
                return Some(block);
            }
        }
        None
    }

    /// Takes one free block of order `from` off its list and puts all but its first `order` on the
    /// lists of its type.
    pub(crate) fn take(&self, block: FrameIndex, from: Order, order: Order, of: BlockType) {
        self.remove(block, from, of);
        self.put_rest(block, from, order, of);
    }

    /// Puts all but the first `order` of a block of order `from` on the lists of a type.
    pub(crate) fn put_rest(&self, block: FrameIndex, from: Order, order: Order, of: BlockType) {
        for half in (order.get()..from.get()).rev().map(Order::new) {
            self.insert(block.after(half), half, of, End::Front);
        }
    }

    /// Moves the free blocks within a pageblock to the lists of another type; returns their number
    /// of frames. The caller retypes the pageblock.
    fn move_free(&self, pageblock: FrameIndex, to: BlockType, end: End) -> FrameCount {
        let mut moved = FrameCount::ZERO;
        self.for_each_in_pageblock(pageblock, |frame, state| {
            if let Some(order) = self.remove_any(frame) {
                let new = FrameState::head(Tag::Buddy, order, to);
                let new = if state.is_unmerged() { new.unmerged() } else { new };
                self.insert_as(frame, new, order, to, end);
                if state.is_unmerged() {
                    // A call that merges the pageblock looks for such frames without the lock, and
                    // may just have missed this one.
                    self.tables.blocks.note_unmerged(frame);
                }
                moved += order.frames();
            }
        });
        moved
    }

    /// Moves the free blocks within a pageblock to the lists of another type, and retypes the
    /// pageblock.
    pub(crate) fn retype_pageblock(&self, block: FrameIndex, to: MigrateType) {
        let head = block.head(Order::PAGEBLOCK);
        self.beside.retyped(&self.tables, head);
        self.move_free(head, BlockType::of(to), End::Back);
        self.tables.blocks.set_migratetype(head, Order::PAGEBLOCK, to);
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

    /// Visits the heads within a pageblock, skipping the tails of each.
    pub(crate) fn for_each_in_pageblock(
        &self,
        head: FrameIndex,
        mut visit: impl FnMut(FrameIndex, FrameState),
    ) {
        self.beside.settle();
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
    use super::*;
    use crate::tests::{Workbench, fixed};
    use crate::zone_lock::Baseline;

    #[test]
    fn an_isolated_pageblock_is_out_of_circulation_until_its_release() {
        let bench: Workbench<Baseline> = Workbench::new(1024, &fixed(Default::default(), 1, 1));
        let second = FrameIndex(512);
        assert!(bench.lock().isolate(second) && !bench.lock().isolate(second));
        // The block that extended beyond it was split; its frames no longer count.
        assert_eq!(bench.in_zone(9, BlockType::Movable), [0]);
        assert_eq!(bench.in_zone(9, BlockType::Isolated), [512]);
        assert_eq!((bench.level(), bench.lock().isolated().get()), (512, 512));
        bench.check();
        bench.lock().release(second);
        assert_eq!(bench.in_zone(10, BlockType::Movable), [0]);
        assert_eq!((bench.level(), bench.lock().isolated().get()), (1024, 0));
        bench.check();
    }

    #[test]
    fn isolated_pageblocks_that_are_freed_together_come_and_go_each_by_itself() {
        let bench: Workbench<Baseline> = Workbench::new(1024, &fixed(Default::default(), 1, 1));
        let (first, second) = (FrameIndex(0), FrameIndex(512));
        let all = Order::BUDDY_MAX;
        let kind = Kind::movable(all);
        let taken = bench.lock().buddy.take_smallest(kind);
        bench.lock().sub_free(all.frames());
        assert_eq!(taken, Some(first));
        assert!(bench.lock().isolate(first) && bench.lock().isolate(second));
        assert_eq!(bench.lock().put(first, all, None), FrameCount::ZERO);
        bench.lock().release(first);
        assert!(bench.lock().isolate(first));
        bench.lock().release(second);
        assert_eq!((bench.level(), bench.lock().isolated().get()), (512, 512));
        bench.lock().release(first);
        assert_eq!((bench.level(), bench.lock().isolated().get()), (1024, 0));
        assert_eq!(bench.in_zone(10, BlockType::Movable), [0]);
        bench.check();
    }

    #[test]
    fn what_is_freed_to_an_isolated_pageblock_stays_there() {
        let bench: Workbench<Baseline> = Workbench::new(512, &fixed(Default::default(), 1, 1));
        bench.alloc_frames(2);
        assert!(bench.lock().isolate(FrameIndex(0)));
        bench.free(0, 0);
        bench.free(0, 1);
        // Merged with its kind, but not available.
        assert_eq!(bench.in_zone(9, BlockType::Isolated), [0]);
        let frame = Kind::movable(Order::ZERO);
        assert!(bench.lock().buddy.take_smallest(frame).is_none());
        bench.check();
        bench.lock().release(FrameIndex(0));
        assert_eq!((bench.in_zone(9, BlockType::Movable), bench.level()), ([0].into(), 512));
        bench.check();
    }

    #[test]
    fn a_late_merge_makes_up_for_one_that_was_put_off() {
        let bench: Workbench<Baseline> = Workbench::new(512, &fixed(Default::default(), 1, 1));
        bench.alloc_frames(512);
        {
            let guard = bench.lock();
            for frame in [0, 1, 3].map(FrameIndex) {
                guard.add_free(guard.put_unmerged(frame));
            }
            // Its buddy is in use, so nothing happens.
            guard.buddy.merge_late(FrameIndex(3));
            guard.buddy.merge_late(FrameIndex(1));
        }
        assert_eq!(bench.in_zone(0, BlockType::Movable), [3]);
        assert_eq!(bench.in_zone(1, BlockType::Movable), [0]);
        bench.check();
    }
}
