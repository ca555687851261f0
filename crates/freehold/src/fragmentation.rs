//! How fragmented the free memory of a zone is, in the kernel's own measures.
//!
//! After Linux 6.12 `mm/vmstat.c` (`unusable_free_index`, `__fragmentation_index`). All of them see
//! only the zone's free lists; drain what CPUs cache first.

use crate::stat::ZoneStats;
use crate::units::{ORDERS, Order};

/// Up to this fragmentation index, a failure is for lack of memory (Linux's `extfrag_threshold`).
const EXTFRAG_THRESHOLD: i64 = 500;

impl ZoneStats {
    /// How many whole pageblocks are free.
    pub fn free_pageblocks(&self) -> u64 {
        blocks_of(&self.free_blocks, Order::PAGEBLOCK)
    }

    /// The share of the free memory in blocks too small for `order`, in thousandths: 0 if none is,
    /// 1000 if all is or nothing is free.
    pub fn unusable_index(&self, order: Order) -> u32 {
        let free = frames(&self.free_blocks);
        if free == 0 {
            return 1000;
        }
        let usable = match order > Order::BUDDY_MAX {
            true => 0,
            false => blocks_of(&self.free_blocks, order) << order.get(),
        };
        ((free - usable) * 1000 / free) as u32
    }

    /// Why a request of `order` fails: towards 0 for lack of memory, towards 1000 because memory is
    /// fragmented. -1000 if it would not fail, 0 if nothing is free. This is the kernel's formula,
    /// which also yields small negative numbers if there are very few free blocks.
    pub fn fragmentation_index(&self, order: Order) -> i64 {
        fragmentation_index(&self.free_blocks, order)
    }
}

/// See [`ZoneStats::fragmentation_index`].
pub fn fragmentation_index(free_blocks: &[u64; ORDERS], order: Order) -> i64 {
    let blocks: u64 = free_blocks.iter().sum();
    if blocks == 0 {
        return 0;
    }
    if order <= Order::BUDDY_MAX && blocks_of(free_blocks, order) > 0 {
        return -1000;
    }
    // Frames are below 2^32, as their indexes are.
    let wanted = frames(free_blocks).saturating_mul(1000) / order.frames().get();
    1000 - ((1000 + wanted) / blocks) as i64
}

/// Whether a request of `order` fails because memory is fragmented, or does not fail at all.
pub fn is_to_blame(free_blocks: &[u64; ORDERS], order: Order) -> bool {
    !(0..=EXTFRAG_THRESHOLD).contains(&fragmentation_index(free_blocks, order))
}

/// How many blocks of `order` the free blocks of at least this size can be split into.
pub fn blocks_of(free_blocks: &[u64; ORDERS], order: Order) -> u64 {
    let count = |from: Order| free_blocks[from.index()] << (from.get() - order.get());
    order.to(Order::BUDDY_MAX).map(count).sum()
}

fn frames(free_blocks: &[u64; ORDERS]) -> u64 {
    blocks_of(free_blocks, Order::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{FrameCount, NodeId, ZoneKind};
    use crate::zone::watermark::Marks;

    /// A zone with so many free blocks of each order; none of the orders that are not named.
    fn zone(blocks: &[u64]) -> ZoneStats {
        let free_blocks = core::array::from_fn(|order| blocks.get(order).copied().unwrap_or(0));
        ZoneStats {
            node: NodeId::new(0),
            kind: ZoneKind::Normal,
            managed: FrameCount::new(1 << 20),
            free: FrameCount::new(frames(&free_blocks)),
            per_cpu: FrameCount::ZERO,
            isolated: FrameCount::ZERO,
            free_blocks,
            marks: Marks::default(),
            claims: 0,
            steals: 0,
        }
    }

    #[test]
    fn nothing_free() {
        let zone = zone(&[]);
        assert_eq!(zone.free_pageblocks(), 0);
        assert_eq!(zone.unusable_index(Order::ZERO), 1000);
        assert_eq!(zone.fragmentation_index(Order::ZERO), 0);
    }

    #[test]
    fn a_mixture_counted_by_hand() {
        // 100 + 2 * 50 + 8 * 10 + 512 * 3 + 1024 * 2 = 3864 frames in 165 blocks.
        let zone = zone(&[100, 50, 0, 10, 0, 0, 0, 0, 0, 3, 2]);
        assert_eq!(zone.free_pageblocks(), 3 + 4);
        assert_eq!(zone.unusable_index(Order::ZERO), 0);
        // 3864 - 3764 = 100 frames of 3864: 25.8 thousandths.
        assert_eq!(zone.unusable_index(Order::new(1)), 25);
        // 280 of 3864: 72.4; and 1816 of 3864: 469.9.
        assert_eq!(zone.unusable_index(Order::new(4)), 72);
        assert_eq!(zone.unusable_index(Order::new(10)), 469);
        assert_eq!(zone.unusable_index(Order::new(11)), 1000);
        assert_eq!(zone.fragmentation_index(Order::new(10)), -1000);
        // 3864 / 2048 = 1.886 blocks' worth: 1000 - (1000 + 1886) / 165 = 1000 - 17.
        assert_eq!(zone.fragmentation_index(Order::new(11)), 983);
    }

    #[test]
    fn little_memory_in_one_block_and_much_in_many() {
        // One frame of two: 1000 - (1000 + 500) / 1.
        assert_eq!(zone(&[1]).fragmentation_index(Order::new(1)), -500);
        // Four frames towards 512: 1000 - (1000 + 7) / 2 = 497: lack of memory.
        assert_eq!(zone(&[0, 2]).fragmentation_index(Order::new(9)), 497);
        // 100 times as much as is wanted, in single frames: 1000 - (1000 + 100000) / 51200 = 999.
        let scattered = zone(&[51_200]);
        assert_eq!(scattered.fragmentation_index(Order::new(9)), 999);
        assert_eq!(scattered.unusable_index(Order::new(9)), 1000);
    }
}
