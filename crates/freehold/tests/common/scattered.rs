//! Fragmented memory, for compaction.

use freehold::{Order, Request};

use crate::owner::Owner;
use crate::random::Random;
use crate::tested::{TestDesign, Tested, build, range};

pub(crate) const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
pub(crate) const PAGEBLOCKS: u64 = 16;
pub(crate) const SPAN: u64 = PAGEBLOCKS * PAGEBLOCK;

pub(crate) fn machine<D: TestDesign>(min_free: u64) -> Tested<D> {
    build(&[range(0, SPAN)], &[0, 0], min_free)
}

/// Fills all memory with movable blocks of these orders, in random turns, then frees random blocks
/// until only so many percent are in use.
pub(crate) fn scatter<D: TestDesign>(
    machine: &Tested<D>,
    random: &mut Random,
    orders: &[u8],
    percent: u64,
) -> Owner {
    let owner = Owner::new(SPAN as usize, SPAN);
    let mut used = 0;
    for slot in 0..owner.slots() {
        let order = Order::new(orders[random.below(orders.len())]);
        if owner.alloc(machine, slot, Request::new(order)).is_ok() {
            used += order.frames().get();
        }
    }
    assert!(used > SPAN * 9 / 10, "memory was full");
    while used * 100 > SPAN * percent {
        let slot = random.below(owner.slots());
        if let Some((_, order)) = owner.block(slot) {
            owner.free(machine, slot);
            used -= order.frames().get();
        }
    }
    machine.drain_all();
    owner
}
