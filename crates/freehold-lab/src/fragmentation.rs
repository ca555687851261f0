//! How free memory is broken up.

use freehold::Order;
use serde::Serialize;

use crate::frames::Frames;

/// The free memory of all zones, before and after CPUs have given back what they keep: designs
/// that keep much at the CPUs hide free blocks there.
#[derive(Debug, Serialize)]
pub(crate) struct Fragmentation {
    pub(crate) before_drain: FreeMemory,
    pub(crate) after_drain: FreeMemory,
}

/// The free memory of all zones at one time.
#[derive(Debug, Serialize)]
pub(crate) struct FreeMemory {
    /// Frames on the free lists of zones.
    free_frames: u64,
    /// Free frames that CPUs keep to themselves.
    per_cpu_frames: u64,
    /// Free blocks by order, without those that CPUs keep.
    by_order: Vec<u64>,
    /// Free pageblocks, those within larger free blocks included.
    free_pageblocks: u64,
}

/// The free memory at this moment. Exact whenever no call is under way.
pub(crate) fn free_memory(allocator: &dyn Frames) -> FreeMemory {
    let mut memory = FreeMemory {
        free_frames: 0,
        per_cpu_frames: 0,
        by_order: vec![0; Order::BUDDY_MAX.index() + 1],
        free_pageblocks: 0,
    };
    for zone in allocator.zones() {
        memory.free_frames += zone.free.get();
        memory.per_cpu_frames += zone.per_cpu.get();
        for (order, (sum, blocks)) in memory.by_order.iter_mut().zip(zone.free_blocks).enumerate() {
            *sum += blocks;
            if let Some(pageblocks) = order.checked_sub(Order::PAGEBLOCK.index()) {
                memory.free_pageblocks += blocks << pageblocks;
            }
        }
    }
    memory
}

impl FreeMemory {
    /// The share of the free memory, without what CPUs keep, that is whole pageblocks.
    pub(crate) fn pageblock_share(&self) -> f64 {
        let frames = self.free_pageblocks * Order::PAGEBLOCK.frames().get();
        frames as f64 / self.free_frames.max(1) as f64
    }
}
