//! Racing frees in the design `freehold`, of one frame or of parts of one block, under loom: all
//! interleavings with a few preemptions, and all values that the memory orderings allow a load to
//! see; `LOOM_MAX_PREEMPTIONS` explores further.

use crate::freehold_models::{
    ALL, BLOCK, Frames, Sound, active, active_with, build, build_as, check_held, exact, explore,
    frame, free, full, join, on_cpu, range, take,
};
use crate::loom_platform::run_on;
use freehold::designs::FreeholdSettings;
use freehold::{CpuId, Error, FrameCount, Order, Pfn, Request};
use loom::sync::Arc;

fn free_seventh(machine: &Frames<Sound>) -> Result<(), Error> {
    machine.free(Pfn::new(7), Order::ZERO)
}

/// Two frees of one frame at once, on these CPUs.
fn free_twice(machine: &Arc<Frames<Sound>>, cpus: [u32; 2]) -> [Result<(), Error>; 2] {
    let other = on_cpu(machine, cpus[1], free_seventh);
    run_on(cpus[0]);
    [free_seventh(machine), join(other)]
}

fn successes(outcomes: &[Result<(), Error>]) -> u64 {
    outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64
}

/// While CPU 0 holds the pageblock, one or both succeed, and the latter is counted when the frame
/// is collected.
fn free_one_frame_twice(cpus: [u32; 2]) {
    explore(2, move || {
        let machine = active::<Sound>(3);
        let outcomes = free_twice(&machine, cpus);
        let freed = successes(&outcomes);
        assert!(
            freed > 0 && outcomes.iter().flat_map(|it| it.err()).all(|it| it == Error::DoubleFree)
        );
        assert_eq!(free_seventh(&machine), Err(Error::DoubleFree));
        check_held(&machine, BLOCK - 1);
        assert_eq!(machine.events().double_frees_late.get(), freed - 1);
    });
}

#[test]
fn of_two_remote_frees_of_one_frame_one_succeeds() {
    free_one_frame_twice([1, 2]);
}

#[test]
fn two_frees_of_one_frame_locally_and_remotely() {
    free_one_frame_twice([0, 1]);
    free_one_frame_twice([1, 0]);
}

/// With `double_free=exact` one of them succeeds, whichever CPUs they run on.
#[test]
fn of_two_frees_of_one_frame_exactly_one_succeeds() {
    for cpus in [[0, 1], [1, 0], [1, 2]] {
        explore(2, move || {
            let machine = active_with::<Sound>(&exact(), 3);
            let mut outcomes = free_twice(&machine, cpus);
            outcomes.sort_by_key(Result::is_err);
            assert_eq!(outcomes, [Ok(()), Err(Error::DoubleFree)]);
            check_held(&machine, BLOCK - 1);
            assert_eq!(machine.events().double_frees_late.get(), 0);
        });
    }
}

/// The same while the holder allocates the frame again as soon as it is free: then the second free
/// may be one of that allocation, and both succeed.
#[test]
fn a_frame_is_freed_twice_while_its_pageblock_is_used() {
    explore(2, || {
        let machine = active_with::<Sound>(&exact(), 3);
        let other = on_cpu(&machine, 1, free_seventh);
        let user = on_cpu(&machine, 0, |machine| {
            machine.drain(CpuId::new(0)).expect("the CPU exists");
            machine.alloc(frame()).expect("memory is free")
        });
        run_on(2);
        let freed = successes(&[free_seventh(&machine), join(other)]);
        let again = u64::from(join(user) == Pfn::new(7));
        assert!((1..=1 + again).contains(&freed), "{freed} frees, {again} allocations");
        check_held(&machine, BLOCK + 1 - freed);
        assert_eq!(machine.events().double_frees_late.get(), 0);
    });
}

/// The same while the holder allocates the frame as part of a larger block: no frame of that is
/// free.
#[test]
fn a_frame_is_freed_twice_while_it_becomes_part_of_a_block() {
    explore(2, || {
        let machine = build_as::<Sound>(&[range(0, BLOCK)], 3, 0, &exact());
        take(&machine, BLOCK);
        run_on(2);
        free(&machine, 6);
        let other = on_cpu(&machine, 1, free_seventh);
        let user = on_cpu(&machine, 0, |machine| {
            machine.drain(CpuId::new(0)).expect("the CPU exists");
            machine.alloc(Request::new(Order::new(1)))
        });
        let freed = successes(&[free_seventh(&machine), join(other)]);
        let taken = join(user).map_or(0, |_| 2);
        assert!((1..=1 + taken / 2).contains(&freed), "{freed} frees, {taken} frames");
        check_held(&machine, BLOCK - 1 - freed + taken);
        assert_eq!(machine.events().double_frees_late.get(), 0);
    });
}

/// A block and a frame of it, and a block of several words.
#[test]
fn of_two_frees_of_parts_of_one_block_exactly_one_succeeds() {
    for (order, parts) in [(2, [(0, 2), (1, 0)]), (7, [(0, 7), (65, 0)])] {
        explore(2, move || {
            let machine = build_as::<Sound>(&[range(0, ALL)], 3, 0, &exact());
            free_parts(&machine, order, parts);
        });
    }
}

/// The same with the last frame of a pageblock that is in use: the local free makes it whole, and
/// from then on no call collects from it. What was freed once too often is discarded before its
/// frames are allocated again.
#[test]
fn the_last_frame_of_a_pageblock_is_freed_locally_and_remotely() {
    explore(2, || {
        let machine = full::<Sound>(2);
        (0..BLOCK).filter(|&frame| frame != 7).for_each(|frame| free(&machine, frame));
        let outcomes = free_twice(&machine, [0, 1]);
        let freed = successes(&outcomes);
        assert!(freed > 0, "{outcomes:?}");
        assert_eq!(machine.events().double_frees_late.get(), freed - 1);
        take(&machine, 8);
        check_held(&machine, BLOCK + 8);
        assert_eq!(machine.events().double_frees_late.get(), freed - 1);
    });
}

/// A second free of a frame that was freed before, while the holder collects it: one bitmap or the
/// other says that it is free.
#[test]
fn a_frame_is_freed_again_while_the_holder_collects() {
    explore(3, || {
        let machine = full::<Sound>(2);
        let owner = on_cpu(&machine, 0, |machine| machine.tick(CpuId::new(0)));
        run_on(1);
        free(&machine, 7);
        assert_eq!(free_seventh(&machine), Err(Error::DoubleFree));
        join(owner).expect("the CPU exists");
        check_held(&machine, ALL - 1);
    });
}

/// Two CPUs free these parts of one block at once. One of them succeeds. Returns how many frames
/// are free then.
fn free_parts_at_once(order: u8, parts: [(u64, u8); 2]) {
    explore(2, move || free_parts(&build(3), order, parts));
}

fn free_parts(machine: &Arc<Frames<Sound>>, order: u8, parts: [(u64, u8); 2]) {
    let block = machine.alloc(Request::new(Order::new(order))).expect("memory is free");
    let part = move |machine: &Frames<Sound>, (offset, order)| {
        machine.free(block.offset(FrameCount::new(offset)), Order::new(order))
    };
    let other = on_cpu(machine, 2, move |machine| part(machine, parts[1]));
    run_on(1);
    let mine = part(machine, parts[0]);
    let freed: Vec<_> = [mine, join(other)]
        .iter()
        .zip(parts)
        .filter_map(|(outcome, (_, order))| outcome.is_ok().then_some(1 << order))
        .collect();
    assert_eq!(freed.len(), 1, "{mine:?}");
    check_held(machine, (1 << order) - freed[0]);
}

#[test]
fn of_two_frees_of_one_block_one_succeeds() {
    free_parts_at_once(1, [(0, 1); 2]);
    free_parts_at_once(7, [(0, 7); 2]);
}

#[test]
fn a_block_and_part_of_it_are_freed_at_once() {
    free_parts_at_once(2, [(0, 2), (0, 1)]);
    free_parts_at_once(2, [(2, 1), (0, 2)]);
    free_parts_at_once(7, [(64, 6), (0, 7)]);
}

#[test]
fn of_two_frees_of_one_pageblock_one_succeeds() {
    free_parts_at_once(9, [(0, 9); 2]);
    free_parts_at_once(10, [(0, 10); 2]);
    free_parts_at_once(10, [(0, 10), (512, 9)]);
}

#[test]
fn a_pageblock_and_part_of_it_are_freed_at_once() {
    free_parts_at_once(9, [(0, 9), (0, 8)]);
}

/// One CPU frees a block of two words, the other one two parts of it, in different words. Either
/// the block is freed, or the parts are.
#[test]
fn a_block_and_two_parts_of_it_are_freed_at_once() {
    for (settings, parts) in
        [(FreeholdSettings::default(), [(64, 6), (10, 1)]), (exact(), [(64, 6), (10, 0)])]
    {
        explore(2, move || {
            let machine = build_as(&[range(0, BLOCK)], 3, 0, &settings);
            let block = machine.alloc(Request::new(Order::new(7))).expect("memory is free");
            let free = move |machine: &Frames<Sound>, (offset, order)| {
                machine.free(block.offset(FrameCount::new(offset)), Order::new(order)).is_ok()
            };
            let other = on_cpu(&machine, 2, move |machine| parts.map(|part| free(machine, part)));
            run_on(1);
            let whole = free(&machine, (0, 7));
            assert_eq!(join(other), [!whole; 2]);
            let left = if whole {
                0
            } else {
                128 - parts.iter().map(|(_, order)| 1 << order).sum::<u64>()
            };
            check_held(&machine, left);
        });
    }
}

/// Two users of one block free parts of it that do not overlap.
fn free_apart(preemptions: usize, order: u8, parts: [(u64, u8); 2]) {
    explore(preemptions, move || {
        let machine = build::<Sound>(3);
        let block = machine.alloc(Request::new(Order::new(order))).expect("memory is free");
        let part = move |machine: &Frames<Sound>, (offset, order)| {
            let part = block.offset(FrameCount::new(offset));
            machine.free(part, Order::new(order)).expect("it is held");
        };
        let other = on_cpu(&machine, 2, move |machine| part(machine, parts[1]));
        run_on(1);
        part(&machine, parts[0]);
        join(other);
        let freed: u64 = parts.iter().map(|(_, order)| 1 << order).sum();
        check_held(&machine, (1 << order) - freed);
    });
}

#[test]
fn parts_of_one_block_are_freed_at_once() {
    free_apart(2, 2, [(0, 0), (1, 0)]);
    free_apart(2, 7, [(0, 6), (64, 6)]);
}

#[test]
fn parts_of_pageblocks_are_freed_at_once() {
    free_apart(2, 10, [(0, 9), (512, 9)]);
    free_apart(2, 10, [(0, 0), (512, 9)]);
    free_apart(2, 10, [(512, 9), (0, 0)]);
    // A thread that comes late may see many old states.
    free_apart(0, 9, [(0, 0), (1, 0)]);
}

/// The same for many frames in one call, which reads the bitmaps of a whole word first.
#[test]
fn frames_of_a_pageblock_are_freed_together_while_another_one_is() {
    explore(0, || {
        let machine = build::<Sound>(3);
        let block = machine.alloc(Request::new(Order::PAGEBLOCK)).expect("memory is free");
        let frame = move |nth| block.offset(FrameCount::new(nth));
        let other = on_cpu(&machine, 2, move |machine| {
            machine.free_bulk(&[frame(1), frame(2), frame(3)], Order::ZERO)
        });
        run_on(1);
        machine.free(frame(0), Order::ZERO).expect("it is held");
        join(other).expect("they are held");
        check_held(&machine, BLOCK - 4);
    });
}
