//! Purging, measured by the memory of this process: one test, so that nothing else runs in it.

use freehold::{FrameCount, Order};
use freehold_host::Arena;

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
}
