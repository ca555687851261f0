//! A contestant in one heat, whatever its type: with its memory, its book, and its capabilities.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::peers::{Peer, Seat};
use freehold::{MigrateType, Order};

use super::course::{Course, Field, Times};
use super::crew::Crew;
use super::mix;
use super::referee::{Book, Failure};
use crate::catalog::BenchName;
use crate::panics::message_of;

/// What a race requires of a contestant. One indirect call a measurement.
pub(super) trait Entrant: Sync {
    /// Why a bench does not apply to this contestant, if it does not.
    fn unfit_for(&self, bench: BenchName) -> Option<&'static str>;

    /// Whether the bench uses bulk calls.
    fn has_bulk(&self) -> bool;

    /// The contestant's remark about how it was built.
    fn note(&self) -> Option<&'static str>;

    /// The size of its metadata, if known.
    fn metadata(&self) -> Option<Metadata>;

    /// Runs some passes of a course, checked by the referee.
    ///
    /// # Errors
    ///
    /// The referee's findings.
    fn run(
        &self,
        crew: &Crew,
        course: Course,
        passes: usize,
        clock_ns: f64,
    ) -> Result<Times, Failure>;

    /// Allocates all frames and frees them, to check that there are as many as before.
    ///
    /// # Errors
    ///
    /// [`Failure::Lost`], and all other findings of the referee.
    fn check_all_back(&self, crew: &Crew) -> Result<(), Failure>;
}

/// The size of a contestant's metadata for the frames that it manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) managed_frames: u64,
    pub(super) bytes: usize,
}

/// A peer that has entered.
pub(super) struct Entered<P: Peer> {
    peer: P,
    book: Book,
    /// How many threads call it.
    threads: usize,
    /// How many frames could be allocated at the start; 0 if it manages none.
    had_frames: u64,
}

impl<P: Peer> Entered<P> {
    /// Counts what a new peer can allocate.
    ///
    /// # Errors
    ///
    /// The referee's first findings.
    pub(super) fn new(peer: P, threads: usize, crew: &Crew) -> Result<Self, Failure> {
        let book = Book::new(peer.managed_frames(), P::ALIGNS);
        let mut entered = Entered { peer, book, threads, had_frames: 0 };
        entered.had_frames = crew.alone(|| entered.guarded(|| entered.count()))?;
        Ok(entered)
    }

    /// Allocates all existing frames, with every thread's seat in turn, since a seat may cache
    /// some; shows them to the referee, and frees them.
    fn count(&self) -> Result<u64, Failure> {
        let Some(managed) = self.peer.managed_frames() else { return Ok(0) };
        self.peer.audit().map_err(Failure::Books)?;
        let mut frames = Vec::new();
        for thread in 0..self.threads {
            let mut seat = self.peer.sit(thread);
            while let Some(frame) = seat.alloc(Order::ZERO, MigrateType::Movable) {
                let shown = [(P::first_frame(&frame), Order::ZERO)].into_iter();
                // If there are too many, one is foreign or already in use.
                self.book.claim(shown)?;
                frames.push(frame);
            }
        }
        let count = frames.len() as u64;
        let mut seat = self.peer.sit(0);
        // The last first, so that a stack ends as it began.
        for frame in frames.into_iter().rev() {
            self.book.release([(P::first_frame(&frame), Order::ZERO)].into_iter())?;
            seat.free(frame, Order::ZERO)?;
        }
        // A seat may cache some.
        drop(seat);
        self.peer.audit().map_err(Failure::Books)?;
        debug_assert!(count <= managed, "the book knows each frame once");
        Ok(count)
    }

    /// Runs something that may panic.
    fn guarded<R>(&self, work: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
        // What a panic leaves broken is not used again: the entrant is out.
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            Err(Failure::Panicked(message_of(&*panic).unwrap_or_default().to_owned()))
        })
    }
}

impl<P: Peer> Entrant for Entered<P> {
    fn unfit_for(&self, bench: BenchName) -> Option<&'static str> {
        let serves = |mut orders: std::ops::Range<u8>| {
            orders.all(|order| self.peer.serves(Order::new(order)))
        };
        match bench {
            BenchName::Order3 if !self.peer.serves(Order::new(3)) => {
                Some("it has no blocks of order 3")
            }
            BenchName::Huge if !self.peer.serves(Order::PAGEBLOCK) => {
                Some("it has no blocks of order 9")
            }
            BenchName::Mixed if !serves(0..mix::ORDERS) => {
                Some("it lacks some of the orders asked for")
            }
            BenchName::Churn if self.peer.managed_frames().is_none() => {
                Some("it has no memory of its own that could be full")
            }
            _ => None,
        }
    }

    fn has_bulk(&self) -> bool {
        self.peer.has_bulk()
    }

    fn note(&self) -> Option<&'static str> {
        self.peer.note()
    }

    fn metadata(&self) -> Option<Metadata> {
        let managed_frames = self.peer.managed_frames()?;
        Some(Metadata { managed_frames, bytes: self.peer.metadata_bytes()? })
    }

    fn run(
        &self,
        crew: &Crew,
        course: Course,
        passes: usize,
        clock_ns: f64,
    ) -> Result<Times, Failure> {
        let field = Field::new((&self.peer, &self.book), course, passes, self.had_frames, clock_ns);
        let parts = crew.together(course.parties(), |thread| {
            let part = self.guarded(|| field.run(thread));
            if part.is_err() {
                field.meeting.fail();
            }
            part
        });
        let mut times = Times::default();
        // The findings of a thread that others waited for take precedence over their waiting.
        let (abandoned, others): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| matches!(part, Err(Failure::Abandoned)));
        for part in others.into_iter().chain(abandoned) {
            times.extend(part?);
        }
        Ok(times)
    }

    fn check_all_back(&self, crew: &Crew) -> Result<(), Failure> {
        let count = crew.alone(|| self.guarded(|| self.count()))?;
        match self.had_frames.checked_sub(count) {
            None | Some(0) => Ok(()),
            Some(frames) => Err(Failure::Lost { frames, managed: self.had_frames }),
        }
    }
}
