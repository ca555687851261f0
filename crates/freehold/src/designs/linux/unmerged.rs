//! Which pageblocks of a zone have free frames that were left unmerged, in groups, and where the
//! search for them stopped.
//!
//! The counts are written under the lock of the zone that they are about, and read without. The
//! place is a hint: wherever a search begins, it goes round once.

use core::sync::atomic::Ordering::Relaxed;

use crate::Error;
use crate::config::Config;
use crate::memmap::index::{FrameIndex, ZoneIndex};
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::platform::{Platform, Word};
use crate::units::Order;

/// How many pageblocks a group has: of 1 TiB there are 8192 groups.
const GROUP_PAGEBLOCKS: u32 = 64;

/// Where the search in a zone goes on. On a line of its own: zones have different locks.
#[repr(C, align(64))]
struct Place<P: Platform> {
    next: P::U32,
}

/// The unmerged pageblocks of all zones.
pub(crate) struct Unmerged<P: Platform> {
    places: Table<Place<P>>,
    /// How many pageblocks of each group are of the zone and unmerged: all groups of the first
    /// zone, then all of the next.
    groups: Table<P::U32>,
    groups_each: usize,
}

/// Where the tables will lie.
pub(crate) struct UnmergedPlan<P: Platform> {
    places: TablePlan<Place<P>>,
    groups: TablePlan<P::U32>,
    groups_each: usize,
}

/// The group of a frame's pageblock.
const fn group_of(frame: FrameIndex) -> u32 {
    (frame.0 >> Order::PAGEBLOCK.get()) / GROUP_PAGEBLOCKS
}

impl<P: Platform> Unmerged<P> {
    pub(crate) fn plan(
        config: &Config<'_>,
        layout: &mut LayoutBuilder,
    ) -> Result<UnmergedPlan<P>, Error> {
        let (_, frames) = config.span_of_blocks()?;
        let pageblocks = (frames.get() >> Order::PAGEBLOCK.get()) as usize;
        let zones = config.zones().count();
        let groups_each = pageblocks.div_ceil(GROUP_PAGEBLOCKS as usize);
        Ok(UnmergedPlan {
            places: layout.table(SectionKind::Zones, zones)?,
            groups: layout.table(SectionKind::Zones, zones * groups_each)?,
            groups_each,
        })
    }

    pub(crate) fn carve(plan: &UnmergedPlan<P>, carver: &mut Carver) -> Self {
        Unmerged {
            places: carver.table(plan.places, |_| Place { next: P::U32::new(0) }),
            groups: carver.table(plan.groups, |_| P::U32::new(0)),
            groups_each: plan.groups_each,
        }
    }

    // Relaxed below. Counts: a reader without the zone lock sees at least what was counted before
    // it last had that lock. Places: any value will do.

    fn group(&self, zone: ZoneIndex, group: u32) -> &P::U32 {
        self.groups.get(zone.index() * self.groups_each + group as usize)
    }

    /// Counts that the pageblock of `frame` has become unmerged (1), or merged (-1). The caller
    /// holds the zone lock.
    pub(crate) fn count(&self, zone: ZoneIndex, frame: FrameIndex, change: i32) {
        let group = self.group(zone, group_of(frame));
        group.store(group.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    /// How many pageblocks of the zone in the group of `frame` are unmerged.
    pub(crate) fn in_group(&self, zone: ZoneIndex, frame: FrameIndex) -> u32 {
        self.group(zone, group_of(frame)).load(Relaxed)
    }

    /// The pageblock at which the search in a zone goes on.
    pub(crate) fn place(&self, zone: ZoneIndex) -> FrameIndex {
        FrameIndex(self.places.get(zone.index()).next.load(Relaxed))
    }

    /// Keeps where the search goes on. Requires no lock.
    pub(crate) fn set_place(&self, zone: ZoneIndex, next: FrameIndex) {
        self.places.get(zone.index()).next.store(next.0, Relaxed);
    }
}

/// The first frame behind the group of `frame`'s pageblock.
pub(crate) const fn behind_group(frame: FrameIndex) -> FrameIndex {
    let pageblocks = (group_of(frame) + 1) * GROUP_PAGEBLOCKS;
    // The last group may reach beyond the frames that have an index.
    FrameIndex(pageblocks.saturating_mul(1 << Order::PAGEBLOCK.get()))
}
