//! Frames that no heap has, up to the last number: an error or a panic, in all builds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold_host::{Arena, Error, FrameCount, Pfn};
use freehold_malloc::{HeapSettings, PageHeap};

use crate::ranges_beyond::beyond;

#[test]
fn a_heap_refuses_them() {
    let arena = Arena::builder().bytes(4 << 20).cpus(1).nodes(1).min_free(FrameCount::ZERO);
    let heap = PageHeap::build(arena, HeapSettings::default()).unwrap();
    for (first, count) in beyond() {
        assert_eq!(heap.alloc_at(first, count), Err(Error::BadRange));
        assert_eq!(heap.free(first, count), Err(Error::BadRange));
        let asked = catch_unwind(AssertUnwindSafe(|| heap.is_zeroed(first, count)));
        let panic = asked.expect_err("no such frames");
        assert!(panic.downcast_ref::<String>().is_some_and(|text| text.contains("the heap has")));
    }
    for count in [1 << 52, u64::MAX - 1, u64::MAX].map(FrameCount::new) {
        heap.alloc(count, FrameCount::new(1)).unwrap_err();
    }
    assert!(heap.is_zeroed(Pfn::new(0), FrameCount::new(1024)));
    let aligned = || heap.alloc(FrameCount::new(1), FrameCount::new(1 << 63));
    assert_eq!(aligned().unwrap().first, Pfn::new(0), "a multiple of all numbers");
    aligned().unwrap_err();
}
