//! Tasks: the work of a workload on every CPU, written once for the host and for simulated
//! machines.
//!
//! On the host a task is a thread bound to a CPU, on a simulated machine the work of a virtual CPU.
//! A workload sees either through [`Task`], and the allocator through [`Frames`]: neither depends
//! on the design. On the host, this costs one indirect call for each call of the allocator, unless
//! the workload is about single calls: see [`TaskWorkload::run_on_host`].
//!
//! [`TaskWorkload::run_on_host`]: workload::TaskWorkload::run_on_host

mod calls;
mod host;
pub(crate) mod lru;
pub(crate) mod meeting;
pub(crate) mod owners;
pub(crate) mod page_cache;
pub(crate) mod page_lists;
pub(crate) mod population;
mod reach;
pub(crate) mod ring;
mod run;
mod sim;
pub(crate) mod workload;

use anyhow::{Result, anyhow};
use fastrand::Rng;
use freehold::platform::Platform;
use freehold::{Error, Order, Pfn, Request};
use freehold_lru::{GroupId, Lru, Owner};
use freehold_sim::{Key, Path};

use crate::frames::Frames;
use crate::machine::FRAME_BYTES;
use lru::{AnyLru, Frees, ReclaimingFrames};
#[cfg(test)]
pub(crate) use {host::tests::run_one, meeting::tests::three_meet};

/// How long a task that waits for another one idles before it re-checks, in virtual time.
const PAUSE_NS: u64 = 500;

/// The error of a task that waits for one that has failed.
fn abandoned() -> anyhow::Error {
    anyhow!("another task has failed")
}

/// Work of the kernel outside the allocator around a page fault, before and after the allocation.
pub(crate) const FAULT_ENTRY: [Key; 3] = [Key::TrapNs, Key::FaultPathNs, Key::FaultRestNs];
pub(crate) const FAULT_MAPPING: [Key; 2] = [Key::AccountingNs, Key::PageTableNs];
/// The same for a page that is unmapped.
pub(crate) const UNMAPPING: [Key; 3] = [Key::UnmapNs, Key::UnmapRestNs, Key::AccountingNs];
/// The same where the LRU of the library does the accounting.
pub(crate) const UNLISTED_UNMAPPING: [Key; 2] = [Key::UnmapNs, Key::UnmapRestNs];

/// The identity of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The number of the task, from 0.
    pub(crate) index: usize,
    /// The seed of the run.
    pub(crate) seed: u64,
}

impl Place {
    /// Random numbers of this task, the same for the same seed.
    pub(crate) fn rng(&self) -> Rng {
        // Seeds of neighbours differ in many bits.
        Rng::with_seed(
            self.seed.wrapping_add(self.index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        )
    }
}

/// A block that a task holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) pfn: Pfn,
    pub(crate) order: Order,
}

/// What is in a frame.
pub(crate) type Content = [u8; FRAME_BYTES as usize];

/// One task's view of its machine.
///
/// Times are in nanoseconds since the start of the run: of the clock on the host, virtual ones on a
/// simulated machine.
///
/// On a simulated machine every call may let other tasks run, so a task must not hold a borrow or a
/// lock of the host across one.
pub(crate) trait Task: Sized {
    type Frames: ReclaimingFrames + ?Sized;
    type Platform: Platform;
    type Owner: Owner;

    /// The identity of this task.
    fn place(&self) -> Place;

    /// The allocator under test. Calls belong inside [`Task::timed`].
    fn allocator(&self) -> &Self::Frames;

    /// The LRU that the workload has planned.
    fn lru(&self) -> &Lru<Self::Platform, Self::Owner>;

    /// The same, for the allocator.
    fn any_lru(&self) -> AnyLru<'_, '_>;

    /// A memory group of the LRU. If there are fewer, numbers take them in turns.
    fn group(&self, number: usize) -> GroupId;

    /// Takes frames off their lists and frees them, as the plan of the LRU says. One that waits in
    /// a batch is on no list yet, and freed with a later batch.
    fn unlist(&self, frames: &[Pfn]) -> Result<()>;

    /// Makes one call of the allocator, and records how long it took.
    fn timed<R>(&self, path: Path, call: impl FnOnce() -> R) -> R;

    /// Clears a block. On the host only one byte of each frame is written, which is cheaper.
    fn clear(&self, block: Block);

    /// Writes one byte of a frame.
    fn touch(&self, pfn: Pfn);

    /// Fills a frame with what `content` provides. On a simulated machine it is cleared instead.
    fn fill(&self, pfn: Pfn, content: impl FnOnce(&mut Content) -> Result<()>) -> Result<()>;

    /// Copies what is in a frame, for `check` to look at. On a simulated machine nothing is there
    /// to look at, and it costs as much as to read all of the frame and to write a cached buffer.
    fn copy_out(&self, pfn: Pfn, check: impl FnOnce(&Content) -> Result<()>) -> Result<()>;

    /// Copies the content of a block to `to`. On a simulated machine, reading a frame costs the
    /// same as clearing it: the same lines pass through the same caches.
    fn copy(&self, from: Block, to: Pfn);

    /// Replaces the stamp in each frame of a block, which is 0 at first: nothing on a simulated
    /// machine.
    ///
    /// # Errors
    ///
    /// A frame bears another stamp than `from`: somebody else has used it.
    fn restamp(&self, block: Block, from: u64, to: u64) -> Result<()>;

    /// Does work of the kernel outside the allocator: charged on a simulated machine, nothing on
    /// the host.
    fn charge(&self, works: &[Key]);

    /// Idles for so long.
    fn idle_ns(&self, ns: u64);

    /// Computes: charged on a simulated machine, nothing on the host.
    fn compute_ns(&self, ns: u64);

    /// The time.
    fn now_ns(&self) -> u64;

    /// Waits until no other task is earlier, so that data which tasks share outside the allocator
    /// are used in the order of virtual time. Does nothing on the host.
    fn in_order(&self);

    /// Waits briefly for something that another task will do.
    ///
    /// # Errors
    ///
    /// Another task has failed, and may never do it.
    fn pause(&self) -> Result<()>;

    /// Waits until all tasks have arrived here.
    ///
    /// # Errors
    ///
    /// As for [`Task::pause`].
    fn meet(&self) -> Result<()>;

    /// As [`Task::meet`]; everything measured so far was a warm-up.
    ///
    /// # Errors
    ///
    /// As for [`Task::pause`].
    fn start_measuring(&self) -> Result<()>;

    /// As [`Task::start_measuring`], for so long: what tasks do after that is in no account. Calls
    /// under way then are accounted for up to that moment.
    ///
    /// # Errors
    ///
    /// As for [`Task::pause`].
    fn start_measuring_for(&self, ns: u64) -> Result<()>;

    /// Puts as many of `frames` into a ring as have room; returns how many.
    fn try_send(&self, ring: usize, frames: &[Pfn]) -> usize;

    /// Takes frames out of a ring, as many as there are and fit; returns how many.
    fn try_receive(&self, ring: usize, frames: &mut [Pfn]) -> usize;

    /// Announces that this task will send no more.
    fn leave(&self, ring: usize);

    /// Whether all senders of a ring have left it.
    fn is_closed(&self, ring: usize) -> bool;

    /// Allocates a block.
    #[inline]
    fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        self.timed(Path::Alloc, || self.allocator().alloc(request))
    }

    /// Allocates blocks in bulk, as far as there is memory; returns how many.
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error> {
        self.timed(Path::Alloc, || self.allocator().alloc_bulk(request, out))
    }

    /// Allocates a block; if there is none, reclaims frames of the LRU.
    fn alloc_reclaiming(&self, request: Request) -> Result<Pfn, Error> {
        let call = || self.allocator().alloc_or_reclaim(request, self.any_lru());
        self.timed(Path::Alloc, call)
    }

    /// Frees a block.
    #[inline]
    fn free(&self, block: Block) -> Result<(), Error> {
        self.timed(Path::Free, || self.allocator().free(block.pfn, block.order))
    }

    /// Frees frames in bulk.
    fn free_bulk(&self, frames: &[Pfn]) -> Result<()> {
        Ok(self.timed(Path::Free, || self.allocator().free_bulk(frames, Order::ZERO))?)
    }

    /// Frees what the LRU has released.
    fn free_released(&self, frames: &[Pfn], frees: Frees) -> Result<()> {
        match frees {
            Frees::InBulk if !frames.is_empty() => self.free_bulk(frames),
            _ => Ok(frames
                .iter()
                .try_for_each(|&pfn| self.free(Block { pfn, order: Order::ZERO }))?),
        }
    }

    /// A page fault: allocates a block, clears it, and does the work around it.
    fn fault(&self, request: Request) -> Result<Block, Error> {
        self.charge(&FAULT_ENTRY);
        let block = Block { pfn: self.alloc(request)?, order: request.order() };
        self.map(block);
        Ok(block)
    }

    /// The second half of a page fault: clears the block and maps it.
    fn map(&self, block: Block) {
        self.clear(block);
        self.charge(&FAULT_MAPPING);
    }

    /// As [`Task::alloc`]; no block if there is no memory for one.
    fn try_alloc(&self, request: Request) -> Result<Option<Block>> {
        let order = request.order();
        if_any(self.alloc(request).map(|pfn| Block { pfn, order }))
    }

    /// Frees what [`Owners::try_alloc_range`](owners::Owners::try_alloc_range) returned.
    fn free_range(&self, block: Block) -> Result<(), Error> {
        let frames = block.order.frames();
        self.timed(Path::Free, || self.allocator().free_range(block.pfn, frames))
    }

    /// As [`Task::fault`]; no block if there is no memory for one.
    fn try_fault(&self, request: Request) -> Result<Option<Block>> {
        if_any(self.fault(request))
    }

    /// Unmaps a block and frees it.
    fn unmap(&self, block: Block) -> Result<(), Error> {
        self.charge(&UNMAPPING);
        self.free(block)
    }

    /// Sends all of `frames`, waiting for room as long as it takes. Returns for how long.
    fn send(&self, ring: usize, mut frames: &[Pfn]) -> Result<u64> {
        let mut waited_ns = 0;
        loop {
            frames = &frames[self.try_send(ring, frames)..];
            if frames.is_empty() {
                return Ok(waited_ns);
            }
            waited_ns += self.timed_pause()?;
        }
    }

    /// Takes frames out of a ring, waiting until there are some. Returns how many, and for how long
    /// it waited: no frames if all senders have left and the ring is empty.
    fn receive(&self, ring: usize, frames: &mut [Pfn]) -> Result<(usize, u64)> {
        let mut waited_ns = 0;
        loop {
            // Checks for the end first: what was sent before it is found afterwards.
            let closed = self.is_closed(ring);
            let received = self.try_receive(ring, frames);
            if received > 0 || closed {
                return Ok((received, waited_ns));
            }
            waited_ns += self.timed_pause()?;
        }
    }

    /// Pauses; returns for how long.
    fn timed_pause(&self) -> Result<u64> {
        let began_ns = self.now_ns();
        self.pause()?;
        Ok(self.now_ns() - began_ns)
    }
}

fn if_any(allocated: Result<Block, Error>) -> Result<Option<Block>> {
    match allocated {
        Ok(block) => Ok(Some(block)),
        Err(Error::OutOfMemory | Error::BelowWatermark | Error::RangeBusy) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
