//! Walking the frames of a zone, pageblock by pageblock, and merging what was left unmerged.

use super::{Policy, Skeleton};
use crate::designs::Context;
use crate::designs::linux::frame::Tag;
use crate::fragmentation::blocks_of;
use crate::memmap::index::{FrameIndex, ZoneIndex};
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{FrameCount, Order};

/// The zone lock is dropped after visiting so many records.
pub(super) const WINDOW_FRAMES: u32 = 32;

/// A walk over the frames of a zone, during which their marks are reliable. Ends when dropped.
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
    /// The pageblocks of a zone, lowest first.
    pub(crate) fn pageblocks_of(&self, zone: ZoneIndex) -> impl Iterator<Item = FrameIndex> {
        self.blocks.pageblocks().filter(move |&at| self.blocks.zone(at) == Some(zone))
    }

    /// If merging is deferred, merges what lies in the zones, until one has `wanted` blocks for a
    /// request; returns whether one has. They may be gone when the caller takes them: then another
    /// CPU got them.
    pub(super) fn merge_zones_late(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
        wanted: usize,
    ) -> bool {
        if Self::may_merge_late(request) {
            for zone in self.usable(zones, request) {
                let _walk = Walk::new(self, context.platform, zone);
                let enough = || {
                    let (blocks, limit) =
                        (self.zone(zone).free_blocks(), request.effective_limit());
                    blocks_of(&blocks, request.order()) >= wanted as u64
                        && self.zone(zone).watermark_ok(request.order(), request.depth(), limit)
                };
                for pageblock in self.pageblocks_of(zone) {
                    if self.merge_late(context.platform, zone, pageblock) > FrameCount::ZERO
                        && enough()
                    {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Whether merging late can help a request.
    pub(super) fn may_merge_late(request: &Request) -> bool {
        Y::MERGES_LATE && request.order() > Order::ZERO
    }

    /// Merges frames of a pageblock that were left unmerged; returns how many. Checks without the
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
        let guard = self.lock_zone(platform, zone);
        self.blocks.begin_merge(pageblock);
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
        let guard = self.lock_zone(platform, zone);
        self.blocks.end_merge(pageblock);
        drop(guard);
        FrameCount::new(merged as u64)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::mem::MaybeUninit;
    use std::vec;
    use std::vec::Vec;

    use crate::config::{Config, MemoryRange};
    use crate::designs::LazyMerge;
    use crate::memmap::region::Metadata;
    use crate::testing::TestPlatform;
    use crate::units::{FrameCount, NodeId, Order, Pfn};
    use crate::{Immovable, PageAllocator, Request};

    type Frames = PageAllocator<TestPlatform, LazyMerge<TestPlatform>>;

    /// An allocator whose frames were all in use and are free again, unmerged.
    fn unmerged() -> Frames {
        let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(4096))];
        let cpus = [NodeId::new(0)];
        let min_free = Some(FrameCount::ZERO);
        let config = Config::new(&ranges, &cpus).min_free(min_free);
        let settings = Default::default();
        let layout = Frames::layout(&config, &settings).unwrap();
        let buffer = vec![MaybeUninit::uninit(); layout.size_unaligned()].leak();
        let metadata = Metadata::from_static(buffer);
        let frames = Frames::new(TestPlatform, &config, &settings, metadata).unwrap();
        let all: Vec<_> = core::iter::from_fn(|| frames.alloc(Request::default()).ok()).collect();
        assert_eq!(all.len(), 4096);
        all.iter().for_each(|&frame| frames.free(frame, Order::ZERO).unwrap());
        frames.drain_all();
        let free_blocks = frames.zones().next().unwrap().free_blocks;
        assert_eq!(free_blocks[0], 4096, "nothing has merged");
        frames
    }

    #[test]
    fn a_request_for_a_large_block_makes_up_for_merges() {
        for order in [1, 4, 9, 10].map(Order::new) {
            let frames = unmerged();
            let pfn = frames.alloc(Request::new(order)).expect("all is free");
            frames.free(pfn, order).unwrap();
            frames.validate().unwrap();
            let mut out = [Pfn::new(0); 3];
            assert_eq!(unmerged().alloc_bulk(Request::new(order), &mut out), Ok(3));
        }
    }

    #[test]
    fn compaction_and_ranges_find_unmerged_frames() {
        let frames = unmerged();
        let range = crate::RangeRequest::new(FrameCount::new(1000)).at(Pfn::new(100));
        let pfn = frames.alloc_range(range, &Immovable).expect("all is free");
        frames.validate().unwrap();
        frames.free_range(pfn, FrameCount::new(1000)).unwrap();
        frames.validate().unwrap();
        let report = frames.compact(&Immovable);
        assert!(report.merged_late > FrameCount::new(1000), "{report:?}");
        assert_eq!(frames.zones().next().unwrap().free_blocks[10], 4);
        frames.validate().unwrap();
    }
}
