//! Memory with obstacles to ranges.

use crate::owner::Owner;
use crate::random::Random;
use crate::tested::{TestDesign, Tested, build, frames, range};
use freehold::{Immovable, MemoryRange, NodeId, RangeRequest, Request};

pub(crate) const CPUS: [NodeId; 2] = [NodeId::new(0), NodeId::new(1)];

pub(crate) fn with<D: TestDesign>(ranges: &[MemoryRange], min_free: u64) -> Tested<D> {
    build(ranges, &[0, 1], min_free)
}

pub(crate) fn machine<D: TestDesign>(frames: u64) -> Tested<D> {
    with(&[range(0, frames)], 0)
}

pub(crate) fn ask(count: u64) -> RangeRequest {
    RangeRequest::new(frames(count))
}

/// Movable single frames and some unmovable ones, at random places; returns the latter.
pub(crate) fn sprinkle<D: TestDesign>(
    machine: &Tested<D>,
    span: u64,
    random: &mut Random,
    (movable, fixed): (usize, usize),
) -> (Owner, Vec<u64>) {
    let owner = Owner::new(span as usize + 1, span);
    let mut slots = 0;
    while owner.alloc(machine, slots, Request::default()).is_ok() {
        slots += 1;
    }
    // Unmovable frames are allocated where movable ones were before.
    let mut stones = Vec::new();
    while stones.len() < fixed {
        let slot = random.below(slots);
        let Some((pfn, _)) = owner.block(slot) else { continue };
        owner.free(machine, slot);
        machine.drain_all();
        machine.alloc_range(ask(1).at(pfn), &Immovable).expect("it was freed just now");
        stones.push(pfn.get());
    }
    let mut left = slots - fixed;
    while left > movable {
        let slot = random.below(slots);
        if owner.block(slot).is_some() {
            owner.free(machine, slot);
            left -= 1;
        }
    }
    machine.drain_all();
    (owner, stones)
}
