//! Spans of frames, for allocators that serve programs.

use std::time::Duration;

use freehold::designs::Freehold;
use freehold::platform::Platform;
use freehold::{
    Design, Error, FrameCount, FrameStatus, Immovable, MigrateType, Order, Pfn, RangeRequest,
    Request,
};

// By `super`: `tests/models` has its own of all these, and runs this module under loom.
use super::clock::now_ms;
use super::{ForkGuard, FrameArena, Host, HostError};

mod ages;
mod bits;
mod due;
mod falls;
mod purge;
mod refusal;
mod used;

use ages::Ages;
pub(crate) use bits::FrameBits;
use due::Purging;
pub use purge::{PurgeAges, Purged};
use refusal::Refusal;

/// The largest spans that are cut out of a block: above, a range of exactly the length costs less
/// than a block of which up to half is freed again.
const CUT_MAX: Order = Order::PAGEBLOCK;

/// The largest blocks of small spans, which have pageblocks of their own: so what they leave free
/// between them does not break what larger spans need.
const SMALL_MAX: Order = Order::new(4);

/// How often a place is asked for while nothing there is in use: far longer than a call takes.
const PLACE_TRIES_MAX: usize = 10_000;

const PAGEBLOCK: FrameCount = Order::PAGEBLOCK.frames();

/// The words of the heap, which are the platform's.
type U32 = <Host as Platform>::U32;
type U64 = <Host as Platform>::U64;

/// What allocators for programs call their back end: it allocates spans of any number of frames,
/// knows which of them are zero, and gives free memory back to the machine in batches, by age.
///
/// It is the ground under mallocs that are built on spans (tcmalloc's `PageHeap`, jemalloc's
/// extents): [`jemalloc`](crate::jemalloc) is put on it. It has no lock of its own but for purges,
/// and calls use no heap.
///
/// ```
/// use freehold_malloc::freehold_host::{Arena, FrameCount};
/// use freehold_malloc::{HeapSettings, PageHeap};
///
/// let arena = Arena::builder().bytes(64 << 20).min_free(FrameCount::ZERO).build_frames()?;
/// let heap = PageHeap::new(arena, HeapSettings::default())?;
/// let span = heap.alloc(FrameCount::new(5), FrameCount::new(1))?;
/// assert!(span.is_zeroed); // Nothing has been written there yet.
/// let address = heap.arena().address_of(span.first);
/// # let _ = address;
/// heap.free(span.first, FrameCount::new(2))?; // The rest stays allocated.
/// heap.free(span.first + FrameCount::new(2), FrameCount::new(3))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Memory
///
/// The heap begins with the memory that its arena has. When that is full, it adds some, as long as
/// the arena has capacity left: so an arena may reserve far more than a short program ever uses.
///
/// # What is zero
///
/// A frame is known to be zero until it has been freed for the first time, and again from a purge
/// until its next free. An allocator whose user wants zeroes (`calloc`) need not clear such a span.
/// Of an arena over a file, or over a mapping of the user's, nothing is known at first.
#[derive(Debug)]
pub struct PageHeap<D: Design<Host> = Freehold<Host>> {
    arena: FrameArena<D>,
    /// Frames that may hold something other than zero, once they are free.
    written: FrameBits<U64>,
    ages: Ages<U32>,
    by_calls: Option<Purging<U64>>,
    refusal: Option<Refusal<U64>>,
    single_calls: bool,
}

/// What a [`PageHeap`] does by itself. By default it does nothing of this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapSettings {
    /// Calls of [`PageHeap::alloc`] and [`PageHeap::free`] purge the heap, whichever is the first
    /// after each interval: so a program needs no thread for it, and one that does not allocate
    /// keeps what it has. When 32 MiB less are in use than before, or a sixteenth less if that is
    /// more, give or take 2 MiB for each CPU, pageblocks that are free as a whole go at once.
    /// Memory that rises again counts once an interval. If `None`, only [`PageHeap::purge`] does.
    ///
    /// Costs each call a look at a clock of the kernel's that needs no system call, and the one
    /// that is the first, the purge.
    pub purge_every: Option<(Duration, PurgeAges)>,
    /// When use falls, the free frames of other pageblocks go too. Blocks that the malloc keeps may
    /// leave none free as a whole; but it breaks huge pages, as [`PurgeAges::part`] does.
    pub parts_at_falls: bool,
    /// [`PageHeap::alloc`] refuses without a search what a search has just failed for, for this
    /// long, to a few milliseconds: for users that have other memory to go to when the heap is
    /// full. A span that is freed and would do is found at once, one that smaller ones join to only
    /// after that time. If `None`, each call searches.
    pub refuse_for: Option<Duration>,
    /// A purge makes a call of `madvise(2)` for each stretch, and none of `process_madvise(2)`: for
    /// programs that a filter of system calls ends when they make one that it does not know. A
    /// filter that answers with an error needs no such care.
    pub single_calls: bool,
}

/// Contiguous frames, as [`PageHeap`] allocates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first frame.
    pub first: Pfn,
    /// Whether all of it is known to read as zero.
    pub is_zeroed: bool,
}

impl<D: Design<Host>> PageHeap<D> {
    /// A heap over an arena, all of whose memory is free. Nothing else allocates there.
    ///
    /// Costs a bit for each frame of the capacity.
    ///
    /// # Errors
    ///
    /// [`HostError::ForkHandlers`], as for arenas.
    pub fn new(arena: FrameArena<D>, settings: HeapSettings) -> Result<Self, HostError> {
        let frames = FrameCount::from_bytes(arena.capacity_bytes(), arena.frame_size());
        let cpus = arena.allocator().cpus();
        let by_calls = |every| Purging::new(every, settings.parts_at_falls, cpus);
        Ok(PageHeap {
            written: FrameBits::new(frames, !arena.is_new_memory()),
            ages: Ages::new(frames, arena.purge_unit()),
            by_calls: settings.purge_every.map(by_calls),
            arena,
            refusal: settings.refuse_for.map(Refusal::new),
            single_calls: settings.single_calls,
        })
    }

    /// What the purges of [`HeapSettings::purge_every`] have done so far.
    pub fn purged(&self) -> Purged {
        self.by_calls.as_ref().map(Purging::done).unwrap_or_default()
    }

    fn purge_if_due(&self) {
        if let Some(purging) = &self.by_calls {
            purging.purge_if_due(self);
        }
    }

    /// What [`HeapView::note_blocks`](crate::HeapView::note_blocks) does.
    pub(crate) fn note_blocks(&self, bytes: i64) -> bool {
        self.by_calls.as_ref().is_some_and(|purging| purging.note_blocks(self, bytes))
    }

    fn note_use(&self, frames: i64) {
        if let Some(purging) = &self.by_calls {
            purging.note_use(self, frames);
        }
    }

    /// The arena. Its frames are this heap's: callers may look, but not allocate or free.
    pub fn arena(&self) -> &FrameArena<D> {
        self.arena.ensure_repaired();
        &self.arena
    }

    /// Allocates a span whose first frame is at a multiple of `align`, a power of two, in the
    /// arena; in memory too, as far as [`FrameArena`] says.
    ///
    /// Up to a pageblock (2 MiB of frames of 4 KiB) it costs a block and a free for each set bit of
    /// what is left of it; above, see [`PageAllocator::alloc_range`].
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`] for no frames; [`Error::BadAlignment`]; [`Error::OutOfMemory`],
    /// [`Error::RangeBusy`] or [`Error::BelowWatermark`] if there are no such frames.
    ///
    /// [`PageAllocator::alloc_range`]: freehold::PageAllocator::alloc_range
    pub fn alloc(&self, frames: FrameCount, align: FrameCount) -> Result<Span, Error> {
        if frames == FrameCount::ZERO {
            return Err(Error::BadRange);
        }
        if !align.get().is_power_of_two() {
            return Err(Error::BadAlignment);
        }
        self.arena.ensure_repaired();
        self.purge_if_due();
        if self.refusal.as_ref().is_some_and(|refusal| refusal.holds_for(frames)) {
            return Err(Error::OutOfMemory);
        }
        let block = Order::covering(frames.max(align));
        let find = || match block <= CUT_MAX {
            true => self.cut(block, frames),
            false => self.alloc_range(frames, align),
        };
        let mut found = find();
        while found.is_err() && self.grow(frames.max(align)) {
            found = find();
        }
        if block <= CUT_MAX {
            // There may be room for the span and not for the block.
            found = found.or_else(|_| self.alloc_range(frames, align));
        }
        if let (Err(_), Some(refusal)) = (&found, &self.refusal) {
            refusal.note(frames, align);
        }
        found.map(|first| self.span(first, frames))
    }

    /// Allocates the frames from `first` on, so that a span can grow in place, or for a user that
    /// chooses places itself: frames that are free or being purged can be had, and those of the
    /// arena's capacity, which is added up to there.
    ///
    /// # Errors
    ///
    /// [`Error::RangeBusy`] if any of the frames is allocated, [`Error::ForeignFrame`] if the arena
    /// cannot be added to, and the other errors of
    /// [`PageAllocator::alloc_range`](freehold::PageAllocator::alloc_range) at a place. It costs
    /// little if the first or the last frame is in use.
    pub fn alloc_at(&self, first: Pfn, frames: FrameCount) -> Result<Span, Error> {
        let end = first.get().saturating_add(frames.get());
        if frames == FrameCount::ZERO || end > self.capacity().get() {
            return Err(Error::BadRange);
        }
        self.arena.ensure_repaired();
        let allocator = self.arena.allocator();
        let request = RangeRequest::new(frames).at(first);
        let seems_free = || allocator.is_free(first) && allocator.is_free(Pfn::new(end - 1));
        if seems_free()
            && let Ok(first) = allocator.alloc_range(request, &Immovable)
        {
            return Ok(self.span(first, frames));
        }
        if allocator.status(Pfn::new(end - 1)) == FrameStatus::Foreign
            && !self.grow_to(Pfn::new(end))
        {
            return Err(Error::ForeignFrame);
        }
        // No purge has frames in hand while this is held. Another thread may be taking a neighbour,
        // which for a moment keeps others out of the pageblock.
        let _no_purge = self.arena.forks_wait();
        let mut taken = Err(Error::RangeBusy);
        for _ in 0..PLACE_TRIES_MAX {
            if !seems_free() {
                break;
            }
            taken = allocator.alloc_range(request, &Immovable);
            let is_in_use = || (first.get()..end).any(|frame| !allocator.is_free(Pfn::new(frame)));
            let may_change = matches!(taken, Err(Error::RangeBusy | Error::OutOfMemory));
            if !may_change || is_in_use() {
                break;
            }
            allocator.platform().relax();
        }
        taken.map(|first| self.span(first, frames))
    }

    /// Whether frames are known to read as zero: an answer to their owner, or while none of them is
    /// in use.
    ///
    /// # Panics
    ///
    /// If they do not lie in the arena's capacity.
    pub fn is_zeroed(&self, first: Pfn, frames: FrameCount) -> bool {
        let end = first.get().checked_add(frames.get());
        let capacity = self.capacity();
        assert!(
            end.is_some_and(|end| end <= capacity.get()),
            "{frames} from {first} on: the heap has {capacity}",
        );
        !self.written.any(first, frames)
    }

    /// Frees any contiguous frames of one node: a span, a part of one, or neighbours together.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::free_range`](freehold::PageAllocator::free_range); nothing has
    /// been freed then.
    pub fn free(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        let end = first.get().saturating_add(frames.get());
        if frames == FrameCount::ZERO || end > self.capacity().get() {
            return Err(Error::BadRange);
        }
        self.arena.ensure_repaired();
        // Before the frames are free, for from then on they are others'.
        self.written.set(first, frames);
        let allocator = self.arena.allocator();
        match allocator.status(first) {
            FrameStatus::Allocated { first: block, order }
                if block == first && order.frames() == frames =>
            {
                self.arena.free(first, order)
            }
            _ => allocator.free_range(first, frames),
        }?;
        if let Some(refusal) = &self.refusal {
            refusal.note_free(frames);
        }
        self.ages.note_free(first, frames);
        self.purge_if_due();
        self.note_use((frames.get() as i64).wrapping_neg());
        Ok(())
    }

    /// A block, of which what is not wanted is freed at once.
    fn cut(&self, block: Order, frames: FrameCount) -> Result<Pfn, Error> {
        // Nothing here can be moved, so neither type is `Movable`: ranges are looked for elsewhere.
        let group = match block <= SMALL_MAX {
            true => MigrateType::Unmovable,
            false => MigrateType::Reclaimable,
        };
        let request = Request::new(block).migratetype(group);
        let first = self.arena.alloc(request)?;
        let (mut at, end) = (first + frames, first + block.frames());
        while at < end {
            // The largest blocks that begin here: what is left is a suffix of a block.
            let order = Order::new((at - Pfn::new(0)).get().trailing_zeros() as u8);
            let freed = self.arena.free(at, order);
            debug_assert_eq!(freed, Ok(()), "the rest of a block of our own");
            at += order.frames();
        }
        Ok(first)
    }

    fn alloc_range(&self, frames: FrameCount, align: FrameCount) -> Result<Pfn, Error> {
        let allocator = self.arena.allocator();
        let request = RangeRequest::new(frames).align(align).soonest();
        let first = allocator.alloc_range(request, &Immovable);
        first.or_else(|_| {
            // Frames that CPUs keep on their lists may be all that is in the way.
            allocator.drain_all();
            allocator.alloc_range(request, &Immovable)
        })
    }

    /// Adds memory, if the arena has some of its capacity left: an eighth of what it has, and
    /// enough for so many frames, or all that is left.
    fn grow(&self, frames: FrameCount) -> bool {
        frames <= self.capacity() && self.grow_by(frames + PAGEBLOCK)
    }

    /// Adds memory until the part of the arena in which the frame before `end` lies goes up to it.
    fn grow_to(&self, end: Pfn) -> bool {
        let missing = || {
            let part = (0..).map_while(|nth| Some((self.arena.room(nth)?, self.arena.part(nth)?)));
            let ((_, limit), (_, now)) = part.take_while(|((start, _), _)| *start < end).last()?;
            let nodes = (0..).map_while(|nth| self.arena.room(nth)).count() as u64;
            let frames = end.get().saturating_sub(now.get());
            (end <= limit).then(|| FrameCount::new(frames * nodes))
        };
        loop {
            match missing() {
                Some(FrameCount::ZERO) => return true,
                Some(frames) if self.grow_by(frames) => {}
                _ => return false,
            }
        }
    }

    /// Adds so many frames, or an eighth of what the arena has if it can be had, or all that is
    /// left if that is less.
    fn grow_by(&self, frames: FrameCount) -> bool {
        let size = self.arena.frame_size();
        let eighth = FrameCount::new(self.arena.total_frames().get() / 8);
        let add = |bytes| self.arena.grow_by(bytes, |_| {});
        match add(size.bytes_of(frames.max(eighth))) {
            Err(HostError::CapacityExceeded { left, .. }) if left > 0 => add(left).is_ok(),
            // Beyond a limit of the process, perhaps, of which some is left.
            Err(HostError::Map { .. }) if frames < eighth => add(size.bytes_of(frames)).is_ok(),
            done => done.is_ok(),
        }
    }

    /// What was allocated just now.
    fn span(&self, first: Pfn, frames: FrameCount) -> Span {
        self.note_use(frames.get() as i64);
        Span { first, is_zeroed: self.is_zeroed(first, frames) }
    }

    fn capacity(&self) -> FrameCount {
        FrameCount::from_bytes(self.arena.capacity_bytes(), self.arena.frame_size())
    }
}
