//! Freeing: locally, into the bitmap of a pageblock that the running CPU's cache holds, or
//! remotely.

use core::ops::Range;

use super::lock::LockedCache;
use crate::Error;
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::huge::HeldHuge;
use crate::designs::freehold::pageblocks::run::{ORDER_MAX, Run, WORD_FRAMES, WORD_ORDER};
use crate::designs::freehold::pageblocks::state::{Holder, State, Use};
use crate::designs::freehold::pageblocks::{FrameRef, PageblockIndex};
use crate::designs::traits::Free;
use crate::platform::{Pin, Platform};
use crate::units::{Order, Pfn};
use crate::zone::watermark::Watermark;

/// The result of a local free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalFree {
    /// They are free, and nothing else need be done.
    Done,
    /// They are free. The pageblock was full, or may be whole now.
    Relink,
    /// The cache does not hold the pageblock.
    NotHeld,
    /// A frame is free already.
    DoubleFree,
}

impl<P: Platform> Free<P> for Freehold<P> {
    /// Frees a block, or part of one.
    #[inline(always)]
    fn free(&self, context: Context<'_, P>, pfn: Pfn, order: Order) -> Result<(), Error> {
        if order == Order::ZERO && self.free_single_fast(context, pfn) {
            return Ok(());
        }
        self.free_slowly(context, pfn, order)
    }
}

impl<P: Platform> Freehold<P> {
    /// Frees a single frame, in the common cases: a cache has listed its pageblock, the running
    /// CPU's or another one. Returns whether that was so; if not, nothing has changed.
    #[inline(always)]
    fn free_single_fast(&self, context: Context<'_, P>, pfn: Pfn) -> bool {
        let (cpu, _pin) = Pin::new(context.platform);
        let (cpu, mut freed) = (cpu.index(), false);
        if let Some(frame_ref) = self.zones.pageblocks.lookup_fast(pfn) {
            let state = frame_ref.state();
            // A number that no CPU has is in no state.
            if state.is_listed_of(cpu)
                && let Some(per_cpu) = self.cpus.try_get(cpu)
            {
                // The state is read before the tail bits: those of a split pageblock are valid, and
                // while a user holds a frame of it, it stays split. All are read before the lock is
                // taken, so that the hardware fetches their lines at the same time.
                if frame_ref.is_single_in_use(frame_ref.free_or_remote()) && per_cpu.try_lock() {
                    freed = frame_ref.state() == state
                        && frame_ref.try_free_here(state, frame_ref.mask(0));
                    per_cpu.unlock();
                }
            } else if state.is_watched() {
                freed = self.free_remotely_fast(context, &frame_ref);
            }
        }
        freed
    }

    /// Frees a single frame of a watched pageblock remotely, if it is an allocation of its own.
    #[inline(always)]
    pub(crate) fn free_remotely_fast(
        &self,
        context: Context<'_, P>,
        frame_ref: &FrameRef<'_, P>,
    ) -> bool {
        let (remote, mask) = (frame_ref.remote(), frame_ref.mask(0));
        // Read once: the holder writes there, so that each read transfers the line.
        let free = frame_ref.free() | remote;
        if !frame_ref.is_single_in_use(free) || !frame_ref.try_free_remotely(remote, mask) {
            return false;
        }
        // First the RMW, then the read of the state: see `remote`.
        if !frame_ref.state_after_step().is_watched() {
            self.zones.ensure_collected(context.cpu_here(), frame_ref.pageblock());
        }
        if free | mask == !0 {
            self.try_release_if_free(context, frame_ref.pageblock());
        }
        true
    }

    /// Frees a block of at most a word, if it is an allocation and not part of a larger one; if
    /// not, nothing has changed.
    #[inline(always)]
    fn free_run_fast(
        &self,
        context: Context<'_, P>,
        pfn: Pfn,
        order: Order,
    ) -> Option<Result<(), Error>> {
        let frame_ref = self.zones.pageblocks.lookup_fast(pfn)?;
        let (state, mask) = self.begin_free_in_word(&frame_ref, pfn, order)?;
        let (cpu, pin) = Pin::new(context.platform);
        let cpu = cpu.index();
        if state.is_listed_of(cpu)
            && let Some(per_cpu) = self.cpus.try_get(cpu)
            && per_cpu.try_lock()
        {
            let freed = frame_ref.state() == state && frame_ref.try_free_here(state, mask);
            per_cpu.unlock();
            if freed {
                return Some(Ok(()));
            }
        }
        drop(pin);
        Some(self.free_in_word(context, state, frame_ref.word_index(), mask))
    }

    /// Claims a block of at most a word, if it is an allocation in a split pageblock; returns the
    /// state that this was seen in, and the bits of the block. If not, nothing has changed.
    #[inline(always)]
    pub(crate) fn begin_free_in_word(
        &self,
        frame_ref: &FrameRef<'_, P>,
        pfn: Pfn,
        order: Order,
    ) -> Option<(State, u64)> {
        if order.get() > WORD_ORDER || !pfn.is_aligned(order) {
            return None;
        }
        let (state, mask) = (frame_ref.state(), frame_ref.mask(order.get()));
        let is_free = frame_ref.free_or_remote() & mask != 0;
        (state.is_split() && !is_free && frame_ref.try_begin_free(mask)).then_some((state, mask))
    }

    /// Frees what the fast path for single frames does not.
    #[inline(never)]
    fn free_slowly(&self, context: Context<'_, P>, pfn: Pfn, order: Order) -> Result<(), Error> {
        if (1..=WORD_ORDER).contains(&order.get())
            && let Some(result) = self.free_run_fast(context, pfn, order)
        {
            return result;
        }
        if order == Order::PAGEBLOCK && self.free_pageblock_fast(context, pfn) {
            return Ok(());
        }
        let frame = self.zones.pageblocks.index_of(pfn).ok_or(Error::ForeignFrame)?;
        let (word, mask) = ((frame / WORD_FRAMES) as usize, 1 << (frame % WORD_FRAMES));
        // The state before the tail bits, as above.
        let state = self.zones.pageblocks.state(PageblockIndex::of_word(word));
        if order == Order::ZERO && state.is_split() && self.zones.pageblocks.are_single(word, mask)
        {
            return self.free_in_word(context, state, word, mask);
        }
        self.free_any(context, pfn, frame, order)
    }

    /// Frees frames of a word. The caller alone has a claim to them: they are allocations of their
    /// own, or claimed. The pageblock was seen in this state before, and is split.
    ///
    /// # Errors
    ///
    /// [`Error::DoubleFree`] if one of the frames is free, or if the bitmap of frames in use says
    /// that it is not in use.
    #[inline(never)]
    pub(crate) fn free_in_word(
        &self,
        context: Context<'_, P>,
        state: State,
        word: usize,
        mask: u64,
    ) -> Result<(), Error> {
        if !self.zones.pageblocks.try_end_use(word, mask) {
            return Err(Error::DoubleFree);
        }
        self.free_unused(context, state, word..word + 1, mask)
    }

    /// The same for frames whose use has been ended, the same ones of several words; fails at the
    /// first word in which one of them is free.
    #[inline(always)]
    pub(crate) fn free_unused(
        &self,
        context: Context<'_, P>,
        state: State,
        words: Range<usize>,
        mask: u64,
    ) -> Result<(), Error> {
        let pageblock = PageblockIndex::of_word(words.start);
        let (cpu, pin) = Pin::new(context.platform);
        let cpu = cpu.index();
        // A number that no CPU has is in no state.
        if state.is_split_of(cpu)
            && let Some(per_cpu) = self.cpus.try_get(cpu)
            && per_cpu.try_lock()
        {
            // Unlocks and unpins.
            let guard = self.guard_of(pin, per_cpu, cpu, self.zones.pageblocks.zone(pageblock));
            if let Some(result) = guard.free_held(words.clone(), mask) {
                return result;
            }
        } else {
            drop(pin);
        }
        words.into_iter().try_for_each(|word| self.free_elsewhere(context, word, mask))
    }

    /// Frees frames of a pageblock that the running CPU's cache does not hold.
    #[inline(never)]
    fn free_elsewhere(&self, context: Context<'_, P>, word: usize, mask: u64) -> Result<(), Error> {
        let pageblock = PageblockIndex::of_word(word);
        let state = self.zones.pageblocks.state(pageblock);
        let free = self.zones.pageblocks.free_or_remote(word);
        // It was split. It can only have become whole if these frames were free.
        if !state.is_split() || free & mask != 0 {
            return Err(Error::DoubleFree);
        }
        if state.holder() == Holder::None && self.free_acquiring(context, word, mask)? {
            return Ok(());
        }
        let before = self.zones.pageblocks.free_remotely(word, mask);
        // First the RMW, then the read of the state: see `remote`.
        if before & mask != mask && !self.zones.pageblocks.state_after_step(pageblock).is_watched()
        {
            self.zones.ensure_collected(context.cpu_here(), pageblock);
        }
        if before & mask != 0 {
            return Err(Error::DoubleFree);
        }
        if free | before | mask == !0 {
            self.try_release_if_free(context, pageblock);
        }
        Ok(())
    }

    /// Frees frames of an orphan: acquires it for the running CPU's cache, and frees locally. Only
    /// if the zone stays above its low watermark; returns whether it did.
    #[inline(never)]
    fn free_acquiring(
        &self,
        context: Context<'_, P>,
        word: usize,
        mask: u64,
    ) -> Result<bool, Error> {
        let pageblock = PageblockIndex::of_word(word);
        let index = self.zones.pageblocks.zone(pageblock);
        let (zone, of) =
            (self.zones.zone(index), self.zones.pageblocks.state(pageblock).migratetype());
        let free = || u64::from(self.zones.pageblocks.count_free(pageblock));
        if !zone.may_cache_for(of, self.zones.cpu_count())
            || !zone.may_take(free(), Watermark::Low, zone.kind())
        {
            return Ok(false);
        }
        let cpu = context.cpu_here();
        let Some(guard) = self.try_lock(context.pin().1, cpu, index) else { return Ok(false) };
        if !guard.acquire(pageblock) {
            return Ok(false);
        }
        // The pageblock had no holder and is not listed yet, so its last holder may rely on this
        // collection.
        guard.collect(pageblock);
        guard.relink(pageblock);
        // If the cache does not hold it any more, it was whole.
        guard.free_held(word..word + 1, mask).unwrap_or(Err(Error::DoubleFree)).map(|()| true)
    }

    /// Unlinks a pageblock all of whose frames are free, if the lock of its holder is free. Other
    /// CPUs have freed the last of them.
    #[cold]
    fn try_release_if_free(&self, context: Context<'_, P>, pageblock: PageblockIndex) {
        let is_free =
            |word| self.zones.pageblocks.free(word) | self.zones.pageblocks.remote(word) == !0;
        let Holder::Cpu(cpu) = self.zones.pageblocks.state(pageblock).holder() else { return };
        if !pageblock.words().all(is_free) {
            return;
        }
        let zone = self.zones.pageblocks.zone(pageblock);
        let Some(guard) = self.try_lock(context.pin().1, cpu, zone) else { return };
        guard.collect_queued();
        // What follows takes stack that the collection needs for itself.
        guard.release_if_listed(pageblock);
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
        if order > ORDER_MAX {
            return Err(Error::OrderTooLarge);
        }
        if !pfn.is_aligned(order) {
            return Err(Error::Misaligned);
        }
        match self.zones.pageblocks.state(PageblockIndex::of_frame(frame)).used_for() {
            Use::Absent => Err(Error::ForeignFrame),
            Use::Whole => Err(Error::DoubleFree),
            Use::Huge | Use::HugeTail => self.free_huge(context, frame, order),
            Use::Split => self.free_split(context, frame, order),
        }
    }

    /// Frees a block, or part of one, in a split pageblock.
    pub(crate) fn free_split(
        &self,
        context: Context<'_, P>,
        frame: u32,
        order: Order,
    ) -> Result<(), Error> {
        let single = Run::at(frame, Order::ZERO);
        let word = single.word as usize;
        if self.zones.pageblocks.holes(word) & single.mask() != 0 {
            return Err(Error::ForeignFrame);
        }
        if self.zones.pageblocks.free_or_remote(word) & single.mask() != 0 {
            return Err(Error::DoubleFree);
        }
        if order >= Order::PAGEBLOCK {
            return Err(Error::WrongOrder);
        }
        self.zones.pageblocks.begin_free(Run::at(frame, order))?;
        self.free_begun(context, frame, order)
    }

    /// Frees a block of a split pageblock whose use has been ended.
    // Called last, by few arguments: nothing of the caller stays on the stack.
    #[inline(never)]
    fn free_begun(&self, context: Context<'_, P>, frame: u32, order: Order) -> Result<(), Error> {
        let run = Run::at(frame, order);
        let state = self.zones.pageblocks.state(PageblockIndex::of_frame(frame));
        self.free_unused(context, state, run.words(), run.mask())
    }

    /// Frees a block of whole pageblocks, or part of one, that begins at `frame`.
    pub(crate) fn free_huge(
        &self,
        context: Context<'_, P>,
        frame: u32,
        order: Order,
    ) -> Result<(), Error> {
        let pageblock = PageblockIndex::of_frame(frame);
        let is_alone = |state: State| {
            state.used_for() == Use::Huge && state.order() == Order::PAGEBLOCK //
        };
        if order == Order::PAGEBLOCK
            && is_alone(self.zones.pageblocks.state(pageblock))
            && self.free_to_own_spares(context, pageblock)?
        {
            return Ok(());
        }
        let Some(held) = self.zones.pageblocks.acquire_huge(context.platform, pageblock, order)?
        else {
            return self.free_split(context, frame, order);
        };
        let HeldHuge { head, state, .. } = held;
        if order == state.order() {
            self.zones.take_back(context, head, order);
            return Ok(());
        }
        let (part, rest) = self.zones.pageblocks.break_up(head, state, frame, order);
        if let Some(rest) = rest {
            self.zones.split_huge(rest);
        }
        drop(held);
        if order < Order::PAGEBLOCK {
            return self.free_split(context, frame, order);
        }
        self.zones.take_back(context, part, order);
        Ok(())
    }
}

impl<P: Platform> LockedCache<'_, P> {
    /// Unlinks a pageblock if it is a listed one of this cache, and whole.
    #[inline(never)]
    fn release_if_listed(&self, pageblock: PageblockIndex) {
        let state = self.pageblocks().state(pageblock);
        if state.is_split_of(self.cpu) && state.is_listed() && self.is_of_zone(pageblock) {
            self.collect(pageblock);
            self.unlink_if_whole(pageblock);
        }
    }

    /// As `free_unused`, in a cache. `None` if the cache does not hold the pageblock.
    pub(crate) fn free_held(&self, words: Range<usize>, mask: u64) -> Option<Result<(), Error>> {
        let pageblock = PageblockIndex::of_word(words.start);
        let (mut unusual, mut result) = (false, Ok(()));
        for word in words {
            match self.free_local(self.cpu, word, mask) {
                LocalFree::Done => {}
                LocalFree::Relink => unusual = true,
                LocalFree::NotHeld => return None,
                LocalFree::DoubleFree => {
                    result = Err(Error::DoubleFree);
                    break;
                }
            }
        }
        if unusual {
            self.relink_after_free(pageblock);
        }
        Some(result)
    }

    /// Frees frames of a pageblock of a CPU's cache, whose lock the caller has.
    pub(crate) fn free_local(&self, cpu: usize, word: usize, mask: u64) -> LocalFree {
        // The holder changes under the lock only.
        let state = self.pageblocks().state(PageblockIndex::of_word(word));
        if !state.is_split_of(cpu) {
            return LocalFree::NotHeld;
        }
        let free = self.pageblocks().free(word);
        if (free | self.pageblocks().remote(word)) & mask != 0 {
            return LocalFree::DoubleFree;
        }
        self.pageblocks().set_free(word, free | mask);
        match state.is_listed() && (free | mask != !0 || state.is_active()) {
            true => LocalFree::Done,
            false => LocalFree::Relink,
        }
    }
}
