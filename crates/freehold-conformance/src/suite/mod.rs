//! What every design must do, on an allocator that is otherwise idle.

use freehold::{Error, FrameCount, Order, Pfn, Request, Watermark};

use crate::failure::{Check, Checker, Failure, Outcome};
use crate::stamps::{self, FREE, Stamps};
use crate::subject::{Counts, Subject};

mod blocks;
mod many;
mod refusals;
mod scarce;

/// What the suite found on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Free frames, before and after.
    pub free: FrameCount,
    /// How many orders could be allocated, from 0 on.
    pub orders: u8,
    /// How many blocks of mixed orders were held at once.
    pub blocks: u64,
    /// How many lengths of contiguous ranges could be allocated, of those tried.
    pub ranges: u64,
    /// How many groups of checks were made.
    pub checks: u64,
}

/// What the checks have in common.
struct Suite<'a, A, S> {
    subject: &'a A,
    stamps: &'a S,
    scratch: &'a mut [Pfn],
    report: Report,
}

/// Makes all checks. Nothing else may use the allocator meanwhile, not even a handler. After a
/// success, all frames are as they were; the content of free ones has changed.
///
/// `scratch` has room for the blocks that are held at once: 16 at least, and better a few hundred.
///
/// Cost: allocates and frees every free frame about five times, and writes to it.
///
/// # Errors
///
/// The first check that failed. The allocator should not be used any more: frames may be missing.
///
/// # Panics
///
/// If `scratch` has less than 16 entries.
pub fn run<A: Subject, S: Stamps>(
    subject: &A,
    stamps: &S,
    scratch: &mut [Pfn],
) -> Result<Report, Failure> {
    assert!(scratch.len() >= SCRATCH_MIN, "the suite needs room for {SCRATCH_MIN} frame numbers");
    let books = Checker(Check::Books);
    let before = subject.counts();
    let census = subject.validate().map_err(|violation| invalid(books, violation))?;
    books.number(
        "free frames by a census",
        (census.free + census.per_cpu).get(),
        before.free.get(),
    )?;
    let report = Report { free: before.free, orders: 0, blocks: 0, ranges: 0, checks: 0 };
    let mut suite = Suite { subject, stamps, scratch, report };
    for (check, make) in Suite::CHECKS {
        make(&mut suite, Checker(check))?;
        suite.settled(Checker(check), before)?;
        let now = subject.validate().map_err(|violation| invalid(books, violation))?;
        books.number("frames in use by a census", now.allocated.get(), census.allocated.get())?;
        books.number("frames that are managed", now.managed.get(), census.managed.get())?;
        suite.report.checks += 1;
    }
    Ok(suite.report)
}

const SCRATCH_MIN: usize = 16;

/// A request that leaves nothing to others.
const ANY_FRAME: Request = Request::new(Order::ZERO).watermark(Watermark::Ignore);

type Make<'a, A, S> = fn(&mut Suite<'a, A, S>, Checker) -> Result<(), Failure>;

impl<'a, A: Subject, S: Stamps> Suite<'a, A, S> {
    /// All groups of checks. Those that come first find how large blocks can be.
    const CHECKS: [(Check, Make<'a, A, S>); 11] = [
        (Check::Orders, Self::orders),
        (Check::Parts, Self::parts),
        (Check::Refusals, Self::refusals),
        (Check::MigrateTypes, Self::migratetypes),
        (Check::Bulk, Self::bulk),
        (Check::Ranges, Self::ranges),
        (Check::Reserve, Self::reserve),
        (Check::Exhaustion, Self::exhaustion),
        (Check::Watermarks, Self::watermarks),
        (Check::NoWait, Self::nowait),
        (Check::Drain, Self::drain),
    ];

    /// That as many frames are free, and as many in use, as before.
    fn settled(&self, checker: Checker, before: Counts) -> Result<(), Failure> {
        let now = self.subject.counts();
        checker.number("free frames afterwards", now.free.get(), before.free.get())?;
        checker.number("frames allocated but not freed", now.in_use, before.in_use)
    }

    /// That a call has allocated, or freed if negative, so many frames.
    fn moved(&self, checker: Checker, before: Counts, frames: i64) -> Result<(), Failure> {
        let now = self.subject.counts();
        let free = before.free.get().wrapping_add_signed(-frames);
        checker.number("free frames after a call", now.free.get(), free)?;
        let in_use = before.in_use.wrapping_add_signed(frames);
        checker.number("frames in use after a call", now.in_use, in_use)
    }

    /// Writes the stamp of a block.
    fn stamp(&self, first: Pfn, order: Order, stamp: u64) {
        stamps::frames(first, order).for_each(|frame| self.stamps.write(frame, stamp));
    }

    /// That all frames of a block still have its stamp; marks them as free.
    fn unstamp(
        &self,
        checker: Checker,
        (first, order): (Pfn, Order),
        stamp: u64,
    ) -> Result<(), Failure> {
        let wrong = stamps::replace(self.stamps, (first, order), stamp, FREE);
        checker.number("frames of a block that another block has too", wrong, 0)
    }
}

/// Whether an idle allocator may refuse blocks and ranges that large memories have room for.
fn is_scarcity(error: Error) -> bool {
    matches!(error, Error::OutOfMemory | Error::BelowWatermark | Error::RangeBusy)
}

fn invalid(checker: Checker, violation: freehold::Violation) -> Failure {
    Failure {
        check: checker.0,
        what: "the invariants of the metadata",
        expected: Outcome::Success,
        found: Outcome::Invalid(violation),
    }
}
