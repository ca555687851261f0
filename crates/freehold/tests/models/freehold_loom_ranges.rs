//! Ranges and compaction of the design `freehold`, while others use the pageblocks that they take
//! out of circulation, under loom: all interleavings with a few preemptions, and all values that
//! the memory orderings allow a load to see; `LOOM_MAX_PREEMPTIONS` explores further.
//!
//! What a frame contains is a cell, so that loom panics if two users of a frame are not ordered.

use freehold::platform::{Platform, SharedCell};
use freehold::{FrameCount, Immovable, Migrate, MigrateError, Order, Pfn, RangeRequest, Request};
use loom::sync::{Arc, Mutex};

use crate::freehold_models::{
    BLOCK, Frames, Sound, build_of, check_held, explore, frame, free, join, on_cpu, on_cpu_with,
    range, take,
};
use crate::loom_platform::{LoomCell, LoomPlatform, run_on};

/// What the frames from the second pageblock on contain.
struct Content(Vec<LoomCell<u32>>);

impl Content {
    fn new(frames: u64) -> Arc<Self> {
        Arc::new(Content((0..frames).map(|_| LoomCell::new(0)).collect()))
    }

    /// Uses a frame: reads and writes it.
    fn touch(&self, frame: u64) {
        if let Some(cell) = frame.checked_sub(BLOCK).and_then(|nth| self.0.get(nth as usize)) {
            cell.set(cell.get() + 1);
        }
    }

    fn touch_all(&self, first: Pfn, frames: u64) {
        (first.get()..first.get() + frames).for_each(|frame| self.touch(frame));
    }
}

/// A pageblock of 64 frames, all of them taken, and one of eight frames, for three CPUs. CPU 0 has
/// the caches of both.
fn build<P: Platform + Default>() -> Arc<Frames<P>> {
    let machine = build_of(&[range(0, 64), range(BLOCK, 8)], 3, 0);
    take(&machine, 64);
    machine
}

/// The last eight frames as a range.
fn wanted() -> RangeRequest {
    RangeRequest::new(FrameCount::new(8)).at(Pfn::new(BLOCK))
}

/// Takes the range if it can; returns whether it did.
fn take_range<P: Platform>(machine: &Frames<P>, content: &Content) -> bool {
    take_range_of(machine, content, &Immovable)
}

/// The same where an owner can move content.
fn take_range_of<P: Platform>(machine: &Frames<P>, content: &Content, owner: &dyn Migrate) -> bool {
    let taken = machine.alloc_range(wanted(), owner);
    taken.iter().for_each(|&first| content.touch_all(first, 8));
    taken.is_ok()
}

/// Runs `other` on CPU 1 beside `mine` on CPU 2; returns both results.
fn beside<P: Platform + Send + Sync + 'static, S, R: 'static>(
    machine: &Arc<Frames<P>>,
    content: &Arc<Content>,
    mine: impl FnOnce(&Frames<P>, &Content) -> S,
    other: impl FnOnce(&Frames<P>, &Content) -> R + 'static,
) -> (S, R) {
    let other = on_cpu_with(machine, 1, content, other);
    run_on(2);
    (mine(machine, content), join(other))
}

/// The last frame that a range wants is freed while the range is taken. Returns how many frames are
/// held then.
fn free_one_in_a_range<P: Platform + Default + Send + Sync>(
    is_drained: bool,
) -> (Arc<Frames<P>>, u64) {
    let (machine, content) = (build::<P>(), Content::new(8));
    let held = machine.alloc(frame()).expect("eight frames are free").get();
    assert_eq!(held, BLOCK);
    if is_drained {
        // The pageblock is held by no cache.
        machine.drain_all();
    }
    let (taken, ()) = beside(&machine, &content, take_range, move |machine, content| {
        content.touch(held);
        free(machine, held);
    });
    (machine, 64 + if taken { 8 } else { 0 })
}

#[test]
fn a_frame_is_freed_while_its_pageblock_is_isolated() {
    for is_drained in [false, true] {
        explore(2, move || {
            let (machine, held) = free_one_in_a_range::<Sound>(is_drained);
            check_held(&machine, held);
        });
    }
}

/// The next user of the frame would not see what its last one did.
#[test]
#[should_panic(expected = "Causality violation")]
fn an_isolation_that_orders_nothing_is_caught() {
    explore(2, || {
        free_one_in_a_range::<LoomPlatform<true, true, false>>(false);
    });
}

/// Of an allocation and a range that want the same memory, one gets it.
#[test]
fn a_frame_is_allocated_while_its_pageblock_is_isolated() {
    explore(2, || {
        let (machine, content) = (build::<Sound>(), Content::new(8));
        machine.drain_all();
        let (taken, got) = beside(&machine, &content, take_range, |machine, content| {
            let got = machine.alloc(frame());
            got.iter().for_each(|pfn| content.touch(pfn.get()));
            got.is_ok()
        });
        assert!(taken != got, "the range is taken: {taken}, the frame: {got}");
        check_held(&machine, 64 + if taken { 8 } else { 1 });
    });
}

/// Of two calls that want the same range, one gets it.
#[test]
fn two_ranges_are_taken_at_once() {
    explore(1, || {
        let (machine, content) = (build::<Sound>(), Content::new(8));
        machine.drain_all();
        let (taken, other) = beside(&machine, &content, take_range, take_range);
        assert!(taken != other);
        check_held(&machine, 64 + 8);
    });
}

/// Takes what no CPU caches, uses it, and returns how many frames it is.
fn take_surplus<P: Platform>(machine: &Frames<P>, content: &Content) -> u64 {
    let touch = |first, order: Order| content.touch_all(first, order.frames().get());
    machine.take_surplus(FrameCount::ZERO, touch).get()
}

/// What no CPU caches is taken while one of its frames is allocated, and while one that is in use
/// is freed: each frame has one user at a time.
#[test]
fn the_surplus_is_taken_while_its_pageblock_is_used() {
    for is_freed in [false, true] {
        explore(1, move || {
            let (machine, content) = (build::<Sound>(), Content::new(8));
            let held = machine.alloc(frame()).expect("eight frames are free").get();
            content.touch(held);
            machine.drain_all();
            let (taken, got) = beside(&machine, &content, take_surplus, move |machine, content| {
                if is_freed {
                    content.touch(held);
                    free(machine, held);
                    return None;
                }
                let got = machine.alloc(frame()).ok();
                got.inspect(|pfn| content.touch(pfn.get()))
            });
            let got = u64::from(got.is_some());
            // All, or nothing while the other call holds the pageblock, or has it in a cache.
            let wanted = if is_freed { [0, 7, 8] } else { [0, 7 - got, 7 - got] };
            assert!(wanted.contains(&taken), "{taken} frames, {got} allocated");
            assert!(is_freed || taken + got > 0, "of two calls, both found nothing");
            check_held(&machine, 64 + 1 - u64::from(is_freed) + taken + got);
        });
    }
}

/// What is left of a pageblock without a holder is freed in two parts at once, or while a frame of
/// it is allocated: whoever frees the last frames has it for that time, and nothing is lost.
#[test]
fn the_last_frames_of_a_pageblock_are_freed_as_ranges() {
    for is_freed in [false, true] {
        explore(1, move || {
            let (machine, content) = (build::<Sound>(), Content::new(8));
            assert!(take_range(&machine, &content));
            machine.drain_all();
            let (first, second) = (Pfn::new(BLOCK), Pfn::new(BLOCK + 4));
            let four = FrameCount::new(4);
            if !is_freed {
                machine.free_range(second, four).expect("it is held");
                machine.drain_all();
            }
            let free_first = |machine: &Frames<Sound>, content: &Content| {
                content.touch_all(first, 4);
                machine.free_range(first, four).expect("it is held");
            };
            let ((), got) = beside(&machine, &content, free_first, move |machine, content| {
                if is_freed {
                    content.touch_all(second, 4);
                    machine.free_range(second, four).expect("it is held");
                    return 0;
                }
                let got = machine.alloc(frame()).expect("four frames are free");
                content.touch(got.get());
                1
            });
            check_held(&machine, 64 + got);
        });
    }
}

/// A pageblock that is allocated whole is freed, in one or in part, while it is isolated.
#[test]
fn a_whole_pageblock_is_freed_while_it_is_isolated() {
    for part in [9, 8] {
        explore(1, move || {
            let machine = build_of::<Sound>(&[range(0, 64), range(BLOCK, BLOCK)], 3, 0);
            let whole = Request::new(Order::PAGEBLOCK);
            assert_eq!(machine.alloc(whole), Ok(Pfn::new(BLOCK)));
            let other = on_cpu(&machine, 1, move |machine| {
                machine.free(Pfn::new(BLOCK), Order::new(part)).expect("it is held");
            });
            run_on(2);
            let all = RangeRequest::new(FrameCount::new(BLOCK)).at(Pfn::new(BLOCK));
            let taken = machine.alloc_range(all, &Immovable).is_ok();
            join(other);
            assert!(!taken || part == 9, "a part of it is in use");
            let left = BLOCK - (1 << part);
            check_held(&machine, if taken { BLOCK } else { left });
        });
    }
}

/// Content that lies in one frame, until its user takes it away.
struct Owner {
    at: Mutex<Option<Pfn>>,
    content: Arc<Content>,
}

impl Migrate for Owner {
    fn migrate(&self, from: Pfn, to: Pfn, _order: Order) -> Result<(), MigrateError> {
        let mut at = self.at.lock().expect("no thread panicked");
        if *at != Some(from) {
            return Err(MigrateError::Busy);
        }
        self.content.touch(from.get());
        self.content.touch(to.get());
        *at = Some(to);
        Ok(())
    }
}

/// Content is moved out of a range while its user frees it, wherever it lies then.
#[test]
fn content_is_freed_while_it_is_moved_out_of_a_range() {
    explore(1, || {
        let (machine, content) = (build::<Sound>(), Content::new(8));
        let held = machine.alloc(frame()).expect("eight frames are free");
        // Room for what is moved.
        free(&machine, 0);
        machine.drain_all();
        let owner = Arc::new(Owner { at: Mutex::new(Some(held)), content: Arc::clone(&content) });
        let theirs = Arc::clone(&owner);
        let mine = |machine: &_, content: &_| take_range_of(machine, content, &*owner);
        let (taken, ()) = beside(&machine, &content, mine, move |machine, content| {
            let at = theirs.at.lock().expect("no thread panicked").take();
            let at = at.expect("its user alone takes it away").get();
            content.touch(at);
            free(machine, at);
        });
        check_held(&machine, 63 + if taken { 8 } else { 0 });
    });
}
