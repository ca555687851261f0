//! A limit to the memory of a control group.

use freehold_host::{Arena, FrameCount, Pfn};
use freehold_malloc::{HeapSettings, PageHeap, PurgeAges};

use crate::cgroup::Cgroup;
use crate::common::in_child;

const MIB: usize = 1 << 20;

/// Frames of 48 MiB: less than the limit, and twice as much is more.
const FRAMES: u64 = 48 << 8;

/// Ten times almost as much as the limit, each time in other frames: what was freed and purged
/// counts no more.
#[test]
fn memory_that_was_purged_does_not_count_against_a_limit() {
    let Some(group) = Cgroup::new("memory") else { return };
    let limit = (64 * MIB).to_string();
    if let Err(why) = group.set(("memory.limit_in_bytes", "memory.max"), &limit) {
        return eprintln!("SKIPPED: no limit: {why}");
    }
    // Not all have swap to limit.
    let _swap = group.set(("memory.swappiness", "memory.swap.max"), "0");
    let ended = in_child(|| {
        group.enter();
        let arena = Arena::builder().bytes(256 * MIB).cpus(2).nodes(1).min_free(FrameCount::ZERO);
        let heap = PageHeap::build(arena, HeapSettings::default()).expect("256 MiB of addresses");
        for nth in 0..10 {
            let (first, count) = (Pfn::new(nth % 4 * FRAMES), FrameCount::new(FRAMES));
            heap.alloc_at(first, count).expect("it is free");
            let written = (0..FRAMES).map(|nth| first + FrameCount::new(nth));
            written.for_each(|pfn| heap.arena().store_byte(pfn, 1));
            heap.free(first, count).expect("ours");
            heap.purge(PurgeAges::ALL).expect("private memory");
        }
    });
    assert_eq!(ended, Ok(()));
}
