//! Mistakes of a caller: refused, with the error that names them, and without effect.

use freehold::{Error, FrameCount, FrameStatus, Order, Pfn, Request};

use super::{ANY_FRAME, Suite};
use crate::failure::{Checker, Failure, Outcome};
use crate::stamps::Stamps;
use crate::subject::Subject;

/// No machine has memory there.
const NOWHERE: Pfn = Pfn::new(1 << 51);

impl<A: Subject, S: Stamps> Suite<'_, A, S> {
    pub(super) fn refusals(&mut self, checker: Checker) -> Result<(), Failure> {
        let one = FrameCount::new(1);
        let free = checker.done("allocation", self.subject.alloc(ANY_FRAME))?;
        checker.done("free", self.subject.free(free, Order::ZERO))?;
        self.refuses(checker, "double free", (free, Order::ZERO), Error::DoubleFree)?;
        self.is(checker, free, FrameStatus::Free)?;
        self.refuses(checker, "a foreign frame", (NOWHERE, Order::ZERO), Error::ForeignFrame)?;
        let too_large = Order::new(self.subject.order_max().get() + 1);
        self.refuses(checker, "too large an order", (free, too_large), Error::OrderTooLarge)?;

        let before = self.subject.counts();
        let result = self.subject.free_range(free, one);
        checker.refused("free of a range that is free", result, Error::DoubleFree)?;
        let result = self.subject.free_range(NOWHERE, one);
        checker.refused("free of a foreign range", result, Error::ForeignFrame)?;
        let result = self.subject.free_range(free, FrameCount::ZERO);
        checker.refused("free of no frames", result, Error::BadRange)?;
        let result = self.subject.reserve(NOWHERE, one);
        checker.refused("reservation beyond all memory", result, Error::OutsideSpan)?;
        self.moved(checker, before, 0)?;
        self.wrong_blocks(checker)
    }

    /// Frees of blocks that are held, in a wrong order or place.
    fn wrong_blocks(&mut self, checker: Checker) -> Result<(), Failure> {
        let pair = Order::new(1);
        // Among a few single frames there is one with an even number, but not among two.
        let mut held = 0;
        let even = loop {
            let frame = checker.done("allocation", self.subject.alloc(ANY_FRAME))?;
            self.scratch[held] = frame;
            held += 1;
            if frame.is_aligned(pair) {
                break Some(frame);
            }
            if held == self.scratch.len() {
                break None;
            }
        };
        let missing = Outcome::Number(held as u64);
        let even = even.ok_or(Failure {
            check: checker.0,
            what: "frames until one has an even number",
            expected: Outcome::Number(2),
            found: missing,
        })?;
        self.refuses(checker, "a wrong order", (even, pair), Error::WrongOrder)?;
        self.is(checker, even, FrameStatus::Allocated { first: even, order: Order::ZERO })?;
        for nth in 0..held {
            checker.done("free", self.subject.free(self.scratch[nth], Order::ZERO))?;
        }
        if self.report.orders == 1 {
            return Ok(());
        }
        let first = checker.done("allocation", self.subject.alloc(Request::new(pair)))?;
        let odd = first + FrameCount::new(1);
        self.refuses(checker, "a misaligned block", (odd, pair), Error::Misaligned)?;
        self.is(checker, odd, FrameStatus::Allocated { first, order: pair })?;
        checker.done("free", self.subject.free(first, pair))?;
        self.refuses(checker, "double free of a pair", (first, pair), Error::DoubleFree)
    }

    /// That a free is refused with this error, and changes no count.
    fn refuses(
        &self,
        checker: Checker,
        what: &'static str,
        (frame, order): (Pfn, Order),
        error: Error,
    ) -> Result<(), Failure> {
        let before = self.subject.counts();
        checker.refused(what, self.subject.free(frame, order), error)?;
        self.moved(checker, before, 0)
    }
}
