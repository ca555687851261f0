//! CPUs that allocate, hand over and free blocks, whose frames say who owns them.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

use freehold::{
    Census, Error, FrameCount, Migrate, MigrateError, MigrateType, Order, Pfn, Request, Watermark,
};

use crate::failure::{Check, Checker, Failure, Outcome};
use crate::pile::Pile;
use crate::random::Random;
use crate::stamps::{self, FREE, Stamps};
use crate::subject::Subject;

/// A torture test: an allocator, its frames, and slots through which CPUs hand blocks to each
/// other.
///
/// Every frame that a worker holds is stamped with the block and a random number, and every free
/// one as free. So a worker notices when a frame is handed out twice, or when something else writes
/// to it. Each CPU has a [`Worker`] for its threads and another for its handlers.
#[derive(Debug)]
pub struct Torture<'a, A, S> {
    subject: &'a A,
    stamps: &'a S,
    slots: &'a [AtomicU64],
}

/// What one thread, or the handlers of one CPU, have and have done.
#[derive(Clone, Debug)]
pub struct Worker {
    random: Random,
    /// What a handler holds until its next turn.
    held: u64,
    /// What it has done so far.
    pub tally: Tally,
}

/// What workers have done. The last four are errors of the allocator, or of other code that writes
/// to its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Blocks allocated.
    pub allocated: u64,
    /// Blocks freed; one that was freed in halves counts once.
    pub freed: u64,
    /// Allocations for which there was no memory.
    pub out_of_memory: u64,
    /// Allocations that a watermark refused.
    pub below_watermark: u64,
    /// Allocations of handlers that would have had to wait.
    pub would_wait: u64,
    /// Allocations that failed with an error that says something else.
    pub wrong_errors: u64,
    /// Frames that were handed out while another owner had them, or that changed while free.
    pub handed_out_twice: u64,
    /// Frames whose stamp changed while they had an owner.
    pub content_changed: u64,
    /// Frees of a block that its owner held, and yet refused.
    pub refused_frees: u64,
}

impl Tally {
    /// How many errors there were.
    pub const fn errors(&self) -> u64 {
        self.wrong_errors + self.handed_out_twice + self.content_changed + self.refused_frees
    }

    /// Adds another tally to this one.
    pub fn add(&mut self, other: &Tally) {
        *self = Tally {
            allocated: self.allocated + other.allocated,
            freed: self.freed + other.freed,
            out_of_memory: self.out_of_memory + other.out_of_memory,
            below_watermark: self.below_watermark + other.below_watermark,
            would_wait: self.would_wait + other.would_wait,
            wrong_errors: self.wrong_errors + other.wrong_errors,
            handed_out_twice: self.handed_out_twice + other.handed_out_twice,
            content_changed: self.content_changed + other.content_changed,
            refused_frees: self.refused_frees + other.refused_frees,
        };
    }
}

impl Worker {
    /// A worker whose choices depend on the seed alone.
    pub const fn new(seed: u64) -> Self {
        let tally = Tally {
            allocated: 0,
            freed: 0,
            out_of_memory: 0,
            below_watermark: 0,
            would_wait: 0,
            wrong_errors: 0,
            handed_out_twice: 0,
            content_changed: 0,
            refused_frees: 0,
        };
        Worker { random: Random::new(seed), held: NOTHING, tally }
    }
}

/// An empty slot.
const NOTHING: u64 = 0;

/// A slot whose block is being moved: it is left alone. No block is this word.
const MOVING: u64 = 1;

/// A block as one word, which is what a slot holds and what its frames are stamped with: 40 bits of
/// frame number, 5 of order, 18 that tell its owners apart, and one that is set.
const ORDER_SHIFT: u32 = 40;
const OWNER_SHIFT: u32 = 45;
const HELD: u64 = 1 << 63;

fn held(first: Pfn, order: Order, random: &mut Random) -> u64 {
    let owner = random.below(1 << (63 - OWNER_SHIFT));
    HELD | owner << OWNER_SHIFT | u64::from(order.get()) << ORDER_SHIFT | first.get()
}

fn block(held: u64) -> (Pfn, Order) {
    let order = (held >> ORDER_SHIFT) as u8 & 0x1f;
    (Pfn::new(held & ((1 << ORDER_SHIFT) - 1)), Order::new(order))
}

impl<'a, A: Subject, S: Stamps> Torture<'a, A, S> {
    /// A torture test of this allocator. The slots hold 0 at first; up to as many blocks as there
    /// are slots are held at once, of 20 frames on average.
    pub const fn new(subject: &'a A, stamps: &'a S, slots: &'a [AtomicU64]) -> Self {
        Torture { subject, stamps, slots }
    }

    /// Stamps all free frames as free; returns how many there are. Nothing else may use the
    /// allocator meanwhile. Call it first.
    ///
    /// # Errors
    ///
    /// [`Failure`] if a frame is handed out twice or a free is refused already.
    pub fn prepare(&self) -> Result<FrameCount, Failure> {
        let request = Request::default().watermark(Watermark::Ignore);
        let what = (self.subject, self.stamps);
        let (pile, _) = Pile::take_all(what, Checker(Check::Torture), request)?;
        pile.check()?;
        let frames = FrameCount::new(pile.count());
        pile.give_back()?;
        Ok(frames)
    }

    /// One step of a thread: puts a new block, or nothing, into a random slot, and frees the block
    /// that was there, which any CPU may have allocated.
    pub fn step(&self, worker: &mut Worker) {
        let migratetype = MigrateType::ALL[worker.random.below(3) as usize];
        let request = Request::new(order(&mut worker.random)).migratetype(migratetype);
        // More often than not, so that slots are mostly full.
        let new = if worker.random.below(4) > 0 { self.take(worker, request) } else { NOTHING };
        let slots = self.slots.len() as u64;
        let slot = &self.slots[worker.random.below(slots) as usize];
        // Acquire: sees the stamps of the worker that put the old block there. Release: shows ours
        // to the one that takes the new block.
        let replaced = slot.fetch_update(AcqRel, Acquire, |old| (old != MOVING).then_some(new));
        self.give(worker, replaced.unwrap_or(new));
    }

    /// One step of a handler, which may interrupt anything, such as that of a timer: frees the
    /// frame that it allocated in its last step, and allocates another without waiting.
    pub fn interrupt(&self, worker: &mut Worker) {
        let old = core::mem::replace(&mut worker.held, NOTHING);
        self.give(worker, old);
        worker.held = self.take(worker, Request::default().nowait());
    }

    /// Whether a block is in a slot, so that its content can move: takes it out of the slot and
    /// returns the two.
    fn begin_move(&self, from: Pfn, order: Order) -> Option<(&AtomicU64, u64)> {
        self.slots.iter().find_map(|slot| {
            // Acquire: sees the stamps of the worker that put the block there.
            let old = slot.load(Acquire);
            let is_it = old & HELD != 0 && block(old) == (from, order);
            // Acquire, and nothing to release: who sees `MOVING` leaves the slot alone.
            let is_ours = is_it && slot.compare_exchange(old, MOVING, Acquire, Acquire).is_ok();
            is_ours.then_some((slot, old))
        })
    }

    /// Allocates a block and makes its frames the worker's; `NOTHING` if there is none.
    fn take(&self, worker: &mut Worker, request: Request) -> u64 {
        let tally = &mut worker.tally;
        match self.subject.alloc(request) {
            Ok(first) => {
                let new = held(first, request.order(), &mut worker.random);
                tally.allocated += 1;
                tally.handed_out_twice += stamps::replace(self.stamps, block(new), FREE, new);
                return new;
            }
            Err(Error::OutOfMemory) => tally.out_of_memory += 1,
            Err(Error::BelowWatermark) => tally.below_watermark += 1,
            Err(Error::WouldWait) => tally.would_wait += 1,
            Err(_) => tally.wrong_errors += 1,
        }
        NOTHING
    }

    /// Frees a block that a worker took, if there is one: sometimes in halves.
    fn give(&self, worker: &mut Worker, old: u64) {
        if old == NOTHING {
            return;
        }
        let (first, order) = block(old);
        let tally = &mut worker.tally;
        tally.content_changed += stamps::replace(self.stamps, (first, order), old, FREE);
        let freed = if order > Order::ZERO && worker.random.below(8) == 0 {
            let half = Order::new(order.get() - 1);
            let upper = self.subject.free(first + half.frames(), half);
            upper.and(self.subject.free(first, half))
        } else {
            self.subject.free(first, order)
        };
        tally.freed += 1;
        tally.refused_frees += u64::from(freed.is_err());
    }

    /// Frees everything that slots and these workers hold; then all CPUs' caches are drained and
    /// the metadata is validated. Nothing else may use the allocator meanwhile. `free` is what
    /// [`Torture::prepare`] returned. Returns what all workers have done and where the frames are.
    ///
    /// # Errors
    ///
    /// [`Failure`] if a worker found an error, frames are missing, or an invariant does not hold.
    pub fn finish(
        &self,
        workers: &mut [Worker],
        free: FrameCount,
    ) -> Result<(Tally, Census), Failure> {
        let mut last = Worker::new(0);
        for worker in workers.iter_mut() {
            let old = core::mem::replace(&mut worker.held, NOTHING);
            self.give(&mut last, old);
        }
        for slot in self.slots {
            // Acquire: as in `step`; no worker takes what we put there.
            self.give(&mut last, slot.swap(NOTHING, Acquire));
        }
        let mut tally = last.tally;
        workers.iter().for_each(|worker| tally.add(&worker.tally));
        let checker = Checker(Check::Torture);
        for (what, errors) in [
            ("frames handed out twice or changed while free", tally.handed_out_twice),
            ("frames changed while in use", tally.content_changed),
            ("frees refused", tally.refused_frees),
            ("allocations refused with an error that says something else", tally.wrong_errors),
        ] {
            checker.number(what, errors, 0)?;
        }
        checker.number("blocks freed of those allocated", tally.freed, tally.allocated)?;
        let now = self.subject.counts().free;
        checker.number("frames that are free again", now.get(), free.get())?;
        self.subject.drain_all();
        let census = self.subject.validate().map_err(|violation| Failure {
            check: Check::Torture,
            what: "the invariants of the metadata",
            expected: Outcome::Success,
            found: Outcome::Invalid(violation),
        })?;
        Ok((tally, census))
    }
}

/// Moves blocks that are in slots: for compaction, ranges and the removal of memory beside the
/// workers. A frame whose stamp is not as it must be makes it fail, so that the next worker that
/// looks at it finds that.
impl<A: Subject, S: Stamps> Migrate for Torture<'_, A, S> {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        let (slot, old) = self.begin_move(from, order).ok_or(MigrateError::Busy)?;
        let right = |(first, expected)| {
            stamps::frames(first, order).all(|frame| self.stamps.read(frame) == expected)
        };
        if ![(from, old), (to, FREE)].into_iter().all(right) {
            // Release: as in `step`.
            slot.store(old, Release);
            return Err(MigrateError::Failed);
        }
        let new = old & !((1 << ORDER_SHIFT) - 1) | to.get();
        stamps::replace(self.stamps, (to, order), FREE, new);
        stamps::replace(self.stamps, (from, order), old, FREE);
        // Release: shows the stamps to the worker that takes the block.
        slot.store(new, Release);
        Ok(())
    }
}

/// Orders as a kernel asks for them: mostly single frames, now and then up to order 10.
fn order(random: &mut Random) -> Order {
    Order::new(match random.below(128) {
        0..96 => 0,
        96..120 => 1 + random.below(3) as u8,
        _ => 4 + random.below(7) as u8,
    })
}
