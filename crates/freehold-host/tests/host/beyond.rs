//! Frames that no arena has, up to the last number: an error or a panic, in all builds.

use std::fmt::Debug;
use std::panic::catch_unwind;

use freehold_host::{Arena, FrameArena, FrameCount, Order, Pfn, RangeRequest, Request};

use crate::ranges_beyond::beyond;

const LAST: Pfn = Pfn::new(u64::MAX);

fn builder() -> freehold_host::ArenaBuilder {
    Arena::builder().bytes(4 << 20).cpus(1).nodes(1).min_free(FrameCount::ZERO)
}

/// Panics, and says what for.
fn refuses<T: Debug>(call: impl FnOnce() -> T) {
    let panic = catch_unwind(std::panic::AssertUnwindSafe(call)).expect_err("no such frames");
    let text = panic.downcast_ref::<String>().expect("a message with numbers");
    assert!(["the arena has", "beyond the mapping"].iter().any(|it| text.contains(it)));
}

#[test]
fn calls_on_the_content_of_frames_panic() {
    let frames: FrameArena = builder().build_frames().unwrap();
    for (first, count) in beyond() {
        refuses(|| frames.discard(first, count));
        refuses(|| frames.discard_lazily(first, count));
        refuses(|| frames.discard_all(&[(Pfn::new(0), FrameCount::new(1)), (first, count)], true));
        refuses(|| frames.prefault(first, count, 2));
    }
    for pfn in [Pfn::new(1024), Pfn::new(1 << 52), LAST] {
        refuses(|| frames.address_of(pfn));
        refuses(|| frames.store_byte(pfn, 1));
        refuses(|| frames.load_word(pfn, 1));
        refuses(|| frames.copy_block(pfn, Pfn::new(0), Order::ZERO));
        refuses(|| frames.copy_block(Pfn::new(0), pfn, Order::new(63)));
    }
    refuses(|| frames.discard(LAST, FrameCount::ZERO));
    frames.discard(Pfn::new(1024), FrameCount::ZERO).expect("nothing, at the end");
}

#[test]
fn an_allocator_refuses_them() {
    let arena = builder().build().unwrap();
    for (first, count) in beyond() {
        arena.allocate_range(RangeRequest::new(count).at(first)).unwrap_err();
    }
    for bytes in [1 << 40, usize::MAX] {
        arena.grow(bytes).unwrap_err();
        arena.shrink(bytes).unwrap_err();
    }
    for order in [11, 40, 63] {
        arena.allocate_with(Request::new(Order::new(order))).unwrap_err();
    }
    let mut range = arena.allocate_range(RangeRequest::new(FrameCount::new(3))).unwrap();
    for (offset, count) in [(0, 4), (4, 0), (3, 1), (u64::MAX, 1), (1, u64::MAX)] {
        let part = (FrameCount::new(offset), FrameCount::new(count));
        let discarded =
            catch_unwind(std::panic::AssertUnwindSafe(|| range.discard_part(part.0, part.1)));
        assert!(discarded.is_err(), "{part:?}");
    }
}

#[test]
fn an_arena_of_all_addresses_is_refused() {
    for bytes in [1 << 52, 1 << 62, usize::MAX - 4095, usize::MAX] {
        builder().bytes(bytes).build_frames().unwrap_err();
        builder().capacity_bytes(bytes).build_frames().unwrap_err();
        builder().min_free(FrameCount::new(bytes as u64)).build_frames().map(drop).ok();
    }
}
