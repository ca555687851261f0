//! Calls of the design `freehold` that are stopped between two steps while another call changes the
//! state under them: none may trust what it read before.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use crate::freehold_queued;
use crate::steps::{Kind, StepPlatform, at_each_step, run_on, stop_at, unless_it_waits};
use freehold::{
    CpuId, Error, FrameCount, Migrate, MigrateError, MigrateType, Order, Pfn, RangeRequest,
    Request, Watermark,
};

pub(crate) type Frames = freehold_queued::Frames<StepPlatform>;

pub(crate) const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
pub(crate) const CPU: CpuId = CpuId::new(0);

pub(crate) fn machine(pageblocks: u64, min_free: u64) -> Rc<Frames> {
    run_on(0);
    Rc::new(freehold_queued::machine(pageblocks, 3, min_free))
}

pub(crate) fn below(order: Order) -> Request {
    Request::new(order).watermark(Watermark::Ignore)
}

/// Stops a call on CPU 0 before each of its steps, or each of so many, and runs another one on CPU
/// 1.
pub(crate) fn each_step(
    stride: usize,
    build: impl Fn() -> Rc<Frames>,
    meanwhile: impl Fn(&Frames) + Copy + 'static,
    call: impl Fn(&Frames),
) {
    each_step_then(stride, build, meanwhile, call, |_| ());
}

/// The same, with a final action, unless one of the two calls waited for the other.
pub(crate) fn each_step_then(
    stride: usize,
    build: impl Fn() -> Rc<Frames>,
    meanwhile: impl Fn(&Frames) + Copy + 'static,
    call: impl Fn(&Frames),
    then: impl Fn(&Frames),
) {
    let mut stops = 0;
    for step in (0..).step_by(stride) {
        let frames = build();
        let other = Rc::clone(&frames);
        let between = move || {
            run_on(1);
            meanwhile(&other);
        };
        run_on(0);
        let (result, was_stopped) = stop_at(step, Kind::Stop, between, || call(&frames));
        // A call that waits for something that was unwound is unwound as well.
        if result.is_some() {
            frames.validate().unwrap_or_else(|violation| panic!("step {step}: {violation}"));
            then(&frames);
        }
        if !was_stopped {
            break;
        }
        stops += 1;
    }
    assert!(stops > 5, "{stops} stops");
}

/// Spares are fetched while another CPU takes just these pageblocks, or the zone becomes low.
#[test]
fn spares_are_fetched_while_another_cpu_takes_pageblocks() {
    let huge = below(Order::PAGEBLOCK).migratetype(MigrateType::Unmovable);
    let fill = |frames: &Frames| {
        let huge = Request::new(Order::PAGEBLOCK).migratetype(MigrateType::Unmovable);
        let _ = frames.alloc(huge);
        // The memory after those, if it was taken: the level must be as high as before.
        let _ = frames.free(Pfn::new(7 * PAGEBLOCK), Order::PAGEBLOCK);
    };
    let take_one = move |frames: &Frames| _ = frames.alloc(huge.nowait());
    let take_all = move |frames: &Frames| while frames.alloc(huge.nowait()).is_ok() {};
    each_step(1, || machine(8, 2 * PAGEBLOCK), take_one, fill);
    each_step(1, || machine(8, 2 * PAGEBLOCK), take_all, fill);
}

/// Another CPU takes a pageblock of a block of two words of pageblocks meanwhile.
#[test]
fn a_large_block_is_taken_while_another_cpu_takes_part_of_it() {
    let take = |order| move |frames: &Frames| _ = frames.alloc(below(Order::new(order)).nowait());
    each_step(1, || machine(128, 0), take(9), take(16));
}

/// A lease begins while another one of the same caches does, and is revoked: the lock is free
/// afterwards.
#[test]
fn a_lease_begins_while_another_one_is_revoked() {
    let revoke = |frames: &Frames| {
        // It may wait for the lock. The lease that it gets does not end.
        let lease = unless_it_waits(|| frames.lease(CPU).map(|lease| lease.park()));
        if let Some(Ok(_)) = lease {
            frames.drain(CPU).expect("the CPU exists");
        }
    };
    let lease = |frames: &Frames| {
        drop(frames.lease(CPU));
        run_on(1);
        frames.drain(CPU).expect("the CPU exists");
    };
    each_step(1, || machine(2, 0), revoke, lease);
}

/// The owner of a lease is interrupted, and the handler uses the same lease: no frame is allocated
/// twice.
#[test]
fn a_handler_uses_the_lease_that_it_interrupts() {
    let stops = at_each_step(|step| {
        // The lease moves to the handler, and so must live forever.
        let frames: &'static Frames = Box::leak(Box::new(machine(4, 0)));
        let lease = Rc::new(frames.lease(CPU).expect("there is no other lease"));
        let got = Rc::new(RefCell::new(Vec::new()));
        let (same, theirs) = (Rc::clone(&lease), Rc::clone(&got));
        let handler = move || {
            let more = (0..3).filter_map(|_| same.alloc(Request::default()).ok());
            theirs.borrow_mut().extend(more);
        };
        let work = || [0; 2].map(|_| lease.alloc(Request::default()).expect("memory is free"));
        let (mine, was_stopped) = stop_at(step, Kind::Interrupt, handler, work);
        got.borrow_mut().extend(mine.expect("it waits for nothing"));
        let distinct: HashSet<_> = got.borrow().iter().copied().collect();
        assert_eq!(distinct.len(), got.borrow().len(), "step {step}: {got:?}");
        was_stopped
    });
    assert!(stops > 5, "{stops} stops");
}

/// An owner that does something when it is asked to move content for the first time.
struct Owner<A: Fn(Pfn, Order)> {
    act: A,
    asked: Cell<bool>,
}

impl<A: Fn(Pfn, Order)> Migrate for Owner<A> {
    fn migrate(&self, from: Pfn, _: Pfn, order: Order) -> Result<(), MigrateError> {
        if !self.asked.replace(true) {
            (self.act)(from, order);
            // Busy, so that the block is tried again.
            return Err(MigrateError::Busy);
        }
        Ok(())
    }
}

/// Requests the first pageblocks as a range, which some call uses, and runs `act` when content is
/// to be moved: nothing of the range is allocated meanwhile or afterwards.
fn in_a_range(pageblocks: u64, order: Order, min_free: u64, act: impl Fn(&Frames, Pfn, Order)) {
    let frames = machine(8, min_free);
    let held = frames.alloc(below(order)).expect("memory is free");
    assert_eq!(held, Pfn::new(0));
    let span = |pfn: &Pfn| pfn.get() < pageblocks * PAGEBLOCK;
    let taken = RefCell::new(Vec::new());
    let take_all = || {
        for order in [Order::PAGEBLOCK, Order::ZERO] {
            taken.borrow_mut().extend(std::iter::from_fn(|| frames.alloc(below(order)).ok()));
        }
    };
    let owner = Owner {
        act: |from, order| {
            act(&frames, from, order);
            take_all();
        },
        asked: Cell::new(false),
    };
    let wanted = RangeRequest::new(FrameCount::new(pageblocks * PAGEBLOCK)).at(Pfn::new(0));
    let range = frames.alloc_range(wanted, &owner);
    assert!(owner.asked.get());
    assert!(!taken.borrow().iter().any(span), "the range is out of circulation");
    frames.validate().expect("the accounting is right");
    if range.is_ok() {
        take_all();
        assert!(!taken.borrow().iter().any(span), "the range is held");
    }
}

/// Content of a range is freed by its user when it is to be moved: frames, pageblocks, blocks of
/// several, and parts of these. No allocation is promised what is free there.
#[test]
fn content_of_a_range_is_freed_while_it_is_to_be_moved() {
    for min_free in [0, 2 * PAGEBLOCK] {
        for (pageblocks, order) in [(1, 0), (1, 3), (1, 9), (2, 10)] {
            let order = Order::new(order);
            in_a_range(pageblocks, order, min_free, |frames, from, order| {
                frames.free(from, order).expect("it is held");
            });
            in_a_range(pageblocks, order, min_free, |_, _, _| {});
        }
        for (pageblocks, order, part) in [(1, 9, 3), (1, 9, 0), (2, 10, 9), (2, 10, 0)] {
            in_a_range(pageblocks, Order::new(order), min_free, |frames, from, _| {
                frames.free(from, Order::new(part)).expect("it is held");
            });
        }
    }
}

/// A CPU that goes offline holds no pageblocks, not even used-up ones.
#[test]
fn a_cpu_that_is_gone_is_told_of_nothing() {
    let frames = machine(2, 64);
    while frames.alloc(below(Order::ZERO)).is_ok() {}
    frames.offline_cpu(CPU).expect("the CPU exists");
    run_on(1);
    frames.free(Pfn::new(7), Order::ZERO).expect("it is held");
    let census = frames.validate().expect("the accounting is right");
    assert_eq!((census.free.get(), census.per_cpu.get()), (1, 0));
    assert_eq!(frames.free(Pfn::new(7), Order::ZERO), Err(Error::DoubleFree));
}

/// A cache loses a pageblock while its CPU frees a block of it.
#[test]
fn a_pageblock_is_drained_while_its_holder_frees() {
    for order in [0, 3].map(Order::new) {
        let build = || {
            let frames = machine(2, 0);
            // Never the last one: the pageblock does not become whole.
            assert_eq!(frames.alloc(below(order)), Ok(Pfn::new(0)));
            frames.alloc(below(order)).expect("memory is free");
            frames
        };
        let drain = |frames: &Frames| {
            // It may wait for the lock.
            let _ = unless_it_waits(|| frames.drain(CPU));
        };
        each_step(1, build, drain, |frames| frames.free(Pfn::new(0), order).expect("it is held"));
    }
}

/// A pageblock and a part of it are freed: one of the two frees succeeds.
#[test]
fn of_a_pageblock_and_its_part_one_is_freed() {
    let (all, part) = (Order::PAGEBLOCK, Order::new(3));
    for (first, second) in [(all, part), (part, all)] {
        at_each_step(|step| {
            let frames = machine(2, 0);
            let held = frames.alloc(below(all)).expect("memory is free");
            let (other, freed) = (Rc::clone(&frames), Rc::new(Cell::new(None)));
            let result = Rc::clone(&freed);
            let meanwhile = move || {
                run_on(1);
                result.set(unless_it_waits(|| other.free(held, second)));
            };
            let call = || frames.free(held, first);
            let (result, was_stopped) = stop_at(step, Kind::Stop, meanwhile, call);
            let second = if was_stopped { freed.get() } else { Some(Err(Error::DoubleFree)) };
            if let (Some(first), Some(second)) = (result, second) {
                assert_ne!(first.is_ok(), second.is_ok(), "step {step}: {first:?}, {second:?}");
                frames.validate().unwrap_or_else(|violation| panic!("step {step}: {violation}"));
            }
            was_stopped
        });
    }
}

/// A range is taken while its pageblocks become spares of another CPU, or leave it.
#[test]
fn a_range_is_taken_while_its_pageblocks_change_hands() {
    fn take_and_free(frames: &Frames) {
        let taken = frames.alloc(below(Order::PAGEBLOCK).nowait());
        taken.into_iter().for_each(|pfn| frames.free(pfn, Order::PAGEBLOCK).expect("it is held"));
    }
    let changes: [fn(&Frames); 4] = [
        take_and_free,
        |frames| _ = unless_it_waits(|| frames.drain_all()),
        |frames| _ = frames.alloc(below(Order::PAGEBLOCK).nowait()),
        |frames| _ = frames.alloc(below(Order::ZERO).nowait()),
    ];
    let has_spare = || {
        let frames = machine(4, 0);
        run_on(1);
        take_and_free(&frames);
        frames
    };
    let has_current = || {
        let frames = machine(4, 0);
        run_on(1);
        let frame = frames.alloc(below(Order::ZERO)).expect("memory is free");
        frames.alloc(below(Order::ZERO)).expect("memory is free");
        frames.free(frame, Order::ZERO).expect("it is held");
        frames
    };
    for change in changes {
        for build in [has_spare as fn() -> Rc<Frames>, has_current, || machine(4, 0)] {
            each_step(1, build, change, |frames| {
                let pageblock = FrameCount::new(PAGEBLOCK);
                let wanted = RangeRequest::new(pageblock).at(Pfn::new(PAGEBLOCK));
                let owner = Owner { act: |_, _| (), asked: Cell::new(false) };
                if let Ok(first) = frames.alloc_range(wanted, &owner) {
                    frames.free_range(first, pageblock).expect("it is held");
                }
            });
        }
    }
}

/// A cache looks for a movable pageblock while unmovable content claims the one that it has found:
/// it takes the other one, and holds nothing of the first.
#[test]
fn a_pageblock_is_claimed_while_another_cpu_looks_for_one() {
    at_each_step(|step| {
        let frames = machine(2, 0);
        // The first one, where both look, is emptier.
        for nth in 0..PAGEBLOCK + 2 {
            assert_eq!(frames.alloc(below(Order::ZERO)), Ok(Pfn::new(nth)));
        }
        (1..PAGEBLOCK).for_each(|nth| frames.free(Pfn::new(nth), Order::ZERO).expect("it is held"));
        frames.drain_all();
        let (other, claimed) = (Rc::clone(&frames), Rc::new(Cell::new(None)));
        let result = Rc::clone(&claimed);
        let claim = move || {
            run_on(1);
            let unmovable = below(Order::ZERO).migratetype(MigrateType::Unmovable);
            result.set(other.alloc(unmovable.nowait()).ok());
        };
        run_on(0);
        let alloc = || frames.alloc(below(Order::ZERO)).expect("memory is free");
        let (taken, was_stopped) = stop_at(step, Kind::Stop, claim, alloc);
        let taken = taken.expect("it waits for nothing");
        if let Some(claimed) = claimed.get() {
            assert_ne!(taken.get() / PAGEBLOCK, claimed.get() / PAGEBLOCK, "step {step}");
        }
        frames.drain_all();
        let census = frames.validate().unwrap_or_else(|broken| panic!("step {step}: {broken}"));
        assert_eq!(census.per_cpu.get(), 0, "step {step}");
        was_stopped
    });
}

/// Of two pageblocks on one stack, one is queued again while they are taken off.
#[test]
fn a_pageblock_is_pushed_while_its_stack_is_taken() {
    let give = |frames: &Frames, pfn| frames.free(Pfn::new(pfn), Order::ZERO).expect("it is held");
    let build = move || {
        let frames = machine(4, 0);
        while frames.alloc(below(Order::ZERO)).is_ok() {}
        run_on(1);
        // The third and the fourth pageblock go to the same stack.
        [2, 3].into_iter().for_each(|block| give(&frames, block * PAGEBLOCK));
        frames
    };
    for block in [2, 3] {
        let pushed: &Cell<u64> = Box::leak(Box::default());
        let push = move |frames: &Frames| {
            give(frames, block * PAGEBLOCK + 1);
            pushed.set(1);
        };
        let tick = |frames: &Frames| frames.tick(CPU).expect("the CPU exists");
        each_step_then(1, build, push, tick, |frames| {
            frames.drain_all();
            let census = frames.validate().expect("the accounting is right");
            assert_eq!((census.per_cpu.get(), census.free.get()), (0, 2 + pushed.take()));
        });
    }
}
