//! Stretches: which frames the tables have records for.
//!
//! Memory may lie far apart: RAM of an ARM server begins at 2 GiB and goes on at 8 TiB. Records for
//! what lies between would take more than the memory has. So the tables have records for
//! *stretches* of frames alone, one behind the other, and the index of a frame in the tables is its
//! number minus a constant of its stretch.
//!
//! ```text
//!   numbers   |   2 GiB..4 GiB                      8 TiB..8 TiB + 254 GiB
//!   indexes   |   behind the other: far             from 0 on: near
//! ```
//!
//! The longest stretch is *near*: it has the indexes from 0 on, so that one subtraction and one
//! comparison, which is the check of the bound anyway, find the index of a frame. All others are
//! *far*, and are searched. A machine with its memory in one piece has no far stretch.
//!
//! What code that works on indexes may rely on:
//!
//! * Frames side by side have indexes side by side, within a stretch.
//! * Between two stretches there are indexes of no frame, of a largest block at least: so nothing
//!   that lies side by side by index spans two stretches, unless it has holes.
//! * An index is aligned as the number of its frame is, counted from that of index 0, up to
//!   [`ALIGNED_FRAMES`]. Index 0 is that of a number aligned to the largest block of a buddy
//!   system.

use super::index::{FrameIndex, FrameRange};
use super::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::config::{Config, MemoryRange};
use crate::error::Error;
use crate::units::{FrameCount, Order, Pfn};

/// Up to so many frames, indexes are aligned as numbers are: the largest block of any design.
pub const ALIGNED_FRAMES: u64 = 1 << 18;

/// Ranges with a gap of so many frames between them are in stretches of their own: more than the
/// indexes that another stretch may cost for its alignment.
const GAP_FRAMES: u64 = 2 * ALIGNED_FRAMES;

/// Frames with numbers side by side, all of which have indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    first: Pfn,
    frames: u64,
    /// The index of the first one.
    index: u64,
}

impl Stretch {
    fn index_of(&self, pfn: Pfn) -> Option<FrameIndex> {
        let offset = pfn.get().wrapping_sub(self.first.get());
        // All indexes fit into 32 bits: see `StretchesPlan::new`.
        (offset < self.frames).then(|| FrameIndex((self.index + offset) as u32))
    }

    /// The index behind the last one.
    fn end(&self) -> u64 {
        self.index.saturating_add(self.frames)
    }

    /// The first place at or behind an index for so many frames, at a multiple of `align`.
    fn place(&self, from: FrameIndex, align: u64, frames: u64) -> Option<FrameRange> {
        let skipped = u64::from(from.0).saturating_sub(self.index);
        let first = self.first.get() + skipped;
        let first = first.checked_next_multiple_of(align)?;
        self.locate(Pfn::new(first), frames)
    }

    fn locate(&self, first: Pfn, frames: u64) -> Option<FrameRange> {
        let first = self.index_of(first)?;
        let end = u64::from(first.0).checked_add(frames).filter(|&end| end <= self.end())?;
        Some(FrameRange { first, end: FrameIndex(end as u32) })
    }
}

/// The stretches of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct StretchesPlan {
    near: Stretch,
    /// How many far ones there are.
    far: usize,
    /// One more than the last index.
    frames: u64,
}

impl StretchesPlan {
    /// Looks at all ranges for each stretch.
    ///
    /// # Errors
    ///
    /// [`Error::BadTopology`] if there is neither memory nor a span; [`Error::SpanTooLarge`] if
    /// there are more than 2^32 indexes.
    pub fn new(config: &Config<'_>) -> Result<Self, Error> {
        let longer = |near: (u64, u64), span: (u64, u64)| {
            if span.1 - span.0 > near.1 - near.0 { span } else { near }
        };
        let (first, end) = spans(config).reduce(longer).ok_or(Error::BadTopology)?;
        let near = Stretch { first: Pfn::new(first), frames: end - first, index: 0 };
        let (far, frames) =
            stretches(config, near).fold((0, 0), |(count, _), stretch| (count + 1, stretch.end()));
        let far: usize = far - 1;
        let is_too_high = spans(config).any(|(_, end)| end == u64::MAX);
        // Links are 32 bits wide, and one value ends a list.
        if is_too_high || frames >= u64::from(u32::MAX) {
            return Err(Error::SpanTooLarge);
        }
        Ok(StretchesPlan { near, far, frames })
    }

    /// The frame of index 0.
    pub fn first(&self) -> Pfn {
        self.near.first
    }

    /// One more than the last index.
    pub fn frames(&self) -> FrameCount {
        FrameCount::new(self.frames)
    }

    /// The ranges of the configuration with their indexes, by stretches. Looks at all ranges for
    /// each stretch.
    pub fn places<'a>(
        &self,
        config: &'a Config<'a>,
    ) -> impl Iterator<Item = (&'a MemoryRange, FrameRange)> + use<'a> {
        stretches(config, self.near).flat_map(|stretch| {
            let place = move |range: &MemoryRange| stretch.locate(range.start, range.frames.get());
            config.ranges.iter().filter_map(move |range| Some((range, place(range)?)))
        })
    }
}

/// All stretches, the near one first, and the others by rising numbers.
fn stretches<'a>(config: &'a Config<'a>, near: Stretch) -> impl Iterator<Item = Stretch> + use<'a> {
    let mut taken = near.frames;
    let far = spans(config).filter(move |span| span.0 != near.first.get());
    let far = far.map(move |(first, end)| {
        let least = taken.saturating_add(Order::BUDDY_MAX.frames().get());
        let offset = first.wrapping_sub(near.first.get()) % ALIGNED_FRAMES;
        let index = least.saturating_add(offset.wrapping_sub(least) % ALIGNED_FRAMES);
        let stretch = Stretch { first: Pfn::new(first), frames: end - first, index };
        taken = stretch.end();
        stretch
    });
    core::iter::once(near).chain(far)
}

/// The first frame of each stretch and the one behind it, rounded outwards to the largest block of
/// a buddy system, by rising numbers. One that ends too high for that ends at `u64::MAX`.
fn spans<'a>(config: &'a Config<'a>) -> impl Iterator<Item = (u64, u64)> + 'a {
    let given = config.span.map(|(first, frames)| (first.get(), first.get() + frames.get()));
    let next = move |from: u64| match given {
        Some(given) => (from == 0).then_some(given),
        None => span_of_ranges(config, from),
    };
    core::iter::successors(next(0), move |&(_, end)| next(end)).map(|(first, end)| {
        let block = Order::BUDDY_MAX.frames().get();
        (first / block * block, end.checked_next_multiple_of(block).unwrap_or(u64::MAX))
    })
}

/// The ranges from a frame on that have no large gap between them.
fn span_of_ranges(config: &Config<'_>, from: u64) -> Option<(u64, u64)> {
    let ends = || config.ranges.iter().map(|range| (range.start.get(), range.end().get()));
    let first = ends().map(|(start, _)| start).filter(|&start| start >= from).min()?;
    let mut end = first;
    loop {
        let before = end;
        for (start, to) in ends() {
            if start >= first && start.saturating_sub(end) < GAP_FRAMES && to > end {
                end = to;
            }
        }
        if end == before {
            return Some((first, end));
        }
    }
}

/// Which frames a table has records for.
#[derive(Debug)]
pub struct Stretches {
    near: Pfn,
    near_frames: u64,
    frames: u64,
    far: Table<Stretch>,
}

/// Where the table of far stretches will lie.
#[derive(Clone, Copy, Debug)]
pub struct StretchesTablePlan {
    plan: StretchesPlan,
    far: TablePlan<Stretch>,
}

impl StretchesTablePlan {
    /// How many records a table needs.
    pub fn frames(&self) -> FrameCount {
        self.plan.frames()
    }
}

impl Stretches {
    /// # Errors
    ///
    /// As [`StretchesPlan::new`].
    pub fn plan(
        config: &Config<'_>,
        layout: &mut LayoutBuilder<'_>,
    ) -> Result<StretchesTablePlan, Error> {
        let plan = StretchesPlan::new(config)?;
        Ok(StretchesTablePlan { far: layout.table(SectionKind::Zones, plan.far)?, plan })
    }

    pub fn carve(
        StretchesTablePlan { plan, far }: &StretchesTablePlan,
        config: &Config<'_>,
        carver: &mut Carver,
    ) -> Self {
        let mut all = stretches(config, plan.near).skip(1);
        let far = carver.table(*far, |_| all.next().expect("one for each planned record"));
        let StretchesPlan { near, frames, .. } = *plan;
        Stretches { near: near.first, near_frames: near.frames, frames, far }
    }

    /// One more than the last index.
    #[inline(always)]
    pub const fn frames(&self) -> FrameCount {
        FrameCount::new(self.frames)
    }

    /// The frame of index 0.
    pub const fn first(&self) -> Pfn {
        self.near
    }

    /// How many frames the near stretch has, which begins at index 0.
    pub const fn near_frames(&self) -> u64 {
        self.near_frames
    }

    /// How far a frame lies behind the first one of the near stretch: if it is of that, its index.
    #[inline(always)]
    const fn offset_of(&self, pfn: Pfn) -> u64 {
        pfn.get().wrapping_sub(self.near.get())
    }

    /// Whether a frame is none of the near stretch.
    #[inline(always)]
    pub const fn is_far(&self, pfn: Pfn) -> bool {
        self.offset_of(pfn) >= self.near_frames
    }

    /// The number of a frame of the near stretch.
    #[inline(always)]
    const fn near_pfn_of(&self, frame: FrameIndex) -> Pfn {
        Pfn::new(self.near.get() + frame.0 as u64)
    }

    /// The index of a frame, if it has one.
    #[inline(always)]
    pub fn index_of(&self, pfn: Pfn) -> Option<FrameIndex> {
        let offset = self.offset_of(pfn);
        match offset < self.near_frames {
            // There are fewer than 2^32 indexes.
            true => Some(FrameIndex(offset as u32)),
            false => self.far_index_of(pfn),
        }
    }

    /// The number of the frame at an index.
    #[inline(always)]
    pub fn pfn_of(&self, frame: FrameIndex) -> Pfn {
        match u64::from(frame.0) < self.near_frames {
            true => self.near_pfn_of(frame),
            false => self.far_pfn_of(frame),
        }
    }

    #[cold]
    #[inline(never)]
    fn far_index_of(&self, pfn: Pfn) -> Option<FrameIndex> {
        self.far.iter().find_map(|stretch| stretch.index_of(pfn))
    }

    /// The number of a frame of a far stretch. Between two, where no frame is, that which it would
    /// have in the lower one.
    #[cold]
    #[inline(never)]
    fn far_pfn_of(&self, frame: FrameIndex) -> Pfn {
        let index = u64::from(frame.0);
        let stretch = self.far.iter().rev().find(|stretch| stretch.index <= index);
        match stretch {
            Some(stretch) => stretch.first.offset(FrameCount::new(index - stretch.index)),
            None => self.near_pfn_of(frame),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Stretch> + '_ {
        let near = Stretch { first: self.near, frames: self.near_frames, index: 0 };
        core::iter::once(near).chain(self.far.iter().copied())
    }

    /// The indexes of so many frames from one on, if all have indexes and lie in one stretch.
    pub fn locate(&self, first: Pfn, frames: FrameCount) -> Option<FrameRange> {
        self.iter().find_map(|stretch| stretch.locate(first, frames.get()))
    }

    /// The first place at or behind an index, by index, for so many frames with a number that is a
    /// multiple of `align`, a power of two.
    pub fn place(
        &self,
        from: FrameIndex,
        align: FrameCount,
        frames: FrameCount,
    ) -> Option<FrameRange> {
        let behind = self.iter().filter(|stretch| u64::from(from.0) < stretch.end());
        { behind }.find_map(|stretch| stretch.place(from, align.get(), frames.get()))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::units::NodeId;

    const GIB: u64 = ALIGNED_FRAMES;

    fn range(first: u64, frames: u64) -> MemoryRange {
        MemoryRange::new(Pfn::new(first), FrameCount::new(frames))
    }

    fn checked(ranges: &[MemoryRange]) -> Vec<Stretch> {
        let cpus = [NodeId::new(0)];
        let config = Config::new(ranges, &cpus);
        let plan = StretchesPlan::new(&config).unwrap();
        let all: Vec<_> = stretches(&config, plan.near).collect();
        assert_eq!(plan.frames(), FrameCount::new(all.last().unwrap().end()));
        assert_eq!((all.len(), all[0].index), (plan.far + 1, 0));
        // All of it that code on indexes relies on.
        assert_eq!(plan.places(&config).count(), ranges.len());
        for (range, place) in plan.places(&config) {
            let last = FrameIndex(place.end.0 - 1);
            let both = [(range.start, place.first), (Pfn::new(range.end().get() - 1), last)];
            for (pfn, index) in both {
                let offset = pfn.get().wrapping_sub(plan.first().get());
                assert_eq!(u64::from(index.0) % GIB, offset % GIB);
            }
        }
        for pair in all.windows(2) {
            assert!(pair[0].end() + Order::BUDDY_MAX.frames().get() <= pair[1].index);
        }
        all
    }

    #[test]
    fn near_ranges_are_one_stretch_with_what_lies_between() {
        let block = Order::BUDDY_MAX.frames().get();
        let all = checked(&[range(5, 7), range(GIB, 100), range(2 * GIB, 1)]);
        let whole = Stretch { first: Pfn::new(0), frames: 2 * GIB + block, index: 0 };
        assert_eq!(all, [whole]);
    }

    #[test]
    fn what_lies_far_apart_has_stretches_of_its_own_the_longest_from_index_0_on() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let ranges = [
                range(GIB / 2, GIB),
                range(2048 * GIB, 254 * GIB),
                range(2048 * GIB + 300 * GIB, GIB),
                range((1 << 40) - GIB, GIB),
            ];
            let all = checked(&order.map(|nth: usize| ranges[nth]));
            assert_eq!(all.len(), 4);
            assert_eq!((all[0].first, all[0].frames), (Pfn::new(2048 * GIB), 254 * GIB));
            assert!(all[1..].is_sorted_by_key(|stretch| stretch.first));
            assert!(all[3].end() < 262 * GIB, "the gaps cost next to nothing");
        }
    }

    #[test]
    fn the_highest_frames_are_refused_only_if_there_are_too_many() {
        let ranges = [range(0, 1 << 31), range(1 << 45, 1 << 31)];
        let config = Config::new(&ranges, &[]);
        assert_eq!(StretchesPlan::new(&config).unwrap_err(), Error::SpanTooLarge);
        checked(&[range(0, 1 << 30), range(1 << 45, 1 << 30), range(u64::MAX - (1 << 20), 512)]);
    }
}
