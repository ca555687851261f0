//! Arenas whose memory is mapped as they grow.

use std::ffi::c_void;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold_host::{
    Arena, ArenaBuilder, Backing, FrameArena, FrameCount, HostError, Order, Pfn, RangeRequest,
};

const MIB: usize = 1 << 20;

/// 4 MiB of 64.
fn builder() -> ArenaBuilder {
    let builder = Arena::builder().bytes(4 * MIB).capacity_bytes(64 * MIB).cpus(1).nodes(1);
    builder.min_free(FrameCount::ZERO).map_as_it_grows(true)
}

/// How many bytes of an arena's address space are mapped.
fn mapped_bytes(from: usize, to: usize) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let ends = maps.lines().filter_map(|line| line.split_once(' ')?.0.split_once('-'));
    let number = |text| usize::from_str_radix(text, 16).unwrap();
    let within = |(start, end)| number(end).min(to).saturating_sub(number(start).max(from));
    ends.map(within).sum()
}

/// Maps a page at an address, as others may.
fn map_at(address: *mut u8) -> *mut c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the mapping replaces nothing.
    unsafe { libc::mmap(address.cast(), 4096, libc::PROT_READ, flags, -1, 0) }
}

#[test]
fn what_an_arena_has_is_mapped() {
    // Other tests of this process may map what is free.
    let arena: FrameArena = builder().build_frames().unwrap();
    let base = arena.base().addr().get();
    let has = |bytes: usize| {
        let frame = |bytes| arena.base().as_ptr().wrapping_add(bytes);
        assert!(mapped_bytes(base, base + bytes) == bytes, "what it has");
        assert!(arena.contains(frame(bytes - 1)) && !arena.contains(frame(bytes)));
        assert_eq!(arena.pfn_of(frame(bytes)), None, "it may be others'");
    };
    has(4 * MIB);
    assert_eq!(arena.capacity_bytes(), 64 * MIB);
    arena.grow(6 * MIB).unwrap();
    has(10 * MIB);
    arena.shrink(8 * MIB, &freehold_host::Immovable).unwrap();
    has(10 * MIB);
    arena.grow(2 * MIB).unwrap();
    has(10 * MIB);
    let all = FrameCount::new(1024);
    assert_eq!(
        arena.allocator().alloc_range(RangeRequest::new(all), &freehold_host::Immovable),
        Ok(Pfn::new(0))
    );
    (0..1024).for_each(|frame| arena.store_byte(Pfn::new(frame), 1));
}

#[test]
fn frames_that_are_not_mapped_have_no_content() {
    let arena: FrameArena = builder().build_frames().unwrap();
    let (first, one) = (Pfn::new(1024), FrameCount::new(1));
    let refuses = |call: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("it is not there");
        let text = panic.downcast_ref::<String>().map_or("", String::as_str);
        let text = panic.downcast_ref::<&str>().copied().unwrap_or(text);
        assert!(text.contains("not mapped yet"), "{text}");
    };
    refuses(&|| arena.store_byte(first, 1));
    refuses(&|| assert_eq!(arena.load_word(first, 1), 0));
    refuses(&|| arena.discard(first, one).unwrap());
    refuses(&|| arena.discard_all(&[(first, one)], true).map(drop).unwrap());
    refuses(&|| arena.copy_block(Pfn::new(0), first, Order::ZERO));
}

/// Growth takes nobody's memory.
#[test]
fn growth_ends_where_others_have_mapped_something() {
    let arena: FrameArena = builder().build_frames().unwrap();
    let there = arena.base().as_ptr().wrapping_add(8 * MIB);
    let page = map_at(there);
    assert_eq!(page.cast(), there);
    arena.grow(4 * MIB).unwrap();
    let refused = arena.grow(2 * MIB);
    assert!(matches!(refused, Err(HostError::Map { .. })), "{refused:?}");
    assert_eq!(arena.total_frames(), FrameCount::new(2048));
    // SAFETY: the page of this test, which nothing uses.
    assert_eq!(unsafe { libc::munmap(page, 4096) }, 0);
    arena.grow(2 * MIB).unwrap();
}

#[test]
fn other_memory_is_refused() {
    for builder in [builder().backing(Backing::Memfd), builder().guard_pages(true)] {
        let refused = builder.build_frames().map(drop);
        assert!(matches!(refused, Err(HostError::BadSetting { setting: "map_as_it_grows", .. })));
    }
}
