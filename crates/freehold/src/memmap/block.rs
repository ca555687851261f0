//! The record of a pageblock, and the dense table of all of them.

use core::sync::atomic::Ordering::Relaxed;

use crate::Error;
use crate::config::Config;
use crate::memmap::frame::FrameIndex;
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::platform::{Platform, Word};
use crate::units::{MigrateType, Order};

/// The place of a zone in the table of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneIndex(pub(crate) u16);

impl ZoneIndex {
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the allocator keeps for each pageblock: one word of four bytes, so that a free learns zone
/// and type by one load.
///
/// The upper half is the zone of the block's frames, or [`NO_ZONE`]: written once, before the
/// frames become available. The lowest byte is the migratetype of its free frames: written under
/// the zone lock; a free reads it without, as a hint that is checked again under the lock.
#[repr(transparent)]
pub(crate) struct BlockRecord<P: Platform>(P::U32);

/// The mark of a pageblock without memory.
const NO_ZONE: u16 = u16::MAX;

const fn pack(zone: u16, migratetype: MigrateType) -> u32 {
    (zone as u32) << 16 | migratetype as u32
}

/// The records of all pageblocks.
pub(crate) struct BlockTable<P: Platform> {
    records: Table<BlockRecord<P>>,
}

/// Where the block table will lie.
pub(crate) struct BlockTablePlan<P: Platform>(TablePlan<BlockRecord<P>>);

impl<P: Platform> BlockTablePlan<P> {
    pub(crate) fn new(config: &Config<'_>, layout: &mut LayoutBuilder) -> Result<Self, Error> {
        let (_, frames) = config.span_of_blocks()?;
        let len = (frames.get() >> Order::PAGEBLOCK.get()) as usize;
        Ok(BlockTablePlan(layout.table(SectionKind::Blocks, len)?))
    }
}

impl<P: Platform> BlockTable<P> {
    /// A table of movable blocks without memory. Blocks begin as movable, as in Linux.
    pub(crate) fn carve(plan: &BlockTablePlan<P>, carver: &mut Carver) -> Self {
        let empty = pack(NO_ZONE, MigrateType::Movable);
        BlockTable { records: carver.table(plan.0, |_| BlockRecord(P::U32::new(empty))) }
    }

    #[inline(always)]
    fn word(&self, frame: FrameIndex) -> &P::U32 {
        &self.records.get(frame.index() >> Order::PAGEBLOCK.get()).0
    }

    /// The zone and migratetype of the block that `frame` lies in.
    #[inline(always)]
    fn get(&self, frame: FrameIndex) -> (u16, MigrateType) {
        // Relaxed: the zone was written before the block's frames became available, which a lock
        // ordered; the type is exact under the zone lock and a hint without.
        let word = self.word(frame).load(Relaxed);
        ((word >> 16) as u16, MigrateType::from_bits(word as u8))
    }

    /// The zone of the block that `frame` lies in, if the block has memory.
    #[inline(always)]
    pub(crate) fn zone(&self, frame: FrameIndex) -> Option<ZoneIndex> {
        let (zone, _) = self.get(frame);
        (zone != NO_ZONE).then_some(ZoneIndex(zone))
    }

    /// The zone and migratetype of the block of a frame that somebody holds, which therefore has a
    /// zone.
    #[inline(always)]
    pub(crate) fn of_used(&self, frame: FrameIndex) -> (ZoneIndex, MigrateType) {
        let (zone, migratetype) = self.get(frame);
        (ZoneIndex(zone), migratetype)
    }

    /// Gives the block of `frame` to a zone. The caller holds the zone lock.
    pub(crate) fn set_zone(&self, frame: FrameIndex, zone: ZoneIndex) {
        // Relaxed: the zone lock, under which the frames become available, publishes it.
        self.word(frame).store(pack(zone.0, self.migratetype(frame)), Relaxed);
    }

    /// The migratetype of the block that `frame` lies in.
    #[inline(always)]
    pub(crate) fn migratetype(&self, frame: FrameIndex) -> MigrateType {
        self.get(frame).1
    }

    /// Retypes all blocks of the block of `order` at `head`. The caller holds the zone lock.
    pub(crate) fn set_migratetype(&self, head: FrameIndex, order: Order, migratetype: MigrateType) {
        let blocks = 1u32 << order.get().saturating_sub(Order::PAGEBLOCK.get());
        for block in 0..blocks {
            let frame = FrameIndex(head.0 + (block << Order::PAGEBLOCK.get()));
            let (zone, _) = self.get(frame);
            // Relaxed: as in `get`.
            self.word(frame).store(pack(zone, migratetype), Relaxed);
        }
    }
}
