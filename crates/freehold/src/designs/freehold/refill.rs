//! Where a slot finds frames: in its pageblocks, in the pool, and in pageblocks that nobody holds.

use super::Freehold;
use super::blocks::{BlockIndex, FRAMES};
use super::guard::SlotGuard;
use super::runs::{Run, WORD_FRAMES};
use super::slot::{Fill, NO_WORD, SCARCE_MAX, Slot};
use super::state::{Holder, State};
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order};

/// So many pageblocks of each shelf are looked at for a block of more than one frame.
const LOOKS: usize = 8;

impl<P: Platform> Freehold<P> {
    /// Takes a frame of the current word, if it has one. The caller has the lock of the slot.
    #[inline(always)]
    pub(super) fn take_current(&self, slot: &Slot<P>, migratetype: MigrateType) -> Option<u32> {
        // There is no pageblock where `NO_WORD` would lie.
        let word = slot.current(migratetype);
        let free = self.blocks.try_free(word as usize).filter(|&free| free != 0)?;
        let bit = match self.picks_at_random {
            false => free.trailing_zeros(),
            true => pick(free, slot.random()),
        };
        self.blocks.set_free(word as usize, free & !(1 << bit));
        Some(word * WORD_FRAMES + bit)
    }

    /// Makes a word with free frames the current one, wherever it must be taken from; says whether
    /// there was one.
    pub(super) fn refill(&self, guard: &SlotGuard<'_, P>, request: &Request) -> bool {
        self.refill_from_own(guard, request.migratetype)
            || self.fresh_block(guard, request).is_some_and(|block| {
                self.set_current(guard, block, request.migratetype) //
            })
    }

    /// Makes a word with free frames the current one, of a pageblock that the slot holds already;
    /// says whether there was one.
    pub(super) fn refill_from_own(
        &self,
        guard: &SlotGuard<'_, P>,
        migratetype: MigrateType,
    ) -> bool {
        self.refill_from_current(guard, migratetype)
            || self.refill_from_shelf(guard, migratetype, Fill::Scarce)
            || {
                self.take_pending(guard);
                self.refill_from_shelf(guard, migratetype, Fill::Scarce)
            }
            || self.refill_from_shelf(guard, migratetype, Fill::Plenty)
            || self.split_spare(guard, migratetype).is_some_and(|block| {
                self.set_current(guard, block, migratetype) //
            })
    }

    fn refill_from_current(&self, guard: &SlotGuard<'_, P>, migratetype: MigrateType) -> bool {
        let Some(block) = guard.slot.current_block(migratetype) else { return false };
        if self.set_current(guard, block, migratetype) {
            return true;
        }
        self.gather(guard, block);
        if self.set_current(guard, block, migratetype) {
            return true;
        }
        guard.slot.set_current(migratetype, NO_WORD);
        !self.put_aside(guard, block) && self.set_current(guard, block, migratetype)
    }

    /// Makes the first word of a pageblock with free frames the current one, if it has any. It is in
    /// no other place of the slot.
    fn set_current(
        &self,
        guard: &SlotGuard<'_, P>,
        block: BlockIndex,
        migratetype: MigrateType,
    ) -> bool {
        let word = block.words().find(|&word| self.blocks.free(word) != 0);
        let Some(word) = word else { return false };
        guard.slot.set_current(migratetype, word as u32);
        if !self.blocks.state(block).is_current() {
            self.blocks.update(block, State::current);
            self.zone(guard.zone).note_kept();
        }
        true
    }

    fn refill_from_shelf(
        &self,
        guard: &SlotGuard<'_, P>,
        migratetype: MigrateType,
        fill: Fill,
    ) -> bool {
        while let Some(block) = guard.slot.first(migratetype, fill) {
            guard.slot.unshelve(&self.blocks, block);
            self.gather(guard, block);
            let free = self.blocks.count_free(block);
            if free == FRAMES {
                self.keep_whole(guard, block);
            } else if fill == Fill::Scarce && free > SCARCE_MAX {
                // It may yet become whole.
                guard.slot.shelve(&self.blocks, block, migratetype, Fill::Plenty);
            } else if self.set_current(guard, block, migratetype) {
                return true;
            } else if !self.put_aside(guard, block) {
                self.shelve(guard, block);
            }
        }
        false
    }

    /// Begins to use the whole pageblock in reserve.
    fn split_spare(
        &self,
        guard: &SlotGuard<'_, P>,
        migratetype: MigrateType,
    ) -> Option<BlockIndex> {
        let block = guard.slot.spare()?;
        guard.slot.set_spare(None);
        self.split(block, Holder::Cpu(guard.cpu), migratetype);
        Some(block)
    }

    /// A pageblock of the type with free frames that the slot did not hold so far: a partial one
    /// that nobody holds, or one of the pool, as long as the zone can spare it. It is in no place
    /// of the slot and not listed.
    fn fresh_block(&self, guard: &SlotGuard<'_, P>, request: &Request) -> Option<BlockIndex> {
        if !self.zone(guard.zone).may_keep(FRAMES, request) {
            return None;
        }
        let partial = self.adoptable(guard, request.migratetype);
        partial.or_else(|| self.fresh_whole(guard, request.migratetype))
    }

    /// As `fresh_block`, but one of the pool. The zone can spare it.
    fn fresh_whole(
        &self,
        guard: &SlotGuard<'_, P>,
        migratetype: MigrateType,
    ) -> Option<BlockIndex> {
        let block = self.take_whole(guard.zone, guard.cpu)?;
        self.zone(guard.zone).sub_free(FRAMES);
        guard.slot.note_refill(FRAMES);
        self.split(block, Holder::Cpu(guard.cpu), migratetype);
        Some(block)
    }

    /// Becomes the holder of a partial pageblock of a type that nobody holds.
    fn adoptable(&self, guard: &SlotGuard<'_, P>, migratetype: MigrateType) -> Option<BlockIndex> {
        let tree = self.zone(guard.zone).partial(migratetype);
        let start = tree.stretch(guard.cpu, self.cpus());
        self.forest.around(tree, start).find_map(|bit| {
            let block = self.block_at(guard.zone, bit);
            if !self.adopt(guard, block) {
                return None;
            }
            // Others may have changed its type just before.
            let is_right = self.blocks.state(block).migratetype() == migratetype;
            if !is_right || self.blocks.count_free(block) == 0 {
                self.let_go(guard, block);
                return None;
            }
            Some(block)
        })
    }

    /// Takes a block of more than one frame out of the slot's pageblocks.
    pub(super) fn take_run_of_own(
        &self,
        guard: &SlotGuard<'_, P>,
        request: &Request,
    ) -> Option<Run> {
        let Request { order, migratetype, .. } = *request;
        let take = |block| self.take_run_in(block, order);
        self.take_pending(guard);
        let current = guard.slot.current_block(migratetype);
        let run = current.and_then(take).or_else(|| {
            [Fill::Plenty, Fill::Scarce].into_iter().find_map(|fill| {
                let shelf = guard.slot.on_shelf(&self.blocks, migratetype, fill);
                shelf.take(LOOKS).find_map(take)
            })
        });
        run.or_else(|| {
            let block = self.split_spare(guard, migratetype)?;
            self.take_and_shelve(guard, block, order)
        })
    }

    /// Takes a block of more than one frame out of a pageblock of the pool, which the slot keeps.
    pub(super) fn take_fresh_run(
        &self,
        guard: &SlotGuard<'_, P>,
        request: &Request,
    ) -> Option<Run> {
        if !self.zone(guard.zone).may_keep(FRAMES, request) {
            return None;
        }
        let block = self.fresh_whole(guard, request.migratetype)?;
        self.take_and_shelve(guard, block, request.order)
    }

    fn take_and_shelve(
        &self,
        guard: &SlotGuard<'_, P>,
        block: BlockIndex,
        order: Order,
    ) -> Option<Run> {
        let run = self.take_run_in(block, order);
        self.shelve(guard, block);
        run
    }

    fn take_run_in(&self, block: BlockIndex, order: Order) -> Option<Run> {
        let run = self.blocks.find_run(block, order)?;
        self.blocks.take_run(run);
        Some(run)
    }
}

/// A set bit of a word that is not 0, each as likely as the others but for how they lie: the first
/// one at or behind a random place.
fn pick(word: u64, random: u64) -> u32 {
    let place = random as u32 % u64::BITS;
    (word.rotate_right(place).trailing_zeros() + place) % u64::BITS
}
