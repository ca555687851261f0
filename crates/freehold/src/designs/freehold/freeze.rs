//! Freeze: stops all calls while the metadata is copied, for `fork`, and repairs the copy.
//!
//! A freeze takes the locks of all caches, so what caches hold is consistent in the copy, and the
//! copy has one thread. The rest changes without locks, step by step. A call of another thread may
//! have come to any step. And since the copy is made a page of memory at a time, it may have a
//! later step of that call and lack an earlier one, in another page. What is certain:
//!
//! * Frames and pageblocks that a thread of the copy has allocated, or a cache holds, look as they
//!   did all the time, since no other thread changes them.
//! * Each frame, and each state of a pageblock, looks as it did at some time meanwhile.
//!
//! So the repair believes states and bitmaps, and rebuilds levels, trees and remote queues from
//! them. A frame that is in use in the bitmap stays in use. A pageblock whose state says that it
//! was allocated whole stays allocated, though not as part of the same block, if that does not fit.
//! What is doubtful is lost to the copy rather than allocated twice.

use super::Freehold;
use super::caches::lock::{CacheGuard, IfLeased};
use super::pageblocks::huge::pageblocks_in;
use super::pageblocks::state::{Holder, State, Use};
use super::pageblocks::{FRAMES, PageblockIndex};
use super::zones::{TREES, Zones};
use crate::designs::Context;
use crate::designs::traits::Freeze;
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, RawLock};
use crate::stat::Census;
use crate::units::Order;

/// The zone whose cache records that a freeze has the lock over all caches of a CPU.
const ANY_ZONE: ZoneIndex = ZoneIndex(0);

impl<P: Platform> Freeze<P> for Freehold<P> {
    /// Takes all locks but those of leases that cannot be revoked. No call waits for one of them
    /// while it holds another, except for the hotplug lock.
    fn freeze(&self, context: Context<'_, P>) {
        self.zones.hotplug().lock().lock();
        self.zones.iter().for_each(|zone| zone.lock_compaction());
        for cpu in 0..self.zones.cpu_count() {
            let guard = self.lock(context, cpu, ANY_ZONE, IfLeased::Revoke);
            let held = guard.map(CacheGuard::leave_locked).is_some();
            self.cache(cpu, ANY_ZONE).set_frozen(held);
        }
    }

    fn thaw(&self, _context: Context<'_, P>) {
        for cpu in 0..self.zones.cpu_count() {
            if self.cache(cpu, ANY_ZONE).set_frozen(false) {
                self.per_cpu(cpu).unlock();
            }
        }
        self.zones.iter().for_each(|zone| zone.unlock_compaction());
        self.zones.hotplug().lock().unlock();
    }

    fn thaw_copy(&self, context: Context<'_, P>) {
        self.repair();
        self.thaw(context);
    }
}

impl<P: Platform> Freehold<P> {
    /// Repairs everything but what caches hold. All locks are held, except for those of leases.
    pub(crate) fn repair(&self) {
        for cpu in 0..self.zones.cpu_count() {
            self.repair_cpu(cpu);
            for zone in self.zones.indexes() {
                self.zones.cpu_zone(cpu, zone).queue.clear();
                self.zones.forget_sections(cpu, zone);
            }
        }
        for zone in self.zones.indexes() {
            self.repair_holes(zone);
            self.zones.pageblocks_of(zone).for_each(|pageblock| self.repair_head(pageblock));
            self.zones.pageblocks_of(zone).for_each(|pageblock| self.repair_pageblock(pageblock));
            self.repair_trees(zone);
            let mut census = Census::default();
            self.zones.count(zone, &mut census);
            self.zones.zone(zone).set_level(census.free.get());
            self.zones.pageblocks_of(zone).for_each(|pageblock| self.repair_queued(pageblock));
        }
    }

    /// Keeps the caches from all callers for good if the freeze does not have their lock. The lease
    /// that could not be revoked may have ended since, and another call may have taken the lock. It
    /// is not known what of these caches is half done.
    fn repair_cpu(&self, cpu: usize) {
        let (per_cpu, cache) = (self.per_cpu(cpu), self.cache(cpu, ZoneIndex(0)));
        let frozen = cache.set_frozen(false);
        cache.set_frozen(frozen);
        if !frozen {
            per_cpu.try_lock();
            per_cpu.lease.lose();
        }
    }

    /// Repairs frames that look like holes: the copy has their being freed, but not the claim
    /// before it. Only where all pageblocks of a zone are memory throughout, and so none of them is
    /// a hole.
    fn repair_holes(&self, zone: ZoneIndex) {
        let has_memory = |pageblock: &PageblockIndex| {
            self.pageblocks().state(*pageblock).used_for() != Use::Absent
        };
        let pageblocks = self.zones.pageblocks_of(zone).filter(has_memory).count() as u64;
        if self.zones.zone(zone).managed() == pageblocks * u64::from(FRAMES) {
            let all = self.zones.pageblocks_of(zone).filter(has_memory);
            all.for_each(|pageblock| self.pageblocks().fill_holes(pageblock));
        }
    }

    /// Repairs a block of whole pageblocks of which only a part is left, or that another thread was
    /// about to free in whole or in part: what is left becomes blocks of its own. It stays
    /// allocated.
    fn repair_head(&self, head: PageblockIndex) {
        let state = self.pageblocks().state(head);
        if state.used_for() != Use::Huge {
            return;
        }
        let end = (head.0 + pageblocks_in(state.order())).min(self.pageblocks().len() as u32);
        let used_for =
            |pageblock: u32| self.pageblocks().state(PageblockIndex(pageblock)).used_for();
        let are_tails = |from: u32, to: u32| {
            to <= end && (from..to).all(|pageblock| used_for(pageblock) == Use::HugeTail)
        };
        if state.holder() == Holder::None && are_tails(head.0 + 1, end) {
            return;
        }
        let mut at = head.0;
        while at < end {
            let pageblock = PageblockIndex(at);
            at += match used_for(at) {
                Use::Huge if pageblock != head => {
                    pageblocks_in(self.pageblocks().state(pageblock).order())
                }
                Use::Huge | Use::HugeTail => {
                    let fits = |order: &Order| {
                        self.pageblocks()
                            .number(pageblock)
                            .is_multiple_of(u64::from(pageblocks_in(*order)))
                            && are_tails(at + 1, at + pageblocks_in(*order))
                    };
                    let order = Order::PAGEBLOCK.to(state.order()).take_while(fits).last();
                    let order = order.unwrap_or(Order::PAGEBLOCK);
                    self.mark_huge(pageblock, order);
                    pageblocks_in(order)
                }
                Use::Absent | Use::Whole | Use::Split => 1,
            };
        }
    }

    /// Makes a pageblock the head of an allocated block.
    fn mark_huge(&self, pageblock: PageblockIndex, order: Order) {
        let state = self.pageblocks().state(pageblock).repaired(Use::Huge, order);
        self.pageblocks().repair_state(pageblock, state);
        (0..pageblocks_in(order))
            .for_each(|nth| self.pageblocks().set_all_free(PageblockIndex(pageblock.0 + nth)));
    }

    /// Makes a pageblock agree with its state, unless a cache holds it. There are no other holders,
    /// and no pageblock is isolated.
    fn repair_pageblock(&self, pageblock: PageblockIndex) {
        let (pageblocks, state) = (self.pageblocks(), self.pageblocks().state(pageblock));
        let is_cached = matches!(state.holder(), Holder::Cpu(_));
        let (mut used_for, mut order) = (state.used_for(), state.order());
        match used_for {
            Use::Absent | Use::Huge => {}
            // The block that it was part of is gone, or was not there yet.
            Use::HugeTail if pageblocks.head_of(pageblock).is_none() => {
                pageblocks.set_all_free(pageblock);
                (used_for, order) = (Use::Huge, Order::PAGEBLOCK);
            }
            Use::HugeTail => {}
            Use::Whole if is_cached => {}
            Use::Whole => pageblocks.set_all_free(pageblock),
            Use::Split if is_cached => pageblocks.end_claims(pageblock),
            Use::Split => {
                pageblocks.merge_remote(pageblock);
                pageblocks.end_claims(pageblock);
                if pageblocks.is_whole(pageblock) {
                    pageblocks.clear_all_unmovable(pageblock);
                    (used_for, order) = (Use::Whole, Order::ZERO);
                } else {
                    order = pageblocks.largest_run(pageblock);
                }
            }
        }
        pageblocks.repair_state(pageblock, state.repaired(used_for, order));
        pageblocks.repair_uses(pageblock);
    }

    /// Rebuilds the trees of a zone.
    fn repair_trees(&self, zone: ZoneIndex) {
        let state = |bit| {
            let pageblock = self.zones.pageblock_at(zone, bit);
            // Trees may begin before the tables, and end after the zone.
            let is_here = pageblock.index() < self.pageblocks().len()
                && self.pageblocks().zone_if_any(pageblock) == Some(zone);
            let state = if is_here { self.pageblocks().state(pageblock) } else { State::ABSENT };
            (pageblock, state, state.holder() == Holder::None)
        };
        let trees = |bit| match state(bit) {
            (_, state, true) if state.used_for() == Use::Whole => 1,
            (pageblock, state, true)
                if state.is_split() && self.pageblocks().count_free(pageblock) > 0 =>
            {
                Zones::<P>::trees_of(state) << 1
            }
            _ => 0,
        };
        self.zones.forest.rebuild(self.zones.zone(zone).pool(), TREES, trees);
    }

    /// Queues a pageblock with remote frees, or collects them.
    fn repair_queued(&self, pageblock: PageblockIndex) {
        if self.pageblocks().state(pageblock).is_split() && self.pageblocks().has_remote(pageblock)
        {
            self.zones.ensure_collected(0, pageblock);
        }
    }
}

/// Calls of other threads that are half done, each up to some step: what a copy may look like.
#[cfg(test)]
mod tests {
    extern crate std;

    use core::mem::{MaybeUninit, forget};
    use std::vec;
    use std::vec::Vec;

    use super::super::contiguous::isolate::Isolation;
    use super::super::pageblocks::run::{Run, Span};
    use super::super::pageblocks::state::Planted;
    use super::super::settings::{DoubleFree, FreeholdSettings};
    use super::*;
    use crate::config::{Config, MemoryRange};
    use crate::memmap::region::Metadata;
    use crate::platform::RawLock;
    use crate::testing::{TestPlatform, refuse_barriers};
    use crate::units::MigrateType;
    use crate::units::{CpuId, FrameCount, NodeId, Pfn};
    use crate::{Error, PageAllocator, Request};

    type Design = Freehold<TestPlatform>;
    type Frames = PageAllocator<TestPlatform, Design>;

    /// Frames of the allocators here: sixteen pageblocks.
    const ALL: u64 = 16 * 512;

    const ZONE: ZoneIndex = ZoneIndex(0);

    fn new() -> Frames {
        with(&FreeholdSettings::default())
    }

    fn with(settings: &FreeholdSettings) -> Frames {
        let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(ALL))];
        let cpus = [NodeId::new(0); 2];
        let min_free = Some(FrameCount::ZERO);
        let config = Config::new(&ranges, &cpus).min_free(min_free);
        let layout = Frames::layout(&config, settings).unwrap();
        let buffer = vec![MaybeUninit::uninit(); layout.size_unaligned()].leak();
        let metadata = Metadata::from_static(buffer);
        Frames::new(TestPlatform, &config, settings, metadata).unwrap()
    }

    /// Makes a copy of all there is, in place: as if only one thread were left. `lost` frames stay
    /// allocated.
    fn copy(frames: &Frames, lost: u64) {
        let frozen = frames.freeze();
        frames.thaw_copy(frozen);
        let census = frames.validate().unwrap();
        assert_eq!((census.managed.get(), census.isolated.get()), (ALL, 0));
        frames.drain_all();
        assert_eq!(frames.validate().unwrap().allocated.get(), lost);
        let all: Vec<_> = core::iter::from_fn(|| frames.alloc(Request::default()).ok()).collect();
        assert_eq!(all.len() as u64, ALL - lost);
        assert!(frames.design().zones.is_quiet(), "no drain goes on for ever");
        all.iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).unwrap());
        frames.drain_all();
        assert_eq!(frames.validate().unwrap().allocated.get(), lost);
    }

    fn alloc(frames: &Frames, order: u8) -> Pfn {
        frames.alloc(Request::new(Order::new(order))).unwrap()
    }

    fn block_of(pfn: Pfn) -> PageblockIndex {
        PageblockIndex::of_frame(pfn.get() as u32)
    }

    #[test]
    fn nothing_is_lost_between_calls() {
        let frames = new();
        let held = [0, 3, 7, 9, 10].map(|order| (alloc(&frames, order), Order::new(order)));
        let lost = held.iter().map(|(_, order)| order.frames().get()).sum();
        copy(&frames, lost);
        held.iter().for_each(|&(pfn, order)| frames.free(pfn, order).unwrap());
        copy(&frames, 0);
    }

    #[test]
    fn pageblocks_that_walkers_held_are_free_again() {
        let frames = new();
        let pfn = alloc(&frames, 0);
        frames.drain_all();
        let (design, pageblock) = (frames.design(), block_of(pfn));
        // A walker has taken four frames, and not counted them.
        assert!(design.pageblocks().acquire(pageblock));
        design
            .pageblocks()
            .take_run(design.pageblocks().find_run(pageblock, Order::new(2)).unwrap());
        // Another call has taken a pageblock out of the pool, and not marked it.
        assert!(design.zones.acquire_whole(ZONE, 1, MigrateType::Movable).is_some());
        // And a drain has come no further.
        design.zones.mark_cached(1, ZONE);
        core::mem::forget(design.zones.begin_drain(1, ZONE));
        copy(&frames, 5);
    }

    #[test]
    fn frees_without_a_notice_are_found() {
        for marked in [false, true] {
            let frames = new();
            let design = frames.design();
            let pfns: Vec<_> = (0..1024).map(|_| alloc(&frames, 0)).collect();
            for &pfn in &pfns {
                let run = Run::at(pfn.get() as u32, Order::ZERO);
                design.pageblocks().put_remotely(run.word as usize, run.mask());
                if marked {
                    // On a stack, as its state says, but its link leads nowhere.
                    let queued = |state: State| state.planted(Planted::Queued);
                    design.pageblocks().update(block_of(pfn), queued);
                }
            }
            copy(&frames, 0);
        }
    }

    #[test]
    fn a_free_that_was_copied_without_its_claim_leaves_no_hole() {
        let frames = new();
        let pfn = alloc(&frames, 4);
        let run = Run::at(pfn.get() as u32, Order::new(4));
        frames.design().zones.pageblocks.put_remotely(run.word as usize, run.mask());
        // The first frame of a block has no tail bit.
        copy(&frames, 0);
    }

    #[test]
    fn half_a_claim_leaves_allocations_that_are_whole() {
        let frames = new();
        let pfn = alloc(&frames, 8);
        frames.drain_all();
        let word = Run::at(pfn.get() as u32, Order::ZERO).word as usize;
        frames.design().zones.pageblocks.begin_free_parts(word, !0).unwrap();
        copy(&frames, 256);
    }

    #[test]
    fn a_block_that_was_being_broken_up_stays_with_its_users() {
        let frames = new();
        let pfn = alloc(&frames, 12);
        let (design, head) = (frames.design(), block_of(pfn));
        // Held by a call that wants to free a part.
        design.pageblocks().update(head, |state| state.acquire(Holder::Walker));
        copy(&frames, 8 * 512);
        // The upper half is a block of its own already; the head does not have its new order yet.
        let upper = PageblockIndex(head.0 + 4);
        let break_off = |state: State| state.break_off(Order::new(11), Holder::None);
        design.pageblocks().update(upper, break_off);
        copy(&frames, 8 * 512);
        frames.free(pfn, Order::new(11)).unwrap();
        frames.free(pfn.offset(FrameCount::new(2048)), Order::new(11)).unwrap();
        copy(&frames, 0);
    }

    #[test]
    fn what_was_left_of_a_block_can_be_freed_in_parts() {
        let frames = new();
        let pfn = alloc(&frames, 12);
        let (design, head) = (frames.design(), block_of(pfn));
        // One pageblock of eight is free already; the head still has its old order.
        assert!(design.pageblocks().end_huge(PageblockIndex(head.0 + 5)));
        copy(&frames, 7 * 512);
        // And of another block the copy lacks the head.
        let plant = |pageblock, used_for| {
            let planted = |state: State| state.planted(Planted::Use(used_for, Order::ZERO));
            design.pageblocks().update(pageblock, planted);
        };
        plant(head, Use::Whole);
        plant(PageblockIndex(head.0 + 2), Use::HugeTail);
        copy(&frames, 6 * 512);
        for nth in [1, 2, 3, 4, 6, 7] {
            let part = pfn.offset(FrameCount::new(nth * 512));
            frames.free(part, Order::PAGEBLOCK).unwrap();
        }
        copy(&frames, 0);
    }

    #[test]
    fn uses_are_those_that_the_other_bitmaps_show() {
        let frames = with(&FreeholdSettings {
            double_free: DoubleFree::Exact,
            ..FreeholdSettings::default()
        });
        let pfns = [(); 3].map(|()| alloc(&frames, 0));
        // Of calls at work: a frame in use that is not noted, and a free one that is.
        let pageblocks = &frames.design().zones.pageblocks;
        let word = pfns[0].get() as usize / 64;
        assert!(pageblocks.try_end_use(word, 1 << (pfns[0].get() % 64)));
        pageblocks.begin_use(word, 1 << 63);
        copy(&frames, 3);
        for pfn in pfns {
            assert_eq!(frames.free(pfn, Order::ZERO), Ok(()));
            assert_eq!(frames.free(pfn, Order::ZERO), Err(Error::DoubleFree));
        }
        copy(&frames, 0);
    }

    #[test]
    fn isolated_pageblocks_come_back() {
        let frames = new();
        let (single, huge) = (alloc(&frames, 0), alloc(&frames, 9));
        for pfn in [single, huge] {
            let span = Span::of(block_of(pfn), 1);
            let isolation = Isolation::new(frames.design(), frames.context(), span);
            forget(isolation.unwrap_or_else(|_| panic!("it is not isolated")));
        }
        copy(&frames, 513);
    }

    /// Freezes, copies, and thaws, on a machine that refuses the barrier for the lease of CPU 1,
    /// whose caches hold a pageblock.
    fn copy_leased(frames: &Frames, meanwhile: impl FnOnce()) {
        refuse_barriers(true);
        let frozen = frames.freeze();
        meanwhile();
        frames.thaw_copy(frozen);
        refuse_barriers(false);
        assert_eq!(frames.lease(CpuId::new(1)).err(), Some(Error::Leased));
        frames.drain_all();
        assert_eq!(frames.validate().unwrap().free.get(), ALL - 512, "they are left alone");
    }

    #[test]
    fn caches_of_a_lease_that_cannot_be_revoked_are_lost() {
        let frames = new();
        let mut lease = frames.lease(CpuId::new(1)).unwrap();
        lease.try_alloc(Request::default()).unwrap();
        copy_leased(&frames, || ());
        lease.renew();
        assert!(lease.is_revoked());
        assert_eq!(lease.try_alloc(Request::default()), None);
        drop(lease);
        assert_eq!(frames.lease(CpuId::new(1)).err(), Some(Error::Leased));
        // A copy of the copy.
        let frozen = frames.freeze();
        frames.thaw_copy(frozen);
        assert_eq!(frames.lease(CpuId::new(1)).err(), Some(Error::Leased));
    }

    #[test]
    fn caches_of_a_lease_that_ended_meanwhile_are_left_alone() {
        let frames = new();
        let lease = frames.lease(CpuId::new(1)).unwrap();
        lease.try_alloc(Request::default()).unwrap();
        // The lease ends while the copy is made, and another call has the lock.
        copy_leased(&frames, || {
            drop(lease);
            assert!(frames.design().per_cpu(1).try_lock());
        });
    }

    #[test]
    fn a_thaw_leaves_all_as_it_was() {
        let frames = new();
        let (pfn, lease) = (alloc(&frames, 0), frames.lease(CpuId::new(1)).unwrap());
        let before = frames.validate().unwrap();
        let frozen = frames.freeze();
        assert!(
            !frames.design().per_cpu(0).try_lock()
                && !frames.design().zones.hotplug().lock().try_lock()
        );
        frames.thaw(frozen);
        assert_eq!(frames.validate(), Ok(before));
        drop(lease);
        frames.free(pfn, Order::ZERO).unwrap();
        copy(&frames, 0);
    }
}
