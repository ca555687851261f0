//! Ranges of any size: what [`Places`] asks of a place, and how a range is freed.

use super::isolate::Isolation;
use crate::Error;
use crate::compact::Migrate;
use crate::compact::state::CompactionState;
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::caches::lock::IfLeased;
use crate::designs::freehold::pageblocks::run::{Span, WORD_FRAMES, largest_block};
use crate::designs::freehold::pageblocks::state::{Holder, Use};
use crate::designs::freehold::pageblocks::{FRAMES, PageblockIndex};
use crate::designs::places::{Obstacle, Place, Places, Site, first_place};
use crate::designs::traits::Ranges;
use crate::memmap::index::{FrameIndex, FrameRange, ZoneIndex};
use crate::memmap::stretches::Stretches;
use crate::platform::Platform;
use crate::request::{RangeRequest, Request};
use crate::units::{FrameCount, MigrateType, NodeId, Order, Pfn};

/// How often the remote queues are looked through for a pageblock that is to be removed.
const LOOKS: usize = 8;

impl<P: Platform> Ranges<P> for Freehold<P> {
    /// Frees all frames of a range. Of blocks that reach beyond it, the rest stays allocated.
    ///
    /// Checks that none of them is free before it frees the first one. If another call frees some
    /// of the same frames at the same time, the call that comes second to a frame stops there. Of
    /// two calls that free the same range, that is the one which has freed nothing.
    fn free_range(
        &self,
        context: Context<'_, P>,
        first: Pfn,
        frames: FrameCount,
    ) -> Result<(), Error> {
        let range = self.pageblocks().stretches().locate(first, frames);
        let mut span = Span::of_range(range.ok_or(Error::ForeignFrame)?);
        self.check_used(span)?;
        while span.first < span.end {
            span.first = self.free_first(context, span)?;
        }
        Ok(())
    }
}

impl<P: Platform> Places<P> for Freehold<P> {
    fn stretches(&self) -> &Stretches<P> {
        self.pageblocks().stretches()
    }

    fn has_hole(&self, range: FrameRange) -> bool {
        let pageblocks = self.pageblocks();
        Span::of_range(range).pageblocks().any(|(pageblock, part)| {
            pageblocks.state(pageblock).used_for() == Use::Absent
                || part.words().any(|(word, mask)| pageblocks.holes_of_others(word) & mask != 0)
        })
    }

    fn node(&self, zone: ZoneIndex) -> NodeId {
        self.zones.zone(zone).node()
    }

    fn level_and_floor(&self, zone: ZoneIndex, request: &Request) -> (u64, u64) {
        let zone = self.zones.zone(zone);
        (
            zone.level(),
            zone.watermarks().floor(request.depth(), request.effective_limit()).unwrap_or(0),
        )
    }

    fn drain_all(&self, context: Context<'_, P>) {
        self.zones.indexes().for_each(|zone| self.drain_zone(context, zone));
    }

    fn free_place(&self, zone: ZoneIndex, request: &RangeRequest) -> Option<FrameRange> {
        if request.frames < Order::PAGEBLOCK.frames() {
            // There may be room in what is left of pageblocks.
            return None;
        }
        let pageblocks = request.frames.get().div_ceil(u64::from(FRAMES));
        let align = request.align.get().div_ceil(u64::from(FRAMES)).max(1);
        let first = self.zones.find_adjacent(zone, pageblocks as usize, align)?;
        let (stretches, first) = (self.stretches(), FrameIndex(first.frame()));
        let range = stretches.locate(stretches.pfn_of(first), request.frames);
        range.filter(|range| range.first == first)
    }

    fn survey(&self, site: Site<'_>, is_memory: bool) -> Place {
        let Site { zone, range, owner } = site;
        let span = Span::of_range(range);
        let Some(behind) = self.behind_last_obstacle(zone, span, owner, None) else {
            return Place::Promising;
        };
        let is_ours = |pageblock| self.pageblocks().zone_if_any(pageblock) == Some(zone);
        let is_memory = is_memory
            || !self.has_hole(range) && span.pageblocks().all(|(pageblock, _)| is_ours(pageblock));
        let behind = FrameIndex(behind);
        if is_memory { Place::Immovable(behind) } else { Place::Interrupted(behind) }
    }

    fn take(&self, context: Context<'_, P>, site: Site<'_>) -> Result<(), Obstacle> {
        let Site { zone, range, owner } = site;
        let span = Span::of_range(range);
        let isolation = self.empty_place(context, zone, span, owner)?;
        isolation.alloc(context, span, MigrateType::Unmovable);
        Ok(())
    }

    fn retire(&self, context: Context<'_, P>, site: Site<'_>) -> Result<(), Obstacle> {
        let Site { zone, range, owner } = site;
        let span = Span::of_range(range);
        let isolation = self.empty_place(context, zone, span, owner)?;
        if !self.empty_queues_of(context, zone, span) {
            return Err(Obstacle { at: range.first, error: Error::RangeBusy });
        }
        isolation.retire(context, zone, span);
        Ok(())
    }

    fn zone_at(&self, frame: FrameIndex) -> Option<ZoneIndex> {
        self.pageblocks().zone_if_any(PageblockIndex::of_frame(frame.0))
    }

    fn note_range(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &RangeRequest,
        zone: ZoneIndex,
    ) {
        let cpu = context.cpu_here();
        self.zones.note_numa(cpu, zones, &request.near, zone, request.frames);
        self.zones.zone(zone).with_compaction(context.platform, CompactionState::note_range);
    }
}

impl<P: Platform> Freehold<P> {
    /// Makes a block of more than a pageblock: empties the lowest place that can be emptied.
    pub(crate) fn make_aligned(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        owner: &dyn Migrate,
    ) -> Option<u32> {
        let (order, migratetype) = (request.order(), request.content());
        let places = RangeRequest::new(order.frames()).align(order.frames());
        let mut next = first_place(self, &places, FrameIndex(0));
        while let Some(range) = next {
            let span = Span::of_range(range);
            if self.behind_last_obstacle(zone, span, owner, Some(order)).is_none()
                && let Ok(isolation) = self.empty_place(context, zone, span, owner)
            {
                isolation.alloc(context, span, migratetype);
                return Some(span.first);
            }
            next = first_place(self, &places, range.end);
        }
        None
    }

    fn empty_place<'a>(
        &'a self,
        context: Context<'a, P>,
        zone: ZoneIndex,
        span: Span,
        owner: &dyn Migrate,
    ) -> Result<Isolation<'a, P>, Obstacle> {
        let isolation = Isolation::new(self, context, span).map_err(|pageblock| Obstacle {
            at: FrameIndex(pageblock.frame()),
            error: Error::RangeBusy,
        })?;
        // Until now, frames may have been removed, and have come to another zone.
        let pageblocks = self.pageblocks();
        for (pageblock, part) in span.pageblocks() {
            let has_hole = part.words().any(|(word, mask)| pageblocks.holes(word) & mask != 0);
            if has_hole || pageblocks.zone_if_any(pageblock) != Some(zone) {
                return Err(Obstacle { at: FrameIndex(part.first), error: Error::RangeBusy });
            }
        }
        isolation.empty(context, zone, span, owner)?;
        Ok(isolation)
    }

    /// Ensures that isolated pageblocks of a zone are in no remote queue: one that comes to another
    /// zone would be in the wrong queue. Returns whether it could.
    #[inline(never)]
    fn empty_queues_of(&self, context: Context<'_, P>, zone: ZoneIndex, span: Span) -> bool {
        let is_queued = || {
            let mut states =
                span.pageblocks().map(|(pageblock, _)| self.pageblocks().state(pageblock));
            states.any(|state| state.is_queued())
        };
        // The next look is for one that a call had marked, and not pushed yet.
        (0..LOOKS).any(|_| {
            if is_queued() {
                for cpu in 0..self.zones.cpu_count() {
                    if let Some(guard) = self.lock(context, cpu, zone, IfLeased::Revoke) {
                        guard.collect_all_queued(|pageblock| guard.relink(pageblock));
                    }
                }
            }
            !is_queued()
        })
    }

    /// The frame behind the last one of a span that keeps a range from lying there, seen without
    /// holding any pageblock. With `below`, blocks of this order and more are not to be moved. From
    /// the end on, so that a search of places that are in use looks at few words of each.
    pub(crate) fn behind_last_obstacle(
        &self,
        zone: ZoneIndex,
        span: Span,
        owner: &dyn Migrate,
        below: Option<Order>,
    ) -> Option<u32> {
        let pageblocks = self.pageblocks();
        span.pageblocks().rev().find_map(|(pageblock, part)| {
            if pageblocks.zone_if_any(pageblock) != Some(zone) {
                return Some(part.end);
            }
            let state = pageblocks.state(pageblock);
            match state.used_for() {
                _ if state.is_isolated() => Some(Span::of(pageblock, 1).end),
                Use::Absent => Some(part.end),
                Use::Whole => None,
                Use::Huge | Use::HugeTail => {
                    let (head, of) = pageblocks.head_of(pageblock)?;
                    let may_move = pageblocks.may_move_huge(head, of, owner)
                        && below.is_none_or(|below| of.order() < below);
                    (!may_move).then(|| pageblocks.span_of_huge(head, of).end)
                }
                Use::Split => part.words().rev().find_map(|(word, mask)| {
                    if pageblocks.free(word) & mask == mask {
                        return None;
                    }
                    let holes = pageblocks.holes_of_others(word) & mask;
                    let last = (holes | self.last_fixed(word, mask, owner)).checked_ilog2()?;
                    Some(word as u32 * WORD_FRAMES + last + 1)
                }),
            }
        })
    }

    /// The last frame of a part of a word with content that cannot move, as a mask.
    fn last_fixed(&self, word: usize, mask: u64, owner: &dyn Migrate) -> u64 {
        let pageblocks = self.pageblocks();
        let mut marked = pageblocks.unmovable(word) & pageblocks.used(word) & mask;
        while marked != 0 {
            let last = marked.ilog2();
            let part = pageblocks.part_of(word as u32 * WORD_FRAMES + last);
            if !owner.can_move(pageblocks.pfn_of(part.frame()), part.order) {
                return 1 << last;
            }
            marked &= !(part.mask() | 1 << last);
        }
        0
    }

    /// Refuses a span that is not all of one zone and allocated.
    fn check_used(&self, span: Span) -> Result<(), Error> {
        let first = PageblockIndex::of_frame(span.first);
        let zone = self.pageblocks().zone_if_any(first).ok_or(Error::ForeignFrame)?;
        for (pageblock, part) in span.pageblocks() {
            match self.pageblocks().zone_if_any(pageblock) {
                None => return Err(Error::ForeignFrame),
                Some(of) if of != zone => return Err(Error::BadRange),
                Some(_) => {}
            }
            match self.pageblocks().state(pageblock).used_for() {
                Use::Absent => return Err(Error::ForeignFrame),
                Use::Whole => return Err(Error::DoubleFree),
                Use::Huge | Use::HugeTail => {}
                Use::Split => {
                    for (word, mask) in part.words() {
                        if self.pageblocks().holes(word) & mask != 0 {
                            return Err(Error::ForeignFrame);
                        }
                        if self.pageblocks().used(word) & mask != mask {
                            return Err(Error::DoubleFree);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Frees the first frames of a span, as many as are easily freed at once; returns the first
    /// frame after them.
    fn free_first(&self, context: Context<'_, P>, span: Span) -> Result<u32, Error> {
        let pageblock = PageblockIndex::of_frame(span.first);
        let state = self.pageblocks().state(pageblock);
        match state.used_for() {
            Use::Huge | Use::HugeTail => {
                let (_, of) = self.pageblocks().head_of(pageblock).ok_or(Error::DoubleFree)?;
                let pfn = self.pageblocks().pfn_of(span.first);
                let order = largest_block(pfn, span.end - span.first).min(of.order());
                self.free_huge_to_pool(context, span.first, order)?;
                Ok(span.first + order.frames().get() as u32)
            }
            Use::Split => {
                let end = span.end.min(Span::of(pageblock, 1).end);
                let part = Span { end, ..span };
                if state.holder() == Holder::None
                    && let Some(freed) = self.free_last(context, pageblock, part)
                {
                    return freed.map(|()| end);
                }
                for (word, mask) in part.words() {
                    self.begin_free_of_range(word, mask)?;
                    self.put_frames(context, state, word..word + 1, mask)?;
                }
                Ok(end)
            }
            Use::Absent | Use::Whole => Err(Error::DoubleFree),
        }
    }

    /// Frees a part of an orphan all of whose other frames are free: it goes to the pool, where
    /// ranges are looked for, and to no cache. `None` if it is another pageblock, or not alone.
    fn free_last(
        &self,
        context: Context<'_, P>,
        pageblock: PageblockIndex,
        part: Span,
    ) -> Option<Result<(), Error>> {
        let pageblocks = self.pageblocks();
        let in_part = |of| part.words().find(|(word, _)| *word == of).map_or(0, |(_, mask)| mask);
        let frees = |word| pageblocks.free_or_remote(word) | in_part(word) == !0;
        if !pageblock.words().all(frees) {
            return None;
        }
        let zone = pageblocks.zone(pageblock);
        self.zones.with_acquired(context.cpu_here(), zone, pageblock, || {
            // The release collects them.
            Some(part.words().try_for_each(|(word, mask)| {
                self.begin_free_of_range(word, mask)?;
                match pageblocks.put_remotely(word, mask) & mask {
                    0 => Ok(()),
                    _ => Err(Error::DoubleFree),
                }
            }))
        })
    }

    /// Claims frames of a word that are parts of a range.
    fn begin_free_of_range(&self, word: usize, mask: u64) -> Result<(), Error> {
        self.pageblocks().begin_free_parts(word, mask)?;
        self.pageblocks().clear_unmovable(word, mask);
        Ok(())
    }
}
