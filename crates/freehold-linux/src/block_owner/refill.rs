//! The four phases of a refill.

use super::owned::Owners;
use crate::fallback::Step;
use crate::frame::{FrameState, Tag};
use crate::kind::Kind;
use crate::pageblock::BlockType;
use crate::skeleton::{Guard, LocalPages};
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::End;
use freehold::platform::{Platform, SharedCell};
use freehold::units::{FrameCount, MigrateType, Order};

/// A refill under way, with the zone lock held.
struct Refill<'a, P: Platform> {
    guard: &'a Guard<'a, P, Owners>,
    pages: &'a LocalPages<'a, P, Owners>,
    migratetype: MigrateType,
    wanted: u64,
    taken: u64,
}

/// Moves `wanted` frames or slightly more from the zone to a CPU's lists, in blocks of at least the
/// order asked for; returns how many.
pub(super) fn refill<P: Platform>(
    pages: &LocalPages<'_, P, Owners>,
    kind: Kind,
    wanted: FrameCount,
) -> FrameCount {
    let Kind { order, migratetype } = kind;
    let guard = pages.lock_zone();
    let mut refill = Refill { guard: &guard, pages, migratetype, wanted: wanted.get(), taken: 0 };
    refill.recover_partial_blocks(order);
    refill.take_whole_blocks();
    refill.take_chunks(order);
    refill.take_as_ever(kind);
    let taken = FrameCount::new(refill.taken);
    guard.sub_free(taken);
    taken
}

impl<P: Platform> Refill<'_, P> {
    fn is_short(&self) -> bool {
        self.taken < self.wanted
    }

    /// Puts a block that was taken off the zone's lists on the CPU's.
    fn put(&mut self, block: FrameIndex, order: Order, tag: Tag) {
        let Refill { pages, migratetype, .. } = self;
        let state = FrameState::head(tag, order, BlockType::of(*migratetype));
        pages.design.frames.set_state(block, state);
        let list = pages.pcp.list(order, *migratetype);
        list.push(&pages.design.frames, block, End::Back);
        self.taken += order.frames().get();
    }

    /// Phase 0: fetches back the free frames of blocks that this CPU owns already. A block that has
    /// nothing to fetch is forgotten, and remembered again when frames return.
    fn recover_partial_blocks(&mut self, order: Order) {
        let (guard, cpu) = (self.guard, self.pages.cpu);
        let mut largest = None;
        for pageblock in guard.buddy.beside.remembered(cpu) {
            if !self.is_short() && largest >= Some(order) {
                break;
            }
            let of = self.pages.design.blocks.block_type(pageblock);
            if of.migratetype() != Some(self.migratetype) {
                continue;
            }
            guard.buddy.beside.forget(pageblock, cpu);
            guard.buddy.for_each_in_pageblock(pageblock, |frame, _| {
                if let Some(order) = guard.buddy.remove_any(frame) {
                    self.put(frame, order, Tag::PcpBuddy);
                    largest = largest.max(Some(order));
                }
            });
        }
        if largest < Some(order) {
            // These frames are useful later, but not for this request.
            self.wanted = self.wanted.max(self.taken + order.frames().get());
        }
    }

    /// Phase 1: whole pageblocks, which this CPU owns from now on. Skipped if a pageblock exceeds
    /// what the CPU may cache, and while the zone is low.
    fn take_whole_blocks(&mut self) {
        let Refill { guard, pages, migratetype, .. } = *self;
        let affordable = pages.pcp.high.get() >= Order::PAGEBLOCK.frames().get() as u32;
        if !affordable || pages.design.zone(pages.zone).is_below_high() {
            return;
        }
        let whole = Kind { order: Order::PAGEBLOCK, migratetype };
        while self.is_short()
            && let Some(block) = guard.buddy.take_smallest(whole)
        {
            pages.design.blocks.set_owner(block, Some(pages.cpu));
            self.put(block, Order::PAGEBLOCK, Tag::PcpBuddy);
        }
    }

    /// Phase 2: smaller chunks of the same type as they are, starting with the largest that does
    /// not exceed what is wanted. They get no owner.
    fn take_chunks(&mut self, order: Order) {
        let Refill { guard, migratetype, .. } = *self;
        let of = BlockType::of(migratetype);
        let mut from = Order::PAGEBLOCK;
        while from > order {
            from = Order::new(from.get() - 1);
            let list = guard.buddy.lists.list(from, of);
            while self.taken + from.frames().get() <= self.wanted
                && let Some(block) = list.first()
            {
                guard.buddy.take(block, from, from, of);
                self.put(block, from, Tag::Pcp);
            }
        }
    }

    /// Phase 3: block by block of the requested order, with splitting and fallback, as in the
    /// baseline.
    fn take_as_ever(&mut self, kind: Kind) {
        let mut step = Step::default();
        while self.is_short()
            && let Some(block) = self.guard.take(kind, &mut step)
        {
            self.put(block, kind.order, Tag::Pcp);
        }
    }
}
