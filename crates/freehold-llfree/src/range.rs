//! Ranges of any size: what [`Places`] asks of a place, and how a range is freed.

use crate::block::{Block, child_of, words_of};
use crate::entry::CHILD_FRAMES;
use crate::isolate::{Isolation, Met};
use crate::{Llfree, ORDER_MAX};
use freehold::compact::state::CompactionState;
use freehold::designs::Context;
use freehold::designs::places::{Obstacle, Place, Places, Site};
use freehold::designs::traits::Ranges;
use freehold::memmap::bits::Span;
use freehold::memmap::index::{FrameIndex, FrameRange, ZoneIndex};
use freehold::memmap::stretches::Stretches;
use freehold::platform::Platform;
use freehold::units::{FrameCount, NodeId};
use freehold::{Error, Immovable, Order, Pfn, RangeRequest, Request};

impl<P: Platform> Ranges<P> for Llfree<P> {
    /// Frees all frames of a range, after a look that none of them is free. If another call frees
    /// some of them at the same time, the call that comes second to a frame stops there.
    fn free_range(
        &self,
        context: Context<'_, P>,
        first: Pfn,
        frames: FrameCount,
    ) -> Result<(), Error> {
        let range = self.lower.stretches.locate(first, frames).ok_or(Error::ForeignFrame)?;
        let Span { first: mut at, end } = Span::of_range(range);
        self.check_used(Span { first: at, end })?;
        while at < end {
            let of = match self.look(at, at + 1, &Immovable) {
                Met::Elsewhere => {
                    context.platform.relax();
                    continue;
                }
                Met::Used(of, _) => of.order,
                // Another call has freed it.
                Met::Free(_) | Met::Hole(_) => Order::ZERO,
            };
            // The block, or the largest part of it that begins here.
            let order = FrameIndex(at).largest_before(range.end).min(of);
            let block = Block { first: at, order };
            self.free_at(context, block)?;
            at = block.end();
        }
        Ok(())
    }
}

impl<P: Platform> Llfree<P> {
    fn check_used(&self, span: Span) -> Result<(), Error> {
        let lower = &self.lower;
        let zone = lower.zone_of(child_of(span.first)).ok_or(Error::ForeignFrame)?;
        for (child, part) in span.by_pageblock() {
            if lower.zone_of(child).ok_or(Error::ForeignFrame)? != zone {
                return Err(Error::BadRange);
            }
            if !lower.entries.get(child).is_huge() {
                part.words().try_for_each(|(word, mask)| lower.check_used(word, mask))?;
            }
        }
        Ok(())
    }

    pub(crate) fn emptied<'a>(
        &'a self,
        context: Context<'a, P>,
        site: Site<'a>,
        evicts: bool,
    ) -> Result<Isolation<'a, P>, Obstacle> {
        let span = Span::of_range(site.range);
        let isolation = Isolation::new(self, context, site.zone, span, site.owner)?;
        isolation.empty(span, evicts)?;
        Ok(isolation)
    }
}

impl<P: Platform> Places<P> for Llfree<P> {
    fn stretches(&self) -> &Stretches<P> {
        &self.lower.stretches
    }

    fn has_hole(&self, range: FrameRange) -> bool {
        Span::of_range(range).by_pageblock().any(|(child, part)| {
            self.lower.zone_of(child).is_none()
                || part.words().any(|(word, mask)| self.lower.holes(word) & mask != 0)
        })
    }

    fn node(&self, zone: ZoneIndex) -> NodeId {
        self.zone(zone).node
    }

    fn level_and_floor(&self, zone: ZoneIndex, request: &Request) -> (u64, u64) {
        let floor = self.zone(zone).floor(request, request.depth());
        (self.level_up_to(zone, u64::MAX), floor)
    }

    fn drain_all(&self, _context: Context<'_, P>) {
        self.zone_indexes().for_each(|zone| _ = self.drain_zone(zone));
    }

    fn survey(&self, site: Site<'_>, _is_memory: bool) -> Place {
        let Site { zone, range, owner } = site;
        let (Span { first: mut at, end }, mut place) = (Span::of_range(range), Place::Promising);
        while at < end {
            let behind = (child_of(at) + 1) * CHILD_FRAMES;
            if self.lower.zone_of(child_of(at)) != Some(zone) {
                return Place::Interrupted(FrameIndex(behind));
            }
            let is_isolated = self.lower.entries.get(child_of(at)).is_isolated();
            let (next, is_fixed) = match self.look(at, end, owner) {
                Met::Hole(frame) => return Place::Interrupted(FrameIndex(frame + 1)),
                _ if is_isolated => (behind, true),
                Met::Used(block, can_move) => (block.end(), !can_move),
                Met::Free(_) | Met::Elsewhere => (behind, false),
            };
            at = next.max(at + 1);
            if is_fixed {
                place = Place::Immovable(FrameIndex(at));
            }
        }
        place
    }

    fn take(&self, context: Context<'_, P>, site: Site<'_>) -> Result<(), Obstacle> {
        let Site { zone, range, .. } = site;
        let isolation = self.emptied(context, site, true)?;
        isolation.take(Span::of_range(range), ORDER_MAX, true)?;
        self.local(context.cpu_here(), zone).note_direct_alloc(range.end.0 - range.first.0);
        Ok(())
    }

    fn retire(&self, context: Context<'_, P>, site: Site<'_>) -> Result<(), Obstacle> {
        let Site { zone, range, .. } = site;
        let isolation = self.emptied(context, site, true)?;
        // Only now: the owner of the content may add memory.
        let hotplug = self.hotplug.get(0).begin(context.platform);
        // As frames, which huge blocks are not.
        let below = Order::new(Order::PAGEBLOCK.get() - 1);
        isolation.take(Span::of_range(range), below, false)?;
        self.zone(zone).add_managed(-i64::from(range.end.0 - range.first.0));
        for (child, part) in Span::of_range(range).by_pageblock() {
            part.words().for_each(|(word, mask)| self.lower.make_holes(word, mask));
            if words_of(child).all(|word| self.lower.holes(word) == u64::MAX) {
                self.lower.set_zone(child, None);
            }
        }
        drop(isolation);
        self.resize(context, &hotplug);
        Ok(())
    }

    fn zone_at(&self, frame: FrameIndex) -> Option<ZoneIndex> {
        self.lower.zone_of(child_of(frame.0))
    }

    fn note_range(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &RangeRequest,
        zone: ZoneIndex,
    ) {
        self.zone(zone).with_compaction(context.platform, CompactionState::note_range);
        self.note_numa(context, zones, &request.near, zone, request.frames);
    }
}
