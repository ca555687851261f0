//! Which pageblocks of a zone have free frames that were left unmerged, in groups, and where the
//! search for them stopped.
//!
//! The counts are written under the lock of the zone that they are about, and read without. The
//! place is a hint: wherever a search begins, it goes round once.

use core::sync::atomic::Ordering::Relaxed;

use freehold::Error;
use freehold::config::Config;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::memmap::stretches::StretchesPlan;
use freehold::platform::{Platform, Word};
use freehold::units::Order;

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
        let frames = StretchesPlan::new(config)?.frames();
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

    /// Notes that the pageblock of `frame` has become unmerged (1), or merged (-1). The caller
    /// holds the zone lock.
    pub(crate) fn note(&self, zone: ZoneIndex, frame: FrameIndex, change: i32) {
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

    /// Lets the search go on at `next` if it would at `place`; returns whether it would. Requires
    /// no lock.
    pub(crate) fn move_place(&self, zone: ZoneIndex, place: FrameIndex, next: FrameIndex) -> bool {
        let place_of = &self.places.get(zone.index()).next;
        place_of.compare_exchange(place.0, next.0, Relaxed, Relaxed).is_ok()
    }
}

/// The first frame behind the group of `frame`'s pageblock.
pub(crate) const fn behind_group(frame: FrameIndex) -> FrameIndex {
    let pageblocks = (group_of(frame) + 1) * GROUP_PAGEBLOCKS;
    // The last group may reach beyond the frames that have an index.
    FrameIndex(pageblocks.saturating_mul(1 << Order::PAGEBLOCK.get()))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::mem::MaybeUninit;
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::pageblock::{BlockTable, BlockTablePlan};
    use crate::testing::TestPlatform;
    use freehold::config::MemoryRange;
    use freehold::memmap::region::Metadata;
    use freehold::units::{FrameCount, NodeId, Pfn};

    const PAGEBLOCKS: u32 = 256;
    const ZONE: ZoneIndex = ZoneIndex(0);

    /// The records of two nodes' pageblocks: the second has number 70 and the last half.
    fn blocks() -> BlockTable<TestPlatform> {
        let half = FrameCount::new(u64::from(PAGEBLOCKS / 2) * 512);
        let range =
            |start, node| MemoryRange::new(Pfn::new(start), half).on_node(NodeId::new(node));
        let ranges = [range(0, 0), range(half.get(), 1)];
        let cpus = [NodeId::new(0)];
        let config = Config::new(&ranges, &cpus);
        let mut builder = LayoutBuilder::new();
        let plan = BlockTablePlan::new(&config, true, &mut builder).unwrap();
        let layout = builder.finish();
        let buffer = vec![MaybeUninit::uninit(); layout.size_unaligned()].leak();
        let mut carver = Carver::new(Metadata::from_static(buffer), &layout).unwrap();
        let blocks = BlockTable::carve(&plan, &mut carver);
        for block in 0..PAGEBLOCKS {
            let zone = u16::from(block == 70 || block >= PAGEBLOCKS / 2);
            blocks.set_zone(at(block), ZoneIndex(zone));
        }
        blocks
    }

    fn at(pageblock: u32) -> FrameIndex {
        FrameIndex(pageblock << Order::PAGEBLOCK.get())
    }

    /// The unmerged pageblocks of a zone, as a search finds them.
    fn found(blocks: &BlockTable<TestPlatform>, zone: ZoneIndex) -> Vec<u32> {
        let mut from = at(0);
        let next = || {
            let block = blocks.next_unmerged(zone, from, at(PAGEBLOCKS))?;
            from = block.after(Order::PAGEBLOCK);
            Some(block.0 >> Order::PAGEBLOCK.get())
        };
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn a_search_finds_the_unmerged_pageblocks_of_its_zone() {
        let blocks = blocks();
        for block in [5, 63, 64, 70, 71, 200] {
            blocks.note_unmerged(at(block));
            blocks.note_unmerged(FrameIndex(at(block).0 + 3));
        }
        assert_eq!(found(&blocks, ZONE), [5, 63, 64, 71]);
        assert_eq!(found(&blocks, ZoneIndex(1)), [70, 200]);
        assert_eq!(blocks.next_unmerged(ZONE, at(6), at(63)), None, "within the bounds");
        blocks.set_isolated(at(64), true);
        assert_eq!(found(&blocks, ZONE), [5, 63, 71], "isolated ones are not available");
        blocks.set_isolated(at(64), false);
        blocks.leave_zone(at(5));
        assert_eq!(found(&blocks, ZONE), [63, 64, 71]);
        blocks.set_zone(at(5), ZoneIndex(1));
        assert_eq!(found(&blocks, ZoneIndex(1)), [70, 200], "its memory is new");
        for zone in [ZONE, ZoneIndex(1)] {
            assert_eq!(blocks.check_unmerged(zone), Ok(()));
        }
        // Zone 0 is told of one that it does not have.
        blocks.set_zone(at(200), ZONE);
        assert!(blocks.check_unmerged(ZONE).is_err());
    }

    #[test]
    fn a_pageblock_counts_as_merged_if_nothing_was_left_since_the_merge_began() {
        let blocks = blocks();
        let (block, is_found) = (at(9), |blocks: &_| !found(blocks, ZONE).is_empty());
        blocks.note_unmerged(block);
        assert!(blocks.begin_merge(block) && blocks.is_merging(block));
        assert!(!blocks.begin_merge(block), "one call at a time");
        blocks.note_unmerged(block);
        blocks.end_merge(block, true);
        assert!(is_found(&blocks) && !blocks.is_merging(block));
        assert!(blocks.begin_merge(block));
        blocks.end_merge(block, false);
        assert!(is_found(&blocks), "the merge was not complete");
        // A call that joins does not hide what was left before it.
        assert!(blocks.begin_merge(block));
        blocks.note_unmerged(block);
        assert!(!blocks.begin_merge(block));
        blocks.end_merge(block, true);
        assert!(is_found(&blocks));
        assert!(blocks.begin_merge(block));
        blocks.end_merge(block, true);
        assert!(!is_found(&blocks));
    }

    #[test]
    fn of_two_searches_at_one_place_one_goes_on() {
        let blocks = blocks();
        assert_eq!(blocks.unmerged_from(ZONE), (at(0), at(PAGEBLOCKS)));
        assert!(blocks.search_on(ZONE, at(0), at(7)));
        assert!(!blocks.search_on(ZONE, at(0), at(8)));
        assert_eq!(blocks.unmerged_from(ZONE).0, at(7));
        assert_eq!(blocks.unmerged_from(ZoneIndex(1)).0, at(0), "each zone has its own");
    }
}
