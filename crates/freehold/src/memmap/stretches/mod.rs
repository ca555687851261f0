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

mod grow;
mod plan;

use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::index::{FrameIndex, FrameRange};
use super::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::config::Config;
use crate::error::Error;
use crate::platform::{Platform, Word};
use crate::units::{FrameCount, Pfn};

pub use plan::StretchesPlan;

/// Up to so many frames, indexes are aligned as numbers are: the largest block of any design.
pub const ALIGNED_FRAMES: u64 = 1 << 18;

/// Frames with numbers side by side, all of which have indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stretch {
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

    /// The number behind that of the last one.
    fn number_end(&self) -> u64 {
        self.first.get() + self.frames
    }

    /// The index behind the last one.
    fn end(&self) -> u64 {
        self.index.saturating_add(self.frames)
    }

    /// The first place at or behind an index for so many frames, at a multiple of `align`, a power
    /// of two.
    #[inline]
    fn place(&self, from: FrameIndex, align: u64, frames: u64) -> Option<FrameRange> {
        let skipped = u64::from(from.0).saturating_sub(self.index);
        let first = (self.first.get() + skipped).checked_add(align - 1)?;
        self.locate(Pfn::new(first & !(align - 1)), frames)
    }

    fn locate(&self, first: Pfn, frames: u64) -> Option<FrameRange> {
        let first = self.index_of(first)?;
        let end = u64::from(first.0).checked_add(frames).filter(|&end| end <= self.end())?;
        Some(FrameRange { first, end: FrameIndex(end as u32) })
    }
}

/// Which frames a table has records for.
pub struct Stretches<P: Platform> {
    near: Pfn,
    near_frames: u64,
    frames: u64,
    /// Those that there are, by rising indexes, and behind them those that may come.
    far: Table<FarStretch<P>>,
    /// The numbers that frames may have which come.
    bounds: Range<u64>,
}

/// The record of a far stretch. Memory that is added may begin one or make the last one longer;
/// none becomes shorter or goes.
struct FarStretch<P: Platform> {
    first: P::U64,
    index: P::U64,
    /// 0: not there yet.
    frames: P::U64,
}

impl<P: Platform> FarStretch<P> {
    fn new(stretch: Option<Stretch>) -> Self {
        let Stretch { first, frames, index } = stretch.unwrap_or_default();
        FarStretch {
            first: P::U64::new(first.get()),
            index: P::U64::new(index),
            frames: P::U64::new(frames),
        }
    }

    fn get(&self) -> Option<Stretch> {
        // Acquire: with the number of its frames come the other two words, which do not change
        // after it was first set, and the records of these frames as their adder found them.
        let frames = self.frames.load(Acquire);
        (frames > 0).then(|| {
            let [first, index] = [&self.first, &self.index].map(|word| word.load(Relaxed));
            Stretch { first: Pfn::new(first), frames, index }
        })
    }

    /// Begins a stretch, or makes it longer. One call at a time.
    fn set(&self, stretch: Stretch) {
        // Relaxed: the store below publishes these.
        self.first.store(stretch.first.get(), Relaxed);
        self.index.store(stretch.index, Relaxed);
        // Release: see `get`.
        self.frames.store(stretch.frames, Release);
    }
}

/// Where the table of far stretches will lie.
pub struct StretchesTablePlan<P: Platform> {
    plan: StretchesPlan,
    far: TablePlan<FarStretch<P>>,
}

impl<P: Platform> StretchesTablePlan<P> {
    /// How many records a table needs.
    pub fn frames(&self) -> FrameCount {
        self.plan.frames()
    }
}

impl<P: Platform> Stretches<P> {
    /// # Errors
    ///
    /// As [`StretchesPlan::new`].
    pub fn plan(
        config: &Config<'_>,
        layout: &mut LayoutBuilder<'_>,
    ) -> Result<StretchesTablePlan<P>, Error> {
        let plan = StretchesPlan::new(config)?;
        Ok(StretchesTablePlan { far: layout.table(SectionKind::Zones, plan.far)?, plan })
    }

    pub fn carve(
        StretchesTablePlan { plan, far }: &StretchesTablePlan<P>,
        config: &Config<'_>,
        carver: &mut Carver,
    ) -> Self {
        let mut all = plan::stretches(config, plan.near).skip(1);
        let far = carver.table(*far, |_| FarStretch::new(all.next()));
        let StretchesPlan { near, frames, .. } = *plan;
        let bounds = config.span.map(|(first, frames)| first.get()..first.offset(frames).get());
        let bounds = bounds.unwrap_or(0..u64::MAX);
        Stretches { near: near.first, near_frames: near.frames, frames, far, bounds }
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
        self.far().find_map(|stretch| stretch.index_of(pfn))
    }

    /// The number of a frame of a far stretch. Between two, where no frame is, that which it would
    /// have in the lower one.
    #[cold]
    #[inline(never)]
    fn far_pfn_of(&self, frame: FrameIndex) -> Pfn {
        let index = u64::from(frame.0);
        let stretch = self.far().take_while(|stretch| stretch.index <= index).last();
        match stretch {
            Some(stretch) => stretch.first.offset(FrameCount::new(index - stretch.index)),
            None => self.near_pfn_of(frame),
        }
    }

    /// Those far ones that there are, by rising indexes.
    fn far(&self) -> impl Iterator<Item = Stretch> + '_ {
        self.far.iter().map_while(FarStretch::get)
    }

    fn iter(&self) -> impl Iterator<Item = Stretch> + '_ {
        let near = Stretch { first: self.near, frames: self.near_frames, index: 0 };
        core::iter::once(near).chain(self.far())
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
