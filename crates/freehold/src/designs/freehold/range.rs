//! Ranges of any size: a place is looked for, emptied and handed out.
//!
//! After Linux 6.12 `alloc_contig_pages`. What differs is told in `docs/designs.md`.

use super::Freehold;
use super::blocks::BlockIndex;
use super::empty::Obstacle;
use super::huge::blocks_in;
use super::isolate::Isolation;
use super::runs::WORD_FRAMES;
use super::span::Span;
use super::state::Use;
use crate::Error;
use crate::compact::Migrate;
use crate::compact::state::CompactionState;
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::{RangeRequest, Request};
use crate::units::{MigrateType, Order, Pfn};
use crate::zone::watermark::Watermark;

/// What a first look at a place says.
pub(super) enum Place {
    /// There is nothing that could not be moved.
    Promising,
    /// A hole, or another zone's memory; and the first frame behind the last obstacle.
    Interrupted(u32),
    /// Content that cannot be moved; and the first frame behind the last of it.
    Immovable(u32),
}

impl<P: Platform> Freehold<P> {
    /// Tries the places for a range, lowest first in one zone after the other. The node of the
    /// request is filled in.
    pub(super) fn alloc_contiguous(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &RangeRequest,
        owner: &dyn Migrate,
    ) -> Result<Pfn, Error> {
        if let Some(at) = request.at {
            self.check_place(at, request)?;
        }
        if request.frames.get() > self.blocks.frames() {
            return Err(Error::OutOfMemory);
        }
        self.check_room(zones, request).or_else(|_| {
            self.drain_everything(context);
            self.check_room(zones, request)
        })?;
        let (mut is_busy, mut too_full) = (false, None);
        for zone in self.usable(zones, &request.near) {
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
                            let (cpu, near) = (self.cpu_here(context), &request.near);
                            self.note_numa(cpu, zones, near, zone, request.frames);
                            self.zone(zone).with_compaction(CompactionState::note_range);
                            return Ok(self.blocks.pfn_of(span.first));
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
        // Where content has no room to move to, freeing memory will help.
        let otherwise = if is_busy { Error::RangeBusy } else { Error::OutOfMemory };
        Err(too_full.unwrap_or(otherwise))
    }

    /// Makes a block of more than a pageblock: empties the lowest place that can be.
    pub(super) fn make_aligned(
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
            .map_err(|block| Obstacle { at: block.frame(), error: Error::RangeBusy })?;
        isolation.empty(context, zone, span, owner)?;
        Ok(isolation)
    }

    /// Refuses a place that is not all memory.
    fn check_place(&self, at: Pfn, request: &RangeRequest) -> Result<(), Error> {
        if at.get() & (request.align.get() - 1) != 0 {
            return Err(Error::Misaligned);
        }
        let first = self.blocks.index_of(at).ok_or(Error::OutsideSpan)?;
        if request.frames.get() > self.blocks.frames() - u64::from(first) {
            return Err(Error::OutsideSpan);
        }
        let span = Span { first, end: first + request.frames.get() as u32 };
        let hole = span.words().any(|(word, mask)| self.blocks.holes_of_others(word) & mask != 0);
        if hole { Err(Error::ForeignFrame) } else { Ok(()) }
    }

    /// Whether so many frames can be taken without going below the minimum watermarks. Content may
    /// have to move to any node, so all of them count.
    fn check_room(&self, zones: &[u16], request: &RangeRequest) -> Result<(), Error> {
        let limit = request.near.effective_limit();
        let (mut free, mut spare) = (0, 0);
        for zone in zones.iter().map(|&zone| self.zone(ZoneIndex(zone))) {
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

    /// The first place at or behind a frame for a range.
    fn first_place(&self, request: &RangeRequest, from: u32) -> Option<Span> {
        let from = self.blocks.pfn_of(from).get();
        let first = match request.at {
            Some(at) => Some(at.get()).filter(|&at| at >= from)?,
            None => from.checked_next_multiple_of(request.align.get())?,
        };
        let first = self.blocks.index_of(Pfn::new(first))?;
        let end = u64::from(first) + request.frames.get();
        (end <= self.blocks.frames()).then_some(Span { first, end: end as u32 })
    }

    /// Looks, without holding anything, for what keeps a range from lying here. With `below`,
    /// blocks of this order and more are not to be moved.
    pub(super) fn survey(&self, zone: ZoneIndex, span: Span, below: Option<Order>) -> Place {
        let (mut behind, mut is_memory) = (span.first, true);
        for (block, part) in span.blocks() {
            if self.blocks.zone_if_any(block) != Some(zone) {
                (behind, is_memory) = (part.end, false);
                continue;
            }
            let state = self.blocks.state(block);
            match state.used_for() {
                _ if state.is_isolated() => behind = Span::of(block, 1).end,
                Use::Absent => (behind, is_memory) = (part.end, false),
                Use::Whole => {}
                Use::Huge | Use::HugeTail => {
                    if let Some((head, of)) = self.head_of(block)
                        && (of.migratetype() != MigrateType::Movable
                            || below.is_some_and(|below| of.order() >= below))
                    {
                        behind = Span::of(head, blocks_in(of.order())).end;
                    }
                }
                Use::Split => {
                    for (word, mask) in part.words() {
                        let holes = self.blocks.holes_of_others(word) & mask;
                        is_memory &= holes == 0;
                        let fixed = self.blocks.fixed(word) & self.blocks.used(word) & mask;
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
}

/// Where to go on after a place that could not be emptied. With ranges of pageblocks and more, the
/// next place leaves out the whole pageblock of the obstacle, since each attempt costs so much.
fn skip(obstacle: u32, request: &RangeRequest) -> u32 {
    match request.frames < Order::PAGEBLOCK.frames() {
        true => obstacle + 1,
        false => Span::of(BlockIndex::of_frame(obstacle), 1).end,
    }
}
