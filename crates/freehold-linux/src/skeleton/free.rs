//! Free: check that the user holds the block, then put it on a list.

use super::{Guard, LocalPages, Policy, Skeleton};
use crate::frame::{FrameState, Tag};
use crate::kind::Kind;
use crate::pageblock::BlockType;
use freehold::Error;
use freehold::designs::Context;
use freehold::designs::traits::Free;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::list::End;
use freehold::platform::{Platform, SharedCell};
use freehold::units::{FrameCount, Order, Pfn};

impl<P: Platform, Y: Policy<P>> Free<P> for Skeleton<P, Y> {
    #[inline]
    fn free(&self, context: Context<'_, P>, pfn: Pfn, order: Order) -> Result<(), Error> {
        let frame = self.claim(context.platform, pfn, order)?;
        self.put_claimed(context, frame, order);
        Ok(())
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// Takes a block from its user: its head becomes claimed, or nothing changes.
    #[inline]
    pub(super) fn claim(&self, platform: &P, pfn: Pfn, order: Order) -> Result<FrameIndex, Error> {
        let frame = self.frames.index_of(pfn).ok_or(Error::ForeignFrame)?;
        self.claim_at(platform, frame, order)
    }

    /// The same, given the index.
    #[inline]
    pub(super) fn claim_at(
        &self,
        platform: &P,
        frame: FrameIndex,
        order: Order,
    ) -> Result<FrameIndex, Error> {
        let state = self.frames.state(frame);
        if state.is(Tag::Allocated, order)
            && self.frames.claim(frame, state, state.retag(Tag::Claimed))
        {
            return Ok(frame);
        }
        if order > Order::BUDDY_MAX {
            return Err(Error::OrderTooLarge);
        }
        // As its number is.
        if frame != frame.head(order) {
            return Err(Error::Misaligned);
        }
        self.claim_part(platform, frame, order)
    }

    /// Claims a part of an allocation, splitting the rest into blocks of its own; or determines the
    /// error.
    #[cold]
    fn claim_part(
        &self,
        platform: &P,
        frame: FrameIndex,
        order: Order,
    ) -> Result<FrameIndex, Error> {
        let zone = self.blocks.zone(frame).ok_or(Error::ForeignFrame)?;
        // One split at a time. Under the zone lock, a claimed head means that the block is being
        // freed.
        let _guard = self.lock_zone(platform, zone);
        let (head, state) = self.head_of(frame)?;
        let (Tag::Allocated, Some(of)) = (state.tag(), state.order()) else {
            return Err(Error::DoubleFree);
        };
        if of < order {
            return Err(Error::WrongOrder);
        }
        if !self.frames.claim(head, state, state.retag(Tag::Claimed)) {
            return Err(Error::DoubleFree);
        }
        // Halve the allocation until the part stands alone; every other half stays allocated.
        let mut part = head;
        for half in (order.get()..of.get()).rev().map(Order::new) {
            let upper = part.after(half);
            let (kept, rest) = if frame >= upper { (part, upper) } else { (upper, part) };
            let mark = |tag| FrameState::head(tag, half, state.block_type());
            self.frames.set_state(rest, mark(Tag::Claimed));
            self.frames.set_state(kept, mark(Tag::Allocated));
            part = rest;
        }
        Ok(part)
    }

    /// The head of the block that `frame` lies in, and its state. Exact for a caller that holds the
    /// zone lock; otherwise a hint.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignFrame`] for a hole. [`Error::DoubleFree`] for a frame that a CPU is just
    /// merging on its lists, which needs no zone lock: it is free.
    pub(super) fn head_of(&self, frame: FrameIndex) -> Result<(FrameIndex, FrameState), Error> {
        // The frames between a head and `frame` are tails, so the first mark found going up the
        // aligned candidates is the head's; unless the head has no mark at the moment, in which
        // case it is that of a block that ends before.
        let candidates = Order::ZERO.to(Order::BUDDY_MAX).map(|order| frame.head(order));
        let mut marked = candidates.map(|head| (head, self.frames.state(head)));
        let found = marked.find(|(_, state)| state.tag() != Tag::Tail);
        let (head, state) = found.ok_or(Error::DoubleFree)?;
        match state.tag() {
            _ if head.after(state.order().unwrap_or(Order::ZERO)) <= frame => {
                Err(Error::DoubleFree)
            }
            Tag::Hole => Err(Error::ForeignFrame),
            _ => Ok((head, state)),
        }
    }

    /// Puts a claimed block on a list of the CPU that it belongs to, or of the zone.
    #[inline]
    fn put_claimed(&self, context: Context<'_, P>, frame: FrameIndex, order: Order) {
        let (zone, of) = self.blocks.of_used(frame);
        if let Some(migratetype) = of.migratetype()
            && let Some(list) = Y::list(&self.mode, Kind { order, migratetype })
        {
            let (here, pin) = context.pin();
            let home = Y::home(self, here, frame);
            if let Some(mut pages) = self.try_lock_pinned(pin, home, zone) {
                let mark = Y::mark(&pages, frame, order, of);
                self.frames.set_state(frame, mark);
                pages.pcp.lists[list].push(&self.frames, frame, End::Front);
                if let Some(excess) = pages.note_pushed(order, 1) {
                    pages.drain(excess, list);
                }
                return;
            }
        }
        self.free_directly(context, zone, &[frame], order);
    }

    /// Frees claimed blocks to their zone, bypassing the per-CPU lists.
    #[cold]
    pub(super) fn free_directly(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        blocks: &[FrameIndex],
        order: Order,
    ) {
        let guard = self.lock_zone(context.platform, zone);
        for &block in blocks {
            guard.add_free(self.put_in_zone(&guard, block, order, zone));
        }
        let frames = FrameCount::new((blocks.len() as u64) << order.get());
        self.unlock_and_note(context, zone, guard, |events| events.note_direct_free(frames));
    }

    /// Puts a block on the lists of its zone as the design does it; returns by how many frames the
    /// level rises.
    pub(crate) fn put_in_zone(
        &self,
        guard: &Guard<'_, P, Y>,
        block: FrameIndex,
        order: Order,
        zone: ZoneIndex,
    ) -> FrameCount {
        if order == Order::ZERO
            && Y::puts_off_merging(self, zone)
            && self.blocks.block_type(block) != BlockType::Isolated
        {
            guard.put_unmerged(block)
        } else {
            guard.put(block, order, None)
        }
    }
}

impl<P: Platform, Y: Policy<P>> LocalPages<'_, P, Y> {
    /// Notes blocks that were put on a list; returns how many frames to drain if the lists have
    /// become too long.
    #[inline(always)]
    pub(super) fn note_pushed(&mut self, order: Order, blocks: usize) -> Option<u32> {
        let LocalPages { design, per_cpu, zone, .. } = *self;
        let pcp = &mut self.pcp;
        let frames = (blocks as u32) << order.get();
        pcp.count.set(pcp.count.get() + frames);
        let freed = FrameCount::new(u64::from(frames));
        if design.books.counts_late() {
            pcp.irqs_on();
        }
        design.books.note(pcp.platform(), || per_cpu.events.note_free(freed));
        design.mode.note_free(pcp, order, blocks, || design.zone(zone).is_below_high())
    }
}
