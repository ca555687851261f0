//! Freeing: at home, into the bitmap of the running CPU's own pageblock, or remotely.

use super::Freehold;
use super::blocks::BlockIndex;
use super::guard::SlotGuard;
use super::runs::{Run, WORD_FRAMES};
use super::slot::Fill;
use super::state::{Holder, State, Use};
use crate::Error;
use crate::designs::{Context, Design};
use crate::platform::Platform;
use crate::units::{Order, Pfn};
use crate::zone::watermark::Watermark;

/// What came of freeing frames at home.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AtHome {
    /// They are free, and nothing else need be done.
    Done,
    /// They are free. The pageblock was aside, or may be whole.
    Unusual,
    /// The slot does not hold the pageblock.
    NotHeld,
    /// A frame is free already.
    DoubleFree,
}

impl<P: Platform> Freehold<P> {
    /// Frees a block, or part of one.
    #[inline(always)]
    pub(super) fn free_block(
        &self,
        context: Context<'_, P>,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), Error> {
        let frame = self.blocks.index_of(pfn).ok_or(Error::ForeignFrame)?;
        let (word, mask) = ((frame / WORD_FRAMES) as usize, 1 << (frame % WORD_FRAMES));
        // The state before the marks: those of a pageblock in use frame by frame say what they
        // mean, and while a frame of it is held, it stays in use so.
        let state = self.blocks.state(BlockIndex::of_word(word));
        if order == Order::ZERO && state.is_split() && self.blocks.are_single(word, mask) {
            return self.free_single(context, state, word, mask);
        }
        self.free_any(context, pfn, frame, order)
    }

    /// Frees frames of one word that are allocations of their own, in a pageblock that was seen in
    /// this state before: in use frame by frame.
    #[inline(always)]
    pub(super) fn free_single(
        &self,
        context: Context<'_, P>,
        state: State,
        word: usize,
        mask: u64,
    ) -> Result<(), Error> {
        let block = BlockIndex::of_word(word);
        let cpu = context.platform.pin().index();
        // A number that is no CPU's is nobody's home.
        if state.is_split_of(cpu)
            && let Some(home) = self.homes.try_get(cpu)
            && home.try_lock()
        {
            let outcome = self.free_at_home(cpu, word, mask);
            if outcome == AtHome::Unusual {
                // Unlocks and unpins.
                let guard = self.guard(context.platform, cpu, self.blocks.zone(block));
                self.settle(&guard, block);
                return Ok(());
            }
            home.unlock();
            context.platform.unpin();
            return match outcome {
                AtHome::DoubleFree => Err(Error::DoubleFree),
                AtHome::NotHeld => self.free_elsewhere(context, word, mask),
                _ => Ok(()),
            };
        }
        context.platform.unpin();
        self.free_elsewhere(context, word, mask)
    }

    /// Frees frames of a pageblock that a slot of a CPU holds, whose lock the caller has.
    #[inline(always)]
    pub(super) fn free_at_home(&self, cpu: usize, word: usize, mask: u64) -> AtHome {
        // Who holds it changes under the lock only.
        let state = self.blocks.state(BlockIndex::of_word(word));
        if !state.is_split_of(cpu) {
            return AtHome::NotHeld;
        }
        let free = self.blocks.free(word);
        if (free | self.blocks.remote(word)) & mask != 0 {
            return AtHome::DoubleFree;
        }
        self.blocks.set_free(word, free | mask);
        match state.is_listed() && (free | mask != !0 || state.is_current()) {
            true => AtHome::Done,
            false => AtHome::Unusual,
        }
    }

    /// Looks after a pageblock of a slot that was aside when a frame of it was freed, or may be
    /// whole now.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) {
        if !self.blocks.state(block).is_listed() {
            self.list_freed(guard, block);
        } else {
            self.part_if_whole(guard, block);
        }
    }

    /// Puts a pageblock that was aside on a shelf, now that it has free frames; or gives it up, if
    /// the zone is so low that slots may keep nothing.
    fn list_freed(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) {
        let zone = self.zone(guard.zone);
        if !zone.may_take(0, Watermark::Low, zone.kind()) {
            return self.let_go(guard, block);
        }
        let migratetype = self.blocks.state(block).migratetype();
        guard.slot.shelve(&self.blocks, block, migratetype, Fill::Scarce);
        zone.note_kept();
        self.part_if_whole(guard, block);
    }

    /// Takes a listed pageblock out of use if all of it is free, unless frames are taken from it at
    /// the moment.
    fn part_if_whole(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) {
        if self.blocks.is_whole(block) && !self.blocks.state(block).is_current() {
            guard.slot.unshelve(&self.blocks, block);
            self.keep_whole(guard, block);
        }
    }

    /// Frees frames of a pageblock that the running CPU's slot does not hold.
    #[inline(never)]
    fn free_elsewhere(&self, context: Context<'_, P>, word: usize, mask: u64) -> Result<(), Error> {
        let block = BlockIndex::of_word(word);
        let state = self.blocks.state(block);
        let free = self.blocks.free_or_remote(word);
        // It was in use frame by frame, and can only have become whole if these were free.
        if !state.is_split() || free & mask != 0 {
            return Err(Error::DoubleFree);
        }
        if state.holder() == Holder::Nobody && self.free_adopting(context, word, mask)? {
            return Ok(());
        }
        let before = self.blocks.free_remotely(word, mask);
        if before & mask != mask {
            self.notify(block);
        }
        if before & mask != 0 {
            return Err(Error::DoubleFree);
        }
        if free | before | mask == !0 {
            self.finish(context, block);
        }
        Ok(())
    }

    /// Frees frames of a pageblock that nobody holds by making the running CPU's slot its holder,
    /// if the zone can spare that; says whether it could.
    fn free_adopting(
        &self,
        context: Context<'_, P>,
        word: usize,
        mask: u64,
    ) -> Result<bool, Error> {
        let block = BlockIndex::of_word(word);
        let (index, free) = (self.blocks.zone(block), self.blocks.count_free(block));
        let (zone, of) = (self.zone(index), self.blocks.state(block).migratetype());
        if !zone.may_take(u64::from(free), Watermark::Low, zone.kind())
            || !zone.may_keep_for(of, self.cpus())
        {
            return Ok(false);
        }
        let cpu = context.topology.fold(context.platform.cpu());
        let Some(guard) = self.try_lock(context, cpu, index) else { return Ok(false) };
        if !self.adopt(&guard, block) {
            return Ok(false);
        }
        // It was held by nobody and is not listed yet, so whoever had it last may rely on us.
        self.gather_last(&guard, block);
        self.shelve(&guard, block);
        match self.free_at_home(cpu, word, mask) {
            AtHome::Done => Ok(true),
            AtHome::Unusual => {
                self.settle(&guard, block);
                Ok(true)
            }
            // If it is not held any more, it was whole.
            AtHome::DoubleFree | AtHome::NotHeld => Err(Error::DoubleFree),
        }
    }

    /// Takes a pageblock out of use that others have freed entirely, if its holder has no use for
    /// it at the moment.
    #[cold]
    fn finish(&self, context: Context<'_, P>, block: BlockIndex) {
        let is_free = |word| self.blocks.free(word) | self.blocks.remote(word) == !0;
        let Holder::Cpu(cpu) = self.blocks.state(block).holder() else { return };
        if !block.words().all(is_free) {
            return;
        }
        let Some(guard) = self.try_lock(context, cpu, self.blocks.zone(block)) else { return };
        self.take_pending(&guard);
        let state = self.blocks.state(block);
        if state.is_split_of(cpu) && state.is_listed() {
            self.gather(&guard, block);
            self.part_if_whole(&guard, block);
        }
    }

    /// Frees a block of any order, or part of one.
    #[cold]
    #[inline(never)]
    fn free_any(
        &self,
        context: Context<'_, P>,
        pfn: Pfn,
        frame: u32,
        order: Order,
    ) -> Result<(), Error> {
        if order > Self::ORDER_MAX {
            return Err(Error::OrderTooLarge);
        }
        if !pfn.is_aligned(order) {
            return Err(Error::Misaligned);
        }
        match self.blocks.state(BlockIndex::of_frame(frame)).used_for() {
            Use::Absent => Err(Error::ForeignFrame),
            Use::Whole => Err(Error::DoubleFree),
            Use::Huge | Use::HugeTail => self.free_huge(context, frame, order),
            Use::Split => self.free_split(context, frame, order),
        }
    }

    /// Frees a block, or part of one, in a pageblock in use frame by frame.
    pub(super) fn free_split(
        &self,
        context: Context<'_, P>,
        frame: u32,
        order: Order,
    ) -> Result<(), Error> {
        let single = Run::at(frame, Order::ZERO);
        let word = single.word as usize;
        if self.blocks.holes(word) & single.mask() != 0 {
            return Err(Error::ForeignFrame);
        }
        if self.blocks.free_or_remote(word) & single.mask() != 0 {
            return Err(Error::DoubleFree);
        }
        if order >= Order::PAGEBLOCK {
            return Err(Error::WrongOrder);
        }
        let run = Run::at(frame, order);
        self.blocks.claim(run)?;
        let state = self.blocks.state(BlockIndex::of_frame(frame));
        run.words().try_for_each(|word| self.free_single(context, state, word, run.mask()))
    }
}
