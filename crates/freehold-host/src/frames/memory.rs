//! How much memory an arena has: growing, shrinking, and what its owners give back.
#![expect(unsafe_code, reason = "gives memory back to the machine")]

use std::os::fd::BorrowedFd;
use std::thread::Builder;

use freehold::{Design, FrameCount, MemoryRange, Migrate, Order, Pfn};

use super::range;
use crate::fork::ForkMutex;
use crate::mapping::page_bytes;
use crate::plan::{Part, growth};
use crate::{FrameArena, Host, HostError};

/// How many stretches go to the machine by one call.
const BATCH_MAX: usize = 64;

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
    /// system call. Like a write, it is for the owner of the frames. What is only a part of a
    /// [huge page](crate::Backing::HugeTlb) does not go back, and is zeroed by writing.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses: the memory is locked (`mlock`).
    ///
    /// # Panics
    ///
    /// If the frames do not lie in the arena's capacity.
    pub fn discard(&self, first: Pfn, frames: FrameCount) -> Result<(), HostError> {
        let end = self.end_of(first, frames);
        let (start, whole) = self.whole_pages(first, frames);
        self.zero(first, start - first);
        self.zero(start + whole, end - (start + whole));
        if whole == FrameCount::ZERO {
            return Ok(());
        }
        let (offset, bytes) = (self.offset(start), self.frame_size.bytes_of(whole));
        // SAFETY: All safe accesses to frames of a `FrameArena` are atomic, so to them this is a
        // write of zeroes; its documentation asks unsafe ones to keep others away.
        unsafe { self.memory.discard(offset, bytes) }
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
        self.end_of(first, frames);
        let offset = self.offset(first);
        // SAFETY: As for `discard`: to other accesses, this is a write of zeroes, at some time.
        unsafe { self.memory.discard_lazily(offset, self.frame_size.bytes_of(frames)) }
    }

    /// [`FrameArena::discard`] of several stretches. If `at_once` and the kernel can (Linux 6.14,
    /// private memory), up to 64 go by one system call. Returns the number of calls.
    ///
    /// Of memory in [huge pages](crate::Backing::HugeTlb), stretches must be whole ones: what is a
    /// part of one is refused, or stays as it is.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses. Stretches before that may have been taken.
    ///
    /// # Panics
    ///
    /// If the frames do not lie in the arena's capacity.
    pub fn discard_all(
        &self,
        stretches: &[(Pfn, FrameCount)],
        at_once: bool,
    ) -> Result<u64, HostError> {
        let mut calls = 0;
        for batch in stretches.chunks(BATCH_MAX) {
            let mut parts = [(0, 0); BATCH_MAX];
            for (part, &(first, frames)) in parts.iter_mut().zip(batch) {
                self.end_of(first, frames);
                *part = (self.offset(first), self.frame_size.bytes_of(frames));
            }
            // SAFETY: As for `discard`.
            calls += unsafe { self.memory.discard_parts(&parts[..batch.len()], at_once) }?;
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
        self.end_of(first, frames);
        let (offset, bytes) = (self.offset(first), self.frame_size.bytes_of(frames));
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

    /// The frame behind these.
    ///
    /// # Panics
    ///
    /// If they do not lie in the arena's capacity.
    fn end_of(&self, first: Pfn, frames: FrameCount) -> Pfn {
        let capacity = FrameCount::from_bytes(self.memory.bytes(), self.frame_size);
        let end = first.get().checked_add(frames.get()).filter(|end| *end <= capacity.get());
        Pfn::new(
            end.unwrap_or_else(|| panic!("{frames} from {first} on: the arena has {capacity}")),
        )
    }

    /// Where a frame of the capacity, or the end of it, is in the memory.
    fn offset(&self, pfn: Pfn) -> usize {
        self.frame_size.bytes_of(pfn - Pfn::new(0))
    }

    /// How many frames go back to the machine at least, and at multiples of what: one, unless the
    /// memory is made of huge pages.
    pub(crate) fn page_order(&self) -> Order {
        Order::from_bytes(self.memory.huge_page_bytes().unwrap_or(0), self.frame_size)
    }

    /// The file behind the memory, of a [`Backing::Memfd`](crate::Backing::Memfd) or
    /// [`Backing::File`](crate::Backing::File): for processes that map it too.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.memory.file()
    }

    /// Adds memory within the capacity that the arena was built with: `bytes`, divided evenly over
    /// its nodes, each share rounded up to a pageblock. Returns the new frames, a range for each
    /// node; an LRU of the arena is told of them by
    /// [`Lru::add_memory`](freehold_lru::Lru::add_memory).
    ///
    /// # Errors
    ///
    /// [`HostError::CapacityExceeded`] if a share does not fit; nothing has changed then.
    /// [`HostError::Map`] and those of [`ArenaBuilder::build`](crate::ArenaBuilder::build), if
    /// memory is [mapped](crate::ArenaBuilder::map_as_it_grows) and cannot be;
    /// [`HostError::Allocator`] if the allocator refuses a share; those before it have been added.
    pub fn grow(&self, bytes: usize) -> Result<Vec<MemoryRange>, HostError> {
        let mut ranges = Vec::new();
        self.grow_by(bytes, |range| ranges.push(range))?;
        Ok(ranges)
    }

    /// [`FrameArena::grow`] without the heap, for an allocator that is the heap: the ranges go to a
    /// function.
    ///
    /// # Errors
    ///
    /// As for [`FrameArena::grow`].
    pub fn grow_by(
        &self,
        bytes: usize,
        mut added: impl FnMut(MemoryRange),
    ) -> Result<(), HostError> {
        let _alone = self.extent().resizing.lock();
        let (nodes, left_min) = {
            let parts = self.extent().parts.lock();
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
            let part = self.extent().parts.lock()[nth];
            let range = range(&part, part.start + part.frames, share);
            let extent = super::extent(self.frame_size, &part, part.frames + share);
            if let Some(more) = self.memory.map_up_to(extent)? {
                self.asked.of_more(&self.memory, more, part.os_node)?;
            }
            self.allocator.add_memory(range)?;
            self.extent().parts.lock()[nth].frames += share;
            added(range);
        }
        Ok(())
    }

    /// Takes memory away: `bytes`, divided evenly over the nodes, each share rounded up to a
    /// pageblock, from the end of what each has. Content there is moved elsewhere by its owner;
    /// with [`Immovable`](freehold::Immovable), all of it must be free. The memory goes back to the
    /// machine. Returns the frames that are gone, of which an LRU of the arena is told by
    /// [`Lru::remove_memory`](freehold_lru::Lru::remove_memory); [`FrameArena::grow`] brings them
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
        let _alone = self.extent().resizing.lock();
        let parts = self.extent().parts.lock().clone();
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
        self.extent().parts.lock().iter_mut().for_each(|part| part.frames -= share);
        Ok(ranges)
    }

    /// The memory that the arena manages now, free or not: a range for each node.
    pub fn ranges(&self) -> Vec<MemoryRange> {
        let parts = self.extent().parts.lock();
        let used = parts.iter().filter(|part| part.frames > FrameCount::ZERO);
        used.map(|part| range(part, part.start, part.frames)).collect()
    }

    /// All that a part of the arena may come to have: the first frame, and the first behind.
    #[doc(hidden)]
    pub fn room(&self, nth: usize) -> Option<(Pfn, Pfn)> {
        let parts = self.extent().parts.lock();
        parts.get(nth).map(|part| (part.start, part.start + part.capacity))
    }

    /// How much memory the arena manages now, free or not.
    pub fn total_frames(&self) -> FrameCount {
        let parts = self.extent().parts.lock();
        parts.iter().map(|part| part.frames).sum()
    }
}

#[cfg(test)]
mod tests {
    use freehold::{Order, Request};

    use crate::{Arena, FrameArena};

    use super::*;

    /// An arena of eight pageblocks that takes its memory for huge pages of this order.
    fn huge(page: Order) -> FrameArena {
        let builder = Arena::builder().bytes(16 << 20).cpus(1).nodes(1);
        let mut frames = builder.min_free(FrameCount::ZERO).build_frames().unwrap();
        frames.pretend_huge(frames.frame_size.bytes_of(page.frames()));
        frames
    }

    /// Every frame of it in use, and written to at both ends.
    fn write_all(frames: &FrameArena) -> Vec<Pfn> {
        let alloc = || frames.alloc(Request::default()).ok();
        let all: Vec<Pfn> = std::iter::from_fn(alloc).collect();
        assert_eq!(all.len() as u64, frames.total_frames().get());
        for &pfn in &all {
            frames.store_byte(pfn, 7);
            frames.store_word(pfn, 511, 7);
        }
        all
    }

    fn is_zero(frames: &FrameArena, pfn: Pfn) -> bool {
        let found = (frames.load_byte(pfn), frames.load_word(pfn, 511));
        assert!(found == (0, 0) || found == (7, 7), "{pfn}: {found:?}");
        found == (0, 0)
    }

    const PAGES: [Order; 4] = [Order::ZERO, Order::new(4), Order::PAGEBLOCK, Order::new(10)];

    #[test]
    fn what_is_discarded_is_zero_where_a_huge_page_stays() {
        for page in PAGES {
            for (first, count) in [(100, 1500), (100, 3), (1024, 1024), (500, 24), (0, 4096)] {
                let frames = huge(page);
                let all = write_all(&frames);
                frames.discard(Pfn::new(first), FrameCount::new(count)).unwrap();
                let discarded = Pfn::new(first)..Pfn::new(first + count);
                for pfn in all {
                    assert_eq!(is_zero(&frames, pfn), discarded.contains(&pfn), "{page}: {pfn}");
                }
            }
        }
    }

    /// A purge takes whole huge pages, and leaves the content of others as it is.
    #[test]
    fn of_huge_pages_those_are_purged_that_are_free_as_a_whole() {
        for page in PAGES {
            let frames = huge(page);
            let (kept, pages) = (Pfn::new(700), page.frames().get());
            for pfn in write_all(&frames).into_iter().filter(|&pfn| pfn != kept) {
                frames.free(pfn, Order::ZERO).unwrap();
            }
            assert_eq!(frames.purge().unwrap(), frames.total_frames() - page.frames());
            for pfn in (0..frames.total_frames().get()).map(Pfn::new) {
                let stays = pfn.get() / pages == kept.get() / pages;
                assert_eq!(is_zero(&frames, pfn), !stays, "{page}: {pfn}");
            }
        }
    }
}
