//! Where a slot finds frames: in its pageblocks, in the pool, and in pageblocks that nobody holds.

use core::num::NonZeroU64;

use super::Freehold;
use super::blocks::{BlockIndex, FRAMES};
use super::guard::SlotGuard;
use super::runs::Run;
use super::slot::{Fill, For, NO_WORD, SCARCE_MAX, SCARCE_MIN};
use super::state::{Holder, State};
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order};

/// So many pageblocks of a shelf are looked at, for one with enough frames or a large enough block.
const LOOKS: usize = 8;

impl<P: Platform> Freehold<P> {
    /// Takes a frame of the current word, if it has one. The caller has the lock of the slot.
    pub(super) fn take_current(
        &self,
        guard: &SlotGuard<'_, P>,
        migratetype: MigrateType,
    ) -> Option<u32> {
        // There is no pageblock where `NO_WORD` would lie.
        let word = guard.slot.hot.current(For::Singles, migratetype.index());
        let spot = self.blocks.spot_of_word(word)?;
        let frame = match guard.home.picks_at_random {
            false => guard.home.take_single(&spot)?,
            true => {
                let free = NonZeroU64::new(spot.free())?.get();
                let bit = pick(free, guard.slot.random());
                spot.set_free(free & !(1 << bit));
                spot.frame() + bit
            }
        };
        self.blocks.begin_use_of(frame);
        Some(frame)
    }

    /// Makes a word with free frames the current one, wherever it must be taken from; says whether
    /// there was one.
    pub(super) fn refill(&self, guard: &SlotGuard<'_, P>, request: &Request) -> bool {
        let migratetype = request.content();
        self.refill_from_best(guard, migratetype)
            || self.fresh_block(guard, request).is_some_and(|block| {
                self.set_current(guard, block, migratetype) //
            })
            || self.refill_from_rest(guard, migratetype)
    }

    /// As `refill`, but only from what the slot holds already.
    pub(super) fn refill_from_own(
        &self,
        guard: &SlotGuard<'_, P>,
        migratetype: MigrateType,
    ) -> bool {
        self.refill_from_best(guard, migratetype) || self.refill_from_rest(guard, migratetype)
    }

    /// Takes pageblocks of the slot that are worth the effort: nearly full ones before others.
    fn refill_from_best(&self, guard: &SlotGuard<'_, P>, migratetype: MigrateType) -> bool {
        if self.refill_from_current(guard, migratetype) {
            return true;
        }
        self.take_pending(guard);
        self.refill_from_shelf(guard, migratetype, Fill::Scarce, SCARCE_MIN, LOOKS)
            || self.refill_from_shelf(guard, migratetype, Fill::Plenty, 1, usize::MAX)
    }

    /// Takes what else there is.
    fn refill_from_rest(&self, guard: &SlotGuard<'_, P>, migratetype: MigrateType) -> bool {
        let may_split = self.zone(guard.zone).may_keep_for(migratetype, self.cpus());
        let spare = may_split.then(|| self.split_spare(guard, migratetype)).flatten();
        spare.is_some_and(|block| self.set_current(guard, block, migratetype))
            || self.refill_from_shelf(guard, migratetype, Fill::Scarce, 1, usize::MAX)
            || self.refill_from_runs(guard, migratetype)
    }

    /// Takes single frames from the pageblock that larger blocks were taken from so far.
    fn refill_from_runs(&self, guard: &SlotGuard<'_, P>, migratetype: MigrateType) -> bool {
        let Some(block) = guard.slot.current_block(For::Runs, migratetype) else { return false };
        guard.slot.hot.set_current(For::Runs, migratetype.index(), NO_WORD);
        self.gather(guard, block);
        if self.set_current(guard, block, migratetype) {
            return true;
        }
        !self.put_aside(guard, block) && self.set_current(guard, block, migratetype)
    }

    fn refill_from_current(&self, guard: &SlotGuard<'_, P>, migratetype: MigrateType) -> bool {
        let Some(block) = guard.slot.current_block(For::Singles, migratetype) else {
            return false;
        };
        if self.set_current(guard, block, migratetype) {
            return true;
        }
        self.gather(guard, block);
        let free = self.blocks.count_free(block);
        // Where another CPU frees what this one takes, the faster this one looks the fewer frames
        // it finds, and each look has a cache line come over. So it lets them gather.
        let may_wait = free < SCARCE_MIN && self.zone(guard.zone).is_roomy(self.cpus());
        if !may_wait && self.set_current(guard, block, migratetype) {
            return true;
        }
        guard.slot.hot.set_current(For::Singles, migratetype.index(), NO_WORD);
        if free > 0 {
            self.blocks.update(block, |state| state.listed(true));
            self.shelve(guard, block);
            return false;
        }
        !self.put_aside(guard, block) && self.set_current(guard, block, migratetype)
    }

    /// Makes the first word of a pageblock with free frames the current one, if it has any. It is
    /// in no other place of the slot.
    fn set_current(
        &self,
        guard: &SlotGuard<'_, P>,
        block: BlockIndex,
        migratetype: MigrateType,
    ) -> bool {
        let word = block.words().find(|&word| self.blocks.free(word) != 0);
        let Some(word) = word else { return false };
        guard.slot.hot.set_current(For::Singles, migratetype.index(), word as u32);
        self.note_current(guard, block);
        true
    }

    /// Marks a pageblock as current.
    fn note_current(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) {
        if !self.blocks.state(block).is_current() {
            self.zone(guard.zone).note_kept();
            self.blocks.update(block, State::current);
        }
    }

    /// Makes a pageblock of a shelf with at least `least` free frames the current one, if one of
    /// the first few is such; says whether. Others go to the back.
    fn refill_from_shelf(
        &self,
        guard: &SlotGuard<'_, P>,
        migratetype: MigrateType,
        fill: Fill,
        least: u32,
        looks: usize,
    ) -> bool {
        for _ in 0..looks {
            let Some(block) = guard.slot.first(migratetype, fill) else { return false };
            guard.slot.unshelve(&self.blocks, block);
            self.gather(guard, block);
            match self.blocks.count_free(block) {
                FRAMES => self.keep_whole(guard, block),
                // It may yet become whole.
                free if fill == Fill::Scarce && free > SCARCE_MAX => {
                    guard.slot.shelve(&self.blocks, block, migratetype, Fill::Plenty);
                }
                0 => {
                    if !self.put_aside(guard, block) {
                        self.shelve(guard, block);
                    }
                }
                free if free < least => {
                    guard.slot.shelve(&self.blocks, block, migratetype, fill);
                }
                _ => return self.set_current(guard, block, migratetype),
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
        let block = guard.slot.pop_spare()?;
        self.split(block, Holder::Cpu(guard.cpu), migratetype);
        Some(block)
    }

    /// A pageblock of the type with free frames that the slot did not hold so far: a partial one
    /// that nobody holds, or one of the pool, as long as the zone can spare it. It is in no place
    /// of the slot and not listed.
    fn fresh_block(&self, guard: &SlotGuard<'_, P>, request: &Request) -> Option<BlockIndex> {
        if !self.may_fetch(guard, request) {
            return None;
        }
        let partial = self.adoptable(guard, request.content());
        partial.or_else(|| self.fresh_whole(guard, request.content()))
    }

    /// Whether the zone can spare a pageblock for the slot.
    fn may_fetch(&self, guard: &SlotGuard<'_, P>, request: &Request) -> bool {
        let zone = self.zone(guard.zone);
        zone.may_keep(FRAMES, request) && zone.may_keep_for(request.content(), self.cpus())
    }

    /// As `fresh_block`, but one of the pool. The zone can spare it.
    fn fresh_whole(
        &self,
        guard: &SlotGuard<'_, P>,
        migratetype: MigrateType,
    ) -> Option<BlockIndex> {
        // Not if there is nothing to keep. In this order: from when it is no longer in the pool,
        // others find its frames by the note.
        self.forest.next(self.zone(guard.zone).pool(), 0)?;
        self.zone(guard.zone).note_kept();
        let block = self.take_whole(guard.zone, guard.cpu, migratetype)?;
        self.zone(guard.zone).sub_free(FRAMES);
        guard.slot.note_refill(FRAMES);
        self.split(block, Holder::Cpu(guard.cpu), migratetype);
        Some(block)
    }

    /// Becomes the holder of a partial pageblock of a type that nobody holds.
    fn adoptable(&self, guard: &SlotGuard<'_, P>, migratetype: MigrateType) -> Option<BlockIndex> {
        let tree = self.zone(guard.zone).partial(migratetype);
        let start = self.start(tree, guard.cpu, migratetype);
        self.forest.around(tree, start).find_map(|bit| {
            let block = self.block_at(guard.zone, bit);
            if !self.adopt(guard, block) {
                return None;
            }
            // It may have been emptied or claimed for another type since it was found.
            let of = self.blocks.state(block).migratetype();
            if of != migratetype || self.blocks.count_free(block) == 0 {
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
    ) -> Option<u32> {
        let (order, migratetype) = (request.order(), request.content());
        let current = guard.slot.current_block(For::Runs, migratetype);
        if let Some(run) = current.and_then(|block| self.take_run_in(block, order)) {
            guard.slot.hot.set_current(For::Runs, migratetype.index(), run.word);
            return Some(run.frame());
        }
        let is_roomy = self.zone(guard.zone).is_roomy(self.cpus());
        if !is_roomy && let Some(frame) = self.take_run_of_singles(guard, request) {
            return Some(frame);
        }
        if let Some(block) = current {
            self.gather(guard, block);
        }
        self.take_pending(guard);
        let has_run = |block: &BlockIndex| self.blocks.find_run(*block, order).is_some();
        let shelved = current.filter(has_run).or_else(|| {
            [Fill::Plenty, Fill::Scarce].into_iter().find_map(|fill| {
                guard.slot.on_shelf(&self.blocks, migratetype, fill).take(LOOKS).find(has_run)
            })
        });
        if let Some(block) = shelved {
            if current != shelved {
                guard.slot.unshelve(&self.blocks, block);
            }
            return self.take_run_as_current(guard, block, request);
        }
        if migratetype != MigrateType::Movable && !is_roomy {
            return None;
        }
        let block = self.split_spare(guard, migratetype)?;
        self.take_run_as_current(guard, block, request)
    }

    /// Takes a block of more than one frame out of the pageblock that single frames of the type are
    /// taken from, and which goes on serving those.
    pub(super) fn take_run_of_singles(
        &self,
        guard: &SlotGuard<'_, P>,
        request: &Request,
    ) -> Option<u32> {
        let block = guard.slot.current_block(For::Singles, request.content())?;
        self.take_run_in(block, request.order()).map(Run::frame)
    }

    /// Takes a block of more than one frame out of a pageblock of the pool, which the slot keeps.
    pub(super) fn take_fresh_run(
        &self,
        guard: &SlotGuard<'_, P>,
        request: &Request,
    ) -> Option<u32> {
        if !self.may_fetch(guard, request) {
            return None;
        }
        let block = self.fresh_whole(guard, request.content())?;
        self.take_run_as_current(guard, block, request)
    }

    /// Takes a block of more than one frame out of a pageblock of the slot that has one, and has
    /// the next ones be taken from there. It is in no place of the slot, unless it is the current
    /// one already.
    fn take_run_as_current(
        &self,
        guard: &SlotGuard<'_, P>,
        block: BlockIndex,
        request: &Request,
    ) -> Option<u32> {
        let (order, migratetype) = (request.order(), request.content());
        let before = guard.slot.current_block(For::Runs, migratetype);
        if let Some(before) = before.filter(|&before| before != block) {
            self.blocks.update(before, |state| state.listed(true));
            if self.blocks.count_free(before) > 0 || !self.put_aside(guard, before) {
                self.shelve(guard, before);
            }
        }
        let run = self.take_run_in(block, order);
        let word = run.map_or(block.words().start as u32, |run| run.word);
        guard.slot.hot.set_current(For::Runs, migratetype.index(), word);
        self.note_current(guard, block);
        run.map(Run::frame)
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
