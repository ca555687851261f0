//! Ranges of any size: finds a place, empties it and hands it out.
//!
//! After Linux 6.12 `alloc_contig_pages`. `docs/designs.md` says what differs.

use super::isolate::Isolation;
use super::migrate::Obstacle;
use crate::Error;
use crate::compact::Migrate;
use crate::compact::state::CompactionState;
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::run::{Span, WORD_FRAMES, largest_block};
use crate::designs::freehold::pageblocks::state::Use;
use crate::designs::traits::Ranges;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::{RangeRequest, Request};
use crate::units::{FrameCount, MigrateType, Order, Pfn};
use crate::zone::watermark::Watermark;

/// The result of a survey of a place.
pub(crate) enum Place {
    /// Nothing in it is known to be immovable.
    Promising,
    /// A hole, or memory of another zone; and the first frame after the last obstacle.
    Interrupted(u32),
    /// Content that cannot be moved; and the first frame after the last of it.
    Immovable(u32),
}

impl<P: Platform> Ranges<P> for Freehold<P> {
    /// Tries the places for a range, lowest first, in one zone after the other. The node of the
    /// request is filled in.
    fn alloc_range(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &RangeRequest,
        owner: &dyn Migrate,
    ) -> Result<Pfn, Error> {
        if let Some(at) = request.at {
            self.check_place(at, request)?;
        }
        if request.frames.get() > self.zones.pageblocks.frames() {
            return Err(Error::OutOfMemory);
        }
        self.check_room(zones, request).or_else(|_| {
            self.drain_everything(context);
            self.check_room(zones, request)
        })?;
        let (mut is_busy, mut too_full) = (false, None);
        for zone in self.zones.usable(zones, &request.near) {
            let mut next = self.first_place(request, 0);
            while let Some(span) = next {
                let passed = match self.survey(zone, span, None) {
                    Place::Interrupted(passed) => passed,
                    Place::Immovable(passed) => {
                        is_busy = true;
                        passed
                    }
                    Place::Promising => match self.empty_place(context, zone, span, owner) {
                        Ok(isolation) => {
                            isolation.take(context, span, MigrateType::Unmovable);
                            let (cpu, near) = (self.zones.cpu_here(context), &request.near);
                            self.zones.note_numa(cpu, zones, near, zone, request.frames);
                            self.zones.zone(zone).with_compaction(CompactionState::note_range);
                            return Ok(self.zones.pageblocks.pfn_of(span.first));
                        }
                        Err(obstacle) => {
                            is_busy = true;
                            if obstacle.error != Error::RangeBusy {
                                too_full = Some(obstacle.error);
                            }
                            skip(obstacle.at, request)
                        }
                    },
                };
                next = self.first_place(request, passed.max(span.first + 1));
            }
        }
        // If content has no room to move to, it helps to free memory.
        let otherwise = if is_busy { Error::RangeBusy } else { Error::OutOfMemory };
        Err(too_full.unwrap_or(otherwise))
    }

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
        let first = self.zones.pageblocks.index_of(first).ok_or(Error::ForeignFrame)?;
        if frames.get() > self.zones.pageblocks.frames() - u64::from(first) {
            return Err(Error::ForeignFrame);
        }
        let mut span = Span { first, end: first + frames.get() as u32 };
        self.check_used(span)?;
        while span.first < span.end {
            span.first = self.free_first(context, span)?;
        }
        Ok(())
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
        let mut next = self.first_place(&places, 0);
        while let Some(span) = next {
            if let Place::Promising = self.survey(zone, span, Some(order))
                && let Ok(isolation) = self.empty_place(context, zone, span, owner)
            {
                isolation.take(context, span, migratetype);
                return Some(span.first);
            }
            next = self.first_place(&places, span.end);
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
        let isolation = Isolation::new(self, context, span)
            .map_err(|pageblock| Obstacle { at: pageblock.frame(), error: Error::RangeBusy })?;
        isolation.empty(context, zone, span, owner)?;
        Ok(isolation)
    }

    /// Refuses a place that is not all memory.
    fn check_place(&self, at: Pfn, request: &RangeRequest) -> Result<(), Error> {
        if at.get() & (request.align.get() - 1) != 0 {
            return Err(Error::Misaligned);
        }
        let first = self.zones.pageblocks.index_of(at).ok_or(Error::OutsideSpan)?;
        if request.frames.get() > self.zones.pageblocks.frames() - u64::from(first) {
            return Err(Error::OutsideSpan);
        }
        let span = Span { first, end: first + request.frames.get() as u32 };
        let hole = span
            .words()
            .any(|(word, mask)| self.zones.pageblocks.holes_of_others(word) & mask != 0);
        if hole { Err(Error::ForeignFrame) } else { Ok(()) }
    }

    /// Whether so many frames can be taken without going below the minimum watermarks. Content may
    /// have to move to any node, so the zones of all nodes count.
    fn check_room(&self, zones: &[u16], request: &RangeRequest) -> Result<(), Error> {
        let limit = request.near.effective_limit();
        let (mut free, mut spare) = (0, 0);
        for zone in zones.iter().map(|&zone| self.zones.zone(ZoneIndex(zone))) {
            let level = zone.level();
            free += level;
            let floor = zone.watermarks().floor(Watermark::Min, limit).unwrap_or(0);
            spare += level.saturating_sub(floor);
        }
        let wanted = request.frames.get();
        match (spare >= wanted, free >= wanted) {
            (true, _) => Ok(()),
            (false, true) => Err(Error::BelowWatermark),
            (false, false) => Err(Error::OutOfMemory),
        }
    }

    /// The first place at or after a frame for a range.
    fn first_place(&self, request: &RangeRequest, from: u32) -> Option<Span> {
        let from = self.zones.pageblocks.pfn_of(from).get();
        let first = match request.at {
            Some(at) => Some(at.get()).filter(|&at| at >= from)?,
            None => from.checked_next_multiple_of(request.align.get())?,
        };
        let first = self.zones.pageblocks.index_of(Pfn::new(first))?;
        let end = u64::from(first) + request.frames.get();
        (end <= self.zones.pageblocks.frames()).then_some(Span { first, end: end as u32 })
    }

    /// Looks for what keeps a range from lying here, without holding any pageblock. With `below`,
    /// blocks of this order and more are not to be moved.
    pub(crate) fn survey(&self, zone: ZoneIndex, span: Span, below: Option<Order>) -> Place {
        let (mut behind, mut is_memory) = (span.first, true);
        for (pageblock, part) in span.pageblocks() {
            if self.zones.pageblocks.zone_if_any(pageblock) != Some(zone) {
                (behind, is_memory) = (part.end, false);
                continue;
            }
            let state = self.zones.pageblocks.state(pageblock);
            match state.used_for() {
                _ if state.is_isolated() => behind = Span::of(pageblock, 1).end,
                Use::Absent => (behind, is_memory) = (part.end, false),
                Use::Whole => {}
                Use::Huge | Use::HugeTail => {
                    if let Some((head, of)) = self.zones.pageblocks.head_of(pageblock)
                        && (of.migratetype() != MigrateType::Movable
                            || below.is_some_and(|below| of.order() >= below))
                    {
                        behind = self.zones.pageblocks.span_of_huge(head, of).end;
                    }
                }
                Use::Split => {
                    for (word, mask) in part.words() {
                        let holes = self.zones.pageblocks.holes_of_others(word) & mask;
                        is_memory &= holes == 0;
                        let fixed = self.zones.pageblocks.unmovable(word)
                            & self.zones.pageblocks.used(word)
                            & mask;
                        if holes | fixed != 0 {
                            let last = u64::BITS - (holes | fixed).leading_zeros();
                            behind = word as u32 * WORD_FRAMES + last;
                        }
                    }
                }
            }
        }
        match (is_memory, behind > span.first) {
            (false, _) => Place::Interrupted(behind),
            (true, true) => Place::Immovable(behind),
            (true, false) => Place::Promising,
        }
    }

    /// Refuses a span that is not all of one zone and allocated.
    fn check_used(&self, span: Span) -> Result<(), Error> {
        let first = PageblockIndex::of_frame(span.first);
        let zone = self.zones.pageblocks.zone_if_any(first).ok_or(Error::ForeignFrame)?;
        for (pageblock, part) in span.pageblocks() {
            match self.zones.pageblocks.zone_if_any(pageblock) {
                None => return Err(Error::ForeignFrame),
                Some(of) if of != zone => return Err(Error::BadRange),
                Some(_) => {}
            }
            match self.zones.pageblocks.state(pageblock).used_for() {
                Use::Absent => return Err(Error::ForeignFrame),
                Use::Whole => return Err(Error::DoubleFree),
                Use::Huge | Use::HugeTail => {}
                Use::Split => {
                    for (word, mask) in part.words() {
                        if self.zones.pageblocks.holes(word) & mask != 0 {
                            return Err(Error::ForeignFrame);
                        }
                        if self.zones.pageblocks.used(word) & mask != mask {
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
        let state = self.zones.pageblocks.state(pageblock);
        match state.used_for() {
            Use::Huge | Use::HugeTail => {
                let (_, of) = self.zones.pageblocks.head_of(pageblock).ok_or(Error::DoubleFree)?;
                let pfn = self.zones.pageblocks.pfn_of(span.first);
                let order = largest_block(pfn, span.end - span.first).min(of.order());
                self.free_huge(context, span.first, order)?;
                Ok(span.first + order.frames().get() as u32)
            }
            Use::Split => {
                let end = span.end.min(Span::of(pageblock, 1).end);
                for (word, mask) in (Span { end, ..span }).words() {
                    self.zones.pageblocks.cut(word, mask);
                    self.zones.pageblocks.clear_unmovable(word, mask);
                    self.free_in_words(context, state, word..word + 1, mask)?;
                }
                Ok(end)
            }
            Use::Absent | Use::Whole => Err(Error::DoubleFree),
        }
    }
}

/// Where to go on after a place that could not be emptied. With ranges of a pageblock and more, the
/// next place leaves out the whole pageblock of the obstacle, since each attempt costs so much.
fn skip(obstacle: u32, request: &RangeRequest) -> u32 {
    match request.frames < Order::PAGEBLOCK.frames() {
        true => obstacle + 1,
        false => Span::of(PageblockIndex::of_frame(obstacle), 1).end,
    }
}
