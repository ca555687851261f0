//! Freeing: at home, into the bitmap of the running CPU's own pageblock, or remotely.

use core::ops::Range;

use super::Freehold;
use super::blocks::{BlockIndex, Spot};
use super::guard::SlotGuard;
use super::runs::{Run, WORD_FRAMES, WORD_ORDER};
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
        if order == Order::ZERO && self.free_single_at_hand(context, pfn) {
            return Ok(());
        }
        self.free_slowly(context, pfn, order)
    }

    /// Frees a single frame, in the common cases: of a pageblock that a slot has listed, the
    /// running CPU's or another one's. Says whether that was so; if not, nothing has changed.
    #[inline(always)]
    fn free_single_at_hand(&self, context: Context<'_, P>, pfn: Pfn) -> bool {
        let cpu = context.platform.pin().index();
        let mut freed = false;
        if let Some(spot) = self.blocks.spot_at_hand(pfn) {
            let state = spot.state();
            // A number that is no CPU's is nobody's home.
            if state.is_listed_of(cpu)
                && let Some(home) = self.homes.try_get(cpu)
            {
                // The state before the marks: those of a pageblock in use frame by frame say what
                // they mean, and while a frame of it is held, it stays in use so. All are looked at
                // before the lock is taken, so that the caches fetch them at the same time.
                if spot.is_single_in_use(spot.free_or_remote()) && home.try_lock() {
                    freed = spot.state() == state && spot.try_free_here(state, spot.mask(0));
                    home.unlock();
                }
            } else if state.is_cared_for() {
                freed = self.free_remotely_at_hand(context, &spot);
            }
        }
        context.platform.unpin();
        freed
    }

    /// Frees a single frame of a pageblock whose holder will look at what others free, if it is
    /// one.
    #[inline(always)]
    pub(super) fn free_remotely_at_hand(
        &self,
        context: Context<'_, P>,
        spot: &Spot<'_, P>,
    ) -> bool {
        let (remote, mask) = (spot.remote(), spot.mask(0));
        // Looked at once: the holder writes there, and each look has the line come over.
        let free = spot.free() | remote;
        if !spot.is_single_in_use(free) || !spot.try_free_remotely(remote, mask) {
            return false;
        }
        // The step first, then the look: see `hold`.
        if !spot.state_after_step().is_cared_for() {
            self.notify(self.cpu_here(context), spot.block());
        }
        if free | mask == !0 {
            self.finish(context, spot.block());
        }
        true
    }

    /// Frees a block of at most a word, if it is an allocation and no part of a larger one; if not,
    /// nothing has changed.
    #[inline(always)]
    fn free_run_at_hand(
        &self,
        context: Context<'_, P>,
        pfn: Pfn,
        order: Order,
    ) -> Option<Result<(), Error>> {
        let spot = self.blocks.spot_at_hand(pfn)?;
        let (state, mask) = self.claim_in_word(&spot, pfn, order)?;
        let cpu = context.platform.pin().index();
        if state.is_listed_of(cpu)
            && let Some(home) = self.homes.try_get(cpu)
            && home.try_lock()
        {
            let freed = spot.state() == state && spot.try_free_here(state, mask);
            home.unlock();
            if freed {
                context.platform.unpin();
                return Some(Ok(()));
            }
        }
        context.platform.unpin();
        let word = spot.word_index();
        Some(self.free_in_words(context, state, word..word + 1, mask))
    }

    /// Claims a block of at most a word, if it is an allocation in a pageblock in use frame by
    /// frame; returns the state that this was seen in, and its bits. If not, nothing has changed.
    #[inline(always)]
    pub(super) fn claim_in_word(
        &self,
        spot: &Spot<'_, P>,
        pfn: Pfn,
        order: Order,
    ) -> Option<(State, u64)> {
        if order.get() > WORD_ORDER || !pfn.is_aligned(order) {
            return None;
        }
        let (state, mask) = (spot.state(), spot.mask(order.get()));
        let is_free = spot.free_or_remote() & mask != 0;
        (state.is_split() && !is_free && spot.try_claim(mask)).then_some((state, mask))
    }

    /// Frees what is not a single frame at hand.
    #[inline(never)]
    fn free_slowly(&self, context: Context<'_, P>, pfn: Pfn, order: Order) -> Result<(), Error> {
        if (1..=WORD_ORDER).contains(&order.get())
            && let Some(result) = self.free_run_at_hand(context, pfn, order)
        {
            return result;
        }
        if order == Order::PAGEBLOCK && self.free_pageblock_at_hand(context, pfn) {
            return Ok(());
        }
        let frame = self.blocks.index_of(pfn).ok_or(Error::ForeignFrame)?;
        let (word, mask) = ((frame / WORD_FRAMES) as usize, 1 << (frame % WORD_FRAMES));
        // The state before the marks, as above.
        let state = self.blocks.state(BlockIndex::of_word(word));
        if order == Order::ZERO && state.is_split() && self.blocks.are_single(word, mask) {
            return self.free_in_words(context, state, word..word + 1, mask);
        }
        self.free_any(context, pfn, frame, order)
    }

    /// Frees frames of words, the same of each, which their user has for himself: allocations of
    /// their own, or claimed. The pageblock was seen in this state before: in use frame by frame.
    ///
    /// # Errors
    ///
    /// [`Error::DoubleFree`] at the first word of which one of the frames is free, or if one of
    /// them is noted not to be in use.
    #[inline(never)]
    pub(super) fn free_in_words(
        &self,
        context: Context<'_, P>,
        state: State,
        words: Range<usize>,
        mask: u64,
    ) -> Result<(), Error> {
        if !self.blocks.try_end_use_in(words.clone(), mask) {
            return Err(Error::DoubleFree);
        }
        self.free_unused(context, state, words, mask)
    }

    /// The same of frames whose use has been ended.
    #[inline(always)]
    pub(super) fn free_unused(
        &self,
        context: Context<'_, P>,
        state: State,
        words: Range<usize>,
        mask: u64,
    ) -> Result<(), Error> {
        let block = BlockIndex::of_word(words.start);
        let cpu = context.platform.pin().index();
        // A number that is no CPU's is nobody's home.
        if state.is_split_of(cpu)
            && let Some(home) = self.homes.try_get(cpu)
            && home.try_lock()
        {
            // Unlocks and unpins.
            let guard = self.guard_of(context.platform, home, cpu, self.blocks.zone(block));
            if let Some(result) = self.free_held(&guard, words.clone(), mask) {
                return result;
            }
        } else {
            context.platform.unpin();
        }
        words.into_iter().try_for_each(|word| self.free_elsewhere(context, word, mask))
    }

    /// As `free_unused`, in a slot; nothing if that does not hold the pageblock.
    pub(super) fn free_held(
        &self,
        guard: &SlotGuard<'_, P>,
        words: Range<usize>,
        mask: u64,
    ) -> Option<Result<(), Error>> {
        let block = BlockIndex::of_word(words.start);
        let (mut unusual, mut result) = (false, Ok(()));
        for word in words {
            match self.free_at_home(guard.cpu, word, mask) {
                AtHome::Done => {}
                AtHome::Unusual => unusual = true,
                AtHome::NotHeld => return None,
                AtHome::DoubleFree => {
                    result = Err(Error::DoubleFree);
                    break;
                }
            }
        }
        if unusual {
            self.settle(guard, block);
        }
        Some(result)
    }

    /// Frees frames of a pageblock that a slot of a CPU holds, whose lock the caller has.
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
    fn settle(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) {
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
        zone.note_kept();
        guard.slot.shelve(&self.blocks, block, migratetype, Fill::Scarce);
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
        // The step first, then the look: see `hold`.
        if before & mask != mask && !self.blocks.state_after_step(block).is_cared_for() {
            self.notify(self.cpu_here(context), block);
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
        self.gather(&guard, block);
        self.shelve(&guard, block);
        // If it is not held any more, it was whole.
        self.free_held(&guard, word..word + 1, mask)
            .unwrap_or(Err(Error::DoubleFree))
            .map(|()| true)
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
        self.free_in_words(context, state, run.words(), run.mask())
    }
}
