//! Calls of other threads that are half done, each up to some step: what a copy may look like.

extern crate std;

use core::mem::forget;
use std::vec::Vec;

use crate::designs::freehold::Freehold;
use crate::designs::freehold::contiguous::isolate::Isolation;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::run::{Run, Span};
use crate::designs::freehold::pageblocks::state::{Holder, Planted, State, Use};
use crate::designs::freehold::settings::{DoubleFree, FreeholdSettings};
use crate::designs::freehold::tests::{machine, machine_with};
use crate::memmap::index::ZoneIndex;
use crate::platform::RawLock;
use crate::testing::{TestPlatform, refuse_barriers};
use crate::units::MigrateType;
use crate::units::{CpuId, FrameCount, Order, Pfn};
use crate::{Error, PageAllocator, Request};

type Design = Freehold<TestPlatform>;
type Frames = PageAllocator<TestPlatform, Design>;

/// Frames of the allocators here: sixteen pageblocks.
const ALL: u64 = 16 * 512;

const ZONE: ZoneIndex = ZoneIndex(0);

fn new() -> Frames {
    machine(ALL / 512)
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
    design.pageblocks().take_run(design.pageblocks().find_run(pageblock, Order::new(2)).unwrap());
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
    let frames = machine_with(
        ALL / 512,
        &FreeholdSettings { double_free: DoubleFree::Exact, ..Default::default() },
    );
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
