//! Where a contiguous range may lie: the search that both families share.
//!
//! Source: Linux 6.12 `alloc_contig_pages`. What differs is told in `docs/designs.md`.

use crate::compact::{Migrate, MigrateError};
use crate::designs::Context;
use crate::error::Error;
use crate::memmap::index::{FrameIndex, FrameRange, ZoneIndex};
use crate::memmap::stretches::Stretches;
use crate::platform::Platform;
use crate::request::{RangeRequest, Request};
use crate::units::{FrameCount, NodeId, Order, Pfn};
use crate::zone::watermark::Watermark;

/// What a first look at a place says.
pub enum Place {
    /// There is nothing that could not be moved.
    Promising,
    /// A hole, or another zone's memory; and the first frame behind the last obstacle.
    Interrupted(FrameIndex),
    /// Content that cannot be moved; and the first frame behind the last of it.
    Immovable(FrameIndex),
}

/// Why a place could not be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Where the obstacle lies.
    pub at: FrameIndex,
    /// What the caller is told if no other place will do.
    pub error: Error,
}

/// A place for a range in a zone, and who can move what is there.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The zone.
    pub zone: ZoneIndex,
    /// The frames.
    pub range: FrameRange,
    /// The owner of the content.
    pub owner: &'a dyn Migrate,
}

/// What a design tells of its memory, and does with a place.
pub trait Places<P: Platform> {
    /// Which frames the tables have records for.
    fn stretches(&self) -> &Stretches<P>;

    /// Whether a frame of a range is no memory.
    fn has_hole(&self, range: FrameRange) -> bool;

    /// The node of a zone.
    fn node(&self, zone: ZoneIndex) -> NodeId;

    /// The free frames of a zone, and how many of them a request must leave.
    fn level_and_floor(&self, zone: ZoneIndex, request: &Request) -> (u64, u64);

    /// Has all CPUs give up what they cache.
    fn drain_all(&self, context: Context<'_, P>);

    /// A place in a zone where all seems to be free, if the design knows one without a search.
    fn free_place(&self, _zone: ZoneIndex, _request: &RangeRequest) -> Option<FrameRange> {
        None
    }

    /// Looks, without locks, for what keeps a range from lying here. Unless `is_memory`, which says
    /// that some place is known to be all memory, a place is `Immovable` only if it is.
    fn survey(&self, site: Site<'_>, is_memory: bool) -> Place;

    /// Empties a place and hands its frames out, as unmovable content.
    fn take(&self, context: Context<'_, P>, site: Site<'_>) -> Result<(), Obstacle>;

    /// Empties a place and takes its frames out of use: they are no memory any more.
    fn retire(&self, context: Context<'_, P>, site: Site<'_>) -> Result<(), Obstacle>;

    /// The zone of the pageblock that a frame lies in.
    fn zone_at(&self, frame: FrameIndex) -> Option<ZoneIndex>;

    /// Counts a range that was taken from a zone.
    fn note_range(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &RangeRequest,
        zone: ZoneIndex,
    );
}

/// Tries the places for a range, lowest first in one zone after the other, unless it may have one
/// that is known to be free. The node of the request is filled in.
pub fn alloc_range<P: Platform>(
    design: &impl Places<P>,
    context: Context<'_, P>,
    zones: &[u16],
    request: &RangeRequest,
    owner: &dyn Migrate,
) -> Result<Pfn, Error> {
    if let Some(at) = request.at {
        check_place(design, at, request)?;
    }
    if request.frames > design.stretches().frames() {
        return Err(Error::OutOfMemory);
    }
    // However few are left: the owner may evict what is in the way.
    if request.near.depth() != Watermark::Ignore {
        check_room(design, zones, request).or_else(|_| {
            design.drain_all(context);
            check_room(design, zones, request)
        })?;
    }
    let (mut is_busy, mut too_full) = (false, None);
    for zone in usable(zones, &request.near, |zone| design.node(zone)) {
        let is_soonest = request.is_soonest && request.at.is_none();
        if is_soonest
            && let Some(range) = design.free_place(zone, request)
            && design.take(context, Site { zone, range, owner }).is_ok()
        {
            design.note_range(context, zones, request, zone);
            return Ok(design.stretches().pfn_of(range.first));
        }
        let mut next = first_place(design, request, FrameIndex(0));
        while let Some(range) = next {
            let site = Site { zone, range, owner };
            let passed = match design.survey(site, is_busy) {
                Place::Interrupted(passed) => passed,
                Place::Immovable(passed) => {
                    is_busy = true;
                    passed
                }
                Place::Promising => match design.take(context, site) {
                    Ok(()) => {
                        design.note_range(context, zones, request, zone);
                        return Ok(design.stretches().pfn_of(range.first));
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
            next = first_place(design, request, passed.max(FrameIndex(range.first.0 + 1)));
        }
    }
    // Where content has no room to move to, freeing memory will help.
    let otherwise = if is_busy { Error::RangeBusy } else { Error::OutOfMemory };
    Err(too_full.unwrap_or(otherwise))
}

/// Takes the frames of a range of one zone out of use.
pub fn remove_range<P: Platform>(
    design: &impl Places<P>,
    context: Context<'_, P>,
    first: Pfn,
    frames: FrameCount,
    owner: &dyn Migrate,
) -> Result<(), Error> {
    let range = design.stretches().locate(first, frames).ok_or(Error::OutsideSpan)?;
    let zone = design.zone_at(range.first).ok_or(Error::ForeignFrame)?;
    if design.has_hole(range) {
        return Err(Error::ForeignFrame);
    }
    let mut at = range.first;
    while at < range.end {
        match design.zone_at(at) {
            Some(of) if of == zone => {}
            Some(_) => return Err(Error::BadRange),
            // Another call has removed it since.
            None => return Err(Error::ForeignFrame),
        }
        at = at.head(Order::PAGEBLOCK).after(Order::PAGEBLOCK);
    }
    let site = Site { zone, range, owner };
    let removed = match design.survey(site, false) {
        Place::Interrupted(_) | Place::Immovable(_) => Err(Error::RangeBusy),
        Place::Promising => design.retire(context, site).map_err(|obstacle| obstacle.error),
    };
    // Another call may have removed part of it meanwhile.
    removed.map_err(|error| if design.has_hole(range) { Error::ForeignFrame } else { error })
}

/// Has an owner get rid of content that no target will do for, or says why none does.
///
/// # Errors
///
/// That, if the owner cannot either.
pub fn evict(
    owner: &dyn Migrate,
    from: Pfn,
    order: Order,
    no_target: Error,
) -> Result<Result<(), MigrateError>, Error> {
    match owner.evict(from, order) {
        Err(MigrateError::Failed) => Err(no_target),
        evicted => Ok(evicted),
    }
}

/// The zones of a list that a request, whose node is filled in, may use.
pub fn usable<'a>(
    zones: &'a [u16],
    request: &'a Request,
    node: impl Fn(ZoneIndex) -> NodeId + 'a,
) -> impl Iterator<Item = ZoneIndex> + 'a {
    zones.iter().map(|&zone| ZoneIndex(zone)).filter(move |&zone| {
        !request.is_only_node() || request.preferred_node() == Some(node(zone))
    })
}

/// The first place at or behind a frame for a range.
pub fn first_place<P: Platform>(
    design: &impl Places<P>,
    request: &RangeRequest,
    from: FrameIndex,
) -> Option<FrameRange> {
    match request.at {
        Some(at) => {
            let range = design.stretches().locate(at, request.frames);
            range.filter(|range| range.first >= from)
        }
        None => design.stretches().place(from, request.align, request.frames),
    }
}

/// Refuses a place that is not all memory.
fn check_place<P: Platform>(
    design: &impl Places<P>,
    at: Pfn,
    request: &RangeRequest,
) -> Result<(), Error> {
    if at.get() & (request.align.get() - 1) != 0 {
        return Err(Error::Misaligned);
    }
    let range = design.stretches().locate(at, request.frames).ok_or(Error::OutsideSpan)?;
    if design.has_hole(range) { Err(Error::ForeignFrame) } else { Ok(()) }
}

/// Whether so many frames can be taken without going below the watermarks. Content may have
/// to move to any node, so all of them count.
fn check_room<P: Platform>(
    design: &impl Places<P>,
    zones: &[u16],
    request: &RangeRequest,
) -> Result<(), Error> {
    let (mut free, mut spare) = (0, 0);
    for &zone in zones {
        let (level, floor) = design.level_and_floor(ZoneIndex(zone), &request.near);
        free += level;
        spare += level.saturating_sub(floor);
    }
    let wanted = request.frames.get();
    match (spare >= wanted, free >= wanted) {
        (true, _) => Ok(()),
        (false, true) => Err(Error::BelowWatermark),
        (false, false) => Err(Error::OutOfMemory),
    }
}

/// Where to go on after a place that could not be emptied. With ranges of pageblocks and more, the
/// next place leaves out the whole pageblock of the obstacle, since each attempt costs so much.
fn skip(obstacle: FrameIndex, request: &RangeRequest) -> FrameIndex {
    let order =
        if request.frames < Order::PAGEBLOCK.frames() { Order::ZERO } else { Order::PAGEBLOCK };
    obstacle.head(order).after(order)
}
