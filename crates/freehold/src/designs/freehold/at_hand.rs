//! Allocation from what the running CPU holds of its best zone: the common case.
//!
//! Whether the zone is low need not be looked at for what the slot holds already: in a low zone a
//! slot holds nothing.

use core::num::NonZeroU64;

use super::Freehold;
use super::blocks::Spot;
use super::guard::{Home, SlotGuard};
use super::runs::{WORD_FRAMES, WORD_ORDER, ones};
use super::slot::For;
use crate::designs::{Context, Design};
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{Order, Pfn};
use crate::zone::watermark::Watermark;

/// Whether a request prefers no node and may be served out of the word that blocks of more than one
/// frame are taken from.
#[inline(always)]
pub(super) const fn is_run_at_hand(request: &Request) -> bool {
    let order = request.order().get();
    order > 0 && order <= WORD_ORDER && request.is_unsparing() && request.is_anywhere()
}

/// What a block of more than one frame, or a single frame, is taken from.
#[inline(always)]
pub(super) const fn what<const RUN: bool>() -> For {
    if RUN { For::Runs } else { For::Singles }
}

impl<P: Platform> Freehold<P> {
    /// Takes a block for a request that prefers no node.
    #[inline(always)]
    pub(super) fn take_at_hand(&self, context: Context<'_, P>, request: Request) -> Option<Pfn> {
        let taken = if request.is_ordinary() {
            self.take_in_word::<false>(context, request)
        } else if is_run_at_hand(&request) {
            self.take_in_word::<true>(context, request)
        } else {
            None
        };
        taken.or_else(|| self.take_block_at_hand(context, request))
    }

    /// Takes a single frame, or a block of at most a word, out of the word that such are taken
    /// from.
    #[inline(always)]
    fn take_in_word<const RUN: bool>(
        &self,
        context: Context<'_, P>,
        request: Request,
    ) -> Option<Pfn> {
        let (platform, what) = (context.platform, what::<RUN>());
        let cpu = platform.pin().index();
        // A number that is no CPU's is folded by the slow path.
        if let Some(home) = self.homes.try_get(cpu)
            && let Some(hot) = home.hot_of(home.best(&request))
        {
            // Looked up before the lock is taken: what comes between that and its release is what
            // the next locked step waits for.
            let word = hot.current(what, request.content_index());
            if let Some(spot) = self.blocks.word_at_hand(word)
                && home.try_lock()
            {
                if hot.current(what, request.content_index()) == word
                    && let Some(frame) = home.take_of::<RUN>(&spot, &request)
                {
                    hot.note_alloc(request.order().frames().get());
                    home.unlock();
                    platform.unpin();
                    return Some(self.blocks.pfn_of(frame));
                }
                return self.take_of_slot(platform, home, cpu, request);
            }
        }
        platform.unpin();
        None
    }

    /// Takes a block that is not at hand in a word: out of the running CPU's slot, which may fetch
    /// pageblocks for it, or whole pageblocks from the pool.
    #[inline(never)]
    fn take_block_at_hand(&self, context: Context<'_, P>, request: Request) -> Option<Pfn> {
        if !request.is_unsparing() {
            return None;
        }
        let platform = context.platform;
        let cpu = platform.pin().index();
        if let Some(home) = self.homes.try_get(cpu)
            && home.best(&request).index() < self.zones.len()
            && home.try_lock()
        {
            if request.order() == Order::PAGEBLOCK {
                let slot = self.slot_of(home, cpu, home.best(&request));
                if let Some(frame) = self.take_spare(&slot, &request) {
                    slot.note_alloc(Order::PAGEBLOCK.frames().get());
                    home.unlock();
                    platform.unpin();
                    return Some(self.blocks.pfn_of(frame));
                }
            }
            if let Some(pfn) = self.take_of_slot(platform, home, cpu, request) {
                return Some(pfn);
            }
        } else {
            platform.unpin();
        }
        match (Order::PAGEBLOCK..=Self::ORDER_MAX).contains(&request.order()) {
            true => self.take_huge_at_hand(context, request),
            false => None,
        }
    }

    /// Takes a block out of the slot of a CPU in the zone that is best, whose lock the caller has
    /// taken. Releases it.
    #[inline(never)]
    fn take_of_slot(
        &self,
        platform: &P,
        home: &Home<P>,
        cpu: usize,
        request: Request,
    ) -> Option<Pfn> {
        let guard = self.guard_of(platform, home, cpu, home.best(&request));
        let frame = self.take_block(&guard, &request);
        let frame = frame.or_else(|| self.alloc_with(&guard, &request))?;
        guard.slot.note_alloc(request.order().frames().get());
        Some(self.blocks.pfn_of(frame))
    }

    /// Takes a block out of what a slot has at hand for its order.
    #[inline(always)]
    pub(super) fn take_block(&self, guard: &SlotGuard<'_, P>, request: &Request) -> Option<u32> {
        match request.order().get() {
            0 => self.take_in_pageblock::<false>(guard, request),
            1..=WORD_ORDER => self.take_in_pageblock::<true>(guard, request),
            _ if request.order() == Order::PAGEBLOCK => self.take_spare(&guard.slot, request),
            _ => None,
        }
    }

    /// As `take_in_word`, out of any word of the pageblock.
    #[inline(always)]
    fn take_in_pageblock<const RUN: bool>(
        &self,
        guard: &SlotGuard<'_, P>,
        request: &Request,
    ) -> Option<u32> {
        let (what, type_index) = (what::<RUN>(), request.content_index());
        let spot = self.blocks.spot_of_word(guard.slot.hot.current(what, type_index))?;
        let spot = spot.word_with_run(request.order().get())?;
        guard.slot.hot.set_current(what, type_index, spot.word_index() as u32);
        let frame = guard.home.take_of::<RUN>(&spot, request)?;
        let mask = ones(request.order().get()) << (frame % WORD_FRAMES);
        self.blocks.begin_use(spot.word_index(), mask);
        Some(frame)
    }

    /// Takes whole pageblocks from the pool, if the best zone can spare them.
    #[inline(never)]
    fn take_huge_at_hand(&self, context: Context<'_, P>, request: Request) -> Option<Pfn> {
        let zone = self.home(self.cpu_here(context)).best(&request);
        self.zones.try_get(zone.index())?;
        let may_take = self.allows(zone, &request, Watermark::Low);
        let frame = may_take.then(|| self.take_huge(context, zone, &request)).flatten();
        frame.map(|frame| self.blocks.pfn_of(frame))
    }
}

impl<P: Platform> Home<P> {
    /// Takes the lowest frame of a word, or the lowest block of at most a word, if it has one. The
    /// caller holds the pageblock.
    #[inline(always)]
    pub(super) fn take_of<const RUN: bool>(
        &self,
        spot: &Spot<'_, P>,
        request: &Request,
    ) -> Option<u32> {
        match RUN {
            false => self.take_single(spot),
            true => spot.take_run(request.order().get()),
        }
    }

    /// Takes the lowest frame of a word, if it has one and frames are not picked at random.
    #[inline(always)]
    pub(super) fn take_single(&self, spot: &Spot<'_, P>) -> Option<u32> {
        let free = NonZeroU64::new(spot.free()).filter(|_| !self.picks_at_random)?;
        spot.set_free(free.get() & (free.get() - 1));
        Some(spot.frame() + free.trailing_zeros())
    }
}
