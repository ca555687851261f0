//! Checks of the accounting that find what is wrong; and what a copy of metadata is repaired to
//! when another thread was busy with a block of several pageblocks.

extern crate std;

use core::mem::{MaybeUninit, offset_of};
use std::vec;
use std::vec::Vec;

use super::pageblocks::run::Run;
use super::pageblocks::state::{Holder, Planted, State, Use};
use super::pageblocks::{PageblockIndex, Pageblocks};
use super::*;
use crate::Request;
use crate::config::MemoryRange;
use crate::memmap::region::Metadata;
use crate::stat::{Census, FrameStatus, Rule};
use crate::testing::{TestPlatform, run_on};
use crate::units::{FrameCount, MigrateType, NodeId, Pfn};

type Design = Freehold<TestPlatform>;
type Frames = PageAllocator<TestPlatform, Design>;

const ZONE: ZoneIndex = ZoneIndex(0);

/// So many pageblocks from the first frame on, two CPUs, and no watermarks.
pub(super) fn machine(pageblocks: u64) -> Frames {
    machine_with(pageblocks, &FreeholdSettings::default())
}

pub(super) fn machine_with(pageblocks: u64, settings: &FreeholdSettings) -> Frames {
    run_on(0);
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(pageblocks * 512))];
    let cpus = [NodeId::new(0); 2];
    let config = Config::new(&ranges, &cpus).min_free(Some(FrameCount::ZERO));
    let layout = Frames::layout(&config, settings).unwrap();
    let buffer = vec![MaybeUninit::uninit(); layout.size_unaligned()].leak();
    let metadata = Metadata::from_static(buffer);
    Frames::new(TestPlatform, &config, settings, metadata).unwrap()
}

#[test]
fn all_that_fast_paths_read_of_the_allocator_is_on_one_cache_line() {
    /// The size of the host's platform, which lies before the design.
    const PLATFORM_BYTES: usize = 16;
    let pageblocks = offset_of!(Freehold<TestPlatform>, zones);
    let read = pageblocks + Pageblocks::<TestPlatform>::FAST_BYTES;
    assert!(PLATFORM_BYTES + read <= 64, "{read} bytes");
}

/// Makes the state of a pageblock wrong.
fn plant(design: &Design, pageblock: PageblockIndex, what: Planted) {
    design.pageblocks().update(pageblock, |state| state.planted(what));
}

fn alloc(frames: &Frames, order: u8) -> PageblockIndex {
    let pfn = frames.alloc(Request::new(Order::new(order))).expect("memory is free");
    PageblockIndex::of_frame(pfn.get() as u32)
}

/// Some pageblock of the machine that a check is to find something wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// It lies in the pool.
    Whole,
    /// A frame of it is used, and no cache holds it.
    Orphan,
    /// A frame of it is used, and a cache holds it.
    Cached,
    /// The first of two that are allocated as one block.
    Huge,
    /// The second one of these.
    HugeTail,
}

/// What the check of a pageblock says before and after this.
fn broken(victim: Victim, how: impl FnOnce(&Design, PageblockIndex)) -> [Option<Rule>; 2] {
    let frames = machine(16);
    let pageblock = match victim {
        Victim::Whole => PageblockIndex(9),
        Victim::Orphan => {
            let pageblock = alloc(&frames, 0);
            frames.drain_all();
            pageblock
        }
        Victim::Cached => alloc(&frames, 0),
        Victim::Huge => alloc(&frames, 10),
        Victim::HugeTail => PageblockIndex(alloc(&frames, 10).0 + 1),
    };
    let design = frames.design();
    let check = || design.zones.check_pageblock(ZONE, pageblock);
    let before = check();
    how(design, pageblock);
    [before, check()]
}

#[test]
fn a_pageblock_in_the_wrong_place_is_found() {
    let into_pool = |design: &Design, pageblock: PageblockIndex| {
        let zones = &design.zones;
        assert!(zones.forest.insert(zones.zone(ZONE).pool(), zones.bit(pageblock)));
    };
    let into_tree = |of| {
        move |design: &Design, pageblock: PageblockIndex| {
            let zones = &design.zones;
            assert!(zones.forest.insert(zones.zone(ZONE).orphans(of), zones.bit(pageblock)));
        }
    };
    let wrong = [None, Some(Rule::KeptBeside)];
    let missing = broken(Victim::Whole, |design, pageblock| {
        let zones = &design.zones;
        assert!(zones.forest.remove(zones.zone(ZONE).pool(), zones.bit(pageblock)));
    });
    assert_eq!(missing, wrong);
    let missing = broken(Victim::Orphan, |design, pageblock| {
        let tree = design.zones.zone(ZONE).orphans(MigrateType::Movable);
        assert!(design.zones.forest.remove(tree, design.zones.bit(pageblock)));
    });
    assert_eq!(missing, wrong);
    for victim in [Victim::Orphan, Victim::Cached, Victim::Huge] {
        assert_eq!(broken(victim, into_pool), wrong, "{victim:?}");
    }
    for victim in [Victim::Orphan, Victim::Cached] {
        assert_eq!(broken(victim, into_tree(MigrateType::Unmovable)), wrong, "{victim:?}");
    }
    assert_eq!(broken(Victim::Cached, into_tree(MigrateType::Movable)), wrong);
    // In a cache, in the pool and in a tree: either alone is wrong, and so are both.
    let both = broken(Victim::Cached, |design, pageblock| {
        into_pool(design, pageblock);
        into_tree(MigrateType::Movable)(design, pageblock);
    });
    assert_eq!(both, wrong);
}

#[test]
fn bits_that_do_not_fit_the_state_are_found() {
    let last = |pageblock: PageblockIndex| pageblock.words().last().expect("it has words");
    let used = broken(Victim::Whole, |design, pageblock| {
        design.pageblocks().set_free(last(pageblock), 1);
    });
    assert_eq!(used, [None, Some(Rule::BlocksCounted)]);
    let tails = broken(Victim::Orphan, |design, pageblock| {
        design.pageblocks().join(Run::at(pageblock.frame() + 256, Order::new(3)));
    });
    assert_eq!(tails, [None, Some(Rule::TailsUnmarked)]);
    let all_free = broken(Victim::Orphan, |design, pageblock| {
        pageblock.words().for_each(|word| design.pageblocks().set_free(word, !0));
    });
    assert_eq!(all_free, [None, Some(Rule::BuddiesMerged)]);
    let headless = broken(Victim::HugeTail, |design, pageblock| {
        let head = PageblockIndex(pageblock.0 - 1);
        plant(design, head, Planted::Use(Use::Whole, Order::ZERO));
    });
    assert_eq!(headless, [None, Some(Rule::FrameInOneBlock)]);
    let absent = broken(Victim::Whole, |design, pageblock| {
        design.pageblocks().repair_state(pageblock, State::ABSENT);
    });
    assert_eq!(absent, [None, Some(Rule::ZoneOfBlock)]);
}

#[test]
fn a_level_that_is_wrong_is_found() {
    let check = |how: fn(&Design, PageblockIndex)| {
        let frames = machine(16);
        let pageblock = alloc(&frames, 0);
        frames.drain_all();
        assert_eq!(frames.design().zones.check_level(ZONE), None);
        how(frames.design(), pageblock);
        frames.design().zones.check_level(ZONE)
    };
    let wrong = Some(Rule::FreeCounted);
    assert_eq!(check(|design, _| design.zones.zone(ZONE).add_free(1)), wrong);
    assert_eq!(check(|design, _| design.zones.zone(ZONE).sub_free(1)), wrong);
    let lost = check(|design, pageblock| {
        design.pageblocks().set_free(pageblock.words().start, 0);
    });
    assert_eq!(lost, wrong);
    let managed = check(|design, _| design.zones.zone(ZONE).add_managed(512));
    assert_eq!(managed, Some(Rule::ManagedCounted));
}

#[test]
fn frames_of_each_state_are_counted_once() {
    let count = |what: Option<Planted>| {
        let frames = machine(16);
        let pageblock = alloc(&frames, 0);
        frames.drain_all();
        let pageblocks = &frames.design().zones.pageblocks;
        // Another one was freed remotely.
        let last = pageblock.words().last().expect("it has words");
        pageblocks.set_free(last, !0 >> 1);
        pageblocks.put_remotely(last, 1 << 63);
        what.into_iter().for_each(|what| plant(frames.design(), pageblock, what));
        let mut census = Census::default();
        frames.design().zones.count(ZONE, &mut census);
        let Census { managed, free, per_cpu, isolated, allocated } = census;
        assert_eq!(managed, FrameCount::new(16 * 512));
        let outside = 15 * 512;
        [free.get() - outside.min(free.get()), per_cpu.get(), isolated.get(), allocated.get()]
    };
    assert_eq!(count(None), [510, 0, 0, 2]);
    assert_eq!(count(Some(Planted::Queued)), [510, 1, 0, 1]);
    assert_eq!(count(Some(Planted::Isolated)), [0, 0, 511, 1]);
    assert_eq!(count(Some(Planted::Holder(Holder::Cpu(0)))), [0, 511, 0, 1]);
}

#[test]
fn trees_are_rebuilt_with_all_levels() {
    // Two levels of summaries.
    let frames = machine(4200);
    let (zones, tree) = (&frames.design().zones, frames.design().zones.zone(ZONE).pool());
    for is_member in [|bit| bit % 97 == 3, |bit| bit == 4199, |bit| bit == 64, |_| false] {
        zones
            .forest
            .rebuild(tree, 1, 0..tree.bits(), |bit| u64::from(bit < 4200 && is_member(bit)));
        let mut found = Vec::new();
        while let Some(bit) = zones.forest.next(tree, found.last().map_or(0, |last| last + 1)) {
            found.push(bit);
        }
        assert_eq!(found, (0..4200).filter(|&bit| is_member(bit)).collect::<Vec<_>>());
    }
}

/// What each frame is said to be agrees with all others; returns how many are allocated.
fn check_blocks(frames: &Frames, pageblocks: u64) -> u64 {
    let (mut at, mut allocated) = (0, 0);
    while at < pageblocks * 512 {
        match frames.status(Pfn::new(at)) {
            block @ FrameStatus::Allocated { first, order } => {
                assert_eq!(first.get(), at, "a block begins where the one before it ends");
                let end = at + order.frames().get();
                for frame in (at..end).step_by(64) {
                    assert_eq!(frames.status(Pfn::new(frame)), block, "all of it is allocated");
                }
                (allocated, at) = (allocated + order.frames().get(), end);
            }
            _ => at += 1,
        }
    }
    allocated
}

/// Of a block of four pageblocks the copy has any part.
#[test]
fn any_part_of_a_block_that_is_left_stays_allocated() {
    for lost in 0..16_u32 {
        for (holder, upper) in [
            (Holder::None, false),
            (Holder::Walker, false),
            (Holder::None, true),
            (Holder::Walker, true),
        ] {
            let frames = machine(8);
            let head = alloc(&frames, 11);
            let pageblocks = &frames.design().zones.pageblocks;
            if upper {
                // The upper half is a block of its own already, or was just allocated.
                let half = PageblockIndex(head.0 + 2);
                pageblocks.update(half, |state| state.break_off(Order::new(10), Holder::None));
            }
            plant(frames.design(), head, Planted::Holder(holder));
            for nth in (0..4).filter(|nth| lost >> nth & 1 == 1) {
                let part = PageblockIndex(head.0 + nth);
                plant(frames.design(), part, Planted::Use(Use::Whole, Order::ZERO));
                plant(frames.design(), part, Planted::Holder(Holder::None));
            }
            let frozen = frames.freeze();
            frames.thaw_copy(frozen);
            let left = u64::from(4 - lost.count_ones()) * 512;
            let census = frames.validate().expect("the copy is in order");
            assert_eq!(census.allocated.get(), left, "{lost:b} {holder:?}");
            assert_eq!(check_blocks(&frames, 8), left, "{lost:b} {holder:?} {upper}");
            // What is left is freed as the copy says, and then all is free.
            for pageblock in 0..8 {
                let pfn = Pfn::new(pageblock * 512);
                if let FrameStatus::Allocated { first, order } = frames.status(pfn) {
                    assert_eq!((first, frames.free(first, order)), (pfn, Ok(())));
                }
            }
            frames.drain_all();
            let census = frames.validate().expect("the copy is in order");
            assert_eq!(census.free.get(), 8 * 512);
        }
    }
}

#[test]
fn remote_frees_of_a_copy_are_merged_once() {
    let frames = machine(4);
    let pageblock = alloc(&frames, 0);
    frames.drain_all();
    let pageblocks = &frames.design().zones.pageblocks;
    let word = pageblock.words().start;
    pageblocks.put_remotely(word, 1);
    // One that was just being collected is free in both bitmaps.
    pageblocks.put_remotely(word, 1 << 5);
    assert_eq!((pageblocks.count_free(pageblock), pageblocks.count_remote(pageblock)), (511, 2));
    pageblocks.merge_remote(pageblock);
    assert_eq!((pageblocks.count_free(pageblock), pageblocks.count_remote(pageblock)), (512, 0));
}
