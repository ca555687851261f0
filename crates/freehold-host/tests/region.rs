//! Arenas on memory of their user's.

use std::ptr::NonNull;

use freehold::{Error, FrameCount, Order, Request};
use freehold_host::{Arena, ArenaBuilder, HostError};

const MIB: usize = 1 << 20;

/// Memory that is the test's, at a multiple of a pageblock, and stays.
fn region(bytes: usize) -> NonNull<u8> {
    let memory = vec![0u8; bytes + 2 * MIB].leak();
    let gap = memory.as_ptr().align_offset(2 * MIB);
    NonNull::from(&mut memory[gap..]).cast()
}

fn on(base: NonNull<u8>, bytes: usize) -> ArenaBuilder {
    // SAFETY: The tests give memory that is theirs and is leaked.
    unsafe { Arena::builder().mapping(base, bytes) }
}

#[test]
fn an_arena_manages_all_of_a_region_and_nothing_else() {
    let base = region(6 * MIB);
    let arena = on(base, 6 * MIB).bytes(4 * MIB).build_frames().unwrap();
    assert_eq!((arena.base(), arena.capacity_bytes()), (base, 6 * MIB));
    assert!(matches!(arena.grow(4 * MIB), Err(HostError::CapacityExceeded { .. })));
    arena.grow(2 * MIB).unwrap();
    assert_eq!(arena.total_frames(), FrameCount::new(1536));
    let mut frames = 0;
    let error = loop {
        match arena.alloc(Request::default()) {
            Ok(pfn) => arena.store_byte(pfn, 7),
            Err(error) => break error,
        }
        frames += 1;
    };
    assert!(matches!(error, Error::OutOfMemory | Error::BelowWatermark), "{error}");
    assert!(frames > 1400);
    drop(arena);
    // SAFETY: The memory is still there: it is this test's.
    assert_eq!(unsafe { base.read() }, 7);
}

#[test]
fn a_region_that_does_not_do_is_refused() {
    let base = region(4 * MIB);
    let refused = |base: NonNull<u8>, bytes, wanted| {
        let error = on(base, bytes).bytes(wanted).build_frames().unwrap_err();
        assert!(matches!(error, HostError::BadSetting { setting: "mapping", .. }), "{error}");
    };
    refused(base, 4 * MIB, 6 * MIB);
    refused(base, 2 * MIB - 1, 0);
    refused(base, 0, 2 * MIB);
    // SAFETY: Inside the region.
    refused(unsafe { base.add(1) }, 4 * MIB - 2, 2 * MIB);
    let last = NonNull::new(std::ptr::without_provenance_mut(usize::MAX - 2 * MIB + 1)).unwrap();
    refused(last, 4 * MIB, 2 * MIB);
    refused(last, usize::MAX, 0);
}

#[test]
fn an_arena_has_the_pageblocks_inside() {
    let base = region(6 * MIB);
    // SAFETY: Inside the region.
    let arena = on(unsafe { base.add(1) }, 6 * MIB - 2).build_frames().unwrap();
    let address = arena.base().addr().get();
    assert_eq!((address - base.addr().get(), arena.capacity_bytes()), (2 * MIB, 2 * MIB));
    assert_eq!(arena.total_frames(), FrameCount::new(512));
    let block = arena.alloc(Request::new(Order::new(8))).unwrap();
    assert_eq!(arena.address_of(block).addr().get() % MIB, 0);
}
