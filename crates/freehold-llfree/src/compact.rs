//! Compaction: the migrate scanner goes up through a zone's children and has what can move moved to
//! free frames that the free scanners find from the top down, until they meet.
//!
//! When calls compact is as in Linux 6.12 `mm/compaction.c`. A child is isolated while it is
//! emptied, and what was made of it is taken for the request before others can have it.

use core::iter::successors;

use crate::Llfree;
use crate::block::{Block, child_of, frames_in};
use crate::entry::{CHILD_FRAMES, Entry};
use crate::isolate::{Isolation, Met};
use freehold::compact::state::{CompactionState, Scanners};
use freehold::compact::{COSTLY_ORDER, Compaction, Migrate, MigrateError};
use freehold::designs::Context;
use freehold::designs::places::{Place, Places, evict, first_place};
use freehold::designs::traits::Compact;
use freehold::fragmentation::is_to_blame;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::platform::Platform;
use freehold::zone::watermark::Watermark;
use freehold::{Error, MigrateType, Order, Pfn, RangeRequest, Request};

/// Sizes of blocks that move.
const SIZES: usize = Order::PAGEBLOCK.index();

/// A block to move content to. Freed when dropped, unless content has been moved there.
struct Target<'a, P: Platform> {
    design: &'a Llfree<P>,
    context: Context<'a, P>,
    first: u32,
    order: Order,
    is_filled: bool,
}

impl<P: Platform> Target<'_, P> {
    /// Has the owner move the content of a block here, and frees that, unless the owner does.
    /// Returns whether the block was still allocated, as it must be.
    fn fill(&mut self, owner: &dyn Migrate, from: u32) -> Result<bool, MigrateError> {
        let Target { design, context, first, order, .. } = *self;
        // Read now: once the content has left, the child may be removed.
        let zone = design.lower.zone_of(child_of(from));
        owner.migrate(design.lower.pfn_of(from), design.lower.pfn_of(first), order)?;
        self.is_filled = true;
        let had_it = owner.frees_source() || design.put_back(context, from, order).is_ok();
        if let Some(zone) = zone.filter(|_| had_it) {
            design
                .zone(zone)
                .with_compaction(context.platform, |state| state.note_migrated(order.frames()));
        }
        Ok(had_it)
    }
}

impl<P: Platform> Drop for Target<'_, P> {
    fn drop(&mut self) {
        if !self.is_filled {
            // An error means that the owner has freed what it was not given.
            let _ = self.design.put_back(self.context, self.first, self.order);
        }
    }
}

impl<P: Platform> Llfree<P> {
    /// Has the content of a block of an isolated child moved elsewhere, or evicted.
    pub(crate) fn move_away(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        from: u32,
        order: Order,
        owner: &dyn Migrate,
    ) -> Result<Result<(), MigrateError>, Error> {
        let of = self.zone(zone);
        // In no zone that the content might not have been allowed to use.
        let request = Request::new(order).node(of.node()).zone_limit(of.kind());
        let zones = context.topology.zonelist(of.node(), of.kind())?;
        let pfn = self.lower.pfn_of(from);
        let first = match self.alloc_any(context, zones, &request) {
            Ok(first) => first,
            Err(error) => return evict(owner, pfn, order, error),
        };
        let mut target = Target { design: self, context, first, order, is_filled: false };
        match target.fill(owner, from) {
            Ok(true) => Ok(Ok(())),
            // The owner says that it has moved the content, but the block was free.
            Ok(false) | Err(MigrateError::Busy) => Ok(Err(MigrateError::Busy)),
            Err(MigrateError::Failed) => {
                drop(target);
                evict(owner, pfn, order, Error::RangeBusy)
            }
        }
    }

    /// Compacts a zone for a request. `Ok`: the block that was made, and taken for it. `Err`:
    /// whether it was tried.
    fn compact_for(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        owner: &dyn Migrate,
    ) -> Result<u32, bool> {
        if !self.is_suitable(zone, request) {
            return Err(false);
        }
        let of = self.zone(zone);
        of.with_compaction(context.platform, CompactionState::note_compaction);
        if request.order() > Order::PAGEBLOCK {
            return self.make_pair(context, zone, request, owner).ok_or(true);
        }
        let mut compactor = Compactor::new(self, context, zone, owner, Some(request));
        while compactor.captured.is_none() {
            if !compactor.empty_next() && !compactor.begin_again() {
                break;
            }
        }
        let at = compactor.captured.map_or(Scanners::APART, |_| compactor.scanners());
        of.with_compaction(context.platform, |state| state.set_scanners(at));
        compactor.captured.ok_or(true)
    }

    /// Whether compaction can help: there is memory to work with, and fragmentation is to blame.
    fn is_suitable(&self, zone: ZoneIndex, request: &Request) -> bool {
        let order = request.order();
        let is_costly = order > COSTLY_ORDER;
        let class = if is_costly { Watermark::Low } else { Watermark::Min };
        let enough = self.zone(zone).floor(request, class) + 2 * order.frames().get();
        self.level_up_to(zone, enough + 1) > enough
            && (!is_costly || is_to_blame(&self.free_blocks(zone), order))
    }

    /// Makes a block of two children, as ranges are made.
    fn make_pair(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        owner: &dyn Migrate,
    ) -> Option<u32> {
        let frames = request.order().frames();
        let is_fixed = request.content() != MigrateType::Movable;
        let places = RangeRequest::new(frames).align(frames);
        let first = first_place(self, &places, FrameIndex(0));
        let mut all = successors(first, |range| first_place(self, &places, range.end));
        all.find_map(|range| {
            if !matches!(self.survey(zone, range, owner, false), Place::Promising) {
                return None;
            }
            let isolation = self.emptied(context, zone, range, owner).ok()?;
            // Its own frames are not in the level.
            let enough = self.zone(zone).floor(request, request.depth());
            if !self.has(zone, enough) {
                return None;
            }
            isolation.take(context, range, request.order(), is_fixed).ok()?;
            self.local(context.cpu_here(), zone).note_direct_alloc(frames.get() as u32);
            Some(range.first.0)
        })
    }

    /// Whether a zone has so many frames, once no CPU has reserved any if need be.
    fn has(&self, zone: ZoneIndex, enough: u64) -> bool {
        self.level_up_to(zone, enough) >= enough || {
            self.drain_zone(zone);
            self.level_up_to(zone, enough) >= enough
        }
    }
}

impl<P: Platform> Compact<P> for Llfree<P> {
    fn alloc_compacting(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        owner: &dyn Migrate,
        defers: bool,
    ) -> Result<Pfn, Error> {
        let error = match self.alloc_any(context, zones, &request) {
            Ok(first) => return Ok(self.lower.pfn_of(first)),
            Err(error) => error,
        };
        let order = request.order();
        if order == Order::ZERO {
            return Err(error);
        }
        for zone in self.usable(zones, &request) {
            let of = self.zone(zone);
            if defers && of.with_compaction(context.platform, |state| state.is_deferred(order)) {
                continue;
            }
            let made = self.compact_for(context, zone, &request, owner);
            of.with_compaction(context.platform, |state| match made {
                Ok(_) => state.note_allocation(order),
                Err(true) => state.note_failure(order),
                Err(false) => {}
            });
            if let Ok(first) = made {
                self.note_numa(context, zones, &request, zone, order.frames());
                return Ok(self.lower.pfn_of(first));
            }
        }
        self.alloc_any(context, zones, &request).map(|first| self.lower.pfn_of(first))
    }

    fn compact(&self, context: Context<'_, P>, owner: &dyn Migrate) -> Compaction {
        self.drain_all(context);
        let mut total = Compaction::default();
        for zone in self.zone_indexes() {
            let of = self.zone(zone);
            of.with_compaction(context.platform, CompactionState::note_compaction);
            let mut compactor = Compactor::new(self, context, zone, owner, None);
            while compactor.empty_next() {}
            total.add(&compactor.report);
            of.with_compaction(context.platform, |state| state.set_scanners(Scanners::APART));
        }
        total
    }
}

/// A compaction of one zone under way.
struct Compactor<'a, P: Platform> {
    design: &'a Llfree<P>,
    context: Context<'a, P>,
    zone: ZoneIndex,
    owner: &'a dyn Migrate,
    /// The order of the block to be made: only smaller blocks move.
    order: Order,
    request: Option<&'a Request>,
    /// The block that was made for the request and taken.
    captured: Option<u32>,
    /// The child that the migrate scanner looks at next.
    next: u32,
    /// The lowest children that the free scanners are done with, by order: frames that are too
    /// scattered for large blocks are left for small ones.
    free: [u32; SIZES],
    /// Whether the scanners began at the ends of memory.
    is_all: bool,
    report: Compaction,
}

impl<'a, P: Platform> Compactor<'a, P> {
    fn new(
        design: &'a Llfree<P>,
        context: Context<'a, P>,
        zone: ZoneIndex,
        owner: &'a dyn Migrate,
        request: Option<&'a Request>,
    ) -> Self {
        let at = request.map_or(Scanners::APART, |_| {
            design.zone(zone).with_compaction(context.platform, |state| state.scanners())
        });
        let mut compactor = Compactor {
            design,
            context,
            zone,
            owner,
            order: request.map_or(Order::PAGEBLOCK, |request| request.order()),
            request,
            captured: None,
            next: 0,
            free: [0; SIZES],
            is_all: false,
            report: Compaction::default(),
        };
        compactor.begin_at(at);
        compactor
    }

    fn begin_at(&mut self, at: Scanners) {
        self.is_all = at == Scanners::APART;
        self.next = child_of(at.migrate.0);
        self.free = [child_of(at.free.0).min(self.design.lower.children()); SIZES];
    }

    /// Puts the scanners at the ends of memory, if they had begun elsewhere; returns whether they
    /// had.
    fn begin_again(&mut self) -> bool {
        let again = !self.is_all;
        if again {
            self.begin_at(Scanners::APART);
        }
        again
    }

    /// Where the scanners are; of the free scanners, the one that came least far.
    fn scanners(&self) -> Scanners {
        let free = self.free.into_iter().max().unwrap_or(self.next);
        let frame = |child| FrameIndex(child * CHILD_FRAMES);
        Scanners { migrate: frame(self.next), free: frame(free) }
    }

    /// Moves what can move out of the next child; returns whether there was one below the free
    /// scanners.
    fn empty_next(&mut self) -> bool {
        let Some(child) = self.next_source() else { return false };
        self.report.pageblocks += 1;
        let (first, end) = (child * CHILD_FRAMES, (child + 1) * CHILD_FRAMES);
        let Ok(isolation) = Isolation::new(self.design, self.zone, first, end) else {
            return true;
        };
        let mut at = first;
        while at < end && !self.capture(child) {
            at = match self.design.look(at, end, self.owner) {
                Met::Free(behind) => behind,
                Met::Used(first, order, can_move) => {
                    let is_moved = can_move && order < self.order && self.migrate(first, order);
                    if !is_moved && self.request.is_some() && self.order == Order::PAGEBLOCK {
                        // What stays spoils it.
                        return true;
                    }
                    first + frames_in(order)
                }
                Met::Hole(frame) => frame + 1,
                Met::Elsewhere => end,
            };
        }
        self.capture(child);
        drop(isolation);
        true
    }

    /// The next child below the free scanners with something to move.
    fn next_source(&mut self) -> Option<u32> {
        while self.free.iter().any(|&free| self.next < free) {
            let child = self.next;
            self.next += 1;
            let entry = self.design.lower.entries.get(child);
            let is_fit = !entry.is_huge() && !entry.is_isolated() && entry != Entry::WHOLE;
            if is_fit && self.design.lower.zone_of(child) == Some(self.zone) {
                return Some(child);
            }
        }
        None
    }

    /// Takes a block for the request out of the isolated child, if it has one; returns whether it
    /// has.
    fn capture(&mut self, child: u32) -> bool {
        let Some(request) = self.request else { return false };
        if self.captured.is_some() {
            return true;
        }
        let Compactor { design, zone, order, .. } = *self;
        let is_fixed = request.content() != MigrateType::Movable;
        // Frames of the child are not in the level.
        let enough = design.zone(zone).floor(request, request.depth());
        if !design.has(zone, enough) {
            return false;
        }
        let starts = (0..CHILD_FRAMES).step_by(frames_in(order) as usize);
        let mut blocks = starts.map(|at| Block { first: child * CHILD_FRAMES + at, order });
        let taken = |block: &Block| design.lower.take_isolated(*block, is_fixed);
        self.captured = blocks.find(taken).map(|block| block.first);
        if self.captured.is_some() {
            let local = design.local(self.context.cpu_here(), zone);
            local.note_direct_alloc(frames_in(order));
        }
        self.captured.is_some()
    }

    /// Has the content of a block moved to a free one further up; returns whether it was.
    fn migrate(&mut self, from: u32, order: Order) -> bool {
        let Some(mut target) = self.target(child_of(from), order) else {
            self.report.without_target += 1;
            return false;
        };
        match target.fill(self.owner, from) {
            Ok(true) => {
                self.report.migrated += order.frames();
                return true;
            }
            Ok(false) | Err(MigrateError::Failed) => self.report.failed += 1,
            Err(MigrateError::Busy) => self.report.busy += 1,
        }
        false
    }

    /// A target outside a child, from the top down, as long as the zone stays above its minimum
    /// watermark. As in Linux, with one block to spare.
    fn target(&mut self, source: u32, order: Order) -> Option<Target<'a, P>> {
        let Compactor { design, context, zone, .. } = *self;
        let enough = design.zone(zone).watermarks().get().min.get() + order.frames().get();
        // For a request, any other child will do in the end.
        let behind = if self.request.is_some() { 0 } else { source + 1 };
        while self.free[order.index()] > behind {
            if !design.has(zone, enough + 1) {
                return None;
            }
            let child = self.free[order.index()] - 1;
            let entry = design.lower.entries.get(child);
            let is_fit =
                child != source && entry != Entry::WHOLE && entry.take(frames_in(order)).is_some();
            if is_fit
                && design.lower.zone_of(child) == Some(zone)
                && design.lower.has_block(zone, child, order)
                && design.take_count(zone, child, frames_in(order))
            {
                let hint = child * CHILD_FRAMES;
                match design.lower.take_in_child(zone, child, hint, order, false) {
                    Ok(first) => {
                        let local = design.local(context.cpu_here(), zone);
                        local.note_direct_alloc(frames_in(order));
                        return Some(Target { design, context, first, order, is_filled: false });
                    }
                    Err(left) => design.trees.give(design.trees.of(zone, child), left),
                }
            }
            self.free[order.index()] = child;
        }
        None
    }
}
