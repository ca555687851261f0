//! What no CPU caches goes to an allocator behind this one, and comes back; and requests that take
//! only what is at hand. The other one is a list of blocks.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;

use crate::common::{TestPlatform, run_on};
use crate::random::Random;
use crate::tested::{Tested, build_as, range};
use freehold::designs::{DoubleFree, Freehold, FreeholdSettings};
use freehold::{
    Error, FrameCount, Migrate, MigrateError, MigrateType, Order, Pfn, RangeRequest, Request,
    Watermark,
};

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
const FRAMES: u64 = 16 * PAGEBLOCK;

type Front = Tested<Freehold<TestPlatform>>;

/// One zone, two CPUs, frees checked exactly.
fn machine() -> Front {
    let settings = FreeholdSettings { double_free: DoubleFree::Exact, ..Default::default() };
    build_as(&[range(PAGEBLOCK, FRAMES)], &[0, 0], 0, &settings)
}

/// Takes the surplus beyond `keep`, and checks that it is aligned and was free.
fn surplus(machine: &Front, keep: u64) -> Vec<(Pfn, Order)> {
    let mut blocks = Vec::new();
    let frames = machine.take_surplus(FrameCount::new(keep), |first, order| {
        assert_eq!(first.get() % order.frames().get(), 0, "{first:?} {order:?}");
        blocks.push((first, order));
    });
    assert_eq!(frames.get(), frames_of(&blocks));
    for &(first, order) in &blocks {
        let mut frames = first.get()..first.get() + order.frames().get();
        assert!(frames.all(|frame| !machine.is_free(Pfn::new(frame))), "{first:?} {order:?}");
    }
    blocks
}

/// An owner of content who is never asked.
struct Anything;

impl Migrate for Anything {
    fn migrate(&self, from: Pfn, _to: Pfn, _order: Order) -> Result<(), MigrateError> {
        panic!("{from:?} cannot move")
    }
}

fn frames_of(blocks: &[(Pfn, Order)]) -> u64 {
    blocks.iter().map(|(_, order)| order.frames().get()).sum()
}

fn give(machine: &Front, blocks: impl IntoIterator<Item = (Pfn, Order)>) {
    for (first, order) in blocks {
        machine.free_range(first, order.frames()).expect("the block is allocated");
    }
}

#[test]
fn whole_pageblocks_come_first_and_as_many_frames_stay_as_are_to_be_kept() {
    let machine = machine();
    let held: Vec<_> = (0..PAGEBLOCK + 10).map(|_| machine.alloc(Request::default())).collect();
    machine.drain_all();
    let taken = surplus(&machine, 6 * PAGEBLOCK);
    assert!(taken.iter().all(|&(_, order)| order == Order::PAGEBLOCK));
    // 13 are whole, and all but 10 frames of the next one are free.
    assert_eq!((taken.len(), surplus(&machine, 6 * PAGEBLOCK).len()), (9, 0));
    assert_eq!(frames_of(&surplus(&machine, 0)), 6 * PAGEBLOCK - 10 - PAGEBLOCK + PAGEBLOCK);
    assert_eq!(machine.alloc(Request::default()), Err(Error::OutOfMemory));
    for frame in held {
        machine.free(frame.expect("there was memory"), Order::ZERO).expect("it is held");
    }
    machine.validate().expect("sound");
}

/// Random frames are freed and what is left of their pageblocks is taken, from both CPUs; the other
/// allocator frees its blocks whole, in parts, and frame by frame.
#[test]
fn scattered_frames_go_and_come_back_in_any_parts() {
    let (machine, mut random) = (machine(), Random(5));
    let mut held: Vec<_> = std::iter::from_fn(|| machine.alloc(Request::default()).ok()).collect();
    assert_eq!(held.len() as u64, FRAMES);
    let mut behind = Vec::new();
    for round in 0..40 {
        for _ in 0..held.len() / 3 {
            run_on(random.below(2) as u32);
            let frame = held.swap_remove(random.below(held.len()));
            machine.free(frame, Order::ZERO).expect("it is held");
        }
        machine.drain_all();
        let before = behind.len();
        behind.extend(surplus(&machine, 0));
        assert!(behind.len() > before, "in round {round}");
        assert_eq!(machine.levels().map(|zone| zone.free.get()).sum::<u64>(), 0);
        machine.validate().expect("sound");
        assert_eq!(frames_of(&behind) + held.len() as u64, FRAMES);
        // Half of that comes back.
        for _ in 0..behind.len() / 2 {
            let (first, order) = behind.swap_remove(random.below(behind.len()));
            let frames = first.get()..first.get() + order.frames().get();
            match random.below(3) {
                0 => give(&machine, [(first, order)]),
                1 if order > Order::ZERO => {
                    let half = Order::new(order.get() - 1);
                    let upper = Pfn::new(first.get() + half.frames().get());
                    give(&machine, [(upper, half), (first, half)]);
                }
                _ => {
                    for frame in frames.map(Pfn::new) {
                        machine.free(frame, Order::ZERO).expect("it is allocated");
                        assert_eq!(machine.free(frame, Order::ZERO), Err(Error::DoubleFree));
                    }
                }
            }
        }
        held.extend(std::iter::from_fn(|| machine.alloc(Request::default()).ok()));
        machine.validate().expect("sound");
    }
}

/// It counts as content that cannot move, in a pageblock of movable content, too.
#[test]
fn what_is_given_away_does_not_move() {
    let machine = machine();
    let held = machine.alloc(Request::default()).expect("there is memory");
    machine.drain_all();
    let taken = surplus(&machine, 0);
    let rest = taken.iter().copied().filter(|&(_, order)| order < Order::PAGEBLOCK);
    assert_eq!(frames_of(&rest.clone().collect::<Vec<_>>()), PAGEBLOCK - 1);
    for (first, order) in rest {
        let range = RangeRequest::new(order.frames()).at(first).watermark(Watermark::Ignore);
        assert_eq!(machine.alloc_range(range, &Anything), Err(Error::RangeBusy), "{order:?}");
    }
    machine.free(held, Order::ZERO).expect("it is held");
}

#[test]
fn only_what_is_at_hand_is_taken() {
    let machine = machine();
    let at_hand = Request::default().at_hand();
    // All is surplus, but for what the other CPU caches.
    run_on(1);
    let held = machine.alloc(at_hand).expect("the pool is at hand");
    let behind = surplus(&machine, 0);
    run_on(0);
    assert_eq!(machine.alloc(at_hand), Err(Error::OutOfMemory));
    let mut some = [Pfn::new(0); 4];
    assert_eq!(machine.alloc_bulk(at_hand, &mut some), Ok(0));
    machine.alloc(Request::default()).expect("the other CPU has frames");
    run_on(1);
    machine.free(held, Order::ZERO).expect("it is held");
    machine.alloc(at_hand).expect("the own cache is at hand");
    // An orphan for other content is not.
    machine.drain_all();
    let other = at_hand.migratetype(MigrateType::Unmovable);
    assert_eq!(machine.alloc(other), Err(Error::OutOfMemory));
    machine.alloc(at_hand).expect("an orphan of the type is at hand");
    give(&machine, behind);
    machine.alloc(other).expect("the pool is at hand");
    machine.validate().expect("sound");
}

/// Frames that the allocator in front and the one behind pass on, while threads allocate, free on
/// each other's CPUs, drain and report: each frame has one user at a time, and none is lost.
#[test]
fn threads_meet_the_surplus() {
    let machine = machine();
    let users: Vec<_> = (0..PAGEBLOCK + FRAMES).map(|_| AtomicU32::new(0)).collect();
    let mark = |first: Pfn, order: Order, before: u32, after: u32| {
        for frame in first.get()..first.get() + order.frames().get() {
            let user = users[frame as usize].swap(after, SeqCst);
            assert_eq!(user, before, "frame {frame}");
        }
    };
    let work = |id: u32| {
        let (mut random, mut held, mut behind) = (Random(id.into()), Vec::new(), Vec::new());
        for _ in 0..20_000 {
            run_on(random.below(2) as u32);
            match random.below(12) {
                0..5 => {
                    let order = Order::new([0, 0, 0, 1, 3, 9][random.below(6)]);
                    let request = Request::new(order);
                    let request = if id == 1 { request.at_hand() } else { request };
                    if let Ok(first) = machine.alloc(request) {
                        mark(first, order, 0, id);
                        held.push((first, order));
                    }
                }
                5..9 if !held.is_empty() => {
                    let (first, order) = held.swap_remove(random.below(held.len()));
                    mark(first, order, id, 0);
                    machine.free(first, order).expect("it is held");
                }
                9 => {
                    machine.take_surplus(
                        FrameCount::new(random.below(2000) as u64),
                        |first, order| {
                            mark(first, order, 0, 100 + id);
                            behind.push((first, order));
                        },
                    );
                }
                10 => {
                    for (first, order) in behind.drain(..) {
                        mark(first, order, 100 + id, 0);
                        machine.free_range(first, order.frames()).expect("it is allocated");
                    }
                }
                _ if random.below(4) == 0 => machine.drain_all(),
                _ => {
                    machine.report_free(|pageblocks| {
                        pageblocks.iter().for_each(|&it| mark(it, Order::PAGEBLOCK, 0, 200 + id));
                        pageblocks.iter().for_each(|&it| mark(it, Order::PAGEBLOCK, 200 + id, 0));
                        true
                    });
                }
            }
        }
        for (first, order) in held {
            mark(first, order, id, 0);
            machine.free(first, order).expect("it is held");
        }
        for (first, order) in behind {
            mark(first, order, 100 + id, 0);
            machine.free_range(first, order.frames()).expect("it is allocated");
        }
    };
    thread::scope(|scope| (1..=3).for_each(|id| drop(scope.spawn(move || work(id)))));
    machine.drain_all();
    let census = machine.validate().expect("sound");
    assert_eq!(census.free.get(), FRAMES);
}
