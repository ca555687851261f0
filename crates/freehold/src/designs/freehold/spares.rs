//! Whole pageblocks that a slot has in reserve: for blocks of just that size, which come from there
//! and go back there, and for the next pageblock to be used frame by frame.
//!
//! Reserve and pool exchange several pageblocks at once: neighbours by one step. Of what is freed
//! frame by frame, a slot keeps one pageblock only.
//!
//! A slot keeps whole pageblocks only while its zone is not low. A put into an empty reserve looks
//! at the level and says that the slot keeps something; one into a reserve that has some looks at
//! nothing, since who takes a zone below its low watermark has all slots of which that was said
//! give up their frames first. `tests/models/freehold_loom.rs` has a model of that.

use super::Freehold;
use super::blocks::{BlockIndex, FRAMES, Spot};
use super::guard::SlotGuard;
use super::slot::Slot;
use super::state::{Holder, State, Use};
use crate::Error;
use crate::designs::Context;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order, Pfn};
use crate::zone::watermark::Watermark;

/// Pageblocks of one word of the pool.
const WORD_BLOCKS: usize = u64::BITS as usize;

impl<P: Platform> Freehold<P> {
    /// Takes a whole pageblock that the slot has in reserve.
    #[inline(always)]
    pub(super) fn take_spare(&self, slot: &Slot<'_, P>, request: &Request) -> Option<u32> {
        let block = slot.pop_spare()?;
        self.hand_out_one(block, request.content());
        Some(block.frame())
    }

    /// Marks a whole pageblock that the caller has for itself alone as handed out.
    #[inline(always)]
    fn hand_out_one(&self, block: BlockIndex, migratetype: MigrateType) {
        let Some(spot) = self.blocks.spot_of_block(block) else { return };
        let state = spot.state();
        if state.migratetype() != migratetype {
            self.note_claim_of(block);
        }
        match state.is_pending() {
            true => self.hand_out(block, Order::PAGEBLOCK, migratetype),
            // As `Blocks::replace` does.
            false => {
                let state = state.used(Use::Huge, Order::PAGEBLOCK).of_type(migratetype);
                spot.set_state(state.held_by(Holder::Nobody).isolated(false));
            }
        }
    }

    /// Fetches pageblocks of the pool that lie side by side into the reserve, which is empty, by
    /// one step, if the zone can spare them.
    #[cold]
    #[inline(never)]
    pub(super) fn fetch_spares(&self, guard: &SlotGuard<'_, P>, request: &Request) {
        let zone = self.zone(guard.zone);
        let (pool, wanted) = (zone.pool(), (zone.spares_max() / 2).max(1));
        let start = self.start(pool, guard.cpu, request.content());
        let found = self.forest.next(pool, start).or_else(|| self.forest.next(pool, 0));
        let Some(first) = found else { return };
        let (word, behind) = (first / WORD_BLOCKS, !0 << (first % WORD_BLOCKS));
        let members = lowest(self.forest.members(pool, word) & behind, wanted);
        let frames = members.count_ones() * FRAMES;
        if frames == 0 || !zone.may_keep(frames, request) {
            return;
        }
        zone.note_kept();
        if !zone.try_keep(frames, request) {
            return;
        }
        if !self.forest.remove_mask(pool, word, members) {
            return zone.add_free(frames);
        }
        guard.slot.note_refill(frames);
        // The lowest one goes first.
        let mut left = members;
        while left != 0 {
            let bit = left.ilog2();
            left &= !(1 << bit);
            let block = self.block_at(guard.zone, word * WORD_BLOCKS + bit as usize);
            self.blocks.replace(block, |state| state.held_by(Holder::Cpu(guard.cpu)));
            guard.slot.push_spare(block);
        }
    }

    /// Keeps a whole pageblock of a slot, all of which was freed frame by frame, in reserve; or
    /// gives it to the pool if there is one already. It is in no place of the slot.
    pub(super) fn keep_whole(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) {
        if guard.slot.spare_count() > 0 {
            return self.part_with_whole(guard, block);
        }
        self.zone(guard.zone).note_kept();
        self.mark_whole(block, Holder::Cpu(guard.cpu));
        guard.slot.push_spare(block);
    }

    /// Gives so many pageblocks of the reserve to the pool, or all: those that would be used last.
    #[cold]
    #[inline(never)]
    pub(super) fn part_with_spares(&self, guard: &SlotGuard<'_, P>, count: usize) {
        let count = count.min(guard.slot.spare_count());
        if count == 0 {
            return;
        }
        let (zone, frames) = (self.zone(guard.zone), count as u32 * FRAMES);
        guard.slot.note_drain(frames);
        zone.add_free(frames);
        // Neighbours go together.
        let (mut word, mut members) = (0, 0);
        guard.slot.remove_spares(|place, block| {
            if place >= count {
                return false;
            }
            self.blocks.replace(block, |state| state.held_by(Holder::Nobody));
            let bit = self.bit(block);
            if bit / WORD_BLOCKS != word && members != 0 {
                self.forest.insert_mask(zone.pool(), word, members);
                members = 0;
            }
            word = bit / WORD_BLOCKS;
            members |= 1 << (bit % WORD_BLOCKS);
            true
        });
        self.forest.insert_mask(zone.pool(), word, members);
    }

    /// Frees a pageblock that was handed out by itself into the reserve of a slot of a CPU, whose
    /// lock the caller has, if that has some already and room for more; says whether. If not,
    /// nothing has changed.
    #[inline(always)]
    pub(super) fn try_stash(
        &self,
        slot: Slot<'_, P>,
        cpu: usize,
        spot: &Spot<'_, P>,
        state: State,
    ) -> bool {
        let most = self.zone(spot.zone()).spares_max() as usize;
        let whole = state.used(Use::Whole, Order::ZERO).held_by(Holder::Cpu(cpu));
        (1..most).contains(&slot.spare_count())
            // Of those who free it, or parts of it, at the same time, one goes first.
            && spot.try_change(state, whole)
            && slot.push_spare(spot.block())
    }

    /// Frees a pageblock that was handed out by itself, in the common case: into the reserve of the
    /// running CPU. Says whether that was so; if not, nothing has changed.
    #[inline(never)]
    pub(super) fn free_pageblock_at_hand(&self, context: Context<'_, P>, pfn: Pfn) -> bool {
        let Some(spot) = self.blocks.spot_of(pfn) else { return false };
        let state = spot.state();
        if !state.is_lone_pageblock() || !spot.frame().is_multiple_of(FRAMES) {
            return false;
        }
        let (platform, zone) = (context.platform, spot.zone());
        let cpu = platform.pin().index();
        if let Some(home) = self.homes.try_get(cpu)
            && home.try_lock()
        {
            if !self.try_stash(self.slot_of(home, cpu, zone), cpu, &spot, state) {
                // Unlocks and unpins.
                let guard = self.guard_of(platform, home, cpu, zone);
                return self.stash(&guard, spot.block()) == Ok(true);
            }
            home.unlock();
            platform.unpin();
            return true;
        }
        platform.unpin();
        false
    }

    /// Frees a pageblock that was handed out by itself into the reserve of the running CPU's slot,
    /// if the zone can spare it; says whether that was so.
    pub(super) fn free_into_reserve(
        &self,
        context: Context<'_, P>,
        block: BlockIndex,
    ) -> Result<bool, Error> {
        let zone = self.blocks.zone(block);
        let cpu = context.pin();
        match self.try_lock_pinned(context.platform, cpu, zone) {
            Some(guard) => self.stash(&guard, block),
            None => Ok(false),
        }
    }

    /// As `free_into_reserve`, into that of a slot.
    #[inline(never)]
    pub(super) fn stash(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) -> Result<bool, Error> {
        let (zone, count) = (self.zone(guard.zone), guard.slot.spare_count());
        // A reserve that has some has not been drained, so the zone is not low.
        if count == 0 && !zone.may_take(0, Watermark::Low, zone.kind()) {
            return Ok(false);
        }
        // Of those who free it, or parts of it, at the same time, one goes first.
        let taken = self.blocks.try_update(block, |now| {
            let alone = now.used_for() == Use::Huge && now.order() == Order::PAGEBLOCK;
            let free = alone && now.holder() == Holder::Nobody && !now.is_isolated();
            free.then_some(now.used(Use::Whole, Order::ZERO).held_by(Holder::Cpu(guard.cpu)))
        });
        match taken {
            Ok(_) => {}
            Err(now) if now.is_isolated() => return Ok(false),
            Err(_) => return Err(Error::DoubleFree),
        }
        if count >= zone.spares_max().max(1) as usize {
            self.part_with_spares(guard, count.div_ceil(2));
        }
        zone.note_kept();
        guard.slot.push_spare(block);
        Ok(true)
    }
}

/// The lowest set bits of a word, at most so many.
fn lowest(word: u64, count: u32) -> u64 {
    let mut left = word;
    for _ in 0..count {
        left &= left.wrapping_sub(1);
    }
    word & !left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_bits_are_those_that_come_first() {
        assert_eq!(lowest(0b1011_0100, 2), 0b1_0100);
        assert_eq!(lowest(0b1011_0100, 9), 0b1011_0100);
        assert_eq!((lowest(0, 3), lowest(!0, 0), lowest(!0, 64)), (0, 0, !0));
    }
}
