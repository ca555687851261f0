//! Collections in an arena: their content is theirs, their frames come back, and what the arena
//! cannot give is an error.
#![expect(unsafe_code, reason = "frees what the allocator gave")]

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use freehold_adapters::ArenaAllocator;
use freehold_host::designs::Freehold;
use freehold_host::{Arena, ArenaBuilder, Design, FrameCount, Host, Order};
use freehold_linux::ZoneLock;
use hashbrown::{DefaultHashBuilder, HashMap};

const MIB: usize = 1 << 20;
const PAGEBLOCK: usize = 2 * MIB;

fn arena<D: Design<Host> + 'static>(bytes: usize) -> Arena<D> {
    let builder = ArenaBuilder::<D>::new().bytes(bytes).cpus(2).nodes(1);
    builder.min_free(FrameCount::ZERO).build().expect("a small arena")
}

fn allocated<D: Design<Host>>(arena: &Arena<D>) -> u64 {
    arena.validate().expect("the books are right").allocated.get()
}

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes, align).expect("sizes of the tests")
}

fn address(memory: NonNull<[u8]>) -> usize {
    memory.cast::<u8>().addr().get()
}

/// Runs a test with a design of each family.
macro_rules! both_families {
    ($($test:ident),* $(,)?) => {
        mod freehold {
            $(#[test] fn $test() { super::$test::<super::Freehold<super::Host>>(); })*
        }
        mod zone_lock {
            $(#[test] fn $test() { super::$test::<super::ZoneLock<super::Host>>(); })*
        }
    };
}

both_families!(
    collections_grow_and_give_everything_back,
    any_size_and_alignment_is_given_and_resized,
    what_is_large_grows_where_it_is,
    what_there_is_not_is_refused,
);

fn collections_grow_and_give_everything_back<D: Design<Host> + 'static>() {
    let arena = arena::<D>(64 * MIB);
    let allocator = ArenaAllocator::new(&arena);
    {
        let mut numbers = Vec::new_in(allocator);
        let hasher = DefaultHashBuilder::default();
        let mut squares = HashMap::with_hasher_in(hasher, allocator);
        for number in 0..200_000_u64 {
            numbers.push(number);
            squares.insert(number, number * number);
        }
        assert!(arena.contains(numbers.as_ptr()));
        assert!(numbers.iter().all(|number| squares[number] == number * number));
        let before = allocated(&arena);
        let frames = numbers.capacity().div_ceil(512) as u64;
        numbers.truncate(1000);
        numbers.shrink_to_fit();
        assert_eq!((allocated(&arena), numbers[999]), (before - frames + 2, 999));
        let boxed = Box::new_in([7_u8; 5000], allocator);
        assert!(boxed.iter().all(|byte| *byte == 7));
        assert!(allocated(&arena) > 2 + 2);
    }
    assert_eq!(allocated(&arena), 0);
}

fn any_size_and_alignment_is_given_and_resized<D: Design<Host> + 'static>() {
    let arena = arena::<D>(64 * MIB);
    let allocator = ArenaAllocator::new(&arena);
    let empty = allocator.allocate(layout(0, 64)).expect("nothing is no memory");
    assert_eq!((empty.len(), address(empty) % 64, allocated(&arena)), (0, 0, 0));
    let sizes = [0, 1, 4095, 4096, 4097, 3 * 4096, 70_000, PAGEBLOCK, PAGEBLOCK + 1, 3 * PAGEBLOCK];
    for from in sizes {
        for to in sizes {
            for align in [1, 4096, 16 * 4096, PAGEBLOCK] {
                let (old, new) = (layout(from, 8), layout(to, align));
                let memory = allocator.allocate(old).expect("there is room");
                assert_eq!(memory.len(), from.next_multiple_of(4096), "no more than the frames");
                // SAFETY: allocated just now, of at least that size.
                unsafe { memory.cast::<u8>().write_bytes(9, from) };
                let resize = |to| match from <= to {
                    // SAFETY: allocated with the old layout, and not smaller than that.
                    true => unsafe { allocator.grow(memory.cast(), old, new) },
                    // SAFETY: allocated with the old layout, and smaller than that.
                    false => unsafe { allocator.shrink(memory.cast(), old, new) },
                };
                let resized = resize(to).expect("there is room");
                assert_eq!(resized.len(), to.next_multiple_of(4096));
                assert_eq!(address(resized) % align, 0, "{from} to {to} at {align}");
                assert_eq!(allocated(&arena), to.div_ceil(4096) as u64, "{from} to {to}");
                let kept = from.min(to);
                let kept = NonNull::slice_from_raw_parts(resized.cast::<u8>(), kept);
                // SAFETY: allocated and written above.
                assert!(unsafe { kept.as_ref() }.iter().all(|byte| *byte == 9));
                // SAFETY: allocated with the new layout.
                unsafe { allocator.deallocate(resized.cast(), new) };
                assert_eq!(allocated(&arena), 0, "{from} to {to} at {align}");
            }
        }
    }
}

fn what_is_large_grows_where_it_is<D: Design<Host> + 'static>() {
    let arena = arena::<D>(64 * MIB);
    let allocator = ArenaAllocator::new(&arena);
    let large = layout(PAGEBLOCK, 8);
    let memory = allocator.allocate(large).expect("there is room");
    let larger = layout(PAGEBLOCK + 5 * 4096, 8);
    // SAFETY: allocated with this layout, and not larger than the new one.
    let grown = unsafe { allocator.grow(memory.cast(), large, larger) }.expect("there is room");
    assert_eq!((address(grown), grown.len()), (address(memory), larger.size()));
    // What follows is taken now: the content moves.
    let next = arena.pfn_of(grown.cast::<u8>().as_ptr()).expect("it is the arena's");
    let next = next + FrameCount::from_bytes(grown.len(), arena.frame_size());
    let range = freehold_host::RangeRequest::new(FrameCount::new(1)).at(next);
    let stone = arena.allocate_range(range).expect("it is free");
    let largest = layout(2 * PAGEBLOCK, 8);
    // SAFETY: as above.
    let moved = unsafe { allocator.grow(grown.cast(), larger, largest) }.expect("there is room");
    assert_ne!(address(moved), address(grown));
    drop(stone);
    // SAFETY: allocated with this layout.
    unsafe { allocator.deallocate(moved.cast(), largest) };
    assert_eq!(allocated(&arena), 0);
}

fn what_there_is_not_is_refused<D: Design<Host> + 'static>() {
    let arena = arena::<D>(8 * MIB);
    let allocator = ArenaAllocator::new(&arena);
    assert!(allocator.allocate(layout(9 * MIB, 8)).is_err());
    assert!(allocator.allocate(layout(1, 1 << 46)).is_err(), "no arena is so aligned");
    let all = arena.allocate(Order::new(10)).expect("half of it");
    let memory = allocator.allocate(layout(MIB, 8)).expect("there is room");
    // SAFETY: allocated with this layout, which is not larger.
    let grown = unsafe { allocator.grow(memory.cast(), layout(MIB, 8), layout(5 * MIB, 8)) };
    assert!(grown.is_err());
    assert_eq!(allocated(&arena), 1024 + 256, "what could not grow is as it was");
    // SAFETY: allocated with this layout.
    unsafe { allocator.deallocate(memory.cast(), layout(MIB, 8)) };
    drop(all);
    assert_eq!(allocated(&arena), 0);
}
