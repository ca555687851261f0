//! All frames that can be had, without memory for their list: it goes through the frames.

use freehold::{Error, Order, Pfn, Request};

use crate::failure::{Checker, Failure};
use crate::stamps::{FREE, Stamps};
use crate::subject::Subject;

/// Single frames that are held. The first word of each names the one that was taken before it.
pub(crate) struct Pile<'a, A, S> {
    subject: &'a A,
    stamps: &'a S,
    checker: Checker,
    /// A link to the frame that was taken last.
    top: u64,
    count: u64,
}

/// The link of the frame that was taken first.
const BOTTOM: u64 = u64::MAX;

impl<'a, A: Subject, S: Stamps> Pile<'a, A, S> {
    /// Takes single frames until there is none for the request; returns why there is none.
    pub(crate) fn take_all(
        (subject, stamps): (&'a A, &'a S),
        checker: Checker,
        request: Request,
    ) -> Result<(Self, Error), Failure> {
        let mut pile = Pile { subject, stamps, checker, top: BOTTOM, count: 0 };
        let free = subject.counts().free.get();
        loop {
            match subject.alloc(request) {
                Ok(frame) => {
                    stamps.write(frame, pile.top);
                    (pile.top, pile.count) = (frame.get(), pile.count + 1);
                }
                Err(error) => return Ok((pile, error)),
            }
            // An allocator that goes on forever would hang the check.
            if pile.count > free {
                checker.number("frames that were handed out", pile.count, free)?;
            }
        }
    }

    /// How many frames it has.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// That no frame was handed out twice: its second link would have replaced the first, so that
    /// the links from the top form a circle.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let (mut at, mut links) = (self.top, 0);
        while at != BOTTOM && links <= self.count {
            (at, links) = (self.stamps.read(Pfn::new(at)), links + 1);
        }
        self.checker.number("links through all frames, which end", links, self.count)
    }

    /// Stamps all frames as free, and frees them. Call [`Pile::check`] before.
    pub(crate) fn give_back(self) -> Result<(), Failure> {
        let mut at = self.top;
        for _ in 0..self.count {
            let frame = Pfn::new(at);
            at = self.stamps.read(frame);
            self.stamps.write(frame, FREE);
            self.checker.done("free of a frame", self.subject.free(frame, Order::ZERO))?;
        }
        Ok(())
    }
}
