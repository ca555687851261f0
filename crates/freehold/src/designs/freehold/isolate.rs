//! Taking pageblocks out of circulation, whoever has them, and giving them back.
//!
//! | an isolated pageblock is | who may do what |
//! |---|---|
//! | in use frame by frame | held as by a walker: nobody allocates from it; frees are harvested |
//! | handed out whole | its user may free it; then it is as above, and all of it is free |
//!
//! Its free frames are not in the level of the zone, so that watermarks know nothing of them.

use super::Freehold;
use super::blocks::{BlockIndex, FRAMES};
use super::span::Span;
use super::state::{Holder, State, Use};
use crate::designs::Context;
use crate::platform::Platform;
use crate::units::{MigrateType, Order};

/// So often a pageblock that somebody holds for a moment is looked at again.
const LOOKS: usize = 64;

impl<P: Platform> Freehold<P> {
    /// Becomes the holder, as a walker, of a pageblock in use frame by frame, or of a whole one,
    /// which is then in use frame by frame; from whoever has it, unless that is for long. Says
    /// whether that went well. Its free frames are in the level then. The caller is in a section.
    pub(super) fn seize(&self, context: Context<'_, P>, block: BlockIndex) -> bool {
        for _ in 0..LOOKS {
            let state = self.blocks.state(block);
            if state.is_isolated() {
                return false;
            }
            let seized = match (state.used_for(), state.holder()) {
                (Use::Absent | Use::Huge | Use::HugeTail, _) => return false,
                (Use::Split, Holder::Nobody) => self.hold(block),
                (Use::Whole, Holder::Nobody) => {
                    let pool = self.zone(self.blocks.zone(block)).pool();
                    let taken = self.forest.remove(pool, self.bit(block));
                    if taken {
                        self.begin_use(block);
                    }
                    taken
                }
                (_, Holder::Cpu(cpu)) => self.seize_from(context, cpu, block),
                (_, Holder::Walker) => false,
            };
            if seized {
                self.blocks.review_fixed(block);
                return true;
            }
            context.platform.relax();
        }
        false
    }

    /// Seizes a pageblock that a slot holds; says whether it still did.
    fn seize_from(&self, context: Context<'_, P>, cpu: usize, block: BlockIndex) -> bool {
        let zone = self.blocks.zone(block);
        let Some(guard) = self.lock(context, cpu, zone) else { return false };
        if guard.slot.spares().any(|spare| spare == block) {
            guard.slot.remove_spares(|_, spare| spare == block);
            guard.slot.note_drain(FRAMES);
            self.zone(zone).add_free(FRAMES);
            self.begin_use(block);
            return true;
        }
        let state = self.blocks.state(block);
        if !state.is_split_of(cpu) {
            return false;
        }
        if state.is_listed() {
            guard.slot.unlist(&self.blocks, block);
        }
        self.detach(&guard, block);
        true
    }

    /// Begins to use a whole pageblock that the caller took frame by frame, as a walker. Whoever
    /// uses it next decides for what.
    fn begin_use(&self, block: BlockIndex) {
        self.blocks.unfix_all(block);
        self.mark_split(block, Holder::Walker, MigrateType::Movable);
    }

    /// Takes a pageblock out of circulation; says whether that went well. If it was handed out
    /// whole, it is in use still.
    pub(super) fn isolate(&self, context: Context<'_, P>, block: BlockIndex) -> bool {
        let is_huge = |state: State| matches!(state.used_for(), Use::Huge | Use::HugeTail);
        let Some(zone) = self.blocks.zone_if_any(block) else { return false };
        for _ in 0..LOOKS {
            let mark = |state: State| {
                (is_huge(state) && !state.is_isolated()).then_some(state.isolated(true))
            };
            if self.blocks.try_update(block, mark).is_ok() {
                return true;
            }
            let section = self.section(self.cpu_here(context), zone);
            if self.seize(context, block) {
                let zone = self.zone(zone);
                let tree = zone.partial(self.blocks.state(block).migratetype());
                self.forest.remove(tree, self.bit(block));
                self.blocks.update(block, |state| state.isolated(true));
                zone.sub_free(self.blocks.count_free(block));
                self.collect(block);
                return true;
            }
            drop(section);
            let state = self.blocks.state(block);
            if state.is_isolated() || !is_huge(state) {
                return false;
            }
            // It was handed out meanwhile.
        }
        false
    }

    /// Harvests an isolated pageblock in use frame by frame.
    pub(super) fn collect(&self, block: BlockIndex) {
        let found = self.blocks.harvest(block);
        let zone = self.zone(self.blocks.zone(block));
        zone.note_direct_free(found.frames);
        zone.note_doubles(found.doubles);
    }

    /// Puts an isolated pageblock back into circulation. The call runs on a CPU.
    fn end_isolation(&self, cpu: usize, block: BlockIndex) {
        let unmark = |state: State| match state.used_for() {
            Use::Huge | Use::HugeTail => Some(state.isolated(false)),
            _ => None,
        };
        if self.blocks.try_update(block, unmark).is_ok() {
            return;
        }
        self.blocks.review_fixed(block);
        let zone = self.blocks.zone(block);
        let _section = self.section(cpu, zone);
        self.zone(zone).add_free(self.blocks.count_free(block));
        self.blocks.update(block, |state| state.isolated(false));
        self.release(block);
    }
}

/// Adjacent pageblocks that are out of circulation until this is dropped.
pub(super) struct Isolation<'a, P: Platform> {
    pub(super) design: &'a Freehold<P>,
    /// The CPU that has isolated them.
    cpu: usize,
    first: BlockIndex,
    end: BlockIndex,
}

impl<'a, P: Platform> Isolation<'a, P> {
    /// Isolates all pageblocks that a span touches, or none.
    ///
    /// # Errors
    ///
    /// The first pageblock that could not be isolated.
    pub(super) fn new(
        design: &'a Freehold<P>,
        context: Context<'_, P>,
        span: Span,
    ) -> Result<Self, BlockIndex> {
        let first = BlockIndex::of_frame(span.first);
        let cpu = design.cpu_here(context);
        let mut isolation = Isolation { design, cpu, first, end: first };
        for (block, _) in span.blocks() {
            if !design.isolate(context, block) {
                return Err(block);
            }
            isolation.end = BlockIndex(block.0 + 1);
        }
        Ok(isolation)
    }

    /// Hands out pageblocks whose frames are all free as one block. What lies before them goes back
    /// into circulation.
    pub(super) fn hand_out(&mut self, block: BlockIndex, order: Order, migratetype: MigrateType) {
        self.end_before(block);
        for nth in 0..super::huge::blocks_in(order) {
            self.design.blocks.unfix_all(BlockIndex(block.0 + nth));
        }
        self.design.hand_out(block, order, migratetype);
        self.first = BlockIndex(block.0 + super::huge::blocks_in(order));
    }

    /// Puts the pageblocks before this one back into circulation.
    fn end_before(&mut self, block: BlockIndex) {
        while self.first < block {
            self.design.end_isolation(self.cpu, self.first);
            self.first = BlockIndex(self.first.0 + 1);
        }
    }
}

impl<P: Platform> Drop for Isolation<'_, P> {
    fn drop(&mut self) {
        self.end_before(self.end);
    }
}
