//! How pageblocks come to be held and are given up, and how word of freed frames gets to those who
//! hold them.
//!
//! # The one danger, and why it does not happen
//!
//! Somebody frees a frame remotely and looks at the state afterwards: if the pageblock is listed,
//! pending, or held by a walker, somebody will look at its frames, and nothing need be done. The
//! danger is that this somebody has looked for the last time just before.
//!
//! Nobody cares for a pageblock in use frame by frame that is neither listed nor pending, nor held
//! by a walker. Whoever makes it so says so in the state first, and then looks at the words of the
//! remote bitmap for the last time. There are four such steps: a walker gives the pageblock up
//! ([`Freehold::release`]), a slot puts it aside ([`Freehold::put_aside`]), it ceases to be pending
//! ([`Freehold::take_pending`]), and a slot adopts it for a free ([`Freehold::gather`] in
//! `free_adopting`). A freer does the same the other way round: it sets its bits in a word first,
//! and then looks at the state.
//!
//! All four, the change of the state, the last look, the freer's step and its look, are
//! sequentially consistent, so there is one order of all of them. If the freer's step comes before
//! the last look at its word, the last look finds the frame. If it comes after that, it comes after
//! the change of the state too, and so does the freer's look, which then finds the state in which
//! nobody cares, or a later one; and it is the freer who says that the pageblock is pending, or
//! becomes its holder. (What takes this much is Dekker's pattern: two writes, each followed by a
//! look at the other. Acquire and release would let both looks be too old.)
//!
//! A last look that finds a frame in a pageblock that somebody else holds by then has nothing left
//! to do: a walker is yet to give it up, and a slot has adopted it, and will look once more, either
//! at once or when it is no longer listed.
//!
//! `tests/models/freehold_loom.rs` has models of all these steps, which fail without the last look;
//! but for the adoption, where it matters only if somebody frees a frame twice at the same time.

use super::Freehold;
use super::blocks::{BlockIndex, FRAMES};
use super::guard::SlotGuard;
use super::slot::{Fill, PendingStack, SCARCE_MAX};
use super::state::{Holder, Use};
use super::tree::Tree;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::units::{MigrateType, Order};

impl<P: Platform> Freehold<P> {
    /// The bit of a pageblock in the trees of its zone.
    #[inline]
    pub(super) fn bit(&self, block: BlockIndex) -> usize {
        let first = self.zone(self.blocks.zone(block)).first_block();
        block.0.wrapping_sub(first) as usize
    }

    /// Gives up a pageblock that the caller holds as a walker, and whose free frames are in the
    /// level of the zone. The caller is in a section.
    pub(super) fn release(&self, block: BlockIndex) {
        let (zone, bit) = (self.zone(self.blocks.zone(block)), self.bit(block));
        loop {
            let found = self.blocks.harvest(block);
            zone.note_direct_free(found.frames);
            zone.note_doubles(found.doubles);
            zone.add_free(found.frames);
            let tree = zone.partial(self.blocks.state(block).migratetype());
            let free = self.blocks.count_free(block);
            // While it is held, nobody else changes whether it is in the tree.
            if (1..FRAMES).contains(&free) {
                self.forest.insert(tree, bit);
            } else if self.forest.contains(tree, bit) {
                self.forest.remove(tree, bit);
            }
            if free == FRAMES {
                return self.give_whole(block);
            }
            self.blocks.update(block, |state| state.held_by(Holder::Nobody).listed(false));
            if !self.blocks.has_remote(block) || !self.hold(block) {
                return;
            }
        }
    }

    /// Becomes the holder of a pageblock that nobody holds, as a walker; says whether that went
    /// well. The caller is in a section.
    pub(super) fn hold(&self, block: BlockIndex) -> bool {
        self.blocks.try_hold(block, Holder::Walker).is_ok()
    }

    /// Acts on a pageblock as its holder, unless it has one. The call runs on a CPU.
    pub(super) fn while_held<R>(
        &self,
        cpu: usize,
        block: BlockIndex,
        act: impl FnOnce() -> Option<R>,
    ) -> Option<R> {
        let _section = self.section(cpu, self.blocks.zone(block));
        if !self.hold(block) {
            return None;
        }
        let result = act();
        self.release(block);
        result
    }

    /// Puts a whole pageblock, which the caller holds and whose frames are in the level, into the
    /// pool.
    pub(super) fn give_whole(&self, block: BlockIndex) {
        self.mark_whole(block, Holder::Nobody);
        self.forest.insert(self.zone(self.blocks.zone(block)).pool(), self.bit(block));
    }

    /// Marks a pageblock that the caller holds as whole, and as held by `holder` from now on.
    pub(super) fn mark_whole(&self, block: BlockIndex, holder: Holder) {
        self.blocks.unfix_all(block);
        self.blocks.update(block, |state| {
            state.used(Use::Whole, Order::ZERO).held_by(holder).listed(false)
        });
    }

    /// Marks a whole pageblock that the caller has for itself alone as in use frame by frame, for
    /// content of a type, and as held by `holder`, which is about to take frames from it. What
    /// others have freed of it is forgotten: its frames were free already, so these were freed
    /// twice at the same time. Left alone, they would be free while in use.
    pub(super) fn mark_split(&self, block: BlockIndex, holder: Holder, migratetype: MigrateType) {
        self.zone(self.blocks.zone(block)).note_doubles(self.blocks.forget_remote(block));
        self.blocks.replace(block, |state| {
            let state = state.used(Use::Split, Order::ZERO).of_type(migratetype);
            let state = state.held_by(holder).listed(false);
            match holder {
                Holder::Cpu(_) => state.current(),
                _ => state,
            }
        });
    }

    /// Where a CPU begins to look for pageblocks of a tree: for movable content in a stretch of its
    /// own, and for other content at the bottom of the zone, so that what cannot move stays
    /// together and leaves room for large blocks.
    pub(super) fn start(&self, tree: &Tree, cpu: usize, migratetype: MigrateType) -> usize {
        match migratetype {
            MigrateType::Movable => tree.stretch(cpu, self.cpus()),
            _ => 0,
        }
    }

    /// Takes a whole pageblock for content of a type out of the pool. Its frames stay in the level.
    pub(super) fn take_whole(
        &self,
        zone: ZoneIndex,
        cpu: usize,
        migratetype: MigrateType,
    ) -> Option<BlockIndex> {
        let pool = self.zone(zone).pool();
        let found = self.forest.around(pool, self.start(pool, cpu, migratetype));
        let bit = { found }.find(|&bit| self.forest.remove(pool, bit))?;
        Some(self.block_at(zone, bit))
    }

    /// Begins to use a whole pageblock that the caller took, frame by frame, as `holder`.
    pub(super) fn split(&self, block: BlockIndex, holder: Holder, migratetype: MigrateType) {
        let before = self.blocks.state(block).migratetype();
        if before != migratetype {
            self.zone(self.blocks.zone(block)).note_claim();
        }
        if let Holder::Cpu(_) = holder {
            self.set_fixed_for(block, migratetype);
        }
        self.mark_split(block, holder, migratetype);
    }

    /// Notes that all of a pageblock may come to hold content of a type: a slot takes frames
    /// without marking each.
    pub(super) fn set_fixed_for(&self, block: BlockIndex, migratetype: MigrateType) {
        if migratetype != MigrateType::Movable {
            self.blocks.fix_all(block);
        }
    }

    /// Sees to it that what was freed remotely in a pageblock will be looked at. The call runs on a
    /// CPU.
    pub(super) fn notify(&self, here: usize, block: BlockIndex) {
        let zone = self.blocks.zone(block);
        let _section = self.section(here, zone);
        let mut state = self.blocks.state_after_step(block);
        loop {
            if !state.is_split() || state.is_listed() || state.is_pending() {
                return;
            }
            match state.holder() {
                // It will look when it gives the pageblock up.
                Holder::Walker => return,
                Holder::Nobody if self.hold(block) => return self.release(block),
                Holder::Nobody => state = self.blocks.state_after_step(block),
                Holder::Cpu(cpu) => {
                    let pending = |now: super::state::State| (now == state).then(|| now.pending());
                    match self.blocks.try_update(block, pending) {
                        Ok(_) => {
                            self.slot(cpu, zone).push_pending(&self.blocks, block);
                            return self.zone(zone).note_kept();
                        }
                        Err(now) => state = now,
                    }
                }
            }
        }
    }

    /// Looks at all pageblocks of a slot in which others have freed frames, if there seem to be
    /// any. Those with free frames come to a shelf.
    pub(super) fn take_pending(&self, guard: &SlotGuard<'_, P>) {
        for stack in guard.slot.stacks().filter(|&stack| guard.slot.has_pending(stack)) {
            self.take_stack(guard, stack);
        }
    }

    /// The same for whoever has noted that the zone's slots keep nothing, and now sees to it:
    /// whoever pushes a pageblock too late for this look sees that note, and corrects it.
    pub(super) fn take_all_pending(&self, guard: &SlotGuard<'_, P>) {
        guard.slot.stacks().for_each(|stack| self.take_stack(guard, stack));
    }

    fn take_stack(&self, guard: &SlotGuard<'_, P>, stack: PendingStack) {
        let mut next = guard.slot.take_pending(stack);
        while let Some(block) = next {
            let before;
            (before, next) = self.blocks.end_pending(block);
            if !before.is_split() || before.is_listed() {
                continue;
            }
            if before.holder() != Holder::Cpu(guard.cpu) {
                self.forward(guard, block, before.holder());
                continue;
            }
            // It is aside now: this may be the last look.
            self.gather(guard, block);
            self.shelve(guard, block);
        }
    }

    /// Sees to it that somebody will look at a pageblock that has left the slot while it was
    /// pending there. If another slot holds it, that one may have been drained a moment ago, by
    /// somebody who drains all: so that its frames are not kept after all, it is made to let go.
    fn forward(&self, guard: &SlotGuard<'_, P>, block: BlockIndex, holder: Holder) {
        if let Holder::Cpu(cpu) = holder {
            guard.platform.pin();
            if let Some(other) = self.try_lock_pinned(guard.platform, cpu, guard.zone) {
                let state = self.blocks.state(block);
                if state.is_split_of(cpu) && !state.is_listed() {
                    return self.let_go(&other, block);
                }
            }
        }
        self.notify(guard.cpu, block);
    }

    /// Harvests a pageblock of a slot; says whether it found frames. If it is neither listed nor
    /// pending any more, this is the last look.
    pub(super) fn gather(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) -> bool {
        let found = self.blocks.harvest(block);
        if found.doubles > 0 {
            guard.slot.note_doubles(found.doubles);
        }
        found.frames > 0
    }

    /// Puts a pageblock of a slot where it belongs, by its free frames, if it has any. It is not
    /// listed.
    pub(super) fn shelve(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) {
        let fill = match self.blocks.count_free(block) {
            0 => return,
            FRAMES => return self.keep_whole(guard, block),
            1..=SCARCE_MAX => Fill::Scarce,
            _ => Fill::Plenty,
        };
        let migratetype = self.blocks.state(block).migratetype();
        self.zone(guard.zone).note_kept();
        guard.slot.shelve(&self.blocks, block, migratetype, fill);
    }

    /// Puts a pageblock of a slot aside that has no free frames; says whether it still has none at
    /// last. If it has some again, it is listed.
    pub(super) fn put_aside(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) -> bool {
        self.blocks.update(block, |state| state.listed(false));
        let found = self.gather(guard, block);
        if found {
            self.blocks.update(block, |state| state.listed(true));
        }
        !found
    }

    /// Gives a whole pageblock of a slot, which is in none of its places, to the pool.
    pub(super) fn part_with_whole(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) {
        guard.slot.note_drain(FRAMES);
        self.zone(guard.zone).add_free(FRAMES);
        self.give_whole(block);
    }

    /// Gives up a pageblock of a slot that is in none of its places.
    pub(super) fn let_go(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) {
        let _section = self.section(guard.cpu, guard.zone);
        self.detach(guard, block);
        self.release(block);
    }

    /// Takes a pageblock that is in none of its places from a slot, as a walker. Its frames come to
    /// the level. The caller is in a section.
    pub(super) fn detach(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) {
        self.gather(guard, block);
        let free = self.blocks.count_free(block);
        guard.slot.note_drain(free);
        self.zone(guard.zone).add_free(free);
        self.blocks.update(block, |state| state.held_by(Holder::Walker).listed(false));
    }

    /// Makes a slot the holder of a pageblock that nobody holds; says whether that went well. Its
    /// frames leave the level.
    pub(super) fn adopt(&self, guard: &SlotGuard<'_, P>, block: BlockIndex) -> bool {
        let Ok(state) = self.blocks.try_hold(block, Holder::Cpu(guard.cpu)) else { return false };
        let (zone, bit) = (self.zone(guard.zone), self.bit(block));
        self.set_fixed_for(block, state.migratetype());
        // In this order: from when it is no longer in its tree, others find its frames by the note.
        zone.note_kept();
        self.forest.remove(zone.partial(state.migratetype()), bit);
        let free = self.blocks.count_free(block);
        guard.slot.note_refill(free);
        zone.sub_free(free);
        true
    }
}
