//! Allocation from what the running CPU holds of its best zone: the common case.
//!
//! Whether the zone is low need not be looked at for what the slot holds already: in a low zone a
//! slot holds nothing.

use core::num::NonZeroU64;

use super::Freehold;
use super::blocks::Spot;
use super::runs::{WORD_FRAMES, WORD_ORDER, starts};
use super::slot::{For, Hot, Slot};
use crate::designs::{Context, Design};
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{Order, Pfn};
use crate::zone::watermark::Watermark;

impl<P: Platform> Freehold<P> {
    /// Takes a block for a request that prefers no node.
    #[inline(always)]
    pub(super) fn take_at_hand(&self, context: Context<'_, P>, request: Request) -> Option<Pfn> {
        if !request.is_ordinary() {
            return self.take_block_at_hand(context, request);
        }
        let platform = context.platform;
        let cpu = platform.pin().index();
        // A number that is no CPU's is folded by the slow path.
        if let Some(home) = self.homes.try_get(cpu)
            && let Some(hot) = home.hot_of(home.best(&request))
        {
            // Looked up before the lock is taken: what comes between that and its release is what
            // the next locked step waits for.
            let word = hot.current(For::Singles, request.content_index());
            if let Some(spot) = self.blocks.spot_of_word(word)
                && home.try_lock()
            {
                if let Some(frame) = self.take_single(hot, request.content_index(), word, &spot) {
                    hot.note_alloc(1);
                    home.unlock();
                    platform.unpin();
                    return Some(self.blocks.pfn_of(frame));
                }
                home.unlock();
            }
        }
        platform.unpin();
        self.take_block_at_hand(context, request)
    }

    /// Takes the lowest frame of a word that was seen to be the current one, if it still is and has
    /// one.
    #[inline(always)]
    pub(super) fn take_single(
        &self,
        hot: &Hot<P>,
        type_index: usize,
        word: u32,
        spot: &Spot<'_, P>,
    ) -> Option<u32> {
        let free = NonZeroU64::new(spot.free())?;
        if self.picks_at_random || hot.current(For::Singles, type_index) != word {
            return None;
        }
        spot.set_free(free.get() & (free.get() - 1));
        Some(spot.frame() + free.trailing_zeros())
    }

    /// Takes a block that is not at hand as the next frame of the current word is: out of the
    /// running CPU's slot, which may fetch pageblocks for it, or whole pageblocks from the pool.
    #[inline(never)]
    fn take_block_at_hand(&self, context: Context<'_, P>, request: Request) -> Option<Pfn> {
        if !request.is_unsparing() {
            return None;
        }
        let (platform, order) = (context.platform, request.order());
        let cpu = platform.pin().index();
        if let Some(home) = self.homes.try_get(cpu)
            && let zone = home.best(&request)
            && zone.index() < self.zones.len()
            && home.try_lock()
        {
            let slot = self.slot_of(home, cpu, zone);
            if let Some(frame) = self.take_block(&slot, &request) {
                slot.note_alloc(order.frames().get());
                home.unlock();
                platform.unpin();
                return Some(self.blocks.pfn_of(frame));
            }
            // Unlocks and unpins.
            let guard = self.guard_of(platform, home, cpu, zone);
            if let Some(frame) = self.alloc_with(&guard, &request) {
                guard.slot.note_alloc(order.frames().get());
                return Some(self.blocks.pfn_of(frame));
            }
        } else {
            platform.unpin();
        }
        match (Order::PAGEBLOCK..=Self::ORDER_MAX).contains(&order) {
            true => self.take_huge_at_hand(context, request),
            false => None,
        }
    }

    /// Takes a block out of what a slot has at hand for its order.
    #[inline(always)]
    pub(super) fn take_block(&self, slot: &Slot<'_, P>, request: &Request) -> Option<u32> {
        let order = request.order();
        if order == Order::PAGEBLOCK {
            return self.take_spare(slot, request);
        }
        if order == Order::ZERO || order.get() > WORD_ORDER {
            return None;
        }
        let (order, type_index) = (order.get(), request.content_index());
        let mut spot = self.blocks.spot_of_word(slot.hot.current(For::Runs, type_index))?;
        let mut places = starts(spot.free(), order);
        if places == 0 {
            (spot, places) = spot.word_with_run(order)?;
            slot.hot.set_current(For::Runs, type_index, spot.frame() / WORD_FRAMES);
        }
        let bit = places.trailing_zeros();
        spot.take(spot.free(), spot.mask(order) << bit);
        Some(spot.frame() + bit)
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
