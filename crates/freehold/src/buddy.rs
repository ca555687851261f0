//! The buddy system of one zone: free lists by order and migratetype, split and merge.
//!
//! Knows no lock and no watermark; the caller holds the zone lock. After Linux's
//! `mm/page_alloc.c` (`__free_one_page`, `expand`, `__rmqueue_smallest`), version 6.12: the list
//! that a block is on always equals the migratetype of its pageblock.

use core::sync::atomic::Ordering::Relaxed;

use crate::memmap::block::BlockTable;
use crate::memmap::frame::{FrameIndex, FrameState, FrameTable, Tag};
use crate::memmap::list::{End, ListHead};
use crate::platform::{Platform, Word};
use crate::units::{FrameCount, MigrateType, Order};

/// How many orders the buddy system keeps: 0 to 10.
pub(crate) const ORDERS: usize = Order::BUDDY_MAX.index() + 1;

/// The free blocks of one order.
struct FreeArea<P: Platform> {
    lists: [ListHead<P::Cell<u32>>; MigrateType::COUNT],
    /// How many blocks all lists have. Written under the zone lock; read without by the watermark
    /// check, which is why it is a word.
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

    pub(crate) fn list(&self, order: Order, migratetype: MigrateType) -> &ListHead<P::Cell<u32>> {
        &self.areas[order.index()].lists[migratetype.index()]
    }

    /// How many free blocks of `order` there are, of all types.
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

    fn count(&self, order: Order, change: i64) {
        let blocks = &self.areas[order.index()].blocks;
        // Relaxed: the zone lock makes this load and store one step for all writers.
        blocks.store(blocks.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }
}

/// The free lists of a zone together with the tables that they link through.
pub(crate) struct Buddy<'a, P: Platform> {
    pub(crate) lists: &'a FreeLists<P>,
    pub(crate) frames: &'a FrameTable<P>,
    pub(crate) blocks: &'a BlockTable<P>,
}

impl<P: Platform> Buddy<'_, P> {
    /// Puts a block on its list. Its head must be unmarked or claimed.
    fn insert(&self, block: FrameIndex, order: Order, migratetype: MigrateType, end: End) {
        self.frames.set_state(block, FrameState::head(Tag::Buddy, order, migratetype));
        self.lists.list(order, migratetype).push(self.frames, block, end);
        self.lists.count(order, 1);
    }

    /// Takes a block off its list and leaves its head unmarked.
    fn remove(&self, block: FrameIndex, order: Order, migratetype: MigrateType) {
        self.lists.list(order, migratetype).remove(self.frames, block);
        self.frames.set_state(block, FrameState::TAIL);
        self.lists.count(order, -1);
    }

    /// The free block of exactly `order` that `block` could merge with.
    fn free_buddy(&self, block: FrameIndex, order: Order) -> Option<(FrameIndex, MigrateType)> {
        let buddy = block.buddy(order);
        let state = self.frames.state(buddy);
        // A pageblock belongs to one zone, so only larger blocks can meet a border.
        let mergeable = state.is(Tag::Buddy, order)
            && (order < Order::PAGEBLOCK || self.blocks.zone(buddy) == self.blocks.zone(block));
        mergeable.then(|| (buddy, state.migratetype()))
    }

    /// Frees a block, merging it with its buddy as long as that is free. `end` overrides the end
    /// of the list that it goes to: memory that is added goes to the back.
    ///
    /// Cost: up to ten merges, each of which reads one record and unlinks it from its list.
    pub(crate) fn free(&self, block: FrameIndex, order: Order, end: Option<End>) {
        let migratetype = self.blocks.migratetype(block);
        let (mut head, mut order) = (block, order);
        while order < Order::BUDDY_MAX {
            let Some((buddy, of)) = self.free_buddy(head, order) else { break };
            self.remove(buddy, order, of);
            if of != migratetype {
                // Possible from the order of a pageblock up: the whole buddy takes our type.
                self.blocks.set_migratetype(buddy, order, migratetype);
            }
            order = order.up();
            head = head.head(order);
        }
        if head != block {
            self.frames.set_state(block, FrameState::TAIL);
        }
        let end = end.unwrap_or_else(|| self.end_for(head, order));
        self.insert(head, order, migratetype, end);
    }

    /// A block goes to the back if it is likely to merge soon: when the next larger block's buddy
    /// is free, only our own buddy is missing.
    fn end_for(&self, head: FrameIndex, order: Order) -> End {
        if order.up() >= Order::BUDDY_MAX {
            return End::Front;
        }
        let larger = head.head(order.up());
        if self.free_buddy(larger, order.up()).is_some() { End::Back } else { End::Front }
    }

    /// Takes the smallest sufficient block of this type, splitting it; its head is unmarked.
    pub(crate) fn take_smallest(
        &self,
        order: Order,
        migratetype: MigrateType,
    ) -> Option<FrameIndex> {
        for from in order.to(Order::BUDDY_MAX) {
            if let Some(block) = self.lists.list(from, migratetype).first() {
                self.take(block, from, order, migratetype);
                return Some(block);
            }
        }
        None
    }

    /// Takes one free block of order `from` off its list and returns all but its first `order` to
    /// the lists of its type.
    pub(crate) fn take(
        &self,
        block: FrameIndex,
        from: Order,
        order: Order,
        migratetype: MigrateType,
    ) {
        self.remove(block, from, migratetype);
        self.give_back_rest(block, from, order, migratetype);
    }

    /// Returns all but the first `order` of a block of order `from` to the lists of a type.
    pub(crate) fn give_back_rest(
        &self,
        block: FrameIndex,
        from: Order,
        order: Order,
        migratetype: MigrateType,
    ) {
        for half in (order.get()..from.get()).rev().map(Order::new) {
            self.insert(block.after(half), half, migratetype, End::Front);
        }
    }

    /// Moves the free blocks within a pageblock to the lists of another type, and retypes the
    /// pageblock.
    pub(crate) fn convert_pageblock(&self, block: FrameIndex, to: MigrateType) {
        let head = block.head(Order::PAGEBLOCK);
        self.for_each_in_pageblock(head, |frame, state| {
            if let (Tag::Buddy, Some(order)) = (state.tag(), state.order()) {
                self.remove(frame, order, state.migratetype());
                self.insert(frame, order, to, End::Back);
            }
        });
        self.blocks.set_migratetype(head, Order::PAGEBLOCK, to);
    }

    /// How many frames of a pageblock are free, and how many are in use for movable content.
    pub(crate) fn census_of_pageblock(&self, block: FrameIndex) -> (FrameCount, FrameCount) {
        let (mut free, mut movable) = (FrameCount::ZERO, FrameCount::ZERO);
        self.for_each_in_pageblock(block.head(Order::PAGEBLOCK), |_, state| {
            let frames = state.order().map_or(FrameCount::ZERO, Order::frames);
            match (state.tag(), state.migratetype()) {
                (Tag::Buddy, _) => free += frames,
                (Tag::Allocated, MigrateType::Movable) => movable += frames,
                _ => {}
            }
        });
        (free, movable)
    }

    /// Visits the heads within a pageblock, skipping what lies behind each of them.
    fn for_each_in_pageblock(
        &self,
        head: FrameIndex,
        mut visit: impl FnMut(FrameIndex, FrameState),
    ) {
        let mut at = 0;
        let frames = Order::PAGEBLOCK.frames().get() as u32;
        while at < frames {
            let frame = FrameIndex(head.0 + at);
            let state = self.frames.state(frame);
            visit(frame, state);
            at += state.order().map_or(1, |order| 1 << order.get());
        }
    }
}
