//! Checking the books: every list, every mark and every count, zone by zone, with all locks of the
//! zone held.

use super::ZoneLock;
use crate::designs::Context;
use crate::designs::pcp::{LISTS, PerCpuPages, list_order};
use crate::memmap::block::ZoneIndex;
use crate::memmap::frame::{FrameIndex, FrameState, Tag};
use crate::memmap::list::ListHead;
use crate::platform::{Platform, SharedCell};
use crate::stat::{Census, Rule, Violation};
use crate::units::{FrameCount, MigrateType, Order};
use crate::zone::ZoneGuard;

/// The pages of all CPUs from one zone, locked together. Unlocks when dropped.
struct AllPages<'a, P: Platform> {
    design: &'a ZoneLock<P>,
    platform: &'a P,
    cpus: usize,
    zone: ZoneIndex,
}

impl<'a, P: Platform> AllPages<'a, P> {
    fn lock(design: &'a ZoneLock<P>, context: Context<'a, P>, zone: ZoneIndex) -> Self {
        let all =
            AllPages { design, platform: context.platform, cpus: context.topology.cpus(), zone };
        // Always from CPU 0 upwards, so two checks cannot wait for each other.
        for pages in all.iter() {
            core::mem::forget(pages.lock(context.platform));
        }
        all
    }

    fn iter(&self) -> impl Iterator<Item = &'a PerCpuPages<P>> + use<'a, P> {
        let (design, zone) = (self.design, self.zone);
        (0..self.cpus).map(move |cpu| &design.per_cpu(cpu, zone).pages)
    }
}

impl<P: Platform> Drop for AllPages<'_, P> {
    fn drop(&mut self) {
        for pages in self.iter() {
            drop(pages.adopt(self.platform));
        }
    }
}

impl<P: Platform> ZoneLock<P> {
    /// Checks all zones, one after the other, and adds up where the frames are.
    pub(super) fn check_books(&self, context: Context<'_, P>) -> Result<Census, Violation> {
        let mut total = Census::default();
        for zone in self.zone_indexes() {
            let pages = AllPages::lock(self, context, zone);
            let guard = self.lock_zone(context.platform, zone);
            let census = self.check_zone(&guard, &pages, zone)?;
            total.managed += census.managed;
            total.free += census.free;
            total.per_cpu += census.per_cpu;
            total.allocated += census.allocated;
        }
        Ok(total)
    }

    fn check_zone(
        &self,
        guard: &ZoneGuard<'_, P>,
        pages: &AllPages<'_, P>,
        zone: ZoneIndex,
    ) -> Result<Census, Violation> {
        let free = self.check_free_lists(guard, zone)?;
        let per_cpu = self.check_cpu_lists(pages, zone)?;
        let found = self.check_frames(zone)?;
        self.ensure(self.zone(zone).free() == free, Rule::FreeCounted, FrameIndex(0))?;
        // Each list's blocks carry its mark and no block is on two lists, so equal sums mean that
        // every marked block is on a list.
        self.ensure(found.free == free, Rule::FreeCounted, FrameIndex(0))?;
        self.ensure(found.per_cpu == per_cpu, Rule::PerCpuCounted, FrameIndex(0))?;
        let managed = self.zone(zone).managed();
        self.ensure(found.managed == managed, Rule::ManagedCounted, FrameIndex(0))?;
        Ok(found)
    }

    fn check_free_lists(
        &self,
        guard: &ZoneGuard<'_, P>,
        zone: ZoneIndex,
    ) -> Result<FrameCount, Violation> {
        let mut free = FrameCount::ZERO;
        for order in Order::ZERO.to(Order::BUDDY_MAX) {
            let mut blocks = 0;
            for migratetype in MigrateType::ALL {
                let list = guard.buddy.lists.list(order, migratetype);
                blocks += self.check_list(list, |block| {
                    let mark = FrameState::head(Tag::Buddy, order, migratetype);
                    self.ensure(self.frames.state(block) == mark, Rule::ListMatchesMark, block)?;
                    self.check_pageblocks(block, order, migratetype, zone)?;
                    let merged = !self.has_free_buddy(block, order);
                    self.ensure(merged, Rule::BuddiesMerged, block)?;
                    Ok(order.frames())
                })?;
            }
            let counted = guard.buddy.lists.blocks(order) << order.get();
            self.ensure(blocks == counted, Rule::BlocksCounted, FrameIndex(0))?;
            free += FrameCount::new(blocks);
        }
        Ok(free)
    }

    fn check_cpu_lists(
        &self,
        pages: &AllPages<'_, P>,
        zone: ZoneIndex,
    ) -> Result<FrameCount, Violation> {
        let mut total = 0;
        for pcp in pages.iter() {
            let mut frames = 0;
            for index in 0..LISTS {
                frames += self.check_list(&pcp.lists[index], |block| {
                    let state = self.frames.state(block);
                    let order = state.order().filter(|_| state.tag() == Tag::Pcp);
                    let listed = order.and_then(|order| self.mode.list(order, state.migratetype()));
                    self.ensure(listed == Some(index), Rule::ListMatchesMark, block)?;
                    let of = self.blocks.zone(block);
                    self.ensure(of == Some(zone), Rule::ZoneOfBlock, block)?;
                    Ok(list_order(index).frames())
                })?;
            }
            let counted = u64::from(pcp.count.get());
            self.ensure(frames == counted, Rule::PerCpuCounted, FrameIndex(0))?;
            total += frames;
        }
        Ok(FrameCount::new(total))
    }

    /// Walks a list, checks its links and its blocks, and adds up what `check` returns.
    fn check_list<C: SharedCell<u32>>(
        &self,
        list: &ListHead<C>,
        check: impl Fn(FrameIndex) -> Result<FrameCount, Violation>,
    ) -> Result<u64, Violation> {
        let (mut previous, mut frames) = (None, 0);
        for block in list.iter(&self.frames) {
            let before = ListHead::<C>::before(&self.frames, block);
            self.ensure(before == previous, Rule::LinksAgree, block)?;
            frames += check(block)?.get();
            // A list that runs in a circle would never end.
            self.ensure(frames <= self.frames.len().get(), Rule::LinksAgree, block)?;
            previous = Some(block);
        }
        let at = previous.unwrap_or(FrameIndex(0));
        self.ensure(list.last() == previous, Rule::LinksAgree, at)?;
        Ok(frames)
    }

    fn check_pageblocks(
        &self,
        block: FrameIndex,
        order: Order,
        migratetype: MigrateType,
        zone: ZoneIndex,
    ) -> Result<(), Violation> {
        self.ensure(block == block.head(order), Rule::BlockAligned, block)?;
        for at in (0..order.frames().get() as u32).step_by(1 << Order::PAGEBLOCK.get()) {
            let frame = FrameIndex(block.0 + at);
            self.ensure(self.blocks.zone(frame) == Some(zone), Rule::ZoneOfBlock, frame)?;
            let listed = self.blocks.migratetype(frame) == migratetype;
            self.ensure(listed, Rule::ListMatchesMark, frame)?;
        }
        Ok(())
    }

    fn has_free_buddy(&self, block: FrameIndex, order: Order) -> bool {
        let buddy = block.buddy(order);
        order < Order::BUDDY_MAX
            && self.frames.state(buddy).is(Tag::Buddy, order)
            && self.blocks.zone(buddy) == self.blocks.zone(block)
    }

    /// Walks the frames of a zone: every frame is a head, or a tail behind one.
    fn check_frames(&self, zone: ZoneIndex) -> Result<Census, Violation> {
        let mut census = Census::default();
        let len = self.frames.len().get() as u32;
        let mut at = FrameIndex(0);
        while at.0 < len {
            if self.blocks.zone(at) != Some(zone) {
                at = at.head(Order::PAGEBLOCK).after(Order::PAGEBLOCK);
                continue;
            }
            let state = self.frames.state(at);
            let Some(order) = state.order() else {
                self.ensure(state == FrameState::HOLE, Rule::FrameInOneBlock, at)?;
                at = at.after(Order::ZERO);
                continue;
            };
            self.ensure(at == at.head(order), Rule::BlockAligned, at)?;
            let end = at.after(order);
            for tail in (at.0 + 1..end.0).map(FrameIndex) {
                let unmarked = self.frames.state(tail) == FrameState::TAIL;
                self.ensure(unmarked, Rule::TailsUnmarked, tail)?;
            }
            census.managed += order.frames();
            match state.tag() {
                Tag::Buddy => census.free += order.frames(),
                Tag::Pcp => census.per_cpu += order.frames(),
                _ => census.allocated += order.frames(),
            }
            at = end;
        }
        Ok(census)
    }

    fn ensure(&self, holds: bool, rule: Rule, at: FrameIndex) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(Violation { rule, at: self.frames.pfn_of(at) }) }
    }
}
