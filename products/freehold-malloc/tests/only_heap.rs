//! A program whose only heap is an arena, from the first allocation before `main` on.
#![expect(unsafe_code, reason = "is the heap")]

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use freehold_host::{Order, Request};
use freehold_malloc::StaticArena;

/// Every block of the heap has frames of its own.
struct Heap;

static ARENA: StaticArena = StaticArena::new(256 << 20);
/// What was taken while the arena was built.
static BOOTSTRAP_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: blocks are as large and as aligned as they must be, and do not overlap.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(frames) = ARENA.get() else {
            BOOTSTRAP_BYTES.fetch_add(layout.size(), Relaxed);
            return ARENA.bootstrap(layout).map_or(null_mut(), NonNull::as_ptr);
        };
        let order = Order::from_bytes(layout.size().max(layout.align()), frames.frame_size());
        let pfn = frames.alloc(Request::new(order));
        pfn.map_or(null_mut(), |pfn| frames.address_of(pfn).as_ptr())
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        if ARENA.is_bootstrap(memory) {
            return;
        }
        let frames = ARENA.get().expect("it gave this out");
        let pfn = frames.pfn_of(memory).expect("nothing else gives out memory");
        let order = frames.allocator().order_of(pfn).expect("a block begins there");
        frames.free(pfn, order).expect("it is allocated");
    }
}

#[global_allocator]
static HEAP: Heap = Heap;

#[test]
fn a_program_needs_no_other_heap() {
    let numbers: Vec<u64> = (0..100_000).collect();
    assert!(ARENA.get().is_some_and(|frames| frames.contains(numbers.as_ptr())));
    let used = BOOTSTRAP_BYTES.load(Relaxed);
    assert!((100..200_000).contains(&used), "{used} bytes while it was built");
    let threads = (0..8).map(|nth: usize| {
        std::thread::spawn(move || (0..1000).map(|at| format!("{nth} {at}").len()).sum::<usize>())
    });
    let threads: Vec<_> = threads.collect();
    let length: usize = threads.into_iter().map(|thread| thread.join().expect("it ended")).sum();
    assert_eq!(length, 8 * (2 * 1000 + 10 + 2 * 90 + 3 * 900));
    assert!(ARENA.get().expect("it was built").purge().is_ok());
}

#[test]
fn bootstrap_memory_is_aligned_bounded_and_told_apart() {
    static OTHER: StaticArena = StaticArena::new(2 << 20);
    let layout = |bytes, align| Layout::from_size_align(bytes, align).expect("a layout");
    let first = OTHER.bootstrap(layout(5, 1)).expect("there is room");
    let second = OTHER.bootstrap(layout(100, 64)).expect("there is room");
    assert!(second.addr().get().is_multiple_of(64) && second.addr() > first.addr());
    assert!(OTHER.is_bootstrap(first.as_ptr()) && !ARENA.is_bootstrap(first.as_ptr()));
    assert!(OTHER.bootstrap(layout(8, 8192)).is_none());
    assert!(OTHER.bootstrap(layout(1 << 20, 1)).is_none());
    let rest = OTHER.bootstrap(layout((1 << 20) - 4096, 4096)).expect("all that is left");
    assert_eq!(rest.addr().get() % 4096, 0);
    assert!(OTHER.bootstrap(layout(1, 1)).is_none());
    assert!(OTHER.bootstrap(layout(0, 1)).is_none(), "it would lie behind the memory");
}
