//! Merging late: single frames that were left unmerged when they returned to their zone.
//!
//! A request that finds no block searches the zones for a pageblock of which one can be made,
//! merges that, and takes the block in the same hold of the zone lock. The search goes on where the
//! last one in the zone stopped, and ends after one round: then all that could have been merged to
//! a block for the request has been. What is left unmerged behind it meanwhile, it does not see.
//!
//! That a scanner keeps its place, stops as soon as there is a block, and captures it, is as in
//! Linux 6.12 `mm/compaction.c`. What deviates from the series: `docs/designs.md`.

use core::ops::Range;

use super::walk::{WINDOW_FRAMES, Walk};
use super::{Policy, Skeleton};
use crate::fallback::Step;
use crate::frame::Tag;
use crate::kind::Kind;
use freehold::designs::Context;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::platform::Platform;
use freehold::request::Request;
use freehold::units::{FrameCount, Order};
use freehold::zone::watermark::Watermark;

/// What came of the merge of a pageblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Merged {
    /// Frames that were merged with a buddy late.
    pub(super) frames: FrameCount,
    /// The block for the request. Its user holds it.
    pub(super) taken: Option<FrameIndex>,
    /// Whether there was a block for the request, but the level did not allow it.
    denied: bool,
}

/// On whose behalf a pageblock is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// A search, which passes by what another call is merging, and gives up once no block can be
    /// made of the pageblock.
    Search,
    /// The same, but it joins in what another call is merging.
    SearchAgain,
    /// A compaction, which makes room in the pageblock afterwards.
    Compaction,
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// Whether merging late can help a request.
    pub(super) fn may_merge_late(request: &Request) -> bool {
        Y::MERGES_LATE && request.order() > Order::ZERO
    }

    /// Merges what was left unmerged in the zones until there is a block for the request, and takes
    /// it. `None` once no zone has such a block, merged or not, that the request may take.
    ///
    /// Cost: while there are pageblocks that a block can be made of, one of them is merged. If
    /// there is none, the zones' unmerged pageblocks are looked at once, a few frames of each.
    pub(super) fn alloc_merging(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
    ) -> Option<FrameIndex> {
        if !Self::may_merge_late(request) {
            return None;
        }
        self.usable(zones, request).find_map(|zone| {
            let block = self.search_and_merge(context, zone, request)?;
            self.note_numa(context, zones, request, zone, request.order().frames());
            Some(block)
        })
    }

    fn search_and_merge(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
    ) -> Option<FrameIndex> {
        let order = request.order();
        let mut walk = None;
        // First past what other calls are merging. But they may not take what becomes of it, so a
        // second round does not leave it out.
        for round in [For::Search, For::SearchAgain] {
            let mut passed_by = false;
            let (place, end) = self.blocks.unmerged_from(zone);
            for part in [place..end, FrameIndex(0)..place] {
                let mut at = part.start;
                while let Some(pageblock) = self.blocks.next_unmerged(zone, at, part.end) {
                    at = pageblock.after(Order::PAGEBLOCK);
                    let (place, _) = self.blocks.unmerged_from(zone);
                    let passed = pageblock < place && place < part.end;
                    if round == For::Search && (passed || self.blocks.is_merging(pageblock)) {
                        // Another call merges it, or is about to, or has looked at it by now.
                        passed_by = true;
                        continue;
                    }
                    if !self.could_form(pageblock, order) {
                        continue;
                    }
                    // Before this call waits for the lock, so that others search elsewhere.
                    if round == For::Search && !self.blocks.search_on(zone, place, at) {
                        at = pageblock;
                        continue;
                    }
                    walk.get_or_insert_with(|| Walk::new(self, context.platform, zone));
                    match self.merge_late(context, zone, pageblock, Some(request), round) {
                        Some(Merged { taken: Some(block), .. }) => return Some(block),
                        Some(Merged { denied: true, .. }) => return None,
                        Some(_) => {}
                        None => passed_by = true,
                    }
                }
            }
            if !passed_by {
                break;
            }
        }
        // What other calls merged, or freed, since this one looked there.
        self.allows(zone, request, request.depth())
            .then(|| self.alloc_directly(context, zone, Kind::of(request)))
            .flatten()
    }

    /// Whether a pageblock may have a place for a block of `order` where everything is free. Reads
    /// marks without the lock: in each place of which it says no, a frame was in use when it was
    /// read. A frame within a block may have lost its mark to a merge just now, so it does not
    /// count as in use.
    fn could_form(&self, pageblock: FrameIndex, order: Order) -> bool {
        if order.frames().get() <= u64::from(WINDOW_FRAMES) {
            // To look at all places takes as long as to merge, after which the pageblock need not
            // be looked at again.
            return true;
        }
        let whole = order.max(Order::PAGEBLOCK);
        let end = pageblock.head(whole).after(whole);
        let mut place = pageblock.head(whole);
        let mut at = place;
        while at < place.after(order) {
            let state = self.frames.state(at);
            let next = at.after(state.order().unwrap_or(Order::ZERO));
            at = match state.tag() {
                Tag::Buddy | Tag::Tail => next,
                _ => {
                    place = FrameIndex(next.0.next_multiple_of(1 << order.get()));
                    place
                }
            };
            if place >= end {
                return false;
            }
        }
        true
    }

    /// Merges frames of a pageblock that were left unmerged, a few under each hold of the zone
    /// lock, until the pageblock ends or a block is free that serves the request, which it takes in
    /// that hold. `None` if it leaves the pageblock to another call.
    pub(super) fn merge_late(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        pageblock: FrameIndex,
        request: Option<&Request>,
        reason: For,
    ) -> Option<Merged> {
        let mut merged = Merged::default();
        if !self.blocks.has_unmerged(pageblock) {
            return Some(merged);
        }
        let end = pageblock.after(Order::PAGEBLOCK);
        let mut window = self.next_due(pageblock.0..end.0);
        // Whether this is the call that began the merge, once it has taken the lock.
        let mut began = None;
        loop {
            let guard = self.lock_zone(context.platform, zone);
            if self.blocks.zone(pageblock) != Some(zone) {
                // Its memory was removed.
                return Some(merged);
            }
            // What was seen before the merge began does not count as looked at: more may have been
            // left unmerged there.
            let seen = if began.is_some() { window.end } else { pageblock.0 };
            let mine = *began.get_or_insert_with(|| self.blocks.begin_merge(pageblock));
            if !mine && reason == For::Search {
                return None;
            }
            // While this call waited for the lock, others may have taken frames of the pageblock.
            let hopeless = reason != For::Compaction
                && request.is_some_and(|request| !self.could_form(pageblock, request.order()));
            if !hopeless {
                let due = window.filter(|&frame| guard.buddy.merge_late(FrameIndex(frame)));
                merged.frames += FrameCount::new(due.count() as u64);
            }
            if let Some(request) = request {
                // Only under the lock do counts and level agree.
                if self.allows(zone, request, request.depth()) {
                    let kind = Kind::of(request);
                    merged.taken = self.take_for_user(&guard, kind, &mut Step::default());
                }
                merged.denied = reason != For::Compaction
                    && merged.taken.is_none()
                    && self.allows(zone, request, Watermark::Ignore);
            }
            let stops = hopeless || merged.denied || merged.taken.is_some();
            let complete = !hopeless && seen == end.0;
            if !complete && !stops {
                drop(guard);
                window = self.next_due(seen..end.0);
                if !mine && window.is_empty() {
                    return Some(merged);
                }
                continue;
            }
            if mine {
                self.blocks.end_merge(pageblock, complete);
                if reason != For::Compaction && !complete && !hopeless {
                    // More blocks can be made of the rest.
                    self.blocks.search_on(zone, end, pageblock);
                }
            }
            match (merged.taken, request) {
                (Some(_), Some(request)) => {
                    self.unlock_and_note(context, zone, guard, |events| {
                        events.note_direct_alloc(request.order().frames());
                    });
                }
                _ => drop(guard),
            }
            return Some(merged);
        }
    }

    /// The next frames with a merge due, as far as can be seen without the lock.
    fn next_due(&self, frames: Range<u32>) -> Range<u32> {
        let (mut frames, end) = (frames.clone().map(FrameIndex), frames.end);
        let is_free = |frame| self.frames.state(frame).is(Tag::Buddy, Order::ZERO);
        let first = frames.find(|&frame| {
            let is_unmerged = is_free(frame) && self.frames.state(frame).is_unmerged();
            is_unmerged && is_free(frame.buddy(Order::ZERO))
        });
        let first = first.map_or(end, |frame| frame.0);
        first..end.min(first + WINDOW_FRAMES)
    }
}

#[cfg(test)]
mod tests;
