//! The fragmentation of free memory, in the kernel's own measures.
//!
//! Computed over the free blocks of all zones together, as if they were one: a request that one
//! zone cannot serve falls back to the next. A kernel reports its measures zone by zone.

use freehold::{Order, ZoneStats};
use serde::Serialize;

use crate::frames::Frames;

/// The free memory of all zones, before and after draining the CPUs: designs that cache much per
/// CPU hide free blocks there.
#[derive(Debug, Serialize)]
pub(crate) struct Fragmentation {
    pub(crate) before_drain: FreeMemory,
    pub(crate) after_drain: FreeMemory,
}

/// The free memory of all zones at one time.
#[derive(Debug, Default, Serialize)]
pub(crate) struct FreeMemory {
    /// Frames on the free lists of zones.
    pub(crate) free_frames: u64,
    /// Free frames that CPUs cache.
    pub(crate) per_cpu_frames: u64,
    /// Free blocks by order, without those that CPUs cache.
    pub(crate) by_order: Vec<u64>,
    /// Free pageblocks, those within larger free blocks included.
    pub(crate) free_pageblocks: u64,
    /// By order, the share of the free memory in smaller blocks, in thousandths.
    pub(crate) unusable_index: Vec<u32>,
    /// By order, why a request fails: towards 0 for lack of memory, towards 1000 because memory is
    /// fragmented; -1000 if it would not fail.
    pub(crate) fragmentation_index: Vec<i64>,
}

/// The free memory at this moment. Exact whenever no call is under way.
pub(crate) fn free_memory<F: Frames + ?Sized>(allocator: &F) -> FreeMemory {
    allocator.zones().into_iter().reduce(joined).map(FreeMemory::of).unwrap_or_default()
}

/// Two zones as one.
fn joined(mut one: ZoneStats, other: ZoneStats) -> ZoneStats {
    one.free += other.free;
    one.per_cpu += other.per_cpu;
    for (sum, blocks) in one.free_blocks.iter_mut().zip(other.free_blocks) {
        *sum += blocks;
    }
    one
}

impl FreeMemory {
    fn of(zone: ZoneStats) -> Self {
        let orders = || Order::ZERO.to(Order::BUDDY_MAX);
        FreeMemory {
            free_frames: zone.free.get(),
            per_cpu_frames: zone.per_cpu.get(),
            by_order: zone.free_blocks.to_vec(),
            free_pageblocks: zone.free_pageblocks(),
            unusable_index: orders().map(|order| zone.unusable_index(order)).collect(),
            fragmentation_index: orders().map(|order| zone.fragmentation_index(order)).collect(),
        }
    }

    /// The share of whole pageblocks in the free memory, without what CPUs cache.
    pub(crate) fn pageblock_share(&self) -> f64 {
        let frames = self.free_pageblocks * Order::PAGEBLOCK.frames().get();
        frames as f64 / self.free_frames.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold::FrameCount;

    fn zone(frames: u64, free_blocks: [u64; 11]) -> ZoneStats {
        ZoneStats {
            managed: FrameCount::new(1 << 20),
            free: FrameCount::new(frames),
            per_cpu: FrameCount::new(7),
            free_blocks,
            ..Default::default()
        }
    }

    #[test]
    fn zones_are_measured_as_one() {
        let scattered = zone(512, [512, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let whole = zone(1536, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        let memory = FreeMemory::of(joined(scattered, whole));
        assert_eq!((memory.free_frames, memory.per_cpu_frames), (2048, 14));
        assert_eq!((memory.free_pageblocks, memory.by_order[0], memory.by_order[10]), (3, 512, 1));
        assert_eq!(memory.pageblock_share(), 0.75);
        assert_eq!(memory.unusable_index[..2], [0, 250]);
        // 1024 of 2048 frames lie in the block of the largest order.
        assert_eq!(memory.unusable_index[10], 500);
        assert_eq!(memory.fragmentation_index, [-1000; 11], "some zone serves every order");
    }

    #[test]
    fn scattered_memory_is_why_a_request_fails() {
        let memory = FreeMemory::of(zone(5120, [5120, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(memory.fragmentation_index[0], -1000);
        // Ten times as much as is wanted, in 5120 blocks: 1000 - (1000 + 10000) / 5120.
        assert_eq!(memory.fragmentation_index[9], 998);
        assert_eq!(memory.unusable_index[9], 1000);
    }
}
