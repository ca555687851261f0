//! How much memory an arena has: growing, shrinking, and what its owners give back.
#![expect(unsafe_code, reason = "gives memory back to the machine")]

use std::os::fd::BorrowedFd;
use std::thread::Builder;

use freehold::{Design, FrameCount, MemoryRange, Migrate, Pfn};

use super::range;
use crate::fork::ForkMutex;
use crate::mapping::page_bytes;
use crate::plan::{Part, growth};
use crate::{FrameArena, Host, HostError};

/// How many stretches go to the machine by one call.
pub(crate) const BATCH_MAX: usize = 64;

/// The parts of an arena. Their lock is held for a moment at a time, never while an owner of
/// content is called.
#[derive(Debug)]
pub(super) struct Extent {
    /// Held by a call that grows or shrinks the arena, from its begin to its end.
    resizing: ForkMutex<()>,
    pub(super) parts: ForkMutex<Vec<Part>>,
}

impl Extent {
    pub(super) const fn new(parts: Vec<Part>) -> Self {
        Extent { resizing: ForkMutex::new(()), parts: ForkMutex::new(parts) }
    }

    /// Takes both locks, for a fork.
    pub(super) fn hold(&self) {
        self.resizing.hold();
        self.parts.hold();
    }

    pub(super) fn release(&self) {
        self.parts.release();
        self.resizing.release();
    }
}

impl<D: Design<Host>> FrameArena<D> {
    /// Gives the memory of frames back to the machine. They stay usable and read as zero. One
    /// system call. Like a write, it is for the owner of the frames.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses: the memory is locked (`mlock`).
    ///
    /// # Panics
    ///
    /// If the frames do not lie in the arena's capacity.
    pub fn discard(&self, first: Pfn, frames: FrameCount) -> Result<(), HostError> {
        let offset = self.frame_size.bytes_of(FrameCount::new(first.get()));
        // SAFETY: All safe accesses to frames of a `FrameArena` are atomic, so to them this is a
        // write of zeroes; its documentation asks unsafe ones to keep others away.
        unsafe { self.memory.discard(offset, self.frame_size.bytes_of(frames)) }
    }

    /// Lets the machine take the memory of frames when it needs some (`MADV_FREE`), unless they are
    /// written before. Until then they keep their content or read as zero, each page by itself. One
    /// system call. Like a write, it is for the owner of the frames.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses: the memory is shared, locked, or of huge pages.
    ///
    /// # Panics
    ///
    /// If the frames do not lie in the arena's capacity.
    pub fn discard_lazily(&self, first: Pfn, frames: FrameCount) -> Result<(), HostError> {
        let offset = self.frame_size.bytes_of(FrameCount::new(first.get()));
        // SAFETY: As for `discard`: to other accesses, this is a write of zeroes, at some time.
        unsafe { self.memory.discard_lazily(offset, self.frame_size.bytes_of(frames)) }
    }

    /// [`FrameArena::discard`] of several stretches at once; returns the number of system calls.
    pub(crate) fn discard_all(&self, stretches: &[(Pfn, FrameCount)]) -> Result<u64, HostError> {
        let bytes_of = |frames| self.frame_size.bytes_of(frames);
        let mut calls = 0;
        for batch in stretches.chunks(BATCH_MAX) {
            let mut parts = [(0, 0); BATCH_MAX];
            for (part, &(first, frames)) in parts.iter_mut().zip(batch) {
                *part = (bytes_of(first - Pfn::new(0)), bytes_of(frames));
            }
            // SAFETY: As for `discard`.
            calls += unsafe { self.memory.discard_parts(&parts[..batch.len()]) }?;
        }
        Ok(calls)
    }

    /// Takes memory from the machine for frames, by so many threads, so that no later access
    /// faults. Their content stays as it is. What no thread can be started for, the calling one
    /// does.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the machine has not enough, or from kernels before Linux 5.14.
    ///
    /// # Panics
    ///
    /// If the frames do not lie in the arena's capacity.
    pub fn prefault(
        &self,
        first: Pfn,
        frames: FrameCount,
        threads: usize,
    ) -> Result<(), HostError> {
        let memory = &self.memory;
        let grain = memory.huge_page_bytes().unwrap_or(0).max(page_bytes());
        let offset = self.frame_size.bytes_of(first - Pfn::new(0));
        let bytes = self.frame_size.bytes_of(frames);
        let share = bytes.div_ceil(threads.max(1)).next_multiple_of(grain).max(grain);
        std::thread::scope(|scope| {
            let parts = (offset..offset + bytes).step_by(share).map(|at| {
                let populate = move || memory.populate(at, share.min(offset + bytes - at));
                Builder::new().spawn_scoped(scope, populate).map_err(|_refused| populate())
            });
            let parts: Vec<_> = parts.collect();
            parts.into_iter().try_for_each(|part| match part {
                Ok(thread) => thread.join().expect("a system call"),
                Err(done) => done,
            })
        })
    }

    /// The file behind the memory, of a [`Backing::Memfd`](crate::Backing::Memfd) or
    /// [`Backing::File`](crate::Backing::File): for processes that map it too.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.memory.file()
    }

    /// Adds memory within the capacity that the arena was built with: `bytes`, divided evenly over
    /// its nodes, each share rounded up to a pageblock. Returns the new frames, a range for each
    /// node; an LRU of the arena is told of them by
    /// [`Lru::add_memory`](freehold::lru::Lru::add_memory).
    ///
    /// # Errors
    ///
    /// [`HostError::CapacityExceeded`] if a share does not fit; nothing has changed then.
    /// [`HostError::Allocator`] if the allocator refuses a share; those before it have been added.
    pub fn grow(&self, bytes: usize) -> Result<Vec<MemoryRange>, HostError> {
        let mut ranges = Vec::new();
        self.grow_by(bytes, |range| ranges.push(range))?;
        Ok(ranges)
    }

    /// [`FrameArena::grow`] without the heap: the ranges go to a function.
    pub(crate) fn grow_by(
        &self,
        bytes: usize,
        mut added: impl FnMut(MemoryRange),
    ) -> Result<(), HostError> {
        let _alone = self.extent.resizing.lock();
        let (nodes, left_min) = {
            let parts = self.extent.parts.lock();
            let left = |part: &Part| (part.capacity - part.frames).get();
            (parts.len(), parts.iter().map(left).min().unwrap_or(0))
        };
        let share = growth(bytes, nodes, self.frame_size);
        if share.get() > left_min {
            let left = self.frame_size.bytes_of(FrameCount::new(left_min)) * nodes;
            return Err(HostError::CapacityExceeded { bytes, left });
        }
        if share == FrameCount::ZERO {
            return Ok(());
        }
        for nth in 0..nodes {
            let part = self.extent.parts.lock()[nth];
            let range = range(&part, part.start + part.frames, share);
            self.allocator.add_memory(range)?;
            self.extent.parts.lock()[nth].frames += share;
            added(range);
        }
        Ok(())
    }

    /// Takes memory away: `bytes`, divided evenly over the nodes, each share rounded up to a
    /// pageblock, from the end of what each has. Content there is moved elsewhere by its owner;
    /// with [`Immovable`](freehold::Immovable), all of it must be free. The memory goes back to the
    /// machine. Returns the frames that are gone, of which an LRU of the arena is told by
    /// [`Lru::remove_memory`](freehold::lru::Lru::remove_memory); [`FrameArena::grow`] brings them
    /// back.
    ///
    /// What is to go later should be allocated at the end: with
    /// [`RangeRequest::at`](freehold::RangeRequest::at), in the ranges that `grow` returned. The
    /// owner must neither grow nor shrink the arena.
    ///
    /// # Errors
    ///
    /// [`HostError::BadSetting`] if the nodes have less than that. [`HostError::Allocator`] if
    /// content stays where it is: see
    /// [`PageAllocator::remove_memory`](freehold::PageAllocator::remove_memory). All memory is
    /// there then, as before.
    pub fn shrink(&self, bytes: usize, owner: &dyn Migrate) -> Result<Vec<MemoryRange>, HostError> {
        let _alone = self.extent.resizing.lock();
        let parts = self.extent.parts.lock().clone();
        let share = growth(bytes, parts.len(), self.frame_size);
        if share == FrameCount::ZERO {
            return Ok(Vec::new());
        }
        if let Some(part) = parts.iter().find(|part| part.frames < share) {
            let reason = format!("{} has {}, and {share} are to go", part.node, part.frames);
            return Err(HostError::BadSetting { setting: "shrink", reason });
        }
        let mut ranges: Vec<MemoryRange> = Vec::new();
        for part in &parts {
            let range = range(part, part.start + (part.frames - share), share);
            if let Err(error) = self.allocator.remove_memory(range.start, range.frames, owner) {
                for &gone in &ranges {
                    // No other call adds memory there.
                    let back = self.allocator.add_memory(gone);
                    debug_assert_eq!(back, Ok(()), "{gone:?}");
                }
                return Err(error.into());
            }
            ranges.push(range);
        }
        for range in &ranges {
            // Refused where memory is locked: then it stays with the process.
            let _refused = self.discard(range.start, range.frames);
        }
        self.extent.parts.lock().iter_mut().for_each(|part| part.frames -= share);
        Ok(ranges)
    }

    /// The memory that the arena manages now, free or not: a range for each node.
    pub fn ranges(&self) -> Vec<MemoryRange> {
        let parts = self.extent.parts.lock();
        let used = parts.iter().filter(|part| part.frames > FrameCount::ZERO);
        used.map(|part| range(part, part.start, part.frames)).collect()
    }

    /// How much memory the arena manages now, free or not.
    pub fn total_frames(&self) -> FrameCount {
        let parts = self.extent.parts.lock();
        parts.iter().map(|part| part.frames).sum()
    }
}
