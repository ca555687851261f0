//! What a copy of the metadata has to put right that was made while calls of others went on.
//!
//! The copy was made with the locks of all slots held (`freeze`), and there is one thread in it. So
//! what slots hold is in order. The rest is changed without locks, step by step: any call of others
//! may have come to any step, and since the copy is made a page of memory at a time, it may have a
//! later step of theirs and not an earlier one, in another page. What is certain:
//!
//! * Frames and pageblocks that a thread of the copy has allocated, or a slot holds, look the way
//!   they did all the time, since no other thread changes them.
//! * Each frame, and each state of a pageblock, looks the way it did at some time meanwhile.
//!
//! So states and bitmaps are what is believed; levels, trees and stacks are made anew from them. A
//! frame that is in use in the bitmap stays in use. What says of itself that it
//! was handed out whole stays handed out, though not as what it was part of, if that does not fit.
//! Whatever is doubtful is lost to the copy rather than handed out twice.

use core::sync::atomic::Ordering::Relaxed;

use super::Freehold;
use super::blocks::{BlockIndex, FRAMES};
use super::guard::HELD;
use super::huge::blocks_in;
use super::state::{Holder, State, Use};
use super::tree::Tree;
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, Word};
use crate::stat::Census;
use crate::units::{MigrateType, Order};

impl<P: Platform> Freehold<P> {
    /// Puts everything right that slots do not hold. All locks are held, but for those of leases.
    pub(super) fn mend(&self) {
        for cpu in 0..self.cpus() {
            self.mend_home(cpu);
            for zone in self.zone_indexes() {
                self.slot(cpu, zone).forget_pending();
                // Relaxed: there is no other thread, and so no section and no drain.
                self.slot(cpu, zone).stat().sections().store(0, Relaxed);
            }
        }
        for zone in self.zone_indexes() {
            self.mend_holes(zone);
            self.blocks_of(zone).for_each(|block| self.mend_head(block));
            self.blocks_of(zone).for_each(|block| self.mend_block(block));
            self.mend_trees(zone);
            let mut census = Census::default();
            self.count(zone, &mut census);
            self.zone(zone).set_level(census.free.get());
            self.zone(zone).forget_drains();
            self.blocks_of(zone).for_each(|block| self.mend_pending(block));
        }
    }

    /// A lease that could not be revoked may have ended since, and another call have taken the
    /// lock. Then it is not known what of these slots is half done: they stay leased for good.
    fn mend_home(&self, cpu: usize) {
        let (home, slot) = (self.home(cpu), self.slot(cpu, ZoneIndex(0)));
        let frozen = slot.set_frozen(false);
        slot.set_frozen(frozen);
        if !frozen {
            home.try_lock();
            // Relaxed: there is no other thread. If it says `ASKED`, that request is forgotten.
            home.lease.store(HELD, Relaxed);
        }
    }

    /// A frame whose claim was not copied, but that it was freed, looks like no memory. Where all
    /// pageblocks of a zone are memory throughout, there is none such.
    fn mend_holes(&self, zone: ZoneIndex) {
        let has_memory = |block: &BlockIndex| self.blocks.state(*block).used_for() != Use::Absent;
        let blocks = self.blocks_of(zone).filter(has_memory).count() as u64;
        if self.zone(zone).managed() == blocks * u64::from(FRAMES) {
            let all = self.blocks_of(zone).filter(has_memory);
            all.for_each(|block| self.blocks.fill_holes(block));
        }
    }

    /// Divides a block of whole pageblocks anew of which only a part is left, or that another
    /// thread was about to free in whole or in part. It stays handed out.
    fn mend_head(&self, head: BlockIndex) {
        let state = self.blocks.state(head);
        if state.used_for() != Use::Huge {
            return;
        }
        let end = (head.0 + blocks_in(state.order())).min(self.blocks.len() as u32);
        let used_for = |block: u32| self.blocks.state(BlockIndex(block)).used_for();
        let are_tails = |from: u32, to: u32| {
            to <= end && (from..to).all(|block| used_for(block) == Use::HugeTail)
        };
        if state.holder() == Holder::Nobody && are_tails(head.0 + 1, end) {
            return;
        }
        let mut at = head.0;
        while at < end {
            let block = BlockIndex(at);
            at += match used_for(at) {
                Use::Huge if block != head => blocks_in(self.blocks.state(block).order()),
                Use::Huge | Use::HugeTail => {
                    let fits = |order: &Order| {
                        self.number(block).is_multiple_of(u64::from(blocks_in(*order)))
                            && are_tails(at + 1, at + blocks_in(*order))
                    };
                    let order = Order::PAGEBLOCK.to(state.order()).take_while(fits).last();
                    let order = order.unwrap_or(Order::PAGEBLOCK);
                    self.keep_huge(block, order);
                    blocks_in(order)
                }
                Use::Absent | Use::Whole | Use::Split => 1,
            };
        }
    }

    /// Makes a pageblock the first of a block that was handed out.
    fn keep_huge(&self, block: BlockIndex, order: Order) {
        let state = self.blocks.state(block).used(Use::Huge, order);
        self.blocks.set_state(block, state.held_by(Holder::Nobody));
        (0..blocks_in(order)).for_each(|nth| self.blocks.set_all_free(BlockIndex(block.0 + nth)));
    }

    /// Makes a pageblock be what its state says, but for those that slots hold. There are no
    /// other holders, and none is out of circulation.
    fn mend_block(&self, block: BlockIndex) {
        let mut state = self.blocks.state(block);
        state = State(state.0 & !(State::PENDING | State::ISOLATED));
        self.blocks.set_state(block, state);
        let is_of_slot = matches!(state.holder(), Holder::Cpu(_));
        match state.used_for() {
            Use::Absent => {}
            Use::Huge => {}
            // What it was part of is gone, or was not there yet.
            Use::HugeTail if self.head_of(block).is_none() => {
                self.keep_huge(block, Order::PAGEBLOCK);
            }
            Use::HugeTail => {}
            Use::Whole if is_of_slot => {}
            Use::Whole => {
                self.blocks.set_all_free(block);
                self.blocks.set_state(block, state.held_by(Holder::Nobody).listed(false));
            }
            Use::Split if is_of_slot => self.blocks.end_claims(block),
            Use::Split => {
                self.blocks.settle(block);
                self.blocks.end_claims(block);
                self.blocks.set_state(block, state.held_by(Holder::Nobody).listed(false));
                if self.blocks.is_whole(block) {
                    self.mark_whole(block, Holder::Nobody);
                }
            }
        }
        self.blocks.mend_uses(block);
    }

    /// Makes the trees of a zone anew.
    fn mend_trees(&self, zone: ZoneIndex) {
        let state = |bit| {
            let block = self.block_at(zone, bit);
            // Trees may begin before the tables, and end behind the zone.
            let is_here =
                block.index() < self.blocks.len() && self.blocks.zone_if_any(block) == Some(zone);
            let state = if is_here { self.blocks.state(block) } else { State::ABSENT };
            (block, state, state.holder() == Holder::Nobody)
        };
        let is_whole = |bit| {
            let (_, state, is_free) = state(bit);
            is_free && state.used_for() == Use::Whole
        };
        let tree: &Tree = self.zone(zone).pool();
        self.forest.rebuild(tree, is_whole);
        for of in MigrateType::ALL {
            self.forest.rebuild(self.zone(zone).partial(of), |bit| {
                let (block, state, is_free) = state(bit);
                let is_partial = is_free && state.is_split() && state.migratetype() == of;
                is_partial && self.blocks.count_free(block) > 0
            });
        }
    }

    /// Has the slot that holds a pageblock look at what others have freed there.
    fn mend_pending(&self, block: BlockIndex) {
        if self.blocks.state(block).is_split() && self.blocks.has_remote(block) {
            self.notify(0, block);
        }
    }
}

/// Calls that others had half done, each up to some step: what a copy may look like.
#[cfg(test)]
mod tests {
    extern crate std;

    use core::mem::{MaybeUninit, forget};
    use std::vec;
    use std::vec::Vec;

    use super::super::guard::VACANT;
    use super::super::isolate::Isolation;
    use super::super::runs::Run;
    use super::super::span::Span;
    use super::*;
    use crate::config::{Config, MemoryRange};
    use crate::memmap::region::Metadata;
    use crate::platform::RawLock;
    use crate::testing::TestPlatform;
    use crate::units::{CpuId, FrameCount, NodeId, Pfn};
    use crate::{PageAllocator, Request};

    type Design = Freehold<TestPlatform>;
    type Frames = PageAllocator<TestPlatform, Design>;

    /// Frames of the allocators here: sixteen pageblocks.
    const ALL: u64 = 16 * 512;

    const ZONE: ZoneIndex = ZoneIndex(0);

    fn new() -> Frames {
        let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(ALL))];
        let cpus = [NodeId::new(0); 2];
        let min_free = Some(FrameCount::ZERO);
        let config = Config { min_free, ..Config::new(&ranges, &cpus) };
        let layout = Frames::layout(&config, &Default::default()).unwrap();
        let buffer = vec![MaybeUninit::uninit(); layout.size() + layout.align()].leak();
        let skip = buffer.as_ptr().align_offset(layout.align());
        let metadata = Metadata::from_static(&mut buffer[skip..]);
        Frames::new(TestPlatform, &config, &Default::default(), metadata).unwrap()
    }

    /// Makes a copy of what there is, in place: only one thread is left. So many frames are lost
    /// to it.
    fn copy(frames: &Frames, lost: u64) {
        frames.freeze();
        frames.thaw_copy();
        let census = frames.validate().unwrap();
        assert_eq!((census.managed.get(), census.isolated.get()), (ALL, 0));
        frames.drain_all();
        assert_eq!(frames.validate().unwrap().allocated.get(), lost);
        let all: Vec<_> = core::iter::from_fn(|| frames.alloc(Request::default()).ok()).collect();
        assert_eq!(all.len() as u64, ALL - lost);
        assert!(!frames.design().zone(ZONE).may_be_kept(), "no drain goes on for ever");
        all.iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).unwrap());
        frames.drain_all();
        assert_eq!(frames.validate().unwrap().allocated.get(), lost);
    }

    fn alloc(frames: &Frames, order: u8) -> Pfn {
        frames.alloc(Request::new(Order::new(order))).unwrap()
    }

    fn block_of(pfn: Pfn) -> BlockIndex {
        BlockIndex::of_frame(pfn.get() as u32)
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
        let (design, block) = (frames.design(), block_of(pfn));
        // It has taken four frames, and not counted them.
        assert!(design.hold(block));
        design.blocks.take_run(design.blocks.find_run(block, Order::new(2)).unwrap());
        // Another has taken a pageblock out of the pool, and not marked it.
        assert!(design.take_whole(ZONE, 1, MigrateType::Movable).is_some());
        // And one that drains has come no further.
        design.zone(ZONE).note_kept();
        design.zone(ZONE).begin_drain();
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
                design.blocks.free_remotely(run.word as usize, run.mask());
                if marked {
                    // On a stack, as it says, but its link leads nowhere.
                    design.blocks.update(block_of(pfn), State::pending);
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
        frames.design().blocks.free_remotely(run.word as usize, run.mask());
        // The first frame of a block has no mark.
        copy(&frames, 0);
    }

    #[test]
    fn half_a_claim_leaves_allocations_that_are_whole() {
        let frames = new();
        let pfn = alloc(&frames, 8);
        frames.drain_all();
        let word = Run::at(pfn.get() as u32, Order::ZERO).word as usize;
        assert!(frames.design().blocks.unjoin(word, !1, !0));
        copy(&frames, 256);
    }

    #[test]
    fn a_block_that_was_being_broken_up_stays_with_its_users() {
        let frames = new();
        let pfn = alloc(&frames, 12);
        let (design, head) = (frames.design(), block_of(pfn));
        // Held by one who wants to free a part.
        design.blocks.update(head, |state| state.held_by(Holder::Walker));
        copy(&frames, 8 * 512);
        // Its upper half is a block of its own; the lower half is not yet less than all.
        let upper = BlockIndex(head.0 + 4);
        design.blocks.update(upper, |state| state.used(Use::Huge, Order::new(11)));
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
        // One of eight is free already; the head is not known to be less.
        design.mark_whole(BlockIndex(head.0 + 5), Holder::Walker);
        copy(&frames, 7 * 512);
        // And of another the head was not copied.
        design.mark_whole(head, Holder::Nobody);
        design
            .blocks
            .update(BlockIndex(head.0 + 2), |state| state.used(Use::HugeTail, Order::ZERO));
        copy(&frames, 6 * 512);
        for nth in [1, 2, 3, 4, 6, 7] {
            let part = pfn.offset(FrameCount::new(nth * 512));
            frames.free(part, Order::PAGEBLOCK).unwrap();
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

    #[test]
    fn slots_of_a_lease_that_ended_meanwhile_are_left_alone() {
        let frames = new();
        let cpu = CpuId::new(1);
        let lease = frames.lease(cpu).unwrap();
        frames.freeze();
        // It ends while the copy is made, and another call has the lock.
        let home = frames.design().home(1);
        home.lease.store(VACANT, Relaxed);
        frames.thaw_copy();
        assert_eq!(frames.lease(cpu).err(), Some(crate::Error::Leased));
        frames.drain_all();
        assert_eq!(frames.validate().unwrap().free.get(), ALL);
        drop(lease);
        drop(frames.lease(cpu).unwrap());
    }

    #[test]
    fn a_thaw_leaves_all_as_it_was() {
        let frames = new();
        let (pfn, lease) = (alloc(&frames, 0), frames.lease(CpuId::new(1)).unwrap());
        let before = frames.validate().unwrap();
        frames.freeze();
        assert!(
            !frames.design().home(0).try_lock() && !frames.design().hotplug.get(0).lock.try_lock()
        );
        frames.thaw();
        assert_eq!(frames.validate(), Ok(before));
        drop(lease);
        frames.free(pfn, Order::ZERO).unwrap();
        copy(&frames, 0);
    }
}
