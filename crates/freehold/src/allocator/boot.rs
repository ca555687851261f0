//! Metadata before there is an allocator: taken out of a boot memory map.

use crate::Error;
use crate::config::MemoryRange;
use crate::memmap::region::MetadataLayout;
use crate::units::{FrameCount, FrameSize, ZoneKind};

impl MetadataLayout {
    /// Takes the frames for this metadata out of a boot memory map: from the end of the highest
    /// range of ordinary memory that has more than enough, or of any other range if none has.
    /// Returns what it took; what is left in `ranges` is for
    /// [`PageAllocator::new`](crate::PageAllocator::new), whose metadata is then at most as large
    /// as that of the whole map.
    ///
    /// ```
    /// use freehold::designs::ZoneLock;
    /// # use freehold::platform::{Native, OneCpu};
    /// use freehold::{Config, FrameCount, FrameSize, MemoryRange, NodeId, PageAllocator, Pfn};
    ///
    /// # type Kernel = Native<OneCpu>;
    /// let mut map = [
    ///     MemoryRange::new(Pfn::new(0), FrameCount::new(0x9f)),
    ///     MemoryRange::new(Pfn::new(0x100), FrameCount::new(0x7f00)),
    /// ];
    /// let settings = Default::default();
    /// let config = Config::new(&map, &[NodeId::new(0)]);
    /// let layout = PageAllocator::<Kernel, ZoneLock<Kernel>>::layout(&config, &settings)?;
    /// let taken = layout.take_from(&mut map, FrameSize::MIN)?;
    /// assert_eq!(taken.start + taken.frames, Pfn::new(0x8000));
    /// assert_eq!(map[1].start + map[1].frames, taken.start);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if no range has so many frames and one more.
    pub fn take_from(
        &self,
        ranges: &mut [MemoryRange],
        frame_size: FrameSize,
    ) -> Result<MemoryRange, Error> {
        let frames = FrameCount::from_bytes(self.size(), frame_size);
        let fits = ranges.iter_mut().filter(|range| range.frames > frames);
        let best = fits.max_by_key(|range| (range.zone == ZoneKind::Normal, range.start));
        let range = best.ok_or(Error::OutOfMemory)?;
        range.frames -= frames;
        Ok(MemoryRange { start: range.end(), frames, ..*range })
    }
}
