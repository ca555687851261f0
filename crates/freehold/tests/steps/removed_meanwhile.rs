//! Memory that is removed while another call has begun to take it: the other call says so.

use std::cell::Cell;
use std::rc::Rc;

use freehold::designs::Design;
use freehold::{Config, Error, FrameCount, Immovable, MemoryRange, NodeId, Pfn, RangeRequest};

use crate::machine::Machine;
use crate::steps::{Kind, StepPlatform, at_each_step, locks_held, run_on, stop_at};

test_designs!(StepPlatform: [
    what_is_removed_cannot_be_removed_again,
    what_is_removed_cannot_be_allocated,
]);

/// The last frames of one pageblock, and the first ones of the next: few steps.
const FIRST: Pfn = Pfn::new(500);
const MIDDLE: Pfn = Pfn::new(512);
const FRAMES: FrameCount = FrameCount::new(24);
const HALF: FrameCount = FrameCount::new(12);

type Tables<D> = Machine<StepPlatform, D>;

/// Stops a call before each of its steps, and removes one of the two pageblocks there, unless the
/// call holds a lock that this would wait for. Then the call fails with one of these errors.
fn each_removal<D: Design<StepPlatform>>(
    errors: &[Error],
    call: impl Fn(&Tables<D>) -> Result<(), Error>,
) {
    for (part, stays) in [(FIRST, MIDDLE), (MIDDLE, FIRST)] {
        let mut removals = 0;
        at_each_step(|step| {
            let ranges = [MemoryRange::new(FIRST, FRAMES)];
            let cpus = [NodeId::new(0); 2];
            let config = Config::new(&ranges, &cpus).min_free(Some(FrameCount::ZERO));
            let machine = Machine::new(StepPlatform, &config, &D::Settings::default());
            let (machine, removed) = (Rc::new(machine), Rc::new(Cell::new(false)));
            run_on(0);
            let meanwhile = {
                let (machine, removed) = (Rc::clone(&machine), Rc::clone(&removed));
                move || {
                    if locks_held() == 0 {
                        run_on(1);
                        removed.set(machine.remove_memory(part, HALF, &Immovable).is_ok());
                        run_on(0);
                    }
                }
            };
            let (got, was_stopped) = stop_at(step, Kind::Stop, meanwhile, || call(&machine));
            let place = format!("{}, {part}, before step {step}", D::NAME);
            if removed.get() {
                removals += 1;
                let error = got.and_then(Result::err);
                assert!(error.is_some_and(|error| errors.contains(&error)), "{place}: {got:?}");
                assert_eq!(machine.alloc_range(at(stays, HALF), &Immovable), Ok(stays), "{place}");
            } else {
                assert_eq!(got, Some(Ok(())), "{place}");
            }
            machine.validate().unwrap_or_else(|violation| panic!("{place}: {violation}"));
            was_stopped
        });
        // At least before it looks for holes, and after that. This one looks at words.
        let looks = if D::NAME == "llfree" { FRAMES.get() / 2 } else { FRAMES.get() };
        assert!(removals > looks, "{}: only {removals} removals", D::NAME);
    }
}

fn at(first: Pfn, frames: FrameCount) -> RangeRequest {
    RangeRequest::new(frames).at(first)
}

fn what_is_removed_cannot_be_removed_again<D: Design<StepPlatform>>() {
    each_removal::<D>(&[Error::ForeignFrame], |machine| {
        machine.remove_memory(FIRST, FRAMES, &Immovable)
    });
}

fn what_is_removed_cannot_be_allocated<D: Design<StepPlatform>>() {
    // What is left is too little, there is a hole by now, or the other call is at it.
    let errors = [Error::OutOfMemory, Error::ForeignFrame, Error::RangeBusy];
    each_removal::<D>(&errors, |machine| {
        machine.alloc_range(at(FIRST, FRAMES), &Immovable).map(drop)
    });
}
