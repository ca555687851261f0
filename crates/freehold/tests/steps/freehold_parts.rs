//! A block is freed whole by one call and in parts by others, one of them stopped at each of its
//! steps: the results are those of the same calls one after the other, in some order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::freehold_queued;
use crate::steps::{Kind, StepPlatform, run_on, stop_again, stop_at};
use freehold::designs::{DoubleFree, Freehold, FreeholdSettings};
use freehold::{FrameCount, FrameStatus, Order, Pfn, Request};

type Frames = crate::machine::Machine<StepPlatform, Freehold<StepPlatform>>;

/// An offset in the block, and the order that is freed there.
type Part = (u64, u8);

fn frames_of(part: Part) -> std::ops::Range<u64> {
    part.0..part.0 + (1 << part.1)
}

/// Which of three frees succeed, one after the other in an order, if no frame may be freed twice.
fn in_order(block: u8, parts: [Part; 3], order: [usize; 3]) -> [bool; 3] {
    let (mut held, mut freed) = (vec![true; 1 << block], [false; 3]);
    for nth in order {
        let range = || frames_of(parts[nth]).map(|frame| frame as usize);
        freed[nth] = range().all(|frame| held[frame]);
        range().filter(|_| freed[nth]).for_each(|frame| held[frame] = false);
    }
    freed
}

fn free(frames: &Frames, block: Pfn, (offset, order): Part) -> bool {
    frames.free(block.offset(FrameCount::new(offset)), Order::new(order)).is_ok()
}

/// `call` is stopped before each of its steps, and the others go on there, but for those that are
/// done `before`.
fn freed_at_once(
    settings: &FreeholdSettings,
    cpu: u32,
    order: u8,
    call: Part,
    others: [Part; 2],
    before: usize,
) {
    let parts = [others[0], others[1], call];
    let orders = [[0, 1, 2], [0, 2, 1], [2, 0, 1], [2, 1, 0], [1, 0, 2], [1, 2, 0]];
    let possible = match before {
        0 => &orders[..],
        _ => &orders[..2],
    };
    let possible: Vec<_> = possible.iter().map(|&at| in_order(order, parts, at)).collect();
    for step in 0.. {
        run_on(cpu);
        let frames = Rc::new(freehold_queued::machine_with(settings, 2, 3, 0));
        let block = frames.alloc(Request::new(Order::new(order))).expect("memory is free");
        run_on(1);
        let freed: Vec<_> =
            others[..before].iter().map(|&part| free(&frames, block, part)).collect();
        let (freed, other) = (Rc::new(RefCell::new(freed)), Rc::clone(&frames));
        let of_others = Rc::clone(&freed);
        run_on(0);
        let between = move || {
            run_on(1);
            for &part in &others[before..] {
                of_others.borrow_mut().push(free(&other, block, part));
            }
            run_on(0);
        };
        let (result, was_stopped) =
            stop_at(step, Kind::Stop, between, || free(&frames, block, call));
        if !was_stopped {
            assert!(step > 0, "it had no step");
            return;
        }
        let mut freed = freed.take();
        freed.push(result.expect("no call waits for another one"));
        let case = format!("CPU {cpu}, order {order}, {call:?} beside {others:?}, step {step}");
        assert!(possible.contains(&freed[..].try_into().expect("three")), "{case}: {freed:?}");
        frames.validate().unwrap_or_else(|violation| panic!("{case}: {violation}"));
        // What no call has freed can be freed, frame by frame, and nothing else.
        let parts = parts.iter().zip(&freed).filter(|(_, freed)| **freed);
        let is_freed = |nth: u64| parts.clone().any(|(part, _)| frames_of(*part).contains(&nth));
        for nth in 0..1 << order {
            let pfn = block.offset(FrameCount::new(nth));
            let is_free = frames.status(pfn) == FrameStatus::Free;
            assert_eq!(is_free, is_freed(nth), "{case}: frame {nth}");
            assert_eq!(free(&frames, block, (nth, 0)), !is_freed(nth), "{case}: frame {nth}");
        }
        frames.drain_all();
        let census = frames.validate().unwrap_or_else(|violation| panic!("{case}: {violation}"));
        assert_eq!(census.free, census.managed, "{case}");
    }
}

/// Whole frees and frees of parts, of different words and sizes.
const CASES: [(u8, Part, [Part; 2]); 12] = [
    (7, (0, 7), [(64, 6), (10, 1)]),
    (7, (0, 7), [(2, 1), (64, 6)]),
    (7, (64, 6), [(0, 7), (0, 6)]),
    (7, (12, 2), [(0, 7), (0, 6)]),
    (8, (0, 8), [(192, 6), (66, 1)]),
    (8, (0, 8), [(128, 7), (0, 7)]),
    (8, (0, 7), [(0, 8), (64, 5)]),
    (8, (128, 7), [(192, 6), (128, 6)]),
    (8, (192, 6), [(0, 8), (128, 7)]),
    (2, (0, 2), [(2, 1), (0, 1)]),
    (6, (0, 6), [(32, 5), (8, 3)]),
    (6, (8, 3), [(0, 6), (0, 4)]),
];

/// The same with single frames, of which two frees may both pass with [`DoubleFree::Fast`].
const SINGLES: [(u8, Part, [Part; 2]); 5] = [
    (7, (0, 7), [(64, 6), (10, 0)]),
    (8, (0, 8), [(255, 0), (0, 0)]),
    (7, (70, 0), [(0, 7), (64, 6)]),
    (3, (0, 3), [(1, 0), (4, 2)]),
    (3, (5, 0), [(0, 3), (4, 2)]),
];

fn all(settings: &FreeholdSettings, cases: &[(u8, Part, [Part; 2])]) {
    for &(order, call, others) in cases {
        for cpu in 0..3 {
            for before in 0..2 {
                freed_at_once(settings, cpu, order, call, others, before);
            }
        }
    }
}

#[test]
fn of_frees_of_a_block_and_parts_of_it_one_succeeds_for_each_frame() {
    all(&FreeholdSettings::default(), &CASES);
}

#[test]
fn the_same_for_single_frames_with_exact_frees() {
    let exact = FreeholdSettings { double_free: DoubleFree::Exact, ..Default::default() };
    all(&exact, &CASES);
    all(&exact, &SINGLES);
}

/// A free of a frame is so late that the frame is part of a larger block, which is freed at the
/// next stop. Either the block is freed there, or it can be afterwards.
#[test]
fn a_block_is_freed_while_a_late_free_looks_at_a_frame_of_it() {
    let exact = FreeholdSettings { double_free: DoubleFree::Exact, ..Default::default() };
    let (order, single) = (Order::new(7), 67);
    let refused = Rc::new(Cell::new(0));
    for (step, next) in (0..20).flat_map(|step| (1..12).map(move |next| (step, next))) {
        run_on(0);
        let frames = Rc::new(freehold_queued::machine_with(&exact, 1, 3, 0));
        let block = frames.alloc(Request::new(order)).expect("memory is free");
        for nth in (0..128).filter(|&nth| nth != single) {
            assert!(free(&frames, block, (nth, 0)));
        }
        let freed = Rc::new(Cell::new(false));
        let (frames_then, freed_then, refused_then) =
            (Rc::clone(&frames), Rc::clone(&freed), Rc::clone(&refused));
        let meanwhile = move || {
            run_on(1);
            let was_first = free(&frames_then, block, (single, 0));
            run_on(0);
            if !was_first || frames_then.alloc(Request::new(order)) != Ok(block) {
                return;
            }
            stop_again(next, Kind::Stop, move || {
                run_on(2);
                freed_then.set(free(&frames_then, block, (0, 7)));
                refused_then.set(refused_then.get() + u32::from(!freed_then.get()));
                run_on(0);
            });
        };
        stop_at(step, Kind::Stop, meanwhile, || free(&frames, block, (single, 0)));
        frames.validate().unwrap_or_else(|violation| panic!("{step}, {next}: {violation}"));
        if frames.order_of(block) == Some(order) {
            assert!(!freed.get() && free(&frames, block, (0, 7)), "{step}, {next}");
        }
        frames.validate().unwrap_or_else(|violation| panic!("{step}, {next}: {violation}"));
    }
    assert!(refused.get() > 0, "the late free never had the frame");
}
