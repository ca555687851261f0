//! Requests for more than one frame where memory is full of single ones: no search looks at every
//! pageblock again, and orphans are found by their largest run.

use crate::freehold_queued;
use crate::steps::{StepPlatform, run_on, steps_of};
use freehold::{Error, MigrateType, Order, Pfn, Request, Watermark};

type Frames = freehold_queued::Frames<StepPlatform>;

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();

/// So many pageblocks, all of whose frames are allocated; the CPU's cache holds them.
fn full(pageblocks: u64) -> Frames {
    run_on(0);
    let frames: Frames = freehold_queued::machine(pageblocks, 3, 0);
    let mut out = vec![Pfn::default(); (pageblocks * PAGEBLOCK) as usize];
    let request = Request::default().watermark(Watermark::Ignore);
    assert_eq!(frames.alloc_bulk(request, &mut out), Ok(out.len()));
    frames
}

fn free(frames: &Frames, frame: u64, order: u8) {
    frames.free(Pfn::new(frame), Order::new(order)).expect("it is held");
}

fn request(order: u8) -> Request {
    Request::new(Order::new(order)).watermark(Watermark::Ignore)
}

/// The steps of two requests that fail: the first has caches release what they hold.
fn failing(pageblocks: u64) -> [u64; 2] {
    let frames = full(pageblocks);
    (0..pageblocks).for_each(|nth| free(&frames, nth * PAGEBLOCK + 7, 0));
    [1, 3].map(|order| {
        let (steps, found) = steps_of(|| frames.alloc(request(order)));
        assert_eq!(found, Err(Error::OutOfMemory));
        frames.validate().expect("the books are right");
        steps
    })
}

#[test]
fn a_request_that_fails_looks_at_each_cached_pageblock_once() {
    let ([first, second], [first_of_many, second_of_many]) = (failing(32), failing(256));
    // Eight times as many pageblocks. Trees have four times as many words.
    assert!(first_of_many < 9 * first, "{first}, then {first_of_many}");
    assert!(second_of_many < 4 * second, "{second}, then {second_of_many}");
}

#[test]
fn a_request_finds_the_only_run_among_many_orphans() {
    let steps = [32, 256].map(|pageblocks| {
        let frames = full(pageblocks);
        (0..pageblocks).for_each(|nth| free(&frames, nth * PAGEBLOCK + 7, 0));
        frames.drain_all();
        let last = (pageblocks - 1) * PAGEBLOCK;
        [16, 17, 18, 19].into_iter().for_each(|frame| free(&frames, last + frame, 0));
        frames.drain_all();
        let (steps, found) = steps_of(|| frames.alloc(request(2)));
        assert_eq!(found, Ok(Pfn::new(last + 16)));
        steps
    });
    assert!(steps[1] < 2 * steps[0], "{steps:?}");
}

/// All types, and all orders that have a tree of their own.
#[test]
fn a_pageblock_is_where_its_largest_run_says() {
    for migratetype in MigrateType::ALL {
        run_on(0);
        let frames: Frames = freehold_queued::machine(4, 3, 0);
        let of_type = |order| request(order).migratetype(migratetype);
        let mut out = vec![Pfn::default(); 4 * PAGEBLOCK as usize];
        assert_eq!(frames.alloc_bulk(of_type(0), &mut out), Ok(out.len()));
        for order in 1..Order::PAGEBLOCK.get() {
            let first = PAGEBLOCK + (1 << order);
            (first..first + (1 << order)).for_each(|frame| free(&frames, frame, 0));
            frames.drain_all();
            frames.validate().unwrap_or_else(|violation| panic!("order {order}: {violation}"));
            assert_eq!(frames.alloc(of_type(order)), Ok(Pfn::new(first)), "order {order}");
            frames.validate().unwrap_or_else(|violation| panic!("order {order}: {violation}"));
            assert_eq!(frames.alloc(of_type(order)), Err(Error::OutOfMemory));
        }
        // A frame is freed by another CPU, and collected by it in an orphan.
        run_on(1);
        free(&frames, 9, 0);
        free(&frames, 8, 0);
        frames.validate().expect("the books are right");
        frames.drain_all();
        frames.validate().expect("the books are right");
        // A cache acquires it.
        free(&frames, 20, 0);
        frames.validate().expect("the books are right");
        assert_eq!(frames.alloc(of_type(1)), Ok(Pfn::new(8)));
    }
}
