//! Giving the memory of free frames back to the machine.

use freehold::Watermark;
use freehold::{Design, Error, FrameCount, FrameStatus, Immovable, Order, Pfn, RangeRequest};

// By `super`: the models of `freehold-malloc` run this under loom.
use super::{FrameArena, Host, HostError};

const ONE: FrameCount = FrameCount::new(1);
const PAGEBLOCK: FrameCount = Order::PAGEBLOCK.frames();

/// The part of an arena that a purge has in hand at a time: a 64th, at least a pageblock, and at
/// least a huge page.
const SHARE: u64 = 64;

impl<D: Design<Host>> FrameArena<D> {
    /// Gives the memory of free frames back to the machine, and returns of how many.
    ///
    /// Goes through the arena once, from the lowest frame on, and takes each stretch of free frames
    /// out of the allocator while it is given back; so no call is given a frame while it is purged.
    /// A stretch is at most a 64th of the arena, or a pageblock, and none is taken from what the
    /// low watermark keeps back. Of memory in huge pages, those go of which all frames are free.
    /// Other calls find that much less free memory at a time, and stay out of the pageblocks
    /// concerned. Frames that come free behind the purge are left for the next one. Purged frames
    /// read as zero and take memory again when they are written.
    ///
    /// Costs a range and a system call for each stretch, and a look at each frame of pageblocks
    /// that are in use in part. Uses no heap, so an allocator that serves the whole program may
    /// call it. In statistics, stretches count as ranges that were allocated and freed.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses to take a stretch, for example because the
    /// memory is locked. What was purged before stays purged, and all frames are free again.
    pub fn purge(&self) -> Result<FrameCount, HostError> {
        // Frames on the lists of CPUs go back first, so that they merge into large blocks.
        self.allocator.drain_all();
        let unit = self.purge_unit().frames();
        let stretch_max = FrameCount::new(self.total_frames().get() / SHARE).max(unit);
        let mut purged = FrameCount::ZERO;
        for nth in 0.. {
            let Some((mut at, end)) = self.part(nth) else { return Ok(purged) };
            while at < end {
                let whole = self.purge_whole(at, stretch_max.min(end - at))?;
                purged += whole;
                at += whole;
                if whole > FrameCount::ZERO {
                    continue;
                }
                let to_end = unit.get() - at.get() % unit.get();
                let unit_end = end.min(at + FrameCount::new(to_end));
                while let Some((first, frames)) = self.free_run(at, unit_end) {
                    at = first + frames;
                    let (first, frames) = self.whole_pages(first, frames);
                    if frames > FrameCount::ZERO && self.purge_stretch(first, frames)? {
                        purged += frames;
                    }
                }
                at = unit_end;
            }
        }
        Ok(purged)
    }

    /// Purges units that seem to be free as a whole, without a look at each of their frames: those
    /// from here on, up to so many frames. Returns how many were purged.
    fn purge_whole(&self, at: Pfn, most: FrameCount) -> Result<FrameCount, HostError> {
        let (mut frames, unit) = (FrameCount::ZERO, self.purge_unit());
        while at.is_aligned(unit)
            && frames + unit.frames() <= most
            && self.seems_free(at + frames, unit)
        {
            frames += unit.frames();
        }
        // Perhaps fewer are free.
        while frames > FrameCount::ZERO && !self.purge_stretch(at, frames)? {
            let units = frames.get() / 2 / unit.frames().get();
            frames = FrameCount::new(units * unit.frames().get());
        }
        Ok(frames)
    }

    /// What purges look at as a whole: a pageblock, or a huge page if that is larger.
    #[doc(hidden)]
    pub fn purge_unit(&self) -> Order {
        self.page_order().max(Order::PAGEBLOCK)
    }

    /// Whether all of a unit seems to be free.
    #[doc(hidden)]
    pub fn seems_free(&self, first: Pfn, unit: Order) -> bool {
        let pageblocks = (0..unit.frames().get()).step_by(PAGEBLOCK.get() as usize);
        pageblocks.map(FrameCount::new).all(|offset| self.allocator.is_free(first + offset))
    }

    /// Those of contiguous frames that go back to the machine, which takes whole pages.
    #[doc(hidden)]
    pub fn whole_pages(&self, first: Pfn, frames: FrameCount) -> (Pfn, FrameCount) {
        let (page, end) = (self.page_order().frames().get(), first + frames);
        let start = end.min(Pfn::new(first.get().next_multiple_of(page)));
        (start, FrameCount::new((end.get() / page * page).saturating_sub(start.get())))
    }

    /// The first frames in a row from `at` on, and before `end`, that seem to be free.
    #[doc(hidden)]
    pub fn free_run(&self, mut at: Pfn, end: Pfn) -> Option<(Pfn, FrameCount)> {
        while at < end {
            match self.allocator.status(at) {
                FrameStatus::Free => {
                    let mut frames = ONE;
                    while at + frames < end && self.allocator.is_free(at + frames) {
                        frames += ONE;
                    }
                    return Some((at, frames));
                }
                FrameStatus::Allocated { first, order } => {
                    at = (first + order.frames()).max(at + ONE);
                }
                _ => at += ONE,
            }
        }
        None
    }

    /// Gives free frames back to the machine; returns whether all of them were free.
    fn purge_stretch(&self, first: Pfn, frames: FrameCount) -> Result<bool, HostError> {
        let request = RangeRequest::new(frames).at(first).watermark(Watermark::Low);
        if self.allocator.alloc_range(request, &Immovable).is_err() {
            return Ok(false);
        }
        let discarded = self.discard(first, frames);
        let freed: Result<(), Error> = self.allocator.free_range(first, frames);
        debug_assert_eq!(freed, Ok(()), "freeing {frames} from {first}");
        discarded.map(|()| true)
    }

    /// The first frame of a part of the arena, and the first behind.
    #[doc(hidden)]
    pub fn part(&self, nth: usize) -> Option<(Pfn, Pfn)> {
        let parts = self.extent().parts.lock();
        parts.get(nth).map(|part| (part.start, part.start + part.frames))
    }
}
