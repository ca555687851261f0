//! Purging, measured by the memory of this process: one test, so that nothing else runs in it.
#![expect(unsafe_code, reason = "counts the calls of the heap")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use freehold_host::designs::Freehold;
use freehold_host::{Arena, ArenaBuilder, Design, FrameCount, Host, Order};
use freehold_linux::ZoneLock;

/// The heap, with a count of its blocks.
struct Counting;

static BLOCKS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls go to the system's heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BLOCKS.fetch_add(1, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

const MIB: usize = 1 << 20;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn purged_memory_goes_back_to_the_machine_and_reads_as_zero() {
    let arena = Arena::builder().bytes(128 * MIB).cpus(2).nodes(1).build().unwrap();
    let empty = resident_bytes();
    let mut blocks: Vec<_> = std::iter::from_fn(|| arena.allocate(Order::ZERO).ok()).collect();
    blocks.iter_mut().for_each(|pages| pages.fill(0xaa));
    let full = resident_bytes();
    assert!(full >= empty + 100 * MIB, "{empty} bytes, then {full}");

    // Every other frame stays in use, in the first quarter of the blocks.
    let kept: Vec<_> = blocks.drain(..blocks.len() / 4).step_by(2).collect();
    drop(blocks);
    let purged = arena.purge().unwrap();
    assert!(purged.get() as usize * 4096 >= 80 * MIB, "{purged}");
    let after = resident_bytes();
    assert!(after + 80 * MIB <= full, "{full} bytes, then {after}");
    for pages in &kept {
        assert!(pages.iter().all(|byte| *byte == 0xaa), "{pages:?} was in use");
    }

    // What was purged reads as zero now, as far as the minimum watermark lets the test see it, and
    // a second purge finds as much as the first.
    let blocks: Vec<_> = std::iter::from_fn(|| arena.allocate(Order::ZERO).ok()).collect();
    let zeroed = blocks.iter().filter(|pages| pages.iter().all(|byte| *byte == 0)).count();
    let kept_back: FrameCount = arena.zones().map(|zone| zone.marks.min).sum();
    assert!(zeroed as u64 + kept_back.get() >= purged.get(), "{zeroed} zeroed, {purged} purged");
    drop(blocks);
    assert!(arena.purge().unwrap() >= purged);

    drop(kept);
    purges_use_no_heap_and_leave_most_to_others::<Freehold<Host>>();
    purges_use_no_heap_and_leave_most_to_others::<ZoneLock<Host>>();
}

/// Others find memory while an arena without reserves is purged, and the heap is not used, so that
/// an allocator that serves a whole program can purge.
fn purges_use_no_heap_and_leave_most_to_others<D: Design<Host> + Send + Sync>() {
    let builder = ArenaBuilder::<D>::new().bytes(128 * MIB).cpus(2).nodes(1);
    let arena = builder.min_free(FrameCount::ZERO).build().unwrap();
    let kept: Vec<_> = (0..100).map(|_| arena.allocate(Order::ZERO).unwrap()).collect();
    let kept: Vec<_> = kept.into_iter().step_by(2).collect();
    let (purging, served) = (AtomicBool::new(true), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while purging.load(Relaxed) {
                let pages = arena.allocate(Order::new(4)).expect("most of it is free");
                served.fetch_add(1, Relaxed);
                drop(pages);
            }
        });
        while served.load(Relaxed) == 0 {
            std::hint::spin_loop();
        }
        let before = BLOCKS.load(Relaxed);
        for _ in 0..20 {
            let purged = arena.purge().unwrap();
            assert!(purged.get() > 30_000, "{purged} of 32,718");
        }
        let blocks = BLOCKS.load(Relaxed) - before;
        purging.store(false, Relaxed);
        assert_eq!(blocks, 0, "blocks of the heap");
    });
    assert_eq!(arena.validate().unwrap().allocated.get(), kept.len() as u64);
}
