//! An allocator out of what firmware and boot loader say of memory: lists of bytes in any order,
//! which overlap, touch, and name what is no memory.
//!
//! Source: Linux 6.12 `memblock`, and `e820__memblock_setup`.

use core::fmt;
use core::ops::Range;

use crate::Error;
use crate::allocator::PageAllocator;
use crate::config::{Config, MemoryRange};
use crate::designs::Design;
use crate::memmap::region::Metadata;
use crate::platform::Platform;
use crate::units::{FrameCount, FrameSize, NodeId, Order, Pfn, ZoneKind};

/// What firmware and boot loader say of memory, in bytes. All lists may be in any order, and their
/// entries may overlap, touch, be empty, and name what is no memory.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BootMap<'a> {
    /// What is usable: of e820, of UEFI's memory map, or of a device tree's `memory` nodes.
    pub usable: &'a [Range<u64>],
    /// What is in use already or must not be touched: the kernel, an initial RAM disk, tables of
    /// the firmware, `/memreserve/`. It wins over `usable`.
    pub reserved: &'a [Range<u64>],
    /// The nodes that bytes are near to, as ACPI's SRAT has them; of several entries for a byte,
    /// the first. What is in none is node 0's.
    pub nodes: &'a [(Range<u64>, NodeId)],
    /// Where zones end, by rising addresses. What lies above is [`ZoneKind::Normal`].
    pub zone_ends: &'a [(u64, ZoneKind)],
    /// The metadata lies below: what the page tables of the boot map.
    pub metadata_end: u64,
}

impl<'a> BootMap<'a> {
    /// Memory of node 0 in one zone; the metadata may lie anywhere.
    pub const fn new(usable: &'a [Range<u64>], reserved: &'a [Range<u64>]) -> Self {
        BootMap { usable, reserved, nodes: &[], zone_ends: &[], metadata_end: u64::MAX }
    }

    /// Sets [`BootMap::nodes`].
    #[must_use]
    pub const fn nodes(self, nodes: &'a [(Range<u64>, NodeId)]) -> Self {
        BootMap { nodes, ..self }
    }

    /// Sets [`BootMap::zone_ends`].
    #[must_use]
    pub const fn zone_ends(self, zone_ends: &'a [(u64, ZoneKind)]) -> Self {
        BootMap { zone_ends, ..self }
    }

    /// Sets [`BootMap::metadata_end`].
    #[must_use]
    pub const fn metadata_end(self, metadata_end: u64) -> Self {
        BootMap { metadata_end, ..self }
    }

    /// Writes the memory as a [`Config`] wants it into `ranges`: whole frames of one node and zone,
    /// by rising numbers; ranges of different zones share no pageblock. Looks at all entries for
    /// each range.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`] if an entry ends before it begins; [`Error::TooManyRanges`] if `ranges`
    /// is too short.
    fn write_ranges(
        &self,
        size: FrameSize,
        ranges: &mut [MemoryRange],
    ) -> Result<BootReport, Error> {
        let of_nodes = self.nodes.iter().map(|(bytes, _)| bytes);
        let mut all = self.usable.iter().chain(self.reserved).chain(of_nodes);
        if all.any(|bytes| bytes.start > bytes.end) {
            return Err(Error::BadRange);
        }
        let mut report = BootReport::default();
        let pieces = core::iter::successors(self.piece(0), |piece| self.piece(piece.bytes.end));
        let mut pieces = pieces.peekable();
        while let Some(mut piece) = pieces.next() {
            while let Some(other) = pieces.next_if(|other| piece.is_continued_by(other)) {
                piece.bytes.end = other.bytes.end;
            }
            let before = ranges[..report.ranges].last().copied();
            let mut left = piece.bytes.end - piece.bytes.start;
            if let Some(range) = piece.range_behind(before, size) {
                *ranges.get_mut(report.ranges).ok_or(Error::TooManyRanges)? = range;
                report.ranges += 1;
                report.memory += range.frames;
                left -= range.frames.get() * size.bytes() as u64;
            }
            report.left_out_bytes += left;
        }
        Ok(report)
    }

    /// The first usable bytes at or behind an address, as far as they are of one node and zone
    /// without doubt.
    fn piece(&self, from: u64) -> Option<Piece> {
        let rest = || self.usable.iter().filter(|bytes| bytes.end > from && !bytes.is_empty());
        let start = rest().map(|bytes| bytes.start.max(from)).min()?;
        let end = rest().filter(|bytes| bytes.start <= start).map(|bytes| bytes.end).max()?;
        let edges = self.nodes.iter().flat_map(|(bytes, _)| [bytes.start, bytes.end]);
        let edges = edges.chain(self.zone_ends.iter().map(|&(end, _)| end));
        let end = edges.filter(|&edge| edge > start).fold(end, u64::min);
        let node = self.nodes.iter().find(|(bytes, _)| bytes.contains(&start));
        let zone = self.zone_ends.iter().find(|&&(end, _)| start < end);
        Some(Piece {
            bytes: start..end,
            node: node.map_or(NodeId::new(0), |&(_, node)| node),
            zone: zone.map_or(ZoneKind::Normal, |&(_, zone)| zone),
        })
    }

    /// The first reserved frames at or behind one: all that anything touches, up to a gap.
    fn reserved_from(&self, from: Pfn, size: FrameSize) -> Option<(Pfn, FrameCount)> {
        let bytes = size.bytes() as u64;
        let frames = || {
            let named = self.reserved.iter().filter(|bytes| !bytes.is_empty());
            let touched = named.map(|of| (of.start / bytes, of.end.div_ceil(bytes)));
            touched.filter(|&(_, end)| end > from.get())
        };
        let first = frames().map(|(start, _)| start.max(from.get())).min()?;
        let mut end = first;
        while let Some(further) =
            frames().filter(|of| of.0 <= end && of.1 > end).map(|of| of.1).max()
        {
            end = further;
        }
        Some((Pfn::new(first), FrameCount::new(end - first)))
    }

    /// All reserved frames, each once, by rising numbers.
    fn reserved_frames(&self, size: FrameSize) -> impl Iterator<Item = (Pfn, FrameCount)> {
        let behind = move |&(first, count): &(Pfn, FrameCount)| {
            self.reserved_from(first.offset(count), size)
        };
        core::iter::successors(self.reserved_from(Pfn::new(0), size), behind)
    }
}

/// Usable bytes of one node and zone.
struct Piece {
    bytes: Range<u64>,
    node: NodeId,
    zone: ZoneKind,
}

impl Piece {
    fn is_continued_by(&self, other: &Piece) -> bool {
        self.bytes.end == other.bytes.start && (self.node, self.zone) == (other.node, other.zone)
    }

    /// The whole frames of it, without those in the last pageblock of the range before it if that
    /// is another zone's.
    fn range_behind(&self, before: Option<MemoryRange>, size: FrameSize) -> Option<MemoryRange> {
        let range = MemoryRange::within(self.bytes.start, self.bytes.end, size)?;
        let range = range.on_node(self.node).in_zone(self.zone);
        let others = before.filter(|of| (of.node, of.zone) != (range.node, range.zone));
        let pageblock = Order::PAGEBLOCK.frames().get();
        let start = others.map_or(0, |of| of.end().get().next_multiple_of(pageblock));
        let start = Pfn::new(start).max(range.start);
        let frames = range.end().get().checked_sub(start.get()).filter(|&frames| frames > 0)?;
        Some(MemoryRange { start, frames: FrameCount::new(frames), ..range })
    }
}

/// What [`PageAllocator::boot`] made of a map. Displays as a line for the kernel's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BootReport {
    /// How many ranges of memory it wrote.
    pub ranges: usize,
    /// How many frames these have.
    pub memory: FrameCount,
    /// Where the metadata lies.
    pub metadata: Option<MemoryRange>,
    /// How many frames of the memory are reserved, beside the metadata.
    pub reserved: FrameCount,
    /// How many reserved frames are no memory; nothing was done about them.
    pub reserved_elsewhere: FrameCount,
    /// Usable bytes that no frame has: parts of frames at the edges of entries, and the end of a
    /// pageblock in which another zone begins.
    pub left_out_bytes: u64,
}

impl fmt::Display for BootReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} ranges", self.memory, self.ranges)?;
        if let Some(metadata) = self.metadata {
            write!(f, ", {} from {} on for metadata", metadata.frames, metadata.start)?;
        }
        write!(f, ", {} reserved", self.reserved)?;
        if self.reserved_elsewhere > FrameCount::ZERO {
            write!(f, ", and {} where no memory is", self.reserved_elsewhere)?;
        }
        match self.left_out_bytes {
            0 => Ok(()),
            bytes => write!(f, "; {bytes} bytes left out"),
        }
    }
}

impl<P: Platform, D: Design<P>> PageAllocator<P, D> {
    /// Builds an allocator out of a map of firmware, with its metadata in that memory, and reserves
    /// the metadata and all that is in use.
    ///
    /// `config` says all but the memory. `ranges` is room for the ranges, of which the report says
    /// how many there are: as many as the map has entries of `usable`, twice those of `nodes`, and
    /// those of `zone_ends` always suffice. `at` gives access to the frames that it is called for,
    /// which are in use by nothing else.
    ///
    /// Cost: as of [`PageAllocator::new`] and [`PageAllocator::reserve`]; looks at the whole map
    /// for each entry of it.
    ///
    /// ```
    /// use freehold::designs::Freehold;
    /// # use freehold::platform::{Native, OneCpu};
    /// use freehold::{BootMap, Config, FrameCount, MemoryRange, Metadata, NodeId, PageAllocator};
    /// use freehold::{Pfn, ZoneKind};
    /// # use freehold::FrameSize;
    ///
    /// # type Kernel = Native<OneCpu>;
    /// # let map_frames = |place: MemoryRange| {
    /// #     let bytes = FrameSize::MIN.bytes_of(place.frames) + 64;
    /// #     Metadata::from_static(vec![core::mem::MaybeUninit::uninit(); bytes].leak())
    /// # };
    /// let usable = [0x10_0000..0x800_0000, 0..0x9_fc00, 0x7f0_0000..0x880_0400];
    /// let reserved = [0..0x1000, 0x10_0000..0x34_5678, 0xfee0_0000..0xfee0_1000];
    /// let map = BootMap::new(&usable, &reserved).zone_ends(&[(0x100_0000, ZoneKind::Dma)]);
    /// let cpus = [NodeId::new(0)];
    /// let mut ranges = [MemoryRange::new(Pfn::new(0), FrameCount::ZERO); 8];
    /// let (frames, report) = PageAllocator::<Kernel, Freehold<Kernel>>::boot(
    ///     Kernel::default(),
    ///     &Config::new(&[], &cpus),
    ///     &Default::default(),
    ///     &map,
    ///     &mut ranges,
    ///     map_frames,
    /// )?;
    /// assert_eq!((report.ranges, report.left_out_bytes), (3, 0xc00 + 0x400));
    /// assert_eq!(report.reserved_elsewhere, FrameCount::new(1));
    /// assert!(!frames.is_free(Pfn::new(0)) && frames.is_free(Pfn::new(1)));
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`] if an entry ends before it begins; [`Error::TooManyRanges`] if `ranges`
    /// is too short; [`Error::RangeOverlaps`] if `config` has ranges of its own;
    /// [`Error::OutOfMemory`] if there is no room for the metadata; and those of
    /// [`PageAllocator::new`].
    pub fn boot(
        platform: P,
        config: &Config<'_>,
        settings: &D::Settings,
        map: &BootMap<'_>,
        ranges: &mut [MemoryRange],
        at: impl FnOnce(MemoryRange) -> Metadata,
    ) -> Result<(Self, BootReport), Error> {
        if !config.ranges.is_empty() {
            return Err(Error::RangeOverlaps);
        }
        let size = config.frame_size;
        let mut report = map.write_ranges(size, ranges)?;
        let config = Config { ranges: &ranges[..report.ranges], ..*config };
        let layout = Self::layout(&config, settings)?;
        let end = Pfn::new(map.metadata_end / size.bytes() as u64);
        let low = config.ranges.iter().filter_map(|range| {
            let end = range.end().min(end).get().checked_sub(range.start.get())?;
            Some(MemoryRange { frames: FrameCount::new(end), ..*range })
        });
        let place = layout.find_place(low, || map.reserved_frames(size), size)?;
        report.metadata = Some(place);
        let frames = Self::new(platform, &config, settings, at(place))?;
        frames.reserve(place.start, place.frames)?;
        for (first, count) in map.reserved_frames(size) {
            let mut elsewhere = count;
            for range in config.ranges {
                let (start, end) = (first.max(range.start), first.offset(count).min(range.end()));
                if start < end {
                    let part = FrameCount::new(end.get() - start.get());
                    frames.reserve(start, part)?;
                    report.reserved += part;
                    elsewhere -= part;
                }
            }
            report.reserved_elsewhere += elsewhere;
        }
        Ok((frames, report))
    }
}
