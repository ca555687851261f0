//! What memory there is, and who is near it.

use crate::Error;
use crate::geometry::CPUS_MAX;
use crate::units::{FrameCount, FrameSize, NodeId, Order, Pfn, ZoneKind};

/// A stretch of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// The first frame. It need not be aligned.
    pub start: Pfn,
    /// How many frames it has.
    pub frames: FrameCount,
    /// The node that it is near to.
    pub node: NodeId,
    /// The class of zone that it belongs to.
    pub zone: ZoneKind,
}

impl MemoryRange {
    /// Ordinary memory of node 0.
    pub const fn new(start: Pfn, frames: FrameCount) -> Self {
        MemoryRange { start, frames, node: NodeId::new(0), zone: ZoneKind::Normal }
    }

    /// The frames that lie within the bytes from `start` up to `end`, as a boot loader's map gives
    /// them: a frame of which only a part is memory is left out. `None` if there is no whole one.
    pub const fn within(start: u64, end: u64, size: FrameSize) -> Option<Self> {
        let bytes = size.bytes() as u64;
        let (first, end) = (start.div_ceil(bytes), end / bytes);
        if first < end {
            Some(MemoryRange::new(Pfn::new(first), FrameCount::new(end - first)))
        } else {
            None
        }
    }

    /// The same range in another node.
    pub const fn on_node(self, node: NodeId) -> Self {
        MemoryRange { node, ..self }
    }

    /// The same range in a zone of another kind.
    pub const fn in_zone(self, zone: ZoneKind) -> Self {
        MemoryRange { zone, ..self }
    }

    /// The first frame behind the range.
    #[doc(hidden)]
    pub const fn end(&self) -> Pfn {
        self.start.offset(self.frames)
    }

    /// Refuses a range that is empty or runs past the last frame number.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), Error> {
        let end = self.start.get().checked_add(self.frames.get());
        if self.frames == FrameCount::ZERO || end.is_none() { Err(Error::BadRange) } else { Ok(()) }
    }
}

/// The machine that an allocator serves. Read during construction only.
///
/// ```
/// use freehold::{Config, FrameCount, MemoryRange, NodeId, Pfn};
///
/// let memory = [MemoryRange::new(Pfn::new(0x100), FrameCount::new(4096))];
/// let cpus = [NodeId::new(0); 4];
/// let config = Config::new(&memory, &cpus).min_free(FrameCount::new(64));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Config<'a> {
    /// The memory to begin with. Ranges may come in any order, with holes between them; they must
    /// not overlap, and ranges of different zones must not share a pageblock.
    pub ranges: &'a [MemoryRange],
    /// The node of each CPU; the length is the number of CPUs, at most [`CPUS_MAX`]. A CPU number
    /// beyond it is folded into the range.
    pub cpu_nodes: &'a [NodeId],
    /// The distance from each node to each node, row by row, as ACPI's SLIT gives it. Empty means
    /// that all other nodes are equally far.
    pub distances: &'a [u8],
    /// The first frame and the number of frames that the metadata covers, all of them, if it shall
    /// leave room for [`add_memory`](crate::PageAllocator::add_memory); otherwise just the ranges
    /// and gaps of less than 2^19 frames between them. Only with it or with `room`, memory of one
    /// zone may come to any other.
    pub span: Option<(Pfn, FrameCount)>,
    /// Room for memory that may be added at any address (of the span, if one is named): so many
    /// frames, in at most so many pieces that do not adjoin. The metadata then covers the ranges
    /// and the room, whatever the size of the span. Each piece costs what 1.3 * 2^18 frames cost,
    /// and keeps its place when its memory is removed.
    pub room: Option<(FrameCount, usize)>,
    /// Zones that have no memory yet, but may be given some.
    pub spare_zones: &'a [(NodeId, ZoneKind)],
    /// The size of a frame: that of the machine's pages. What Linux computes from bytes follows it:
    /// watermarks, how many frames move between CPUs and zones at a time, and how much of the LRU
    /// stays inactive. All else is counted in frames.
    pub frame_size: FrameSize,
    /// The distance in bytes between the records of two frames. 0 packs them at 16 bytes; 64
    /// models Linux's `struct page`. Designs that keep no record per frame ignore it.
    pub frame_record_bytes: usize,
    /// How many frames the minimum watermarks keep back, over all zones that are not movable;
    /// `None` computes it from the size of memory as Linux computes `min_free_kbytes`. More than
    /// these zones have, now or when memory is added, means all that they have: then only requests
    /// that may go below the minimum are served there. 0 switches all watermarks off.
    pub min_free: Option<FrameCount>,
}

impl<'a> Config<'a> {
    /// A machine with this memory and one CPU for each entry of `cpu_nodes`; the rest by default.
    pub const fn new(ranges: &'a [MemoryRange], cpu_nodes: &'a [NodeId]) -> Self {
        Config {
            ranges,
            cpu_nodes,
            distances: &[],
            span: None,
            room: None,
            spare_zones: &[],
            frame_size: FrameSize::DEFAULT,
            frame_record_bytes: 0,
            min_free: None,
        }
    }

    /// Sets [`Config::distances`].
    #[must_use]
    pub const fn distances(self, distances: &'a [u8]) -> Self {
        Config { distances, ..self }
    }

    /// Sets [`Config::span`].
    #[must_use]
    pub fn span(self, span: impl Into<Option<(Pfn, FrameCount)>>) -> Self {
        Config { span: span.into(), ..self }
    }

    /// Sets [`Config::room`].
    #[must_use]
    pub fn room(self, room: impl Into<Option<(FrameCount, usize)>>) -> Self {
        Config { room: room.into(), ..self }
    }

    /// Sets [`Config::spare_zones`].
    #[must_use]
    pub const fn spare_zones(self, spare_zones: &'a [(NodeId, ZoneKind)]) -> Self {
        Config { spare_zones, ..self }
    }

    /// Sets [`Config::frame_size`].
    #[must_use]
    pub const fn frame_size(self, frame_size: FrameSize) -> Self {
        Config { frame_size, ..self }
    }

    /// Sets [`Config::frame_record_bytes`].
    #[must_use]
    pub const fn frame_record_bytes(self, bytes: usize) -> Self {
        Config { frame_record_bytes: bytes, ..self }
    }

    /// Sets [`Config::min_free`].
    #[must_use]
    pub fn min_free(self, min_free: impl Into<Option<FrameCount>>) -> Self {
        Config { min_free: min_free.into(), ..self }
    }

    /// Refuses what no allocator can be built for.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), Error> {
        let cpus = 1..=CPUS_MAX;
        let is_empty = self.ranges.is_empty() && self.span.is_none() && self.room.is_none();
        if !cpus.contains(&self.cpu_nodes.len()) || is_empty {
            return Err(Error::BadTopology);
        }
        self.ranges.iter().try_for_each(MemoryRange::check)?;
        if let Some((first, frames)) = self.span {
            let span = MemoryRange::new(first, frames);
            span.check()?;
            let is_outside = |range: &MemoryRange| range.start < first || range.end() > span.end();
            if self.ranges.iter().any(is_outside) {
                return Err(Error::OutsideSpan);
            }
        }
        self.check_apart()?;
        let nodes = self.nodes();
        if !self.distances.is_empty() && Some(self.distances.len()) != nodes.checked_mul(nodes) {
            return Err(Error::BadDistances);
        }
        Ok(())
    }

    /// Refuses ranges that overlap, and those of different zones that share a pageblock.
    fn check_apart(&self) -> Result<(), Error> {
        let check = |one: &MemoryRange, other: &MemoryRange| {
            let (lower, upper) = if one.start < other.start { (one, other) } else { (other, one) };
            let pageblock = |pfn: u64| pfn >> Order::PAGEBLOCK.get();
            if lower.end() > upper.start {
                return Err(Error::RangeOverlaps);
            }
            let share = pageblock(lower.end().get() - 1) == pageblock(upper.start.get());
            let differ = (lower.node, lower.zone) != (upper.node, upper.zone);
            if share && differ { Err(Error::SharedPageblock) } else { Ok(()) }
        };
        // Of ranges in order, which they nearly always are, only neighbours can clash.
        if self.ranges.is_sorted_by_key(|range| range.start) {
            return self.ranges.windows(2).try_for_each(|pair| check(&pair[0], &pair[1]));
        }
        let behind = |nth: usize| self.ranges[nth + 1..].iter();
        let mut all = self.ranges.iter().enumerate();
        all.try_for_each(|(nth, one)| behind(nth).try_for_each(|other| check(one, other)))
    }

    /// How many nodes the configuration speaks of: one more than the highest number. Looks at all
    /// ranges and CPUs.
    #[doc(hidden)]
    pub fn nodes(&self) -> usize {
        let of_ranges = self.ranges.iter().map(|range| range.node);
        let of_zones = self.spare_zones.iter().map(|zone| zone.0);
        let of_cpus = self.cpu_nodes.iter().copied();
        of_ranges.chain(of_zones).chain(of_cpus).map(|node| node.index() + 1).max().unwrap_or(0)
    }

    /// All zones that there are or may come to be, by node and then by kind. Looks at all ranges
    /// for each.
    #[doc(hidden)]
    pub fn zones(&self) -> impl Iterator<Item = (NodeId, ZoneKind)> + '_ {
        let first_behind = |zone: Option<(NodeId, ZoneKind)>| {
            let of_ranges = self.ranges.iter().map(|range| (range.node, range.zone));
            let named = of_ranges.chain(self.spare_zones.iter().copied());
            named.filter(|&other| Some(other) > zone).min()
        };
        core::iter::successors(first_behind(None), move |&zone| first_behind(Some(zone)))
    }

    /// How far `to` is from `from`, of so many `nodes`: those of [`Config::nodes`].
    #[doc(hidden)]
    pub fn distance(&self, nodes: usize, from: NodeId, to: NodeId) -> u8 {
        const LOCAL: u8 = 10;
        const REMOTE: u8 = 20;
        match self.distances.get(from.index() * nodes + to.index()) {
            Some(&distance) => distance,
            None if from == to => LOCAL,
            None => REMOTE,
        }
    }
}
