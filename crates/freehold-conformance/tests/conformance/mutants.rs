//! Every check notices the defect that it is there for.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use freehold::designs::Freehold;
use freehold::{Pfn, Violation};
use freehold_conformance::{Check, Failure, Outcome, Stamps, Subject, Torture, Worker, suite};
use freehold_linux::ZoneLock;

use crate::faults::{Fault, Faulty};
use crate::machine::{Memory, Platform, machine};

/// What the suite says of a defect. There is room for ten pairs among blocks of mixed orders.
fn failure_of(fault: Fault) -> Failure {
    // One CPU caches frames at the end, as a drain that does nothing needs.
    let (allocator, memory) = machine::<ZoneLock<Platform>>(1, 24_576);
    let result = suite::run(&Faulty::new(allocator, fault), &memory, &mut [Pfn::new(0); 200]);
    result.expect_err(&format!("{fault:?} is noticed"))
}

#[test]
fn the_suite_names_what_is_wrong() {
    use Check::*;
    for (fault, check, what) in [
        (Fault::Misaligned, Orders, "the remainder of a frame number by its block's size"),
        (Fault::RepeatsAtTheEnd, Exhaustion, "links through all frames, which end"),
        (Fault::HandsOutPairsTwice, Orders, "frames of a block that another block has too"),
        (Fault::TooSmall, Orders, "the status of a frame"),
        (Fault::ServesAnyOrder, Orders, "allocation above the largest order"),
        (Fault::RefusesAnOrder, Orders, "larger blocks than one that was refused"),
        (Fault::FreesHalf, Orders, "free frames after a call"),
        (Fault::Leaks, Orders, "free frames after a call"),
        (Fault::AcceptsDoubleFrees, Refusals, "double free"),
        (Fault::IgnoresOrders, Refusals, "a wrong order"),
        (Fault::ConfusesErrors, Refusals, "a foreign frame"),
        (Fault::CountsRefusals, Refusals, "free frames after a call"),
        (Fault::MovableOnly, MigrateTypes, "allocation"),
        (Fault::NeverWithoutWaiting, NoWait, "allocation from idle memory"),
        (Fault::EndsEarly, Exhaustion, "frames that were handed out"),
        (Fault::KeepsOne, Exhaustion, "allocation from nothing"),
        (Fault::CallsTheEndAWatermark, Exhaustion, "allocation from nothing"),
        (Fault::CallsTheWatermarkTheEnd, Watermarks, "allocation at the watermark"),
        (Fault::FreesTheWhole, Parts, "free frames after a call"),
        (Fault::BulkStopsEarly, Bulk, "blocks of a bulk allocation"),
        (Fault::BulkRepeats, Bulk, "frames of a block that another block has too"),
        (Fault::BulkGoesOn, Bulk, "free frames after a call"),
        (Fault::ServesEmptyRanges, Ranges, "a range of no frames"),
        (Fault::RangesAskew, Ranges, "the remainder by the alignment"),
        (Fault::RangesFreedTwice, Refusals, "free of a range that is free"),
        (Fault::ReservesNothing, Reserve, "the status of a frame"),
        (Fault::ReservesAnything, Reserve, "reservation of a frame in use"),
        (Fault::DrainsNothing, Drain, "frames that CPUs cache after a drain"),
        (Fault::FrozenBooks, Orders, "free frames after a call"),
        (Fault::TurnsInvalid, Books, "the invariants of the metadata"),
    ] {
        let failure = failure_of(fault);
        assert_eq!((failure.check, failure.what), (check, what), "{fault:?}: {failure}");
        assert_ne!(failure.expected, failure.found);
    }
}

#[test]
fn a_failure_says_what_was_expected_and_found() {
    let text = failure_of(Fault::AcceptsDoubleFrees).to_string();
    let expected = "refusals: double free: expected refusal: the frame is free already, found \
                    success";
    assert_eq!(text, expected);
    let found = failure_of(Fault::TurnsInvalid).found;
    assert!(matches!(found, Outcome::Invalid(Violation { .. })), "{found}");
}

/// Memory in which a word changes by itself, at one read of many.
struct Flipping<'a> {
    memory: &'a Memory,
    reads: Cell<u64>,
    flips_at: u64,
}

impl Stamps for Flipping<'_> {
    fn read(&self, frame: Pfn) -> u64 {
        self.reads.set(self.reads.get() + 1);
        let flipped = u64::from(self.reads.get() == self.flips_at) << 50;
        self.memory.read(frame) ^ flipped
    }

    fn write(&self, frame: Pfn, stamp: u64) {
        self.memory.write(frame, stamp);
    }
}

/// A single worker on memory that changes by itself at one read.
fn torture(flips_at: u64) -> Result<(), Failure> {
    let (allocator, memory) = machine::<Freehold<Platform>>(1, 4096);
    let slots = [const { AtomicU64::new(0) }; 16];
    let healthy = Torture::new(&allocator, &memory, &slots);
    let free = healthy.prepare().expect("an idle allocator");
    let stamps = Flipping { memory: &memory, reads: Cell::new(0), flips_at };
    let torture = Torture::new(&allocator, &stamps, &slots);
    let mut worker = Worker::new(5);
    (0..1000).for_each(|_| torture.step(&mut worker));
    assert!(worker.tally.errors() <= 1);
    torture.finish(&mut [worker], free).map(drop)
}

#[test]
fn the_torture_notices_content_that_changes() {
    assert_eq!(torture(u64::MAX), Ok(()));
    let mut what: Vec<_> =
        (1..200).map(|read| torture(read).expect_err("one read of those lies").what).collect();
    what.sort();
    what.dedup();
    let both = ["frames changed while in use", "frames handed out twice or changed while free"];
    assert_eq!(what, both);
}

#[test]
fn the_torture_notices_an_allocator_with_a_defect() {
    for (fault, what) in [
        (Fault::TooSmall, "frames handed out twice or changed while free"),
        (Fault::RefusesFrees, "frees refused"),
        (Fault::NamesANode, "allocations refused with an error that says something else"),
        (Fault::Leaks, "frames that are free again"),
        (Fault::TurnsInvalid, "the invariants of the metadata"),
        (Fault::NeverWithoutWaiting, ""),
    ] {
        let (allocator, memory) = machine::<ZoneLock<Platform>>(1, 8192);
        let slots = [const { AtomicU64::new(0) }; 32];
        let free = Torture::new(&allocator, &memory, &slots).prepare().expect("no defect yet");
        let faulty = Faulty::new(allocator, fault);
        let torture = Torture::new(&faulty, &memory, &slots);
        let (mut thread, mut handler) = (Worker::new(1), Worker::new(2));
        for _ in 0..2000 {
            torture.step(&mut thread);
            torture.interrupt(&mut handler);
        }
        let waits = handler.tally.would_wait;
        assert_eq!(waits, if fault == Fault::NeverWithoutWaiting { 2000 } else { 0 });
        // The defect shows at the tenth look at the metadata.
        let looks = if fault == Fault::TurnsInvalid { 9 } else { 0 };
        (0..looks).for_each(|_| assert!(faulty.validate().is_ok()));
        let found = torture.finish(&mut [thread, handler], free).map_err(|failure| failure.what);
        assert_eq!(found.err().unwrap_or_default(), what, "{fault:?}");
    }
}

#[test]
fn the_torture_begins_with_a_look_at_all_frames() {
    for (fault, what) in [
        (Fault::RepeatsAtTheEnd, "links through all frames, which end"),
        (Fault::RefusesFrees, "free of a frame"),
    ] {
        let (allocator, memory) = machine::<ZoneLock<Platform>>(1, 2048);
        let faulty = Faulty::new(allocator, fault);
        let failure = Torture::new(&faulty, &memory, &[]).prepare().expect_err("a defect");
        assert_eq!((failure.check, failure.what), (Check::Torture, what), "{fault:?}");
    }
}
