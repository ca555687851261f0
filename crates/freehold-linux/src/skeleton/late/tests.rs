//! Requests that merge late.

extern crate std;

use std::vec::Vec;

use super::WINDOW_FRAMES;
use crate::LazyMerge;
use crate::testing::TestPlatform;
use crate::tests::allocator;
use freehold::memmap::index::ZoneIndex;
use freehold::units::{FrameCount, Order, Pfn};
use freehold::{Error, Immovable, PageAllocator, Request};

type Frames = PageAllocator<TestPlatform, LazyMerge<TestPlatform>>;

const ALL: u64 = 4096;
const HUGE: Request = Request::new(Order::PAGEBLOCK);

/// An allocator whose frames were all in use and are free again, unmerged.
fn unmerged() -> Frames {
    unmerged_but(|_| false)
}

/// The same with some frames still in use.
fn unmerged_but(kept: impl Fn(u64) -> bool) -> Frames {
    let frames: Frames = allocator(ALL, 1, &Default::default());
    let all: Vec<_> = core::iter::from_fn(|| frames.alloc(Request::default()).ok()).collect();
    assert_eq!(all.len() as u64, ALL);
    let back = all.iter().filter(|frame| !kept(frame.get()));
    back.for_each(|&frame| frames.free(frame, Order::ZERO).unwrap());
    frames.drain_all();
    let free = frames.zones().next().unwrap().free.get();
    assert_eq!(singles(&frames), free, "nothing has merged");
    frames
}

/// How many frames are free and single.
fn singles(frames: &Frames) -> u64 {
    frames.zones().next().unwrap().free_blocks[0]
}

/// The frame at which the next search begins.
fn place(frames: &Frames) -> u32 {
    frames.design().blocks.unmerged_from(ZoneIndex(0)).0.0
}

fn free(frames: &Frames, frame: u64) {
    frames.free(Pfn::new(frame), Order::ZERO).unwrap();
    frames.drain_all();
}

#[test]
fn compaction_and_ranges_find_unmerged_frames() {
    let frames = unmerged();
    let range = freehold::RangeRequest::new(FrameCount::new(1000)).at(Pfn::new(100));
    let pfn = frames.alloc_range(range, &Immovable).expect("all is free");
    frames.validate().unwrap();
    frames.free_range(pfn, FrameCount::new(1000)).unwrap();
    frames.validate().unwrap();
    let report = frames.compact(&Immovable);
    assert!(report.merged_late > FrameCount::new(1000), "{report:?}");
    assert_eq!(frames.zones().next().unwrap().free_blocks[10], 4);
    frames.validate().unwrap();
}

#[test]
fn a_search_goes_on_where_the_last_one_stopped_and_comes_round() {
    let frames = unmerged_but(|frame| [5, 512, 1535, 1600].contains(&frame));
    // Four pageblocks with a frame in use are not worth a merge.
    for (pageblock, merged) in [(4, 1), (5, 2), (6, 3)] {
        assert_eq!(frames.alloc(HUGE), Ok(Pfn::new(pageblock * 512)));
        assert_eq!(u64::from(place(&frames)), (pageblock + 1) * 512);
        assert_eq!(singles(&frames), ALL - 4 - merged * 512);
    }
    // What is freed behind it is found when it comes round, and no sooner.
    free(&frames, 512);
    assert_eq!(frames.alloc(HUGE), Ok(Pfn::new(7 * 512)));
    assert_eq!(frames.alloc(HUGE), Ok(Pfn::new(512)));
    assert_eq!(frames.alloc(HUGE), Err(Error::OutOfMemory));
    assert_eq!(singles(&frames), 3 * 511, "what cannot become a block is left alone");
    free(&frames, 5);
    assert_eq!(frames.alloc(HUGE), Ok(Pfn::new(0)));
    frames.validate().unwrap();
}

#[test]
fn a_merge_stops_as_soon_as_there_is_a_block() {
    let frames = unmerged();
    let request = Request::new(Order::new(6));
    for blocks in 1..=8 {
        assert_eq!(frames.alloc(request), Ok(Pfn::new((blocks - 1) * 64)));
        assert_eq!(singles(&frames), ALL - blocks * 64);
        // The rest of the pageblock comes next.
        assert_eq!(place(&frames), if blocks < 8 { 0 } else { 512 });
    }
    // A window yields several small blocks.
    let frames = unmerged();
    frames.alloc(Request::new(Order::new(1))).unwrap();
    assert_eq!(singles(&frames), ALL - u64::from(WINDOW_FRAMES));
    frames.validate().unwrap();
}
