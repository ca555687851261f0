//! Many blocks or frames in one call: bulk calls, ranges, reservations.

use freehold::{
    BulkFreeError, Error, FrameCount, FrameStatus, Order, Pfn, RangeRequest, Request, Watermark,
};

use super::{ANY_FRAME, Suite, is_scarcity};
use crate::failure::{Checker, Failure, Outcome};
use crate::stamps::Stamps;
use crate::subject::Subject;

impl<A: Subject, S: Stamps> Suite<'_, A, S> {
    pub(super) fn bulk(&mut self, checker: Checker) -> Result<(), Failure> {
        self.bulk_of(checker, ANY_FRAME)?;
        if self.report.orders > 1 {
            self.bulk_of(checker, Request::new(Order::new(1)).watermark(Watermark::Ignore))?;
        }
        Ok(())
    }

    fn bulk_of(&mut self, checker: Checker, request: Request) -> Result<(), Failure> {
        let (before, order) = (self.subject.counts(), request.order());
        let result = self.subject.alloc_bulk(request, self.scratch);
        let count = checker.done("bulk allocation", result)?;
        // Larger blocks may end before the frames do.
        let most = (before.free.get() / order.frames().get()).min(self.scratch.len() as u64);
        if order == Order::ZERO || count as u64 > most {
            checker.number("blocks of a bulk allocation", count as u64, most)?;
        }
        let frames = (count as u64 * order.frames().get()) as i64;
        self.moved(checker, before, frames)?;
        let stamps = |nth: usize| nth as u64 + 1;
        for nth in 0..count {
            self.stamp(self.scratch[nth], order, stamps(nth));
        }
        for nth in 0..count {
            self.unstamp(checker, (self.scratch[nth], order), stamps(nth))?;
        }
        // A block that is free already, half way: what precedes it is freed, and nothing else.
        let half = count / 2;
        if half > 0 {
            let taken_out = self.scratch[half];
            self.scratch[half] = self.scratch[0];
            let result = self.subject.free_bulk(&self.scratch[..count], order);
            let expected = Outcome::RefusedAfter(half, Error::DoubleFree);
            checker.same("bulk free with a double free", bulk_outcome(result), expected)?;
            let left = ((count - half) as u64 * order.frames().get()) as i64;
            self.moved(checker, before, left)?;
            self.scratch[half] = taken_out;
        }
        let result = self.subject.free_bulk(&self.scratch[half..count], order);
        checker.same("bulk free", bulk_outcome(result), Outcome::Success)
    }

    pub(super) fn ranges(&mut self, checker: Checker) -> Result<(), Failure> {
        let range = |frames| RangeRequest::new(FrameCount::new(frames));
        let none = self.subject.alloc_range(range(0));
        checker.refused("a range of no frames", none, Error::BadRange)?;
        let askew = self.subject.alloc_range(range(1).align(FrameCount::new(3)));
        checker.refused("a range aligned to three frames", askew, Error::BadAlignment)?;
        let pageblock = Order::PAGEBLOCK.frames().get();
        for frames in [1, 3, 100, pageblock + 9, 3 * pageblock] {
            let before = self.subject.counts();
            let align = frames.next_power_of_two().min(pageblock);
            let first = match self.subject.alloc_range(range(frames).align(FrameCount::new(align)))
            {
                Err(error) if frames > 1 && is_scarcity(error) => continue,
                result => checker.done("a range", result)?,
            };
            checker.number("the remainder by the alignment", first.get() % align, 0)?;
            self.moved(checker, before, frames as i64)?;
            for nth in 0..frames {
                self.is_held(checker, first + FrameCount::new(nth))?;
            }
            // The middle first, then what is left of both sides.
            let (lower, upper) = (frames / 3, frames - frames / 3);
            for (from, end) in [(lower, upper), (0, lower), (upper, frames)] {
                let (from, some) = (first + FrameCount::new(from), FrameCount::new(end - from));
                if some == FrameCount::ZERO {
                    continue;
                }
                checker.done("free of a part of a range", self.subject.free_range(from, some))?;
                let again = self.subject.free_range(from, some);
                checker.refused("free of a part again", again, Error::DoubleFree)?;
            }
            self.moved(checker, before, 0)?;
            self.report.ranges += 1;
        }
        Ok(())
    }

    pub(super) fn reserve(&mut self, checker: Checker) -> Result<(), Failure> {
        let before = self.subject.counts();
        let one = FrameCount::new(1);
        let frame = checker.done("allocation", self.subject.alloc(ANY_FRAME))?;
        let taken = self.subject.reserve(frame, one);
        checker.refused("reservation of a frame in use", taken, Error::RangeBusy)?;
        checker.done("free", self.subject.free(frame, Order::ZERO))?;
        checker.done("reservation of a free frame", self.subject.reserve(frame, one))?;
        self.is_held(checker, frame)?;
        self.moved(checker, before, 1)?;
        checker.done("end of a reservation", self.subject.free_range(frame, one))?;
        self.is(checker, frame, FrameStatus::Free)
    }

    /// That a frame is part of a block that is held, of whatever order.
    fn is_held(&self, checker: Checker, frame: Pfn) -> Result<(), Failure> {
        let found = self.subject.status(frame);
        if matches!(found, FrameStatus::Allocated { .. }) {
            return Ok(());
        }
        let expected = FrameStatus::Allocated { first: frame, order: Order::ZERO };
        self.is(checker, frame, expected)
    }
}

fn bulk_outcome(result: Result<(), BulkFreeError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Success,
        Err(BulkFreeError { freed, error }) => Outcome::RefusedAfter(freed, error),
    }
}
