//! The protocols of `llfree` under loom: counts against bits, whole children against frames, a
//! reservation that others end or take from.
//!
//! As in `designs_loom.rs`. A pageblock or a few frames of it are all memory, in one tree.

use crate::designs_loom::{build, check, check_whole};
use crate::freehold_loom::Content;
use crate::loom_platform::{LoomPlatform, run_on};
use crate::loom_runs::explore;
use crate::loom_threads::{join, on_cpu, race};
use crate::machine::Machine;
use freehold::{CpuId, Error, FrameCount, Immovable, Order, Pfn, RangeRequest, Request, Watermark};
use freehold_llfree::{Llfree, LlfreeSettings};
use loom::sync::Arc;

type Frames = Machine<LoomPlatform, Llfree<LoomPlatform>>;

const HUGE: Order = Order::PAGEBLOCK;

fn frames(many: u64) -> Arc<Frames> {
    build(many, 2, &LlfreeSettings)
}

fn alloc(machine: &Frames, order: Order) -> Option<Pfn> {
    machine.alloc(Request::new(order)).ok()
}

fn free(machine: &Frames, pfn: Pfn, order: Order) {
    machine.free(pfn, order).expect("it is held");
}

/// A block is freed while the CPU that reserved its tree looks for one. If it gets the same, or one
/// of which that is a part, it has what was written there before.
fn freed_while_looked_for(many: u64, order: Order, wanted: Order) {
    explore(2, move || {
        let (machine, content) = (frames(many), Content::new());
        let block = alloc(&machine, order).expect("all is free");
        let theirs = content.clone();
        let looks = on_cpu(&machine, 0, move |machine| {
            let got = alloc(machine, wanted);
            got.filter(|&pfn| pfn == block).inspect(|_| theirs.touch());
            got
        });
        run_on(1);
        content.touch();
        free(&machine, block, order);
        let got = join(looks).or_else(|| alloc(&machine, wanted));
        free(&machine, got.expect("it is free by now"), wanted);
        check_whole(&machine);
    });
}

#[test]
fn a_frame_is_freed_while_one_is_looked_for() {
    freed_while_looked_for(1, Order::ZERO, Order::ZERO);
}

/// The count is that of another frame.
#[test]
fn a_frame_is_freed_while_another_one_is_free() {
    freed_while_looked_for(2, Order::ZERO, Order::ZERO);
}

#[test]
fn the_last_frame_is_freed_while_a_whole_child_is_looked_for() {
    freed_while_looked_for(HUGE.frames().get(), Order::ZERO, HUGE);
}

#[test]
fn a_whole_child_is_freed_while_a_frame_is_looked_for() {
    freed_while_looked_for(HUGE.frames().get(), HUGE, Order::ZERO);
}

#[test]
fn of_two_frees_of_a_block_one_succeeds() {
    for (order, many) in [(0, 2), (1, 2), (7, 128), (9, 512)] {
        explore(2, move || {
            let (machine, order) = (frames(many), Order::new(order));
            let block = alloc(&machine, order).expect("all is free");
            let both = move |machine: &Frames| machine.free(block, order);
            let (one, other) = race(&machine, both, both);
            // The second may come between the tails of the block, which are gone, and its bits.
            let errors = [Error::DoubleFree, Error::WrongOrder];
            let refused = one.and(other).expect_err("it is freed once");
            assert!(one.is_ok() != other.is_ok() && errors.contains(&refused), "{refused}");
            check_whole(&machine);
        });
    }
}

/// Each frame is freed once: a block whose tails are gone and whose bits are not looks like frames.
#[test]
fn of_a_block_and_a_part_of_it_one_is_freed() {
    for (order, nth, part) in [(1, 1, 0), (7, 64, 0), (7, 64, 6)] {
        explore(2, move || {
            let [order, part] = [order, part].map(Order::new);
            let machine = frames(order.frames().get());
            let block = alloc(&machine, order).expect("all is free");
            let at = block.offset(FrameCount::new(nth));
            let all = move |machine: &Frames| machine.free(block, order);
            let (whole, part) = race(&machine, all, move |machine| machine.free(at, part));
            assert!(whole.is_ok() != part.is_ok(), "{whole:?}, {part:?}");
        });
    }
}

/// Only one of them makes frames of the block.
#[test]
fn two_parts_of_a_whole_child_are_freed_at_once() {
    explore(2, || {
        let machine = frames(HUGE.frames().get());
        let block = alloc(&machine, HUGE).expect("all is free");
        let last = block.offset(FrameCount::new(511));
        let one = move |machine: &Frames| free(machine, block, Order::ZERO);
        race(&machine, one, move |machine| free(machine, last, Order::ZERO));
        machine.drain_all();
        assert_eq!(check(&machine).allocated, FrameCount::new(510));
    });
}

/// Of two children.
#[test]
fn a_child_goes_whole_or_in_frames() {
    explore(2, || {
        let machine = frames(2 * HUGE.frames().get());
        let take = |order| move |machine: &Frames| alloc(machine, order).expect("half is free");
        let (whole, frame) = race(&machine, take(HUGE), take(Order::ZERO));
        assert_ne!(whole.get() / 512, frame.get() / 512);
        free(&machine, whole, HUGE);
        free(&machine, frame, Order::ZERO);
        check_whole(&machine);
    });
}

/// No frame is handed out twice, and none is missed.
#[test]
fn a_reservation_ends_while_its_cpu_takes_of_it() {
    explore(2, || {
        let machine = frames(2);
        let block = alloc(&machine, Order::ZERO).expect("all is free");
        free(&machine, block, Order::ZERO);
        let both = on_cpu(&machine, 0, |machine| {
            [(); 2].map(|()| alloc(machine, Order::ZERO)) //
        });
        run_on(1);
        machine.drain(CpuId::new(0)).expect("there is such a CPU");
        let [one, other] = join(both);
        assert!(one.is_some() && other.is_some() && one != other, "{one:?}, {other:?}");
        machine.drain_all();
        assert_eq!(check(&machine).allocated, FrameCount::new(2));
    });
}

#[test]
fn a_frame_is_taken_of_the_reservation_of_another_cpu() {
    explore(2, || {
        let machine = frames(2);
        let _kept = alloc(&machine, Order::ZERO).expect("all is free");
        let take = |machine: &Frames| alloc(machine, Order::ZERO);
        let (one, other) = race(&machine, take, take);
        assert!(one.is_some() != other.is_some(), "{one:?}, {other:?}");
        // And one that was freed in its tree, which stays the other CPU's.
        run_on(1);
        free(&machine, one.or(other).expect("one of them"), Order::ZERO);
        assert_eq!(take(&machine), one.or(other));
        check(&machine);
        machine.drain_all();
        assert_eq!(check(&machine).allocated, FrameCount::new(2));
    });
}

/// A CPU frees the last of several frames of a tree, which it reserves for that, while another CPU
/// reserves the same tree.
#[test]
fn a_tree_is_reserved_for_frees_while_another_cpu_reserves_it() {
    explore(2, || {
        let machine = frames(5);
        let freed = [(); 4].map(|()| alloc(&machine, Order::ZERO).expect("one is free"));
        machine.drain_all();
        freed[1..].iter().for_each(|&pfn| free(&machine, pfn, Order::ZERO));
        let last = move |machine: &Frames| free(machine, freed[0], Order::ZERO);
        let ((), taken) = race(&machine, last, |machine| alloc(machine, Order::ZERO));
        check(&machine);
        free(&machine, taken.expect("four are free"), Order::ZERO);
        check_whole(&machine);
    });
}

/// A call has lowered the count of a child in which there is no block for it. What it raises again
/// belongs to the child, not to the tree, if that is isolated by then.
#[test]
fn a_child_is_isolated_while_a_block_is_looked_for_in_vain() {
    explore(2, || {
        // Frame 0 is in use, and frame 2 has no neighbour.
        let machine = frames(3);
        let block = alloc(&machine, Order::ZERO).expect("all is free");
        // Not in what is reserved either, which the call gives back.
        assert_eq!(alloc(&machine, Order::new(1)), None);
        let pair = Request::new(Order::new(1)).at_hand().watermark(Watermark::Low);
        // However few are free: the other call may have them all in hand.
        let range = RangeRequest::exactly(Pfn::new(1), FrameCount::new(1));
        let range = range.watermark(Watermark::Ignore);
        let looks = move |machine: &Frames| machine.alloc(pair).ok();
        let takes = move |machine: &Frames| machine.alloc_range(range, &Immovable);
        let (found, taken) = race(&machine, looks, takes);
        assert_eq!(found, None);
        if let Ok(first) = taken {
            free(&machine, first, Order::ZERO);
        }
        free(&machine, block, Order::ZERO);
        check_whole(&machine);
    });
}
