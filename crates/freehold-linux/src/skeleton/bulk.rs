//! Many blocks in one call: each lock is taken once for many.

use super::{LocalPages, Policy, Skeleton};
use crate::fallback::Step;
use crate::frame::FrameState;
use crate::kind::Kind;
use crate::pageblock::BlockType;
use freehold::designs::Context;
use freehold::designs::traits::Bulk;
use freehold::error::{BulkFreeError, Error};
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::platform::{Platform, SharedCell};
use freehold::request::Request;
use freehold::units::{FrameCount, Order, Pfn};
use freehold::zone::watermark::Watermark;

/// The locks are dropped after so many blocks, so that no CPU waits for a whole bulk.
const CHUNK_BLOCKS: usize = 64;

impl<P: Platform, Y: Policy<P>> Bulk<P> for Skeleton<P, Y> {
    /// Fills `out`: zone by zone, first down to the low watermark, then as deep as the request may
    /// dip, then after merging what was left unmerged, then after draining all CPUs. The last two
    /// are repeated until they yield nothing: a merge stops at one block, and the last refill of a
    /// round brings this CPU more than the level lets it allocate.
    fn alloc_bulk(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        out: &mut [Pfn],
    ) -> usize {
        let (mut count, mut round) = (0, 0_u32);
        let drains_from = if Self::may_merge_late(&request) { 3 } else { 2 };
        loop {
            let class = match round {
                0 => request.depth().at_first(),
                _ => request.depth(),
            };
            if round >= drains_from {
                if request.is_at_hand() {
                    return count;
                }
                self.drain_all_cpus_for(context, &request);
            }
            let before = count;
            if round >= 2
                && let Some(block) = self.alloc_merging(context, zones, &request)
            {
                out[count] = self.frames.pfn_of(block);
                count += 1;
            }
            if round >= 2 && count == out.len() {
                return count;
            }
            for zone in self.usable(zones, &request) {
                let filled = self.fill_from(context, zone, &request, class, &mut out[count..]);
                count += filled;
                if filled > 0 {
                    let frames = FrameCount::new((filled as u64) << request.order().get());
                    self.note_numa(context, zones, &request, zone, frames);
                }
                if count == out.len() {
                    return count;
                }
            }
            let has_more = round >= 2 && count > before;
            if round >= drains_from && !has_more {
                return count;
            }
            round += u32::from(!has_more);
        }
    }

    /// Fills `out` from this CPU's lists of the best zone of the preferred node that stays above
    /// its low watermark with `spare` blocks less, refilling them as needed. Stops if the lists are
    /// locked or the zone has no more.
    fn alloc_quickly(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        spare: usize,
        out: &mut [Pfn],
    ) -> usize {
        let request = &request;
        let (kind, order) = (Kind::of(request), request.order());
        let has_to_spare = |&zone: &ZoneIndex| {
            let marks = self.zone(zone).watermarks();
            let class = request.depth().at_first();
            let floor = marks.floor(class, request.effective_limit()).unwrap_or(0);
            let spare = (spare as u64).saturating_mul(order.frames().get());
            let enough = floor.saturating_add(spare);
            self.zone(zone).free().get() > enough
        };
        let near = zones.iter().map(|&zone| ZoneIndex(zone));
        let mut near =
            near.take_while(|&zone| Some(self.zone(zone).node()) == request.preferred_node());
        let Some(zone) = near.find(has_to_spare) else { return 0 };
        if Y::list(&self.mode, kind).is_none() {
            return 0;
        }
        let mut count = 0;
        while count < out.len() {
            let Some(pages) = self.try_lock_here(context, zone) else { break };
            let end = out.len().min(count + CHUNK_BLOCKS);
            // There is enough for all: that was checked once, above.
            let out = &mut out[count..end];
            let taken = self.take_many_or_refill(&pages, request, || true, out);
            if taken == 0 {
                break;
            }
            count += taken;
        }
        let frames = FrameCount::new((count as u64) << order.get());
        self.note_numa(context, zones, request, zone, frames);
        count
    }

    /// Frees blocks until one cannot be freed. Consecutive blocks that belong on one list share one
    /// hold of its lock.
    fn free_bulk(
        &self,
        context: Context<'_, P>,
        blocks: &[Pfn],
        order: Order,
    ) -> Result<(), BulkFreeError> {
        let mut freed = 0;
        while freed < blocks.len() {
            let end = blocks.len().min(freed + CHUNK_BLOCKS);
            let mut run = Run::new(self, context.platform, &blocks[freed..end], order);
            self.free_run(context, &mut run);
            freed += run.claimed;
            if let Some(error) = run.error {
                return Err(BulkFreeError { freed, error });
            }
        }
        Ok(())
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    fn fill_from(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        class: Watermark,
        out: &mut [Pfn],
    ) -> usize {
        let (mut count, may_take) = (0, || self.may_take(zone, request, class));
        while count < out.len() && may_take() {
            let end = out.len().min(count + CHUNK_BLOCKS);
            let filled = self.fill_chunk(context, zone, request, may_take, &mut out[count..end]);
            if filled == 0 {
                break;
            }
            count += filled;
        }
        count
    }

    /// Fills as much of a chunk as the CPU's list and one refill can supply; failing that, takes
    /// blocks from the zone. The level allows one block.
    fn fill_chunk(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        may_take: impl Fn() -> bool,
        out: &mut [Pfn],
    ) -> usize {
        if Y::list(&self.mode, Kind::of(request)).is_some()
            && let Some(pages) = self.try_lock_here(context, zone)
        {
            let count = self.take_many_or_refill(&pages, request, &may_take, out);
            if count > 0 {
                return count;
            }
        }
        self.alloc_many_directly(context, zone, request, may_take, out)
    }

    /// Takes blocks off a CPU's lists, refilling them first if they are empty. If the refill
    /// lowered the zone below what the request may dip to, takes one block, as a single allocation
    /// would.
    fn take_many_or_refill(
        &self,
        pages: &LocalPages<'_, P, Y>,
        request: &Request,
        may_take: impl Fn() -> bool,
        out: &mut [Pfn],
    ) -> usize {
        let kind = Kind::of(request);
        match self.take_many_listed(pages, kind, out) {
            0 => {
                pages.refill(kind);
                let blocks = if may_take() { out.len() } else { 1 };
                self.take_many_listed(pages, kind, &mut out[..blocks])
            }
            count => count,
        }
    }

    fn take_many_listed(&self, pages: &LocalPages<'_, P, Y>, kind: Kind, out: &mut [Pfn]) -> usize {
        let state = FrameState::allocated(kind);
        let (room, mut slots) = (out.len(), out.iter_mut());
        let count = Y::take_many(pages, kind, room, |block| {
            self.frames.set_state(block, state);
            if let Some(slot) = slots.next() {
                *slot = self.frames.pfn_of(block);
            }
        });
        let pcp = &pages.pcp;
        pcp.count.set(pcp.count.get() - ((count as u32) << kind.order.get()));
        self.mode.note_alloc(pcp, count);
        count
    }

    /// Takes blocks from the zone under one hold of the lock, each as a separate request would.
    fn alloc_many_directly(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        may_take: impl Fn() -> bool,
        out: &mut [Pfn],
    ) -> usize {
        let kind = Kind::of(request);
        let guard = self.lock_zone(context.platform, zone);
        let (mut step, mut count) = (Step::default(), 0);
        for slot in out {
            if !may_take() {
                break;
            }
            let Some(block) = self.take_for_user(&guard, kind, &mut step) else { break };
            *slot = self.frames.pfn_of(block);
            count += 1;
        }
        let frames = FrameCount::new((count as u64) << kind.order.get());
        self.unlock_and_note(context, zone, guard, |events| events.note_direct_alloc(frames));
        count
    }

    fn free_run(&self, context: Context<'_, P>, run: &mut Run<'_, P, Y>) {
        let order = run.order;
        let Some(first) = run.next() else { return };
        let (zone, of) = self.blocks.of_used(first);
        if let Some(migratetype) = of.migratetype()
            && let Some(list) = Y::list(&self.mode, Kind { order, migratetype })
        {
            let (here, pin) = context.pin();
            let home = Y::home(self, here, first);
            if let Some(mut pages) = self.try_lock_pinned(pin, home, zone) {
                let blocks = core::iter::once(first).chain(run).inspect(|&block| {
                    let mark = Y::mark(&pages, block, order, of);
                    self.frames.set_state(block, mark);
                });
                let list_of = &pages.pcp.lists[list];
                let freed = list_of.push_front_many(&self.frames, blocks);
                let excess = pages.note_pushed(order, freed);
                if let Some(excess) = excess {
                    pages.drain(excess, list);
                }
                return;
            }
        }
        // Claimed before the zone lock is taken, since a claim may need that lock itself.
        let mut claimed = [first; CHUNK_BLOCKS];
        let blocks = core::iter::once(first).chain(run);
        let count = claimed.iter_mut().zip(blocks).map(|(slot, block)| *slot = block).count();
        self.free_directly(context, zone, &claimed[..count], order);
    }
}

/// The blocks at the front of a bulk that belong on one list. Each is claimed when it is iterated
/// over.
struct Run<'a, P: Platform, Y: Policy<P>> {
    design: &'a Skeleton<P, Y>,
    platform: &'a P,
    blocks: &'a [Pfn],
    order: Order,
    /// Zone, type and owner of the first block's pageblock.
    home: Option<(ZoneIndex, BlockType, Option<usize>)>,
    claimed: usize,
    /// The error of the block after the claimed ones.
    error: Option<Error>,
}

impl<'a, P: Platform, Y: Policy<P>> Run<'a, P, Y> {
    fn new(design: &'a Skeleton<P, Y>, platform: &'a P, blocks: &'a [Pfn], order: Order) -> Self {
        Run { design, platform, blocks, order, home: None, claimed: 0, error: None }
    }
}

impl<P: Platform, Y: Policy<P>> Iterator for Run<'_, P, Y> {
    type Item = FrameIndex;

    #[inline]
    fn next(&mut self) -> Option<FrameIndex> {
        let Skeleton { frames, blocks, .. } = self.design;
        let pfn = *self.blocks.get(self.claimed)?;
        // Looked up before the claim: a block that belongs elsewhere is left for the next run.
        let frame = frames.index_of(pfn);
        let home = frame.map(|frame| {
            let (zone, of) = blocks.of_used(frame);
            (zone, of, Y::USES_OWNERS.then(|| blocks.owner(frame)).flatten())
        });
        if self.home.is_some() && home != self.home {
            return None;
        }
        let claim = |frame| self.design.claim_at(self.platform, frame, self.order);
        match frame.ok_or(Error::ForeignFrame).and_then(claim) {
            Ok(block) => {
                self.home = home;
                self.claimed += 1;
                Some(block)
            }
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }
}
