//! Freeing: what a block is, and whose. Frames that a call has claimed go back in `put`.
//!
//! | what is freed | route |
//! |---|---|
//! | a single frame whose pageblock a cache has listed | `free_single_fast`: one step decides |
//! | a block of at most a word | `free_run_fast`: claimed by its tail bits |
//! | a pageblock that is an allocation of its own | `free_pageblock`: to the spares |
//! | anything else, and every error | `free_any`: by the use of its pageblock |

use crate::Error;
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::huge::HeldHuge;
use crate::designs::freehold::pageblocks::run::{ORDER_MAX, Run, WORD_FRAMES, WORD_ORDER};
use crate::designs::freehold::pageblocks::state::{State, Use};
use crate::designs::freehold::pageblocks::{FrameRef, PageblockIndex};
use crate::designs::freehold::zones::Zones;
use crate::designs::traits::Free;
use crate::platform::{Pin, Platform};
use crate::units::{Order, Pfn};

impl<P: Platform> Free<P> for Freehold<P> {
    /// Frees a block, or part of one.
    #[inline(always)]
    fn free(&self, context: Context<'_, P>, pfn: Pfn, order: Order) -> Result<(), Error> {
        if order == Order::ZERO
            && self.free_single_fast(context, || self.pageblocks().lookup_fast(pfn))
        {
            return Ok(());
        }
        self.free_slowly(context, pfn, order)
    }
}

impl<P: Platform> Freehold<P> {
    /// Frees a single frame, in the common cases: a cache has listed its pageblock, the running
    /// CPU's or another one. Returns whether that was so; if not, nothing has changed.
    #[inline(always)]
    fn free_single_fast<'a>(
        &'a self,
        context: Context<'_, P>,
        lookup: impl FnOnce() -> Option<FrameRef<'a, P>>,
    ) -> bool {
        let (cpu, _pin) = Pin::new(context.platform);
        let (cpu, mut freed) = (cpu.index(), false);
        if let Some(frame_ref) = lookup() {
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
                        && frame_ref.try_put_here(state, frame_ref.mask(0));
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
        if !frame_ref.is_single_in_use(free) || !frame_ref.try_put_remotely(remote, mask) {
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
        let near = self.pageblocks().lookup_fast(pfn);
        let frame_ref = near.or_else(|| self.pageblocks().lookup_far(pfn))?;
        let (state, mask) = self.begin_free_in_word(&frame_ref, pfn, order)?;
        let (cpu, pin) = Pin::new(context.platform);
        let cpu = cpu.index();
        if state.is_listed_of(cpu)
            && let Some(per_cpu) = self.cpus.try_get(cpu)
            && per_cpu.try_lock()
        {
            let freed = frame_ref.state() == state && frame_ref.try_put_here(state, mask);
            per_cpu.unlock();
            if freed {
                return Some(Ok(()));
            }
        }
        drop(pin);
        Some(self.put_in_word(context, state, frame_ref.word_index(), mask))
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
        if order == Order::PAGEBLOCK && self.free_pageblock(context, pfn) {
            return Ok(());
        }
        if order == Order::ZERO
            && self.pageblocks().stretches().is_far(pfn)
            && self.free_single_fast(context, || self.pageblocks().lookup_far(pfn))
        {
            return Ok(());
        }
        let frame = self.pageblocks().index_of(pfn).ok_or(Error::ForeignFrame)?;
        let (word, mask) = ((frame / WORD_FRAMES) as usize, 1 << (frame % WORD_FRAMES));
        // The state before the tail bits, as above.
        let state = self.pageblocks().state(PageblockIndex::of_word(word));
        if order == Order::ZERO && state.is_split() && self.pageblocks().are_single(word, mask) {
            return self.put_in_word(context, state, word, mask);
        }
        self.free_any(context, pfn, frame, order)
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
        match self.pageblocks().state(PageblockIndex::of_frame(frame)).used_for() {
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
        if self.pageblocks().holes(word) & single.mask() != 0 {
            return Err(Error::ForeignFrame);
        }
        if self.pageblocks().free_or_remote(word) & single.mask() != 0 {
            return Err(Error::DoubleFree);
        }
        if order >= Order::PAGEBLOCK {
            return Err(Error::WrongOrder);
        }
        self.pageblocks().begin_free(Run::at(frame, order))?;
        self.put_run(context, frame, order)
    }

    /// Frees a block of a split pageblock whose use has been ended.
    // Called last, by few arguments: nothing of the caller stays on the stack.
    #[inline(never)]
    fn put_run(&self, context: Context<'_, P>, frame: u32, order: Order) -> Result<(), Error> {
        let run = Run::at(frame, order);
        let state = self.pageblocks().state(PageblockIndex::of_frame(frame));
        self.put_frames(context, state, run.words(), run.mask())
    }

    /// Frees a block of whole pageblocks, or part of one, that begins at `frame`.
    pub(crate) fn free_huge(
        &self,
        context: Context<'_, P>,
        frame: u32,
        order: Order,
    ) -> Result<(), Error> {
        if order == Order::PAGEBLOCK
            && self.free_pageblock(context, self.pageblocks().pfn_of(frame))
        {
            return Ok(());
        }
        self.free_huge_to_pool(context, frame, order)
    }

    /// The same, to the pool and not to the spares, where ranges are looked for.
    pub(crate) fn free_huge_to_pool(
        &self,
        context: Context<'_, P>,
        frame: u32,
        order: Order,
    ) -> Result<(), Error> {
        let pageblock = PageblockIndex::of_frame(frame);
        let Some(held) = self.pageblocks().acquire_huge(context.platform, pageblock, order)? else {
            return self.free_split(context, frame, order);
        };
        let HeldHuge { head, state, .. } = held;
        if order == state.order() {
            self.zones.release_huge(context, head, order, Zones::put_in_pool);
            return Ok(());
        }
        let (part, rest) = self.pageblocks().break_up(head, state, frame, order);
        if let Some(rest) = rest {
            self.zones.split_huge(rest);
        }
        drop(held);
        if order < Order::PAGEBLOCK {
            return self.free_split(context, frame, order);
        }
        self.zones.release_huge(context, part, order, Zones::put_in_pool);
        Ok(())
    }
}
