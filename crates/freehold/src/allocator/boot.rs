//! Before there is an allocator, and before it serves: a place for the metadata in a boot memory
//! map, and what is in use already.

use crate::Error;
use crate::allocator::PageAllocator;
use crate::compact::Immovable;
use crate::config::MemoryRange;
use crate::designs::Design;
use crate::memmap::region::MetadataLayout;
use crate::platform::Platform;
use crate::request::RangeRequest;
use crate::units::{FrameCount, FrameSize, Order, Pfn, ZoneKind};

impl MetadataLayout {
    /// A place for this metadata in a boot memory map: the highest one in ordinary memory that
    /// nothing `reserved` lies in (a kernel's image, an initial RAM disk), or in any other memory
    /// if there is none. The frames remain part of the map: build the allocator, and then
    /// [`reserve`](PageAllocator::reserve) them as everything else that is in use.
    ///
    /// ```
    /// use freehold::designs::Freehold;
    /// # use freehold::platform::{Native, OneCpu};
    /// use freehold::{Config, FrameCount, FrameSize, MemoryRange, NodeId, PageAllocator, Pfn};
    ///
    /// # type Kernel = Native<OneCpu>;
    /// let size = FrameSize::MIN;
    /// let map = [
    ///     MemoryRange::within(0, 0x9_fc00, size).expect("more than a frame"),
    ///     MemoryRange::within(0x10_0000, 0x800_0000, size).expect("more than a frame"),
    /// ];
    /// let initrd = (Pfn::from_address(0x7f7_d000, size), FrameCount::from_bytes(0x8_1234, size));
    /// let settings = Default::default();
    /// let cpus = [NodeId::new(0)];
    /// let config = Config::new(&map, &cpus);
    /// let layout = PageAllocator::<Kernel, Freehold<Kernel>>::layout(&config, &settings)?;
    /// let place = layout.place_in(&map, &[initrd], size)?;
    /// assert!(place.frames > FrameCount::new(1), "too much for what is behind the RAM disk");
    /// assert_eq!(place.start + place.frames, initrd.0, "so it ends where the RAM disk starts");
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if no part of a range is large enough.
    pub fn place_in(
        &self,
        ranges: &[MemoryRange],
        reserved: &[(Pfn, FrameCount)],
        frame_size: FrameSize,
    ) -> Result<MemoryRange, Error> {
        self.find_place(ranges.iter().copied(), || reserved.iter().copied(), frame_size)
    }

    /// As `place_in`, for what comes from anywhere.
    pub(super) fn find_place<R: Iterator<Item = (Pfn, FrameCount)>>(
        &self,
        ranges: impl Iterator<Item = MemoryRange>,
        reserved: impl Fn() -> R,
        frame_size: FrameSize,
    ) -> Result<MemoryRange, Error> {
        let frames = FrameCount::from_bytes(self.size(), frame_size);
        let places = ranges.filter_map(|range| {
            let start = highest_place(&range, frames, &reserved)?;
            Some(MemoryRange { start, frames, ..range })
        });
        let best = places.max_by_key(|place| (place.zone == ZoneKind::Normal, place.start));
        best.ok_or(Error::OutOfMemory)
    }
}

/// The highest place for so many frames in a range, with nothing reserved in it.
fn highest_place<R: Iterator<Item = (Pfn, FrameCount)>>(
    range: &MemoryRange,
    frames: FrameCount,
    reserved: impl Fn() -> R,
) -> Option<Pfn> {
    let mut end = range.end();
    loop {
        let start = Pfn::new(end.get().checked_sub(frames.get())?);
        if start < range.start {
            return None;
        }
        let is_in_the_way =
            |&(first, count): &(Pfn, FrameCount)| first < end && first.offset(count) > start;
        match reserved().filter(is_in_the_way).map(|(first, _)| first).min() {
            Some(first) => end = first,
            None => return Some(start),
        }
    }
}

impl<P: Platform, D: Design<P>> PageAllocator<P, D> {
    /// Takes frames that something uses already out of circulation: the metadata, a kernel's image,
    /// a RAM disk, a frame buffer. They count as allocated, as unmovable content, and may be of
    /// several zones; [`PageAllocator::free_range`] frees them, zone by zone. Watermarks do not
    /// matter. Call it before anything else is allocated.
    ///
    /// Cost: as for [`PageAllocator::alloc_range`] with a given place.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`] for no frames; [`Error::OutsideSpan`] beyond the largest blocks that the
    /// memory touches; [`Error::ForeignFrame`] if there is a hole; [`Error::RangeBusy`] if one of
    /// the frames is allocated. The call has then changed nothing.
    pub fn reserve(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        let (mut at, mut left) = (first, frames);
        loop {
            let result = self.reserve_some(at, left).inspect_err(|_| {
                let done = frames - left;
                if done > FrameCount::ZERO {
                    self.unreserve(first, done);
                }
            })?;
            if result == left {
                return Ok(());
            }
            (at, left) = (at + result, left - result);
        }
    }

    /// Reserves the first frames of a range: those of one zone; returns how many.
    fn reserve_some(&self, first: Pfn, frames: FrameCount) -> Result<FrameCount, Error> {
        // Zones end where pageblocks do.
        let pageblock = Order::PAGEBLOCK.frames();
        let to_end = FrameCount::new(pageblock.get() - first.get() % pageblock.get());
        for some in [frames, to_end.min(frames)] {
            match self.alloc_range(RangeRequest::exactly(first, some), &Immovable) {
                Ok(_) => return Ok(some),
                // No zone has all of them.
                Err(Error::OutOfMemory) => {}
                Err(error) => return Err(error),
            }
        }
        // All of one zone, so it was free memory that lacked.
        Err(Error::RangeBusy)
    }

    /// Frees what a call has reserved so far: a first part up to the end of a pageblock, and whole
    /// pageblocks.
    fn unreserve(&self, first: Pfn, frames: FrameCount) {
        let (mut at, mut left) = (first, frames);
        while left > FrameCount::ZERO {
            let pageblock = Order::PAGEBLOCK.frames();
            let to_end = FrameCount::new(pageblock.get() - at.get() % pageblock.get());
            let some = to_end.min(left);
            let freed = self.free_range(at, some);
            debug_assert_eq!(freed, Ok(()), "{some} from {at}");
            (at, left) = (at + some, left - some);
        }
    }
}
