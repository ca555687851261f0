//! What was checked, what should have come of it, and what came.

use core::fmt;

use freehold::{Error, FrameStatus, Violation};

/// A group of checks, in the order in which [`suite::run`](crate::suite::run) makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Check {
    /// Blocks of all orders: aligned, apart from each other, counted, and as large as was asked.
    Orders,
    /// Parts of a block are freed one by one.
    Parts,
    /// All memory is handed out, once; it comes back, and is handed out again.
    Exhaustion,
    /// Watermarks keep frames from ordinary requests, and from these alone.
    Watermarks,
    /// Every migratetype can be allocated.
    MigrateTypes,
    /// Requests that do not wait are served from idle memory.
    NoWait,
    /// Bulk calls allocate and free as many blocks as they say.
    Bulk,
    /// Contiguous ranges of any length.
    Ranges,
    /// What must be refused is refused with the right error, and changes nothing.
    Refusals,
    /// Frames in use are taken out of circulation by their place.
    Reserve,
    /// A drain leaves nothing with any CPU.
    Drain,
    /// Counts are what they were, and the metadata is valid.
    Books,
    /// The torture's frames, before or after it.
    Torture,
}

impl Check {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Check::Orders => "orders",
            Check::Parts => "parts",
            Check::Exhaustion => "exhaustion",
            Check::Watermarks => "watermarks",
            Check::MigrateTypes => "migratetypes",
            Check::NoWait => "nowait",
            Check::Bulk => "bulk",
            Check::Ranges => "ranges",
            Check::Refusals => "refusals",
            Check::Reserve => "reserve",
            Check::Drain => "drain",
            Check::Books => "books",
            Check::Torture => "torture",
        }
    }
}

/// What came of a call, or should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The call succeeded.
    Success,
    /// The call was refused.
    Refused(Error),
    /// A bulk free was refused at the block after so many.
    RefusedAfter(usize, Error),
    /// A number: of frames, blocks or calls.
    Number(u64),
    /// What a frame is.
    Status(FrameStatus),
    /// An invariant of the metadata does not hold.
    Invalid(Violation),
}

impl<T> From<&Result<T, Error>> for Outcome {
    fn from(result: &Result<T, Error>) -> Self {
        match result {
            Ok(_) => Outcome::Success,
            Err(error) => Outcome::Refused(*error),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Success => f.write_str("success"),
            Outcome::Refused(error) => write!(f, "refusal: {error}"),
            Outcome::RefusedAfter(blocks, error) => {
                write!(f, "refusal after {blocks} blocks: {error}")
            }
            Outcome::Number(number) => write!(f, "{number}"),
            Outcome::Status(status) => write!(f, "{status:?}"),
            Outcome::Invalid(violation) => write!(f, "{violation}"),
        }
    }
}

/// A check that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The group that it belongs to.
    pub check: Check,
    /// What was looked at.
    pub what: &'static str,
    /// What it should have been.
    pub expected: Outcome,
    /// What it was.
    pub found: Outcome,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { check, what, expected, found } = self;
        write!(f, "{}: {what}: expected {expected}, found {found}", check.name())
    }
}

impl core::error::Error for Failure {}

/// Checks of one group.
#[derive(Clone, Copy)]
pub(crate) struct Checker(pub(crate) Check);

impl Checker {
    /// That an outcome is the expected one.
    pub(crate) fn same(
        self,
        what: &'static str,
        found: Outcome,
        expected: Outcome,
    ) -> Result<(), Failure> {
        if found == expected {
            return Ok(());
        }
        Err(Failure { check: self.0, what, expected, found })
    }

    /// That a number is the expected one.
    pub(crate) fn number(
        self,
        what: &'static str,
        found: u64,
        expected: u64,
    ) -> Result<(), Failure> {
        self.same(what, Outcome::Number(found), Outcome::Number(expected))
    }

    /// That a call succeeded; returns what it returned.
    pub(crate) fn done<T>(
        self,
        what: &'static str,
        result: Result<T, Error>,
    ) -> Result<T, Failure> {
        let found = Outcome::from(&result);
        result.map_err(|_| Failure { check: self.0, what, expected: Outcome::Success, found })
    }

    /// That a call was refused with this error.
    pub(crate) fn refused<T>(
        self,
        what: &'static str,
        result: Result<T, Error>,
        error: Error,
    ) -> Result<(), Failure> {
        self.same(what, Outcome::from(&result), Outcome::Refused(error))
    }
}
