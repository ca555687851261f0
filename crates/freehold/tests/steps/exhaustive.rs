//! Small cases, exhaustively: every sequence of calls on a few frames, every order in which the
//! parts of a block can be freed, every alignment of a range.

use crate::common::TestPlatform;
use crate::designs::{fixed, variants};
use crate::machine::Machine;
use crate::naive::{Ask, Naive};
use freehold::designs::Design;
use freehold::{Config, CpuId, FrameCount, MemoryRange, NodeId, Order, Pfn};

const ONE_CPU: [NodeId; 1] = [NodeId::new(0)];

fn range(start: u64, end: u64) -> MemoryRange {
    MemoryRange::new(Pfn::new(start), FrameCount::new(end - start))
}

/// A machine with one CPU and no reserves, whose lists move up to two frames at a time, and its
/// model.
fn pair<D: Design<TestPlatform>>(
    ranges: &[MemoryRange],
    own: &D::Settings,
    high: u32,
) -> (Machine<TestPlatform, D>, Naive) {
    let config = Config::new(ranges, &ONE_CPU).min_free(FrameCount::ZERO);
    let settings = fixed(own, high.min(2), high);
    (Machine::new(TestPlatform, &config, &settings), Naive::new(&config))
}

/// A call on a tiny machine.
#[derive(Clone, Copy, Debug)]
enum Call {
    Alloc(u8),
    /// Frees the nth block that is held.
    Free(usize),
    /// Frees the lower or the upper half of the nth block that is held.
    FreeHalf(usize, u64),
    /// Frees the first free frame, which is an error.
    FreeFree,
    Drain,
}

/// The calls that are distinguishable in the current state.
fn calls(model: &Naive, order_max: u8) -> Vec<Call> {
    let mut calls: Vec<_> = (0..=order_max).map(Call::Alloc).collect();
    for (nth, (_, &order)) in model.held.iter().enumerate() {
        calls.push(Call::Free(nth));
        if order > 0 {
            calls.extend([Call::FreeHalf(nth, 0), Call::FreeHalf(nth, 1)]);
        }
    }
    calls.extend([Call::FreeFree, Call::Drain]);
    calls
}

fn run<D: Design<TestPlatform>>(
    machine: &Machine<TestPlatform, D>,
    model: &mut Naive,
    memory: MemoryRange,
    call: Call,
) {
    let held = |model: &Naive, nth| {
        let (&pfn, &order) = model.held.iter().nth(nth).expect("the block is held");
        (pfn, order)
    };
    let free = |model: &mut Naive, pfn, order| {
        let pfn = Pfn::new(pfn);
        assert_eq!(machine.free(pfn, Order::new(order)), model.free(pfn, order));
    };
    match call {
        Call::Alloc(order) => model.alloc(machine, &Ask::new(order), 0),
        Call::Free(nth) => {
            let (pfn, order) = held(model, nth);
            free(model, pfn, order);
        }
        Call::FreeHalf(nth, upper) => {
            let (pfn, order) = held(model, nth);
            free(model, pfn + (upper << (order - 1)), order - 1);
        }
        Call::FreeFree => {
            let is_held =
                |pfn| model.held.iter().any(|(&at, of)| (at..at + (1 << of)).contains(&pfn));
            let all = memory.start.get()..memory.start.get() + memory.frames.get();
            if let Some(pfn) = all.into_iter().find(|&pfn| !is_held(pfn)) {
                free(model, pfn, 0);
            }
        }
        Call::Drain => machine.drain(CpuId::new(0)).expect("there is a CPU 0"),
    }
}

/// Tries every sequence of `length` calls and returns how many there were.
fn try_all<D: Design<TestPlatform>>(
    own: &D::Settings,
    memory: MemoryRange,
    high: u32,
    order_max: u8,
    length: usize,
) -> usize {
    // Which of how many calls is made at each depth.
    let mut path: Vec<(usize, usize)> = vec![];
    let (mut sequences, mut known) = (0, 0);
    loop {
        let (machine, mut model) = pair::<D>(&[memory], own, high);
        for depth in 0..length {
            let calls = calls(&model, order_max);
            if depth == path.len() {
                path.push((0, calls.len()));
            }
            run(&machine, &mut model, memory, calls[path[depth].0]);
            // What lies before the change was checked with the previous sequence.
            if depth >= known {
                model.check(&machine);
            }
        }
        sequences += 1;
        while path.last().is_some_and(|&(call, of)| call + 1 == of) {
            path.pop();
        }
        let Some(last) = path.last_mut() else { return sequences };
        last.0 += 1;
        known = path.len() - 1;
    }
}

fn every_sequence_of_five_calls_on_an_aligned_block<D: Design<TestPlatform>>() {
    for own in variants::<D::Settings>() {
        // At each step at least the allocations, the bad free and the drain are possible.
        assert!(try_all::<D>(&own, range(8, 16), 1, 3, 5) > 6usize.pow(5));
        assert!(try_all::<D>(&own, range(8, 16), 2, 2, 5) > 5usize.pow(5));
    }
}

fn every_sequence_of_six_calls_on_an_unaligned_range<D: Design<TestPlatform>>() {
    for own in variants::<D::Settings>() {
        assert!(try_all::<D>(&own, range(5, 10), 2, 1, 6) > 4usize.pow(6));
    }
}

/// Calls `each` with every order of `items`.
fn permutations(items: &mut [u64], at: usize, each: &mut impl FnMut(&[u64])) {
    if at == items.len() {
        return each(items);
    }
    for other in at..items.len() {
        items.swap(at, other);
        permutations(items, at + 1, each);
        items.swap(at, other);
    }
}

fn free_a_block_in_every_order_of_its_frames<D: Design<TestPlatform>>(high: u32) {
    let (machine, model) = pair::<D>(&[range(8, 16)], &D::Settings::default(), high);
    let (mut tried, mut frames) = (0, [0, 1, 2, 3, 4, 5, 6, 7]);
    permutations(&mut frames, 0, &mut |frames| {
        let block = machine.alloc(Ask::new(3).request()).expect("the block is whole again");
        assert_eq!(block, Pfn::new(8));
        for (freed, frame) in frames.iter().enumerate() {
            machine.free(Pfn::new(8 + frame), Order::ZERO).expect("a part is freed");
            if tried % 97 == freed {
                let census = machine.validate().expect("the books are right");
                assert_eq!(census.allocated.get(), 7 - freed as u64);
            }
        }
        tried += 1;
    });
    assert_eq!(tried, 40_320);
    machine.drain_all();
    model.check_merged(&machine);
}

fn a_block_is_whole_again_in_whatever_order_its_frames_are_freed<D: Design<TestPlatform>>() {
    free_a_block_in_every_order_of_its_frames::<D>(1);
}

fn frames_that_wait_with_a_cpu_are_merged_when_it_drains<D: Design<TestPlatform>>() {
    free_a_block_in_every_order_of_its_frames::<D>(5);
}

fn every_part_of_every_block_can_be_freed_by_itself<D: Design<TestPlatform>>() {
    let memory = [range(1024, 2048)];
    let (machine, mut model) = pair::<D>(&memory, &D::Settings::default(), 1);
    let free = |machine: &Machine<TestPlatform, D>, model: &mut Naive, pfn, order| {
        let pfn = Pfn::new(pfn);
        assert_eq!(machine.free(pfn, Order::new(order)), model.free(pfn, order));
    };
    for order in 0..=7 {
        for part in 0..=order {
            for at in 0..1 << (order - part) {
                let block = machine.alloc(Ask::new(order).request()).expect("memory is free");
                model.take(block, order, &[0]);
                // Too large and misplaced parts first, then the part, and the part once more.
                free(&machine, &mut model, block.get(), order + 1);
                free(&machine, &mut model, block.get() + 1, order.max(1));
                for _ in 0..2 {
                    free(&machine, &mut model, block.get() + (at << part), part);
                }
                model.check(&machine);
                // The rest is still held, in pieces that the model knows.
                while let Some((&pfn, &order)) = model.held.last_key_value() {
                    free(&machine, &mut model, pfn, order);
                }
                machine.drain_all();
                model.check_whole(&machine);
            }
        }
    }
}

fn ranges_may_begin_and_end_anywhere<D: Design<TestPlatform>>() {
    for start in 1024 - 16..=1024 + 16 {
        for end in 2048 - 16..=2048 + 16 {
            let (machine, model) = pair::<D>(&[range(start, end)], &D::Settings::default(), 1);
            // At once, as the largest blocks that fit.
            model.check_whole(&machine);
        }
    }
}

fn ranges_that_meet_anywhere_become_one<D: Design<TestPlatform>>() {
    for border in 1536 - 16..=1536 + 16 {
        for (first, second) in [(0, 1), (1, 0)] {
            let halves = [range(1024, border), range(border, 2048)];
            let (machine, model) =
                pair::<D>(&[halves[first], halves[second]], &D::Settings::default(), 1);
            model.check_whole(&machine);
            assert_eq!(machine.zones().next().expect("a zone").free_blocks[10], 1);
        }
    }
}

test_designs!(TestPlatform: [
    every_sequence_of_five_calls_on_an_aligned_block,
    every_sequence_of_six_calls_on_an_unaligned_range,
    a_block_is_whole_again_in_whatever_order_its_frames_are_freed,
    frames_that_wait_with_a_cpu_are_merged_when_it_drains,
    every_part_of_every_block_can_be_freed_by_itself,
    ranges_may_begin_and_end_anywhere,
    ranges_that_meet_anywhere_become_one,
]);
