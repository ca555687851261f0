//! Frames that leave use, in the design `freehold`, while others of the same word are freed or
//! looked at, under loom: all interleavings with a few preemptions, and all values that the memory
//! orderings allow a load to see; `LOOM_MAX_PREEMPTIONS` explores further.

use crate::freehold_models::{
    BLOCK, Frames, Sound, build_of, check_held, explore, free, join, on_cpu, range, take,
};
use crate::loom_platform::run_on;
use freehold::{FrameCount, FrameStatus, Immovable, Order, Pfn, Request};

fn remove(machine: &Frames<Sound>, frame: u64) {
    let removed = machine.remove_memory(Pfn::new(frame), FrameCount::new(1), &Immovable);
    removed.expect("it is free");
}

/// What is left when a frame has been removed, and users hold so many.
fn check_removed(machine: &Frames<Sound>, frame: u64, held: u64) {
    assert_eq!(machine.status(Pfn::new(frame)), FrameStatus::Foreign);
    check_held(machine, held);
    assert_eq!(machine.zones().map(|zone| zone.managed.get()).sum::<u64>(), 71);
}

/// 64 frames in one word, and eight elsewhere. The first `taken` are allocated one by one.
fn build(taken: u64) -> loom::sync::Arc<Frames<Sound>> {
    let machine = build_of::<Sound>(&[range(0, 64), range(BLOCK, 8)], 3, 0);
    take(&machine, taken);
    machine
}

#[test]
fn a_frame_is_removed_while_another_cpu_frees_its_neighbour() {
    explore(1, || {
        let machine = build(5);
        let other = on_cpu(&machine, 1, |machine| free(machine, 4));
        run_on(2);
        remove(&machine, 5);
        join(other);
        check_removed(&machine, 5, 4);
    });
}

/// The free ends with the tail bit of the frame behind the part: that of a hole stays.
#[test]
fn a_frame_is_removed_while_another_cpu_frees_part_of_the_block_before_it() {
    explore(1, || {
        let machine = build(0);
        assert_eq!(machine.alloc(Request::new(Order::new(2))), Ok(Pfn::new(0)));
        let other = on_cpu(&machine, 1, |machine| machine.free(Pfn::new(2), Order::new(1)));
        run_on(2);
        remove(&machine, 4);
        join(other).expect("it is held");
        check_removed(&machine, 4, 2);
    });
}

/// The user of a frame asks what it is, and what the frame behind it is that is being removed.
#[test]
fn a_user_looks_at_its_frame_while_the_frame_behind_it_is_removed() {
    explore(1, || {
        let machine = build(3);
        let user = on_cpu(&machine, 1, |machine| {
            let (first, order) = (Pfn::new(2), Order::ZERO);
            assert_eq!(machine.status(first), FrameStatus::Allocated { first, order });
            assert!(!matches!(machine.status(Pfn::new(3)), FrameStatus::Allocated { .. }));
        });
        run_on(2);
        remove(&machine, 3);
        join(user);
        check_removed(&machine, 3, 3);
    });
}

/// The same while a frame before it is freed, and nothing is removed any more.
#[test]
fn a_user_looks_at_its_frame_while_frames_beside_it_are_freed() {
    explore(1, || {
        let machine = build(4);
        remove(&machine, 4);
        let frees = on_cpu(&machine, 0, |machine| free(machine, 1));
        let user = on_cpu(&machine, 1, |machine| {
            let (first, order) = (Pfn::new(2), Order::ZERO);
            assert_eq!(machine.status(first), FrameStatus::Allocated { first, order });
        });
        run_on(2);
        free(&machine, 3);
        join(frees);
        join(user);
        check_removed(&machine, 4, 2);
    });
}
