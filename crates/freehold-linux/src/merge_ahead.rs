//! `merge-ahead`: a drain pairs blocks with their buddies, order by order, before it takes the zone
//! lock, so that fewer and larger blocks go through the lock.
//!
//! Source: Zi Yan's proposal in the review of Johannes Weiner's "mm: page_alloc: pcp buddy
//! allocator" of April 2026, and `merge_in_pcp` of Aaron Lu's series of September 2018. No code was
//! published for the former. As its reviewers expected, it fails where neighbours were allocated on
//! different CPUs. Choices made here:
//!
//! * A block that is drained takes its buddy along if that is on the same CPU's lists, even if the
//!   buddy was not due: half a pair is of no use to the zone.
//! * Pairs are merged up to a pageblock. Larger blocks are left to the zone.
//! * A CPU recognises its own blocks by its number in their state, so it never touches a list that
//!   it has not locked.

use super::skeleton::{LocalPages, NoneOfItsOwn, Parts, Policy, Skeleton, for_each_victim};
use crate::frame::{FrameState, Tag};
use crate::pageblock::BlockType;
use freehold::geometry::CPUS_MAX;
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::{End, ListHead};
use freehold::platform::Platform;
use freehold::units::{FrameCount, Order};

/// The design that merges before it locks.
pub type MergeAhead<P> = Skeleton<P, Ahead>;

/// Merging ahead of the zone lock.
#[derive(Debug)]
pub struct Ahead;

/// How many orders are merged ahead, a pageblock's included.
const ORDERS: usize = Order::PAGEBLOCK.index() + 1;

/// Blocks of one CPU on their way to the zone, by order: those that may still find their buddy, and
/// those that have not found it. Empty between two drains.
pub struct Staging<P: Platform> {
    hopeful: [ListHead<P::LocalCell<u32>>; ORDERS],
    ready: [ListHead<P::LocalCell<u32>>; ORDERS],
}

const _: () = assert!(CPUS_MAX <= u16::MAX as usize, "a CPU's number does not fit in a state");

/// The number of a CPU in the state of a frame; 0 is none.
const fn keeper(cpu: usize) -> u16 {
    cpu as u16 + 1
}

impl<P: Platform> Default for Staging<P> {
    fn default() -> Self {
        let lists = || core::array::from_fn(|_| ListHead::new());
        Staging { hopeful: lists(), ready: lists() }
    }
}

impl<P: Platform> Parts<P> for Ahead {
    const NAME: &'static str = "merge-ahead";
    type Settings = NoneOfItsOwn;
    type Tables = ();
    type PerCpu = Staging<P>;
}

impl<P: Platform> Policy<P> for Ahead {
    #[inline(always)]
    fn mark(
        pages: &LocalPages<'_, P, Self>,
        _block: FrameIndex,
        order: Order,
        of: BlockType,
    ) -> FrameState {
        FrameState::head(Tag::Pcp, order, of).kept_by(keeper(pages.cpu))
    }

    fn drain(pages: &LocalPages<'_, P, Self>, wanted: u32, just_used: usize) -> FrameCount {
        let frames = &pages.design.frames;
        let Staging { hopeful, ready } = &pages.per_cpu.own;
        for_each_victim(pages, wanted, just_used, |block, order| {
            let of = frames.state(block).block_type();
            stage(pages, block, order, of);
        });
        for order in Order::ZERO.to(Order::PAGEBLOCK) {
            while let Some(block) = hopeful[order.index()].pop_front(frames) {
                if !merge(pages, block, order) {
                    ready[order.index()].push(frames, block, End::Back);
                }
            }
        }
        let (mut drained, mut available) = (FrameCount::ZERO, FrameCount::ZERO);
        let guard = pages.lock_zone();
        for order in Order::ZERO.to(Order::PAGEBLOCK) {
            while let Some(block) = ready[order.index()].pop_front(frames) {
                available += pages.design.put_in_zone(&guard, block, order, pages.zone);
                drained += order.frames();
            }
        }
        guard.add_free(available);
        drained
    }
}

/// Puts a block that is on no list among those that may find their buddy.
fn stage<P: Platform>(
    pages: &LocalPages<'_, P, Ahead>,
    block: FrameIndex,
    order: Order,
    of: BlockType,
) {
    let state = FrameState::head(Tag::Claimed, order, of).kept_by(keeper(pages.cpu));
    let frames = &pages.design.frames;
    frames.set_state(block, state);
    pages.per_cpu.own.hopeful[order.index()].push(frames, block, End::Back);
}

/// Merges a block with its buddy, if this CPU keeps that too; returns whether it did.
fn merge<P: Platform>(pages: &LocalPages<'_, P, Ahead>, block: FrameIndex, order: Order) -> bool {
    if order == Order::PAGEBLOCK {
        return false;
    }
    let buddy = block.buddy(order);
    let frames = &pages.design.frames;
    let state = frames.state(buddy);
    // Only this CPU writes its own number, under the lock that is held, and a block that carries it
    // leaves these lists only under that lock. So what is read here is exact.
    let list = if state.is_kept(Tag::Claimed, order, keeper(pages.cpu)) {
        &pages.per_cpu.own.hopeful[order.index()]
    } else if state.is_kept(Tag::Pcp, order, keeper(pages.cpu))
        && let Some(migratetype) = state.block_type().migratetype()
    {
        pages.pcp.list(order, migratetype)
    } else {
        return false;
    };
    list.remove(frames, buddy);
    let of = state.block_type();
    frames.set_state(block, FrameState::TAIL);
    frames.set_state(buddy, FrameState::TAIL);
    stage(pages, block.head(order.up()), order.up(), of);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pageblock::BlockType::Movable;
    use crate::tests::{Workbench, fixed};

    type Bench = Workbench<Ahead>;

    /// So many frames, all in use.
    fn bench(frames: usize) -> Bench {
        let bench = Bench::new(frames as u64, &fixed(NoneOfItsOwn, 1, 5000));
        bench.alloc_frames(frames);
        bench
    }

    #[test]
    fn pairs_are_found_order_by_order() {
        let bench = bench(16);
        (0..7).for_each(|frame| bench.free(0, frame));
        assert_eq!(bench.drain(0, 7, 0), 7);
        for (order, block) in [(0, 6), (1, 4), (2, 0)] {
            assert_eq!(bench.in_zone(order, Movable), [block]);
        }
        bench.check();
    }

    #[test]
    fn a_block_takes_its_buddy_along() {
        let bench = bench(16);
        // Frame 4 is the oldest; its buddy was freed last.
        [4, 0, 1, 5].into_iter().for_each(|frame| bench.free(0, frame));
        assert_eq!(bench.drain(0, 1, 0), 2);
        assert_eq!((bench.in_zone(1, Movable), bench.listed(0, 0)), ([4].into(), [1, 0].into()));
        bench.check();
    }

    #[test]
    fn frames_of_another_cpu_are_left_alone() {
        let bench = bench(16);
        bench.free(0, 0);
        bench.free(1, 1);
        assert_eq!(bench.drain(0, 1, 0), 1);
        assert_eq!((bench.in_zone(0, Movable), bench.listed(1, 0)), ([0].into(), [1].into()));
        // The other one merges with it in the zone when it is drained.
        assert_eq!(bench.drain(1, 1, 0), 1);
        assert_eq!(bench.in_zone(1, Movable), [0]);
        bench.check();
    }

    #[test]
    fn pageblocks_are_left_to_the_zone() {
        let bench = bench(1024);
        (0..1024).for_each(|frame| bench.free(0, frame));
        {
            let pages = bench.pages(0);
            let block = FrameIndex(0);
            assert!(!merge(&pages, block, Order::PAGEBLOCK));
        }
        // The first pageblock's frames are the oldest; the last of them takes nothing along.
        assert_eq!(bench.drain(0, 512, 0), 512);
        assert_eq!((bench.in_zone(9, Movable), bench.listed(0, 0).len()), ([0].into(), 512));
        assert_eq!(bench.drain(0, 512, 0), 512);
        assert_eq!(bench.in_zone(10, Movable), [0]);
        bench.check();
    }
}
