//! Walking over the frames of a zone, pageblock by pageblock, and merging what was left unmerged.

use super::{Policy, Skeleton};
use crate::designs::Context;
use crate::memmap::block::ZoneIndex;
use crate::memmap::frame::{FrameIndex, Tag};
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{FrameCount, Order};

/// The zone lock is dropped after so many records have been looked at.
pub(super) const WINDOW_FRAMES: u32 = 32;

/// A walk over the frames of a zone, during which their marks can be trusted. Ends when dropped.
pub(super) struct Walk<'a, P: Platform, Y: Policy<P>> {
    design: &'a Skeleton<P, Y>,
    platform: &'a P,
    zone: ZoneIndex,
}

impl<'a, P: Platform, Y: Policy<P>> Walk<'a, P, Y> {
    pub(super) fn new(design: &'a Skeleton<P, Y>, platform: &'a P, zone: ZoneIndex) -> Self {
        Y::begin_walk(design, platform, zone);
        Walk { design, platform, zone }
    }
}

impl<P: Platform, Y: Policy<P>> Drop for Walk<'_, P, Y> {
    fn drop(&mut self) {
        Y::end_walk(self.design, self.platform, self.zone);
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// The pageblocks of a zone, from the lowest upwards.
    pub(super) fn pageblocks_of(&self, zone: ZoneIndex) -> impl Iterator<Item = FrameIndex> {
        let all = (0..self.frames.len().get() as u32).step_by(1 << Order::PAGEBLOCK.get());
        all.map(FrameIndex).filter(move |&pageblock| self.blocks.zone(pageblock) == Some(zone))
    }

    /// Collects what could serve a request: empties the lists of all CPUs and, where merging is put
    /// off, merges what lies in the zones, until one can serve.
    pub(super) fn collect(&self, context: Context<'_, P>, zones: &[u16], request: &Request) {
        self.drain_all_cpus(context);
        if Y::MERGES_LATE && request.order > Order::ZERO {
            for zone in self.usable(zones, request) {
                let _walk = Walk::new(self, context.platform, zone);
                let limit = request.effective_limit();
                for pageblock in self.pageblocks_of(zone) {
                    if self.merge_late(context.platform, zone, pageblock) > FrameCount::ZERO
                        && self.zone(zone).watermark_ok(request.order, request.watermark, limit)
                    {
                        return;
                    }
                }
            }
        }
    }

    /// Merges frames of a pageblock that were left unmerged; returns how many. Looks without the
    /// lock first.
    pub(super) fn merge_late(
        &self,
        platform: &P,
        zone: ZoneIndex,
        pageblock: FrameIndex,
    ) -> FrameCount {
        if !self.blocks.has_unmerged(pageblock) {
            return FrameCount::ZERO;
        }
        // Cleared first: whatever is left unmerged from now on sets it again.
        let guard = self.lock_zone(platform, zone);
        self.blocks.set_unmerged(pageblock, false);
        drop(guard);
        let (mut merged, end) = (0, pageblock.after(Order::PAGEBLOCK).0);
        let is_unmerged = |frame| {
            let state = self.frames.state(frame);
            state.tag() == Tag::Buddy && state.is_unmerged()
        };
        let mut at = pageblock.0;
        while at < end {
            if !is_unmerged(FrameIndex(at)) {
                at += 1;
                continue;
            }
            let window = at..end.min(at + WINDOW_FRAMES);
            at = window.end;
            let guard = self.lock_zone(platform, zone);
            merged += window.filter(|&frame| guard.buddy.merge_late(FrameIndex(frame))).count();
        }
        FrameCount::new(merged as u64)
    }
}
