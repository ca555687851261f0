//! Compaction. For a request, a place for its block is emptied, the lowest that can be, as ranges
//! are. Of all memory: content moves from the lowest children up to free frames that are found from
//! the top down.
//!
//! When calls compact is as in Linux 6.12 `mm/compaction.c`. A child is isolated while it is
//! emptied, and what was made of it is taken for the request before others can have it.

use core::iter::successors;

use crate::Llfree;
use crate::block::{Block, child_of, frames_in};
use crate::entry::{CHILD_FRAMES, Entry};
use crate::isolate::{Isolation, Met, Target};
use freehold::compact::state::{CompactionState, is_suitable};
use freehold::compact::{Compaction, Migrate, MigrateError};
use freehold::designs::Context;
use freehold::designs::places::{Place, Places, Site, first_place};
use freehold::designs::traits::{Alloc, Compact};
use freehold::memmap::bits::Span;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::platform::Platform;
use freehold::{Error, Order, Pfn, RangeRequest, Request};

/// Sizes of blocks that move.
const SIZES: usize = Order::PAGEBLOCK.index();

impl<P: Platform> Compact<P> for Llfree<P> {
    fn alloc_compacting(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        owner: &dyn Migrate,
        defers: bool,
    ) -> Result<Pfn, Error> {
        let (found, order) = (self.alloc(context, zones, request), request.order());
        if found.is_ok() || order == Order::ZERO {
            return found;
        }
        for zone in self.usable(zones, &request) {
            let of = self.zone(zone);
            let free_blocks = || self.free_blocks(zone);
            let is_deferred = |state: &CompactionState<P>| defers && state.is_deferred(order);
            if of.with_compaction(context.platform, is_deferred)
                || !is_suitable(
                    &request,
                    &of.watermarks,
                    self.level_up_to(zone, u64::MAX),
                    free_blocks,
                )
            {
                continue;
            }
            of.with_compaction(context.platform, CompactionState::note_compaction);
            let made = self.make_block(context, zone, &request, owner);
            of.with_compaction(context.platform, |state| match made {
                Some(_) => state.note_allocation(order),
                None => state.note_failure(order),
            });
            if let Some(first) = made {
                self.note_numa(context, zones, &request, zone, order.frames());
                return Ok(self.lower.pfn_of(first));
            }
        }
        self.alloc(context, zones, request)
    }

    fn compact_zone(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        owner: &dyn Migrate,
        wanted: Option<u64>,
    ) -> Compaction {
        self.drain_zone(zone);
        self.zone(zone).with_compaction(context.platform, CompactionState::note_compaction);
        let (mut report, mut gained) = (Compaction::default(), 0);
        let mut free = [self.lower.children(); SIZES];
        for child in self.children_of(zone) {
            let entry = self.lower.entries.get(child);
            let span = Span { first: child * CHILD_FRAMES, end: (child + 1) * CHILD_FRAMES };
            if wanted == Some(gained) || free.iter().all(|&free| free <= child) {
                break;
            }
            if entry.is_huge() || entry == Entry::WHOLE {
                continue;
            }
            if let Ok(isolation) = Isolation::new(self, context, zone, span, owner) {
                report.pageblocks += 1;
                isolation.thin_out(span, &mut free, &mut report);
            }
            gained += u64::from(self.lower.entries.get(child) == Entry::WHOLE);
        }
        report
    }
}

impl<P: Platform> Llfree<P> {
    /// Makes a block for a request, of the lowest place for it of which smaller blocks can move
    /// away, and takes it.
    fn make_block(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        owner: &dyn Migrate,
    ) -> Option<u32> {
        let frames = request.order().frames();
        let places = RangeRequest::new(frames).align(frames);
        let first = first_place(self, &places, FrameIndex(0));
        let mut all = successors(first, |range| first_place(self, &places, range.end));
        all.find_map(|range| match self.look(range.first.0, range.end.0, owner) {
            Met::Used(of, _) if of.order >= request.order() => None,
            _ => {
                let site = Site { zone, range, owner };
                match self.survey(site, false) {
                    Place::Promising => self.emptied(context, site, false).ok()?.capture(request),
                    _ => None,
                }
            }
        })
    }

    /// Whether a zone has so many frames, once no CPU has reserved any if need be.
    pub(crate) fn has(&self, zone: ZoneIndex, enough: u64) -> bool {
        self.level_up_to(zone, enough) >= enough || {
            self.drain_zone(zone);
            self.level_up_to(zone, enough) >= enough
        }
    }
}

impl<P: Platform> Isolation<'_, P> {
    /// Has what can move of a child moved to free blocks further up. `free` are the lowest children
    /// that the search for these is done with, by order: frames that are too scattered for large
    /// blocks are left for small ones.
    fn thin_out(&self, span: Span, free: &mut [u32; SIZES], report: &mut Compaction) {
        let mut at = span.first;
        while at < span.end {
            at = match self.design.look(at, span.end, self.owner) {
                Met::Free(behind) => behind,
                Met::Hole(frame) => frame + 1,
                Met::Elsewhere => span.end,
                Met::Used(block, can_move) => {
                    // Larger blocks a call is just making frames of.
                    let free = free.get_mut(block.order.index()).filter(|_| can_move);
                    match free.map(|free| self.target(child_of(span.first), block.order, free)) {
                        None => {}
                        Some(None) => report.without_target += 1,
                        Some(Some(target)) => match target.fill(block) {
                            Ok(true) => report.migrated += block.order.frames(),
                            Ok(false) | Err(MigrateError::Failed) => report.failed += 1,
                            Err(MigrateError::Busy) => report.busy += 1,
                        },
                    }
                    block.end()
                }
            };
        }
    }

    /// A target above a child, from the top down, as long as the zone stays above its minimum
    /// watermark. As in Linux, with one block to spare.
    fn target(&self, source: u32, order: Order, free: &mut u32) -> Option<Target<'_, P>> {
        let Isolation { design, context, zone, .. } = *self;
        let (lower, frames) = (&design.lower, frames_in(order));
        let enough = design.zone(zone).watermarks.get().min.get() + u64::from(frames) + 1;
        while *free > source + 1 {
            if !design.has(zone, enough) {
                return None;
            }
            let child = *free - 1;
            let entry = lower.entries.get(child);
            let is_fit = entry != Entry::WHOLE && !entry.is_isolated() && entry.count() >= frames;
            if is_fit
                && lower.zone_of(child) == Some(zone)
                && design.take_count(zone, child, frames)
            {
                match lower.take_in_child(zone, child, child * CHILD_FRAMES, order, false) {
                    Ok(first) => {
                        design.local(context.cpu_here(), zone).note_direct_alloc(frames);
                        return Some(Target { isolation: self, to: Block { first, order } });
                    }
                    Err(left) => design.trees.give(design.trees.of(zone, child), left),
                }
            }
            *free = child;
        }
        None
    }
}
