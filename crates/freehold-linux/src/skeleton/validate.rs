//! Consistency checks: every list, every mark and every count, zone by zone, with all locks of the
//! zone held.

use super::{Guard, Policy, Skeleton};
use crate::frame::{FrameState, Tag};
use crate::kind::Kind;
use crate::pageblock::BlockType;
use crate::pcp::{LISTS, PerCpuPages, list_order};
use freehold::designs::Context;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::list::ListHead;
use freehold::platform::{Pin, Platform, SharedCell};
use freehold::stat::{Census, Rule, Violation};
use freehold::units::{FrameCount, Order};

/// The pages of all CPUs from one zone, locked together. Unlocks when dropped.
struct AllPages<'a, P: Platform, Y: Policy<P>> {
    design: &'a Skeleton<P, Y>,
    cpus: usize,
    zone: ZoneIndex,
    _pin: Pin<'a, P>,
}

impl<'a, P: Platform, Y: Policy<P>> AllPages<'a, P, Y> {
    fn lock(design: &'a Skeleton<P, Y>, context: Context<'a, P>, zone: ZoneIndex) -> Self {
        let (_, pin) = context.pin();
        let all = AllPages { design, cpus: context.topology.cpus(), zone, _pin: pin };
        // Always from CPU 0 upwards, so two checks cannot wait for each other.
        all.iter().for_each(PerCpuPages::hold);
        all
    }

    fn iter(&self) -> impl Iterator<Item = &'a PerCpuPages<P>> + use<'a, P, Y> {
        let (design, zone) = (self.design, self.zone);
        (0..self.cpus).map(move |cpu| &design.per_cpu(cpu, zone).pages)
    }
}

impl<P: Platform, Y: Policy<P>> Drop for AllPages<'_, P, Y> {
    fn drop(&mut self) {
        self.iter().for_each(PerCpuPages::let_go);
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// Checks a zone with all its locks held, and counts its frames.
    pub(super) fn check_zone(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
    ) -> Result<Census, Violation> {
        let pages = AllPages::lock(self, context, zone);
        let guard = self.lock_zone(context.platform, zone);
        let (free, isolated) = self.check_free_lists(&guard, zone)?;
        let per_cpu = self.check_cpu_lists(&pages, zone)?;
        let own = Y::check(self, context.platform, guard.buddy.lists, pages.cpus, zone);
        own.map_err(|frame| Violation { rule: Rule::KeptBeside, at: self.frames.pfn_of(frame) })?;
        let unmerged = self.blocks.check_unmerged(zone);
        unmerged
            .map_err(|at| Violation { rule: Rule::BuddiesMerged, at: self.frames.pfn_of(at) })?;
        let found = self.check_frames(zone)?;
        self.ensure(self.zone(zone).free() == free, Rule::FreeCounted, FrameIndex(0))?;
        self.ensure(guard.isolated() == isolated, Rule::FreeCounted, FrameIndex(0))?;
        // Each list's blocks carry its mark and no block is on two lists, so equal sums mean that
        // every marked block is on a list.
        let listed = (found.free, found.isolated) == (free, isolated);
        self.ensure(listed, Rule::FreeCounted, FrameIndex(0))?;
        self.ensure(found.per_cpu == per_cpu, Rule::PerCpuCounted, FrameIndex(0))?;
        let managed = self.zone(zone).managed();
        self.ensure(found.managed == managed, Rule::ManagedCounted, FrameIndex(0))?;
        Ok(found)
    }

    /// Checks the free lists; returns how many frames are on them, and how many are isolated.
    fn check_free_lists(
        &self,
        guard: &Guard<'_, P, Y>,
        zone: ZoneIndex,
    ) -> Result<(FrameCount, FrameCount), Violation> {
        let (mut free, mut isolated) = (FrameCount::ZERO, FrameCount::ZERO);
        for order in Order::ZERO.to(Order::BUDDY_MAX) {
            let mut blocks = 0;
            for of in BlockType::ALL {
                let list = guard.buddy.lists.list(order, of);
                let frames = self.check_list(list, |block| {
                    let mark = FrameState::head(Tag::Buddy, order, of);
                    let state = self.frames.state(block);
                    let marked = state == mark || state == mark.unmerged();
                    self.ensure(marked, Rule::ListMatchesMark, block)?;
                    self.check_pageblocks(block, order, of, zone)?;
                    let merged = !self.has_free_buddy(block, order, of)
                        || self.is_left_unmerged(block, order);
                    self.ensure(merged, Rule::BuddiesMerged, block)?;
                    Ok(order.frames())
                })?;
                match of {
                    BlockType::Isolated => isolated += FrameCount::new(frames),
                    _ => blocks += frames,
                }
            }
            let counted = guard.buddy.lists.blocks(order) << order.get();
            self.ensure(blocks == counted, Rule::BlocksCounted, FrameIndex(0))?;
            free += FrameCount::new(blocks);
        }
        Ok((free, isolated))
    }

    fn check_cpu_lists(
        &self,
        pages: &AllPages<'_, P, Y>,
        zone: ZoneIndex,
    ) -> Result<FrameCount, Violation> {
        let mut total = 0;
        for pcp in pages.iter() {
            let mut frames = 0;
            for index in 0..LISTS {
                frames += self.check_list(&pcp.lists[index], |block| {
                    let state = self.frames.state(block);
                    let listed = self.list_of(state);
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

    /// The list of a CPU that a block in this state belongs on.
    fn list_of(&self, state: FrameState) -> Option<usize> {
        let kept = matches!(state.tag(), Tag::Pcp | Tag::PcpBuddy);
        let (order, migratetype) = (state.order()?, state.block_type().migratetype()?);
        if kept { Y::list(&self.mode, Kind { order, migratetype }) } else { None }
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
            // A circular list would never end.
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
        of: BlockType,
        zone: ZoneIndex,
    ) -> Result<(), Violation> {
        self.ensure(block == block.head(order), Rule::BlockAligned, block)?;
        for at in (0..order.frames().get() as u32).step_by(1 << Order::PAGEBLOCK.get()) {
            let frame = FrameIndex(block.0 + at);
            self.ensure(self.blocks.zone(frame) == Some(zone), Rule::ZoneOfBlock, frame)?;
            let listed = self.blocks.block_type(frame) == of;
            self.ensure(listed, Rule::ListMatchesMark, frame)?;
        }
        Ok(())
    }

    /// Whether a search for unmerged frames finds this block and its buddy.
    fn is_left_unmerged(&self, block: FrameIndex, order: Order) -> bool {
        let mut pair = [block, block.buddy(order)].into_iter();
        order == Order::ZERO
            && self.blocks.has_unmerged(block)
            && pair.any(|frame| self.frames.state(frame).is_unmerged())
    }

    fn has_free_buddy(&self, block: FrameIndex, order: Order, of: BlockType) -> bool {
        let buddy = block.buddy(order);
        if order >= Order::BUDDY_MAX || !self.frames.state(buddy).is(Tag::Buddy, order) {
            return false;
        }
        let state = self.frames.state(buddy);
        let isolated = |of| of == BlockType::Isolated;
        self.blocks.zone(buddy) == self.blocks.zone(block)
            && (order < Order::PAGEBLOCK || !isolated(state.block_type()) && !isolated(of))
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
            // A compaction splits the targets that it has claimed without the zone lock, and marks
            // their parts from above.
            let may_be_split = state.tag() == Tag::Claimed;
            for tail in (at.0 + 1..end.0).map(FrameIndex) {
                let of_tail = self.frames.state(tail);
                let is_part = may_be_split && of_tail.tag() == Tag::Claimed;
                self.ensure(of_tail == FrameState::TAIL || is_part, Rule::TailsUnmarked, tail)?;
            }
            census.managed += order.frames();
            let count = match (state.tag(), state.block_type()) {
                (Tag::Buddy, BlockType::Isolated) => &mut census.isolated,
                (Tag::Buddy, _) => &mut census.free,
                (Tag::Pcp | Tag::PcpBuddy, _) => &mut census.per_cpu,
                _ => &mut census.allocated,
            };
            *count += order.frames();
            at = end;
        }
        Ok(census)
    }

    fn ensure(&self, holds: bool, rule: Rule, at: FrameIndex) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(Violation { rule, at: self.frames.pfn_of(at) }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Workbench, fixed};
    use crate::zone_lock::Baseline;
    use freehold::designs::traits::Inspect;
    use freehold::memmap::list::{End, LinkTable};
    use freehold::units::MigrateType;

    type Bench = Workbench<Baseline>;

    /// What a check says once this has been broken: frames 0 and 1 are in use, CPU 0 has 2 and 3 on
    /// its lists, and the zone has all others.
    fn broken(how: impl FnOnce(&Bench)) -> Option<Rule> {
        let bench = Bench::new(2048, &fixed(Default::default(), 4, 64));
        assert_eq!((bench.alloc_frames(2).len(), bench.listed(0, 0).len()), (2, 2));
        bench.check();
        how(&bench);
        bench.design.validate(bench.context()).err().map(|violation| violation.rule)
    }

    #[test]
    fn a_check_finds_what_is_wrong() {
        const FOUR: Order = Order::new(2);
        let (of, one) = (BlockType::Movable, FrameCount::new(1));
        let set = |bench: &Bench, frame, state| {
            bench.design.frames.set_state(FrameIndex(frame), state);
        };
        assert_eq!(broken(|_| {}), None);
        let wrong = Some(Rule::FreeCounted);
        assert_eq!(broken(|bench| bench.lock().add_free(one)), wrong);
        assert_eq!(broken(|bench| bench.lock().add_isolated(1)), wrong);
        let free = FrameState::head(Tag::Buddy, Order::ZERO, of);
        assert_eq!(broken(|bench| set(bench, 0, free)), wrong);
        let memory = broken(|bench| bench.lock().add_memory(one, FrameCount::ZERO));
        assert_eq!(memory, Some(Rule::ManagedCounted));
        let hole = broken(|bench| set(bench, 0, FrameState::HOLE));
        assert_eq!(hole, Some(Rule::ManagedCounted));
        assert_eq!(broken(|bench| bench.pages(0).pcp.count.set(3)), Some(Rule::PerCpuCounted));
        let link = broken(|bench| bench.design.frames.links(FrameIndex(4)).prev.set(77));
        assert_eq!(link, Some(Rule::LinksAgree));
        let counted = broken(|bench| bench.lock().buddy.lists.note(FOUR, of, 1));
        assert_eq!(counted, Some(Rule::BlocksCounted));
        let used = FrameState::allocated(Kind::movable(FOUR));
        assert_eq!(broken(|bench| set(bench, 4, used)), Some(Rule::ListMatchesMark));
        assert_eq!(broken(|bench| set(bench, 5, FrameState::HOLE)), Some(Rule::TailsUnmarked));
        let blocks = |how: fn(&Bench, FrameIndex)| broken(|bench| how(bench, FrameIndex(512)));
        let retyped = blocks(|bench, pageblock| {
            let (order, of) = (Order::PAGEBLOCK, MigrateType::Unmovable);
            bench.design.blocks.set_migratetype(pageblock, order, of);
        });
        assert_eq!(retyped, Some(Rule::ListMatchesMark));
        let foreign = blocks(|bench, pageblock| bench.design.blocks.leave_zone(pageblock));
        assert_eq!(foreign, Some(Rule::ZoneOfBlock));
        // Of a few frames, and of two pageblocks.
        for (first, order) in [(4, FOUR), (1024, Order::BUDDY_MAX)] {
            let in_halves = broken(|bench| {
                let guard = bench.lock();
                let (lists, frames) = (guard.buddy.lists, &bench.design.frames);
                let half = Order::new(order.get() - 1);
                lists.list(order, of).remove(frames, FrameIndex(first));
                lists.note(order, of, -1);
                for at in [first, first + half.frames().get() as u32] {
                    set(bench, at, FrameState::head(Tag::Buddy, half, of));
                    lists.list(half, of).push(frames, FrameIndex(at), End::Front);
                }
                lists.note(half, of, 2);
            });
            assert_eq!(in_halves, Some(Rule::BuddiesMerged), "{order}");
        }
    }
}
