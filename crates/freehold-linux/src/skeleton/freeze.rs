//! Stopping all callers while the metadata is copied, and repairing the copy.
//!
//! Calls change lists, marks and counts under a lock, so a copy made while all locks are held finds
//! these consistent. Little is done without a lock: a block claimed by a call that is about to free
//! it stays claimed in the copy, that is, in use; what a policy does without a lock,
//! [`Policy::repair`] repairs.

use super::{Policy, Skeleton};
use crate::pageblock::BlockType;
use freehold::designs::Context;
use freehold::designs::traits::Freeze;
use freehold::memmap::index::ZoneIndex;
use freehold::platform::{Platform, RawLock};

impl<P: Platform, Y: Policy<P>> Freeze<P> for Skeleton<P, Y> {
    /// Takes all locks, in the order in which calls that hold several take them.
    fn freeze(&self, context: Context<'_, P>) {
        self.hotplug.get(0).lock().lock();
        for zone in self.zone_indexes() {
            for cpu in 0..context.topology.cpus() {
                self.per_cpu(cpu, zone).pages.hold();
            }
        }
        self.zones.iter().for_each(|zone| zone.hold());
    }

    fn thaw(&self, context: Context<'_, P>) {
        self.zones.iter().for_each(|zone| zone.let_go());
        for zone in self.zone_indexes() {
            for cpu in 0..context.topology.cpus() {
                self.per_cpu(cpu, zone).pages.let_go();
            }
        }
        self.hotplug.get(0).lock().unlock();
    }

    fn thaw_copy(&self, context: Context<'_, P>) {
        for zone in self.zone_indexes() {
            Y::repair(self, context.platform, zone);
        }
        self.thaw(context);
        for zone in self.zone_indexes() {
            self.end_of_calls(context, zone);
        }
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// Ends what calls had begun with pageblocks of a zone that do not exist in this copy: releases
    /// isolated ones, and ends merges.
    fn end_of_calls(&self, context: Context<'_, P>, zone: ZoneIndex) {
        for pageblock in self.pageblocks_of(zone) {
            if self.blocks.is_merging(pageblock) {
                let _guard = self.lock_zone(context.platform, zone);
                self.blocks.end_merge(pageblock, false);
            }
            if self.blocks.block_type(pageblock) == BlockType::Isolated {
                self.lock_zone(context.platform, zone).release(pageblock);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::mem::forget;
    use std::vec::Vec;

    use super::super::isolate::Isolation;
    use super::*;
    use crate::testing::TestPlatform;
    use crate::tests::allocator;
    use crate::{BlockOwner, Cluster, LazyMerge, MergeAhead, ZoneLock};
    use freehold::memmap::index::{FrameIndex, FrameRange};
    use freehold::units::Order;
    use freehold::{PageAllocator, Request};

    const ALL: u64 = 8 * 512;

    type Frames<Y> = PageAllocator<TestPlatform, Skeleton<TestPlatform, Y>>;

    /// Makes a copy of the current state, in place. So many frames are lost to it.
    fn copy<Y: Policy<TestPlatform>>(frames: &Frames<Y>, lost: u64) {
        let frozen = frames.freeze();
        frames.thaw_copy(frozen);
        for _ in 0..2 {
            let census = frames.validate().unwrap();
            assert_eq!((census.managed.get(), census.isolated.get()), (ALL, 0));
            let all: Vec<_> =
                core::iter::from_fn(|| frames.alloc(Request::default()).ok()).collect();
            assert_eq!(all.len() as u64, ALL - lost);
            all.iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).unwrap());
            frames.drain_all();
        }
    }

    /// Other threads free, allocate a range, and check: each has stopped at some step.
    fn mends<Y: Policy<TestPlatform>>(frames: Frames<Y>) {
        let pfn = frames.alloc(Request::default()).unwrap();
        copy(&frames, 1);
        let (design, context, zone) = (frames.design(), frames.context(), ZoneIndex(0));
        design.claim(context.platform, pfn, Order::ZERO).unwrap();
        let isolated = FrameRange { first: FrameIndex(1024), end: FrameIndex(2048) };
        let isolation = Isolation::new(design, context, zone, isolated);
        forget(isolation.unwrap_or_else(|_| panic!("it is not isolated")));
        Y::begin_walk(design, context.platform, zone);
        copy(&frames, 1);
    }

    #[test]
    fn a_copy_is_in_order_whatever_others_were_doing() {
        mends(allocator::<ZoneLock<_>>(ALL, 2, &Default::default()));
        mends(allocator::<LazyMerge<_>>(ALL, 2, &Default::default()));
        mends(allocator::<Cluster<_>>(ALL, 2, &Default::default()));
        mends(allocator::<MergeAhead<_>>(ALL, 2, &Default::default()));
        mends(allocator::<BlockOwner<_>>(ALL, 2, &Default::default()));
    }
}
