//! A check of the books.
//!
//! Nothing can stop all CPUs, so what does not agree at first may be under way, and is looked at
//! again: only what stays wrong is.

use super::Freehold;
use super::blocks::BlockIndex;
use super::slot::{Fill, For, shelf_of};
use super::state::{Holder, Use};
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::stat::{Census, Rule, Violation};
use crate::units::{FrameCount, MigrateType};

/// So often something that does not agree is looked at again: long enough for a thread that was
/// preempted in the middle of a step to run again.
const LOOKS: usize = 100_000;

impl<P: Platform> Freehold<P> {
    /// Checks every invariant of the books and says where the frames are.
    pub(super) fn check_books(&self, context: Context<'_, P>) -> Result<Census, Violation> {
        let mut census = Census::default();
        for zone in self.zone_indexes() {
            for cpu in 0..self.cpus() {
                self.check_slot(context, cpu, zone)?;
            }
            for block in self.blocks_of(zone) {
                self.persists(context, block, || self.check_block(zone, block))?;
            }
            let first = self.blocks_of(zone).next().unwrap_or(BlockIndex(0));
            self.persists(context, first, || self.check_level(zone))?;
            self.count(zone, &mut census);
        }
        Ok(census)
    }

    /// Makes a violation of what breaks a rule again and again.
    fn persists(
        &self,
        context: Context<'_, P>,
        at: BlockIndex,
        broken: impl Fn() -> Option<Rule>,
    ) -> Result<(), Violation> {
        let mut rule = None;
        for _ in 0..LOOKS {
            rule = broken();
            if rule.is_none() {
                return Ok(());
            }
            context.platform.relax();
        }
        rule.map_or(Ok(()), |rule| Err(Violation { rule, at: self.blocks.pfn_of(at.frame()) }))
    }

    /// Checks the places of a slot, which nobody changes meanwhile. A slot that somebody holds for
    /// long is passed over.
    fn check_slot(
        &self,
        context: Context<'_, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Result<(), Violation> {
        let Some(guard) = self.lock_if_vacant(context, cpu, zone) else { return Ok(()) };
        let broken = |rule, block: BlockIndex| {
            Err(Violation { rule, at: self.blocks.pfn_of(block.frame()) })
        };
        let is_ours = |block| {
            let state = self.blocks.state(block);
            state.is_split_of(cpu) && state.is_listed() && self.blocks.zone(block) == zone
        };
        for migratetype in MigrateType::ALL {
            for what in For::ALL {
                if let Some(block) = guard.slot.current_block(what, migratetype)
                    && !(is_ours(block)
                        && self.blocks.state(block).is_current()
                        && self.blocks.state(block).migratetype() == migratetype)
                {
                    return broken(Rule::ListMatchesMark, block);
                }
            }
            for fill in [Fill::Scarce, Fill::Plenty] {
                let mut before = None;
                let shelf = guard.slot.on_shelf(&self.blocks, migratetype, fill);
                for (nth, block) in shelf.enumerate() {
                    let (prev, _, index) = self.blocks.links(block);
                    let links = before.map_or(super::blocks::NIL, |before: BlockIndex| before.0);
                    if prev != links || nth > self.blocks.len() {
                        return broken(Rule::LinksAgree, block);
                    }
                    let state = self.blocks.state(block);
                    let of = state.migratetype();
                    let here = index == shelf_of(migratetype, fill) && of == migratetype;
                    if !here || !is_ours(block) || state.is_current() {
                        return broken(Rule::ListMatchesMark, block);
                    }
                    before = Some(block);
                }
            }
        }
        for block in guard.slot.spares() {
            let state = self.blocks.state(block);
            let is_spare = state.used_for() == Use::Whole && state.holder() == Holder::Cpu(cpu);
            if !is_spare || !self.blocks.is_whole(block) {
                return broken(Rule::ListMatchesMark, block);
            }
        }
        Ok(())
    }

    /// Checks that a pageblock is where its state says.
    fn check_block(&self, index: ZoneIndex, block: BlockIndex) -> Option<Rule> {
        let (zone, state) = (self.zone(index), self.blocks.state(block));
        let in_pool = self.forest.contains(zone.pool(), self.bit(block));
        let in_tree = |of| self.forest.contains(zone.partial(of), self.bit(block));
        let in_trees = MigrateType::ALL.into_iter().filter(|&of| in_tree(of)).count();
        let tails_unmarked = || {
            block.words().all(|word| {
                let free = self.blocks.free_or_remote(word) & !self.blocks.holes(word);
                free & self.blocks.tails(word) == 0 && self.blocks.ends_or_fills(word)
            })
        };
        match (state.used_for(), state.holder()) {
            (Use::Absent, _) => Some(Rule::ZoneOfBlock),
            _ if !self.blocks.uses_agree(block) => Some(Rule::KeptBeside),
            (Use::Whole, Holder::Nobody) if !in_pool => Some(Rule::KeptBeside),
            (Use::Whole, _) if !self.blocks.is_whole(block) => Some(Rule::BlocksCounted),
            (Use::Split, _) if !tails_unmarked() => Some(Rule::TailsUnmarked),
            (Use::Split, Holder::Nobody) => {
                let free = self.blocks.count_free(block);
                if self.blocks.is_whole(block) {
                    return Some(Rule::BuddiesMerged);
                }
                let expected = usize::from(free > 0);
                let right =
                    in_trees == expected && in_tree(state.migratetype()) == (free > 0) && !in_pool;
                (!right).then_some(Rule::KeptBeside)
            }
            (Use::Split | Use::Huge | Use::HugeTail, Holder::Cpu(_)) if in_pool || in_trees > 0 => {
                Some(Rule::KeptBeside)
            }
            (Use::Huge, Holder::Nobody) if in_pool => Some(Rule::KeptBeside),
            (Use::HugeTail, _) if self.head_of(block).is_none() => Some(Rule::FrameInOneBlock),
            _ => None,
        }
    }

    /// Checks that the level of a zone is what its pageblocks say, if it is steady enough to tell.
    fn check_level(&self, index: ZoneIndex) -> Option<Rule> {
        let zone = self.zone(index);
        let (before, managed) = (zone.level(), zone.managed());
        let mut census = Census::default();
        self.count(index, &mut census);
        let steady = zone.level() == before;
        if census.managed.get() != managed {
            return Some(Rule::ManagedCounted);
        }
        (steady && census.free.get() != before).then_some(Rule::FreeCounted)
    }

    /// Counts the frames of a zone by where they are.
    pub(super) fn count(&self, zone: ZoneIndex, census: &mut Census) {
        for block in self.blocks_of(zone) {
            let (state, present) = (self.blocks.state(block), self.blocks.count_present(block));
            let free = self.blocks.count_free(block).min(present);
            let with_remote = (free + self.blocks.count_remote(block)).min(present);
            let frames = |count: u32| FrameCount::new(u64::from(count));
            census.managed += frames(present);
            match (state.used_for(), state.holder()) {
                (Use::Huge | Use::HugeTail, _) | (Use::Absent, _) => {
                    census.allocated += frames(present);
                }
                (_, Holder::Cpu(_)) => {
                    census.per_cpu += frames(with_remote);
                    census.allocated += frames(present - with_remote);
                }
                _ if state.is_isolated() => {
                    census.isolated += frames(with_remote);
                    census.allocated += frames(present - with_remote);
                }
                // Frames that others have freed, and that a slot will find on its stack.
                _ if state.is_pending() => {
                    census.free += frames(free);
                    census.per_cpu += frames(with_remote - free);
                    census.allocated += frames(present - with_remote);
                }
                _ => {
                    census.free += frames(free);
                    census.allocated += frames(present - free);
                }
            }
        }
    }
}
