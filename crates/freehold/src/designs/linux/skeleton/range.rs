//! Contiguous ranges of any size: find a place, empty it, allocate it.
//!
//! Source: Linux 6.12 `alloc_contig_pages`. Deviations: `docs/designs.md`.

use super::isolate::{Isolation, Obstacle};
use super::{Policy, Skeleton};
use crate::Error;
use crate::compact::Migrate;
use crate::designs::Context;
use crate::designs::linux::frame::{FrameState, Tag};
use crate::designs::linux::pageblock::BlockType;
use crate::memmap::index::{FrameIndex, ZoneIndex};
use crate::platform::Platform;
use crate::request::RangeRequest;
use crate::units::{MigrateType, Order, Pfn};
use crate::zone::watermark::Watermark;

/// The result of surveying a place.
enum Place {
    /// Everything can be moved.
    Promising,
    /// A hole, or another zone's memory, up to this frame.
    Interrupted(FrameIndex),
    /// Content that cannot be moved, up to this frame.
    Immovable(FrameIndex),
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
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
        if request.frames > self.frames.len() {
            return Err(Error::OutOfMemory);
        }
        self.check_level(zones, request).or_else(|_| {
            self.drain_all_cpus(context);
            self.check_level(zones, request)
        })?;
        let (mut is_busy, mut too_full) = (false, None);
        for zone in self.usable(zones, &request.near) {
            let mut next = self.first_place(request, FrameIndex(0));
            while let Some((first, end)) = next {
                let passed = match self.survey(zone, first, end, is_busy) {
                    Place::Interrupted(passed) => passed,
                    Place::Immovable(passed) => {
                        is_busy = true;
                        passed
                    }
                    Place::Promising => match self.try_place(context, zone, first, end, owner) {
                        Ok(()) => {
                            let near = &request.near;
                            self.note_numa(context, zones, near, zone, request.frames);
                            return Ok(self.frames.pfn_of(first));
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
                next = self.first_place(request, passed.max(FrameIndex(first.0 + 1)));
            }
        }
        // If content has no room to move to, freeing memory will help.
        let otherwise = if is_busy { Error::RangeBusy } else { Error::OutOfMemory };
        Err(too_full.unwrap_or(otherwise))
    }

    fn try_place(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        first: FrameIndex,
        end: FrameIndex,
        owner: &dyn Migrate,
    ) -> Result<(), Obstacle> {
        let isolation = Isolation::new(self, context, zone, first, end)?;
        isolation.empty(first, end, owner)?;
        isolation.take(first, end);
        Ok(())
    }

    /// Refuses a place that contains holes.
    fn check_place(&self, at: Pfn, request: &RangeRequest) -> Result<(), Error> {
        if at.get() & (request.align.get() - 1) != 0 {
            return Err(Error::Misaligned);
        }
        let first = self.frames.index_of(at).ok_or(Error::OutsideSpan)?;
        if request.frames.get() > self.frames.len().get() - u64::from(first.0) {
            return Err(Error::OutsideSpan);
        }
        let mut frames = (first.0..first.0 + request.frames.get() as u32).map(FrameIndex);
        let hole = frames.any(|frame| self.frames.state(frame) == FrameState::HOLE);
        if hole { Err(Error::ForeignFrame) } else { Ok(()) }
    }

    /// Whether so many frames can be taken without going below the minimum watermarks. All nodes
    /// count, since content may have to move to any of them.
    fn check_level(&self, zones: &[u16], request: &RangeRequest) -> Result<(), Error> {
        let limit = request.near.effective_limit();
        let (mut free, mut spare) = (0, 0);
        for zone in zones.iter().map(|&zone| ZoneIndex(zone)) {
            let level = self.zone(zone).free().get();
            free += level;
            let floor = self.zone(zone).watermarks().floor(Watermark::Min, limit).unwrap_or(0);
            spare += level.saturating_sub(floor);
        }
        let wanted = request.frames.get();
        match (spare >= wanted, free >= wanted) {
            (true, _) => Ok(()),
            (false, true) => Err(Error::BelowWatermark),
            (false, false) => Err(Error::OutOfMemory),
        }
    }

    /// The first place at or after `from` for a range.
    fn first_place(
        &self,
        request: &RangeRequest,
        from: FrameIndex,
    ) -> Option<(FrameIndex, FrameIndex)> {
        let from = self.frames.pfn_of(from).get();
        let first = match request.at {
            Some(at) => Some(at.get()).filter(|&at| at >= from)?,
            None => from.checked_next_multiple_of(request.align.get())?,
        };
        let first = self.frames.index_of(Pfn::new(first))?;
        let end = u64::from(first.0) + request.frames.get();
        (end <= self.frames.len().get()).then_some((first, FrameIndex(end as u32)))
    }

    /// Finds, without any lock, what prevents a range here. With `known` false, when no place is
    /// yet known to be all memory, a place is `Immovable` only if it is.
    fn survey(&self, zone: ZoneIndex, first: FrameIndex, end: FrameIndex, known: bool) -> Place {
        let mut immovable = None;
        let mut at = first;
        while at < end {
            if self.blocks.zone(at) != Some(zone) {
                return Place::Interrupted(at.head(Order::PAGEBLOCK).after(Order::PAGEBLOCK));
            }
            if self.frames.state(at) == FrameState::HOLE {
                return Place::Interrupted(at.after(Order::ZERO));
            }
            let isolated = self.blocks.block_type(at) == BlockType::Isolated;
            let (next, fixed) = match self.head_of(at) {
                _ if isolated => (at.head(Order::PAGEBLOCK).after(Order::PAGEBLOCK), true),
                Ok((head, state)) => {
                    let movable = state.block_type() == BlockType::of(MigrateType::Movable);
                    let next = head.after(state.order().unwrap_or(Order::ZERO));
                    (next, state.tag() == Tag::Allocated && !movable)
                }
                Err(_) => (at.after(Order::ZERO), false),
            };
            if fixed && known {
                return Place::Immovable(next);
            }
            if fixed {
                immovable.get_or_insert(next);
            }
            at = next.max(at.after(Order::ZERO));
        }
        immovable.map_or(Place::Promising, Place::Immovable)
    }
}

/// Where to continue after a place that could not be emptied. For ranges of at least a pageblock,
/// the next place skips the whole pageblock of the obstacle, since each attempt is expensive.
fn skip(obstacle: FrameIndex, request: &RangeRequest) -> FrameIndex {
    let order =
        if request.frames < Order::PAGEBLOCK.frames() { Order::ZERO } else { Order::PAGEBLOCK };
    obstacle.head(order).after(order)
}
