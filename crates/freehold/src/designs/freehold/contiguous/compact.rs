//! Compaction: the migrate scanner goes up through a zone and has movable content moved to free
//! frames that the free scanner finds from the top down, until they meet.
//!
//! Which calls compact, and when, is as in Linux 6.12 `mm/compaction.c`, in its synchronous mode.
//! What the scanners do differs. To make a whole pageblock, they isolate the one that is being
//! emptied, so that it is not filled again, and capture it for the request as soon as it is empty.
//! To make less, a walker holds the pageblock only while it looks for the next block to move.

use super::isolate::Isolation;
use super::target::{Target, Targets};
use crate::Error;
use crate::compact::state::{CompactionState, Scanners, is_suitable};
use crate::compact::{Compaction, Migrate, MigrateError};
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::run::{Run, Span};
use crate::designs::freehold::pageblocks::{FRAMES, PageblockIndex};
use crate::designs::traits::{Alloc, Compact};
use crate::memmap::index::{FrameIndex, ZoneIndex};
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{Order, Pfn};
use crate::zone::watermark::Watermark;

mod free_scanner;

/// Sizes of blocks that move.
const SIZES: usize = Order::PAGEBLOCK.index();

/// How the compaction of a zone for a request ended.
enum Outcome {
    /// A block was made and taken.
    Captured(u32),
    /// There is a free block that will do.
    Success,
    /// The scanners met first.
    Complete,
    /// There is too little free memory, or fragmentation is not to blame.
    Unsuitable,
}

impl<P: Platform> Compact<P> for Freehold<P> {
    /// Allocates a block; if that fails, compacts one zone after the other for it.
    fn alloc_compacting(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        owner: &dyn Migrate,
        defers: bool,
    ) -> Result<Pfn, Error> {
        let (order, usable) = (request.order(), || self.zones.usable(zones, &request));
        if order == Order::ZERO {
            return self.alloc(context, zones, request);
        }
        if let Some(frame) = self.alloc_unless_short(context, usable, &request) {
            return Ok(self.note_allocated(context, zones, &request, frame));
        }
        for index in usable() {
            let zone = self.zones.zone(index);
            if defers && zone.with_compaction(context.platform, |state| state.is_deferred(order)) {
                continue;
            }
            let outcome = self.compact_for(context, index, &request, owner);
            zone.with_compaction(context.platform, |state| match outcome {
                Outcome::Captured(_) => state.note_allocation(order),
                Outcome::Success => state.note_success(order),
                Outcome::Complete => state.note_failure(order),
                Outcome::Unsuitable => {}
            });
            match outcome {
                Outcome::Captured(frame) => {
                    return Ok(self.note_allocated(context, zones, &request, frame));
                }
                Outcome::Success => break,
                Outcome::Complete | Outcome::Unsuitable => {}
            }
        }
        let pfn = self.alloc(context, zones, request)?;
        if let Some(frame) = self.pageblocks().index_of(pfn) {
            let zone = self.pageblocks().zone(PageblockIndex::of_frame(frame));
            self.zones
                .zone(zone)
                .with_compaction(context.platform, |state| state.note_allocation(order));
        }
        Ok(pfn)
    }

    fn compact_zone(
        &self,
        context: Context<'_, P>,
        index: ZoneIndex,
        owner: &dyn Migrate,
        wanted: Option<u64>,
    ) -> Compaction {
        let zone = self.zones.zone(index);
        // In the background, what CPUs cache stays theirs, unless little else is free: taken over
        // by other CPUs, it would be filled with content that lives for another time.
        let has_room = || zone.may_take(2 * u64::from(FRAMES), Watermark::Low, zone.kind());
        if wanted.is_none() || !has_room() {
            self.drain_zone(context, index);
        }
        zone.with_compaction(context.platform, CompactionState::note_compaction);
        let mut compactor = Compactor::new(self, context, index, owner, None);
        let mut gained = 0;
        while wanted != Some(gained)
            && let Some(pageblock) = compactor.empty_next_pageblock()
        {
            gained += u64::from(self.pageblocks().is_whole(pageblock));
        }
        zone.with_compaction(context.platform, |state| {
            state.set_scanners(Scanners::APART);
            state.note_migrated(compactor.report.migrated);
        });
        compactor.report
    }
}

impl<P: Platform> Freehold<P> {
    fn compact_for(
        &self,
        context: Context<'_, P>,
        index: ZoneIndex,
        request: &Request,
        owner: &dyn Migrate,
    ) -> Outcome {
        let (zone, order) = (self.zones.zone(index), request.order());
        self.drain_cached(context, index, false);
        if self.zones.serves(index, request) {
            return Outcome::Success;
        }
        let free_blocks = || self.zones.free_blocks(index);
        if !is_suitable(request, zone.watermarks(), zone.level(), free_blocks) {
            return Outcome::Unsuitable;
        }
        zone.with_compaction(context.platform, CompactionState::note_compaction);
        if order > Order::PAGEBLOCK {
            let made = self.make_aligned(context, index, request, owner);
            return made.map_or(Outcome::Complete, Outcome::Captured);
        }
        self.compact_until_served(context, index, request, owner)
    }

    /// Compacts a zone from the position of its scanners until it serves a request for at most a
    /// pageblock, or the scanners meet.
    // The scanners take stack, which what makes larger blocks needs for itself.
    #[inline(never)]
    fn compact_until_served(
        &self,
        context: Context<'_, P>,
        index: ZoneIndex,
        request: &Request,
        owner: &dyn Migrate,
    ) -> Outcome {
        let zone = self.zones.zone(index);
        let mut compactor = Compactor::new(self, context, index, owner, Some(request));
        let outcome = loop {
            if compactor.empty_next_pageblock().is_none() && !compactor.begin_again() {
                break Outcome::Complete;
            }
            if let Some(frame) = compactor.captured {
                break Outcome::Captured(frame);
            }
            // A search for smaller blocks each time would cost too much.
            if self.zones.allows(index, request, request.depth())
                && self.zones.has_run(index, Order::PAGEBLOCK)
            {
                break Outcome::Success;
            }
        };
        let at = match outcome {
            Outcome::Complete => Scanners::APART,
            _ => compactor.scanners(),
        };
        let migrated = compactor.report.migrated;
        zone.with_compaction(context.platform, |state| {
            state.set_scanners(at);
            state.note_migrated(migrated);
        });
        outcome
    }
}

/// A compaction of one zone under way.
pub(crate) struct Compactor<'a, P: Platform> {
    design: &'a Freehold<P>,
    context: Context<'a, P>,
    zone: ZoneIndex,
    owner: &'a dyn Migrate,
    /// The order of the block to be made: only smaller blocks move.
    order: Order,
    /// The request that the block is for.
    request: Option<&'a Request>,
    /// The block that was made and taken, before another call could take it.
    pub(crate) captured: Option<u32>,
    /// The pageblock that the migrate scanner looks at next, going up.
    next: PageblockIndex,
    /// The lowest pageblocks that the free scanners are done with, going down, by order.
    free: [PageblockIndex; SIZES],
    /// Whether the scanners began at the ends of memory.
    whole: bool,
    /// The last target, if the owner did not fill it: a search would find it again, but would have
    /// to collect it first.
    spare: Option<Target<'a, P>>,
    /// Targets for single frames that are left of the pageblock where the last one was found.
    singles: Option<Targets<'a, P>>,
    pub(crate) report: Compaction,
}

impl<'a, P: Platform> Compactor<'a, P> {
    /// A compaction from the position of the scanners: for a request for at most a pageblock, or of
    /// the whole zone.
    pub(crate) fn new(
        design: &'a Freehold<P>,
        context: Context<'a, P>,
        zone: ZoneIndex,
        owner: &'a dyn Migrate,
        request: Option<&'a Request>,
    ) -> Self {
        let at = request.map_or(Scanners::APART, |_| {
            design.zones.zone(zone).with_compaction(context.platform, |state| state.scanners()) //
        });
        let mut compactor = Compactor {
            design,
            context,
            zone,
            owner,
            order: request.map_or(Order::PAGEBLOCK, |request| request.order()),
            request,
            captured: None,
            next: PageblockIndex(0),
            free: [PageblockIndex(0); SIZES],
            whole: false,
            spare: None,
            singles: None,
            report: Compaction::default(),
        };
        compactor.begin_at(at);
        compactor
    }

    /// Puts the scanners in position.
    fn begin_at(&mut self, at: Scanners) {
        self.whole = at == Scanners::APART;
        self.next = PageblockIndex::of_frame(at.migrate.0);
        let behind = PageblockIndex(self.design.pageblocks().len() as u32);
        self.free = [PageblockIndex::of_frame(at.free.0).min(behind); SIZES];
    }

    /// Puts the scanners at the ends of memory, if they had begun elsewhere; returns whether they
    /// had.
    pub(crate) fn begin_again(&mut self) -> bool {
        let again = !self.whole;
        if again {
            self.begin_at(Scanners::APART);
        }
        again
    }

    /// The position of the scanners; of the free scanners, of the one that came least far.
    pub(crate) fn scanners(&self) -> Scanners {
        let free = self.free.into_iter().max().unwrap_or(self.next);
        Scanners { migrate: FrameIndex(self.next.frame()), free: FrameIndex(free.frame()) }
    }

    /// Moves the movable content of the next pageblock away; returns which that was, if there was
    /// one below the free scanners.
    pub(crate) fn empty_next_pageblock(&mut self) -> Option<PageblockIndex> {
        let pageblock = self.next_source()?;
        self.report.pageblocks += 1;
        // A target that it holds would be taken for content.
        self.spare.take_if(|spare| spare.pageblock() <= pageblock);
        self.singles.take_if(|singles| singles.pageblock() == pageblock);
        match self.order < Order::PAGEBLOCK {
            true => self.make_room(pageblock),
            false => self.empty(pageblock),
        }
        Some(pageblock)
    }

    /// The next pageblock below the free scanners with something to move.
    #[inline(never)]
    fn next_source(&mut self) -> Option<PageblockIndex> {
        let pageblocks = &self.design.pageblocks();
        while self.free.iter().any(|&free| self.next < free) {
            let pageblock = self.next;
            self.next = PageblockIndex(pageblock.0 + 1);
            let state = pageblocks.state(pageblock);
            // For a request, only pageblocks that can be emptied entirely, or for smaller orders in
            // part, are worth the effort.
            let worthwhile = || match self.request {
                _ if pageblocks.is_all_unmovable(pageblock) && !self.owner.knows_content() => false,
                None => true,
                Some(request) if request.order() < Order::PAGEBLOCK => true,
                Some(_) => {
                    let (span, below) = (Span::of(pageblock, 1), Some(self.order));
                    self.design.behind_last_obstacle(self.zone, span, self.owner, below).is_none()
                }
            };
            if self.is_ours(pageblock) && state.is_split() && !state.is_isolated() && worthwhile() {
                return Some(pageblock);
            }
        }
        None
    }

    /// Empties a pageblock, as far as that goes. If all of it is free then, takes it for the
    /// request.
    fn empty(&mut self, pageblock: PageblockIndex) {
        let (design, zone) = (self.design, self.design.zones.zone(self.zone));
        let free = u64::from(design.pageblocks().count_free(pageblock));
        if !zone.may_take(free, Watermark::Min, zone.kind()) {
            return;
        }
        let isolated = Isolation::new(design, self.context, Span::of(pageblock, 1));
        let Ok(mut isolation) = isolated else { return };
        if !design.pageblocks().state(pageblock).is_split() || !self.is_ours(pageblock) {
            return;
        }
        let mut at = pageblock.frame();
        let (order, owner) = (self.order, self.owner);
        while let Some(part) = design.pageblocks().next_movable(pageblock, at, order, owner) {
            at = part.end();
            if !self.migrate(part) && self.request.is_some() {
                // The content that stays spoils it.
                return;
            }
        }
        design.collect_isolated(self.context, pageblock);
        if let Some(request) = self.request
            && design.pageblocks().is_whole(pageblock)
            && zone.may_take(0, request.depth(), request.effective_limit())
        {
            isolation.hand_out(pageblock, Order::PAGEBLOCK, request.content());
            design.zones.note_direct_alloc(self.context, self.zone, Order::PAGEBLOCK.frames());
            self.captured = Some(pageblock.frame());
        }
    }

    /// Moves content of a pageblock away until there is a block for the request in it: first what
    /// lies in the place for one that has least. Frames that become free one by one all over the
    /// pageblock would be taken by whoever allocates meanwhile.
    fn make_room(&mut self, pageblock: PageblockIndex) {
        let (design, pageblocks) = (self.design, self.design.pageblocks());
        let mut tried = None;
        loop {
            let section = design.zones.section(self.context.cpu_here(), self.zone);
            if !design.acquire_any(self.context, pageblock) {
                return;
            }
            let is_ours = self.is_ours(pageblock);
            self.captured = if is_ours { self.capture_in(pageblock) } else { None };
            let is_over = !is_ours || self.captured.is_some();
            tried = if is_over { None } else { self.place_in(pageblock, tried) };
            design.zones.release(pageblock, &section);
            drop(section);
            let Some((_, first)) = tried else { return };
            let mut place = Span { first, end: first + (1 << self.order.get()) };
            // Out of isolation, it may be freed meanwhile.
            while let Some(part) = pageblocks.next_used(place).map(|used| pageblocks.part_of(used))
                && part.order < self.order
                && self.migrate(part)
            {
                place.first = part.end();
            }
        }
    }

    /// Of the places for a block in a pageblock that the caller holds whose content can move, the
    /// one with the least of it, but for those up to the last one that was tried: how many frames
    /// are in use, and the first one.
    fn place_in(&self, pageblock: PageblockIndex, tried: Option<(u32, u32)>) -> Option<(u32, u32)> {
        let (pageblocks, frames) = (self.design.pageblocks(), 1 << self.order.get());
        let Span { first, end } = Span::of(pageblock, 1);
        let mut best = None;
        for first in (first..end).step_by(frames as usize) {
            let place = Span { first, end: first + frames };
            let used = place.words().map(|(word, mask)| pageblocks.used(word) & mask);
            let of = (used.map(u64::count_ones).sum(), first);
            let is_small = |used| pageblocks.part_of(used).order < self.order;
            let below = Some(self.order);
            // The owner is asked last, since that may take long.
            if Some(of) > tried
                && best.is_none_or(|best| of < best)
                && pageblocks.next_used(place).is_some_and(is_small)
                && self.design.behind_last_obstacle(self.zone, place, self.owner, below).is_none()
            {
                best = Some(of);
            }
        }
        best
    }

    /// Takes a block for the request out of a pageblock that the caller holds, if there is one.
    fn capture_in(&self, pageblock: PageblockIndex) -> Option<u32> {
        let request = self.request?;
        let (frames, limit) = (request.order().frames().get(), request.effective_limit());
        let zone = self.design.zones.zone(self.zone);
        let allowed = zone.may_take(frames, request.depth(), limit);
        let pageblocks = &self.design.pageblocks();
        let run = pageblocks.find_run(pageblock, request.order()).filter(|_| allowed)?;
        // If content remains in it, it must stay a pageblock for movable content.
        let may_claim = pageblocks.next_used(Span::of(pageblock, 1)).is_none();
        self.design.zones.take_found(run, request, may_claim);
        self.design.zones.note_direct_alloc(self.context, self.zone, request.order().frames());
        Some(run.frame())
    }

    /// Moves the content of a block to a free one, if its owner agrees; returns whether it has
    /// moved.
    fn migrate(&mut self, from: Run) -> bool {
        let spare = self.spare.take().filter(|spare| spare.order() == from.order);
        let singles = self.singles.as_mut().filter(|_| from.order == Order::ZERO);
        let ready = spare.or_else(|| singles?.pop());
        let Some(target) = ready.or_else(|| self.target(from)) else {
            self.report.without_target += 1;
            return false;
        };
        match target.fill(self.owner, from.frame()) {
            Ok(true) => {
                self.report.migrated += from.order.frames();
                return true;
            }
            Ok(false) => self.report.failed += 1,
            Err((error, target)) => {
                self.spare = Some(target).filter(Target::is_allocated);
                match error {
                    MigrateError::Failed => self.report.failed += 1,
                    MigrateError::Busy => self.report.busy += 1,
                }
            }
        }
        false
    }

    /// Whether a pageblock is of the zone. Checked again once it is held: memory may be removed,
    /// and come to another zone.
    fn is_ours(&self, pageblock: PageblockIndex) -> bool {
        self.design.pageblocks().zone_if_any(pageblock) == Some(self.zone)
    }
}
