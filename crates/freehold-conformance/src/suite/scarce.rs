//! Memory that runs out, and what is kept back until then.

use freehold::{Error, Order, Request};

use super::{ANY_FRAME, Suite};
use crate::failure::{Checker, Failure};
use crate::pile::Pile;
use crate::stamps::Stamps;
use crate::subject::Subject;

impl<A: Subject, S: Stamps> Suite<'_, A, S> {
    /// All frames are handed out, each once; they come back, and all are handed out again.
    pub(super) fn exhaustion(&mut self, checker: Checker) -> Result<(), Failure> {
        for _ in 0..2 {
            let free = self.subject.counts().free.get();
            let what = (self.subject, self.stamps);
            let (pile, error) = Pile::take_all(what, checker, ANY_FRAME)?;
            checker.refused("allocation from nothing", Err::<(), _>(error), Error::OutOfMemory)?;
            checker.number("frames that were handed out", pile.count(), free)?;
            pile.check()?;
            checker.number("free frames when all are in use", self.free(), 0)?;
            pile.give_back()?;
        }
        Ok(())
    }

    /// What an ordinary request leaves, others get.
    pub(super) fn watermarks(&mut self, checker: Checker) -> Result<(), Failure> {
        let what = (self.subject, self.stamps);
        let (pile, error) = Pile::take_all(what, checker, Request::default())?;
        pile.check()?;
        let refused = Err::<(), _>(error);
        if self.free() == 0 {
            checker.refused("allocation when nothing is left", refused, Error::OutOfMemory)?;
        } else {
            checker.refused("allocation at the watermark", refused, Error::BelowWatermark)?;
            let frame = self.subject.alloc(ANY_FRAME);
            let frame = checker.done("allocation below the watermark", frame)?;
            checker.done("free of such a frame", self.subject.free(frame, Order::ZERO))?;
        }
        pile.give_back()
    }

    /// Requests that do not wait are served while there is memory, and refused when there is none.
    pub(super) fn nowait(&mut self, checker: Checker) -> Result<(), Failure> {
        let request = ANY_FRAME.nowait();
        let serve = || {
            let frame = checker.done("allocation from idle memory", self.subject.alloc(request))?;
            checker.done("free", self.subject.free(frame, Order::ZERO))
        };
        serve()?;
        let what = (self.subject, self.stamps);
        let (pile, _) = Pile::take_all(what, checker, ANY_FRAME)?;
        pile.check()?;
        let refused = self.subject.alloc(request);
        checker.refused("allocation from nothing", refused, Error::OutOfMemory)?;
        pile.give_back()?;
        serve()
    }

    /// What CPUs cache returns to the zones.
    pub(super) fn drain(&mut self, checker: Checker) -> Result<(), Failure> {
        let free = self.free();
        self.subject.drain_all();
        let now = self.subject.counts();
        checker.number("frames that CPUs cache after a drain", now.per_cpu.get(), 0)?;
        checker.number("free frames after a drain", now.free.get(), free)
    }

    fn free(&self) -> u64 {
        self.subject.counts().free.get()
    }
}
