//! The record of a pageblock, and the dense table of all of them.

use core::sync::atomic::Ordering::Relaxed;

use super::unmerged::{Unmerged, UnmergedPlan, behind_group};
use freehold::Error;
use freehold::config::Config;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::memmap::stretches::StretchesPlan;
use freehold::platform::{Platform, Word};
use freehold::units::{MigrateType, Order};

/// What the free frames of a pageblock are for: content of one migratetype, or isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockType {
    Unmovable = 0,
    Movable = 1,
    Reclaimable = 2,
    /// The block is being emptied: its free frames are not allocated.
    Isolated = 3,
}

impl BlockType {
    /// How many types there are.
    pub(crate) const COUNT: usize = 4;

    /// All types, in the order of their numbers.
    pub(crate) const ALL: [Self; Self::COUNT] =
        [Self::Unmovable, Self::Movable, Self::Reclaimable, Self::Isolated];

    /// The type of a block for content of `migratetype`.
    #[inline(always)]
    pub(crate) const fn of(migratetype: MigrateType) -> Self {
        Self::from_bits(migratetype as u32)
    }

    /// The type as an index of tables.
    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The migratetype that the block serves; `None` if it is isolated.
    #[inline(always)]
    pub(crate) const fn migratetype(self) -> Option<MigrateType> {
        match self {
            BlockType::Isolated => None,
            BlockType::Unmovable => Some(MigrateType::Unmovable),
            BlockType::Movable => Some(MigrateType::Movable),
            BlockType::Reclaimable => Some(MigrateType::Reclaimable),
        }
    }

    /// The type in the lowest two bits.
    #[inline(always)]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self::ALL[(bits & 3) as usize]
    }
}

/// The record of a pageblock: eight bytes, so that a free reads zone, type and owner from one cache
/// line.
pub(crate) struct BlockRecord<P: Platform> {
    /// The upper half is the zone of the block's frames, or [`NO_ZONE`]: written before the frames
    /// become available, and once all of them are removed. The lowest two bits are its type, the
    /// next two the migratetype that it had before it was isolated: written under the zone lock. A
    /// free reads them without it, as a hint that is re-checked under the lock. Bits 8 to 10 are
    /// [`UNMERGED`], [`LATELY`] and [`MERGING`].
    kind: P::U32,
    /// The CPU that owns the block plus one, or 0. Written under the zone lock; read without it, as
    /// a hint that is re-checked under the lock of the owner's lists.
    owner: P::U32,
}

/// The mark of a pageblock without memory.
const NO_ZONE: u16 = u16::MAX;

/// Where the former type of an isolated block lies.
const FORMER_SHIFT: u32 = 2;

/// Whether free frames of the block may have been left unmerged.
const UNMERGED: u32 = 1 << 8;

/// Whether any were left since the last merge of the block began.
const LATELY: u32 = 1 << 9;

/// Whether a call is merging what was left, and has not dropped out.
const MERGING: u32 = 1 << 10;

const fn pack(zone: u16, of: BlockType, former: MigrateType) -> u32 {
    (zone as u32) << 16 | of as u32 | (former as u32) << FORMER_SHIFT
}

/// The records of all pageblocks.
pub(crate) struct BlockTable<P: Platform> {
    records: Table<BlockRecord<P>>,
    /// Which of them have [`UNMERGED`]; only in designs that merge late.
    unmerged: Option<Unmerged<P>>,
}

/// Where the block table will lie.
pub(crate) struct BlockTablePlan<P: Platform> {
    records: TablePlan<BlockRecord<P>>,
    unmerged: Option<UnmergedPlan<P>>,
}

impl<P: Platform> BlockTablePlan<P> {
    /// Plans the table. `merges_late` says whether frames may be left unmerged.
    pub(crate) fn new(
        config: &Config<'_>,
        merges_late: bool,
        layout: &mut LayoutBuilder,
    ) -> Result<Self, Error> {
        let frames = StretchesPlan::new(config)?.frames();
        let len = (frames.get() >> Order::PAGEBLOCK.get()) as usize;
        Ok(BlockTablePlan {
            records: layout.table(SectionKind::Blocks, len)?,
            unmerged: merges_late.then(|| Unmerged::plan(config, layout)).transpose()?,
        })
    }
}

impl<P: Platform> BlockTable<P> {
    /// A table of movable blocks without memory. Blocks begin as movable, as in Linux.
    pub(crate) fn carve(plan: &BlockTablePlan<P>, carver: &mut Carver) -> Self {
        let empty = pack(NO_ZONE, BlockType::Movable, MigrateType::Movable);
        let records = carver.table(plan.records, |_| BlockRecord {
            kind: P::U32::new(empty),
            owner: P::U32::new(0),
        });
        let unmerged = plan.unmerged.as_ref().map(|plan| Unmerged::carve(plan, carver));
        BlockTable { records, unmerged }
    }

    /// The first frames of all pageblocks.
    pub(crate) fn pageblocks(&self) -> impl Iterator<Item = FrameIndex> + use<P> {
        (0..self.records.len() as u32).map(|block| FrameIndex(block << Order::PAGEBLOCK.get()))
    }

    #[inline(always)]
    fn record(&self, frame: FrameIndex) -> &BlockRecord<P> {
        self.records.get(frame.index() >> Order::PAGEBLOCK.get())
    }

    /// The zone and type of the block that `frame` lies in.
    #[inline(always)]
    fn get(&self, frame: FrameIndex) -> (u16, BlockType) {
        // Relaxed: the zone was written before the block's frames became available, which a lock
        // ordered; the type is exact under the zone lock and a hint without it.
        let kind = self.record(frame).kind.load(Relaxed);
        ((kind >> 16) as u16, BlockType::from_bits(kind))
    }

    /// The zone of the block that `frame` lies in, if the block has memory.
    #[inline(always)]
    pub(crate) fn zone(&self, frame: FrameIndex) -> Option<ZoneIndex> {
        let (zone, _) = self.get(frame);
        (zone != NO_ZONE).then_some(ZoneIndex(zone))
    }

    /// The zone and type of the block of a frame in use, which therefore has a zone.
    #[inline(always)]
    pub(crate) fn of_used(&self, frame: FrameIndex) -> (ZoneIndex, BlockType) {
        let (zone, of) = self.get(frame);
        (ZoneIndex(zone), of)
    }

    /// Gives the block of `frame` to a zone. The caller holds the zone lock.
    pub(crate) fn set_zone(&self, frame: FrameIndex, zone: ZoneIndex) {
        let kind = &self.record(frame).kind;
        // Relaxed: the zone lock, under which the frames become available, publishes it.
        kind.store(u32::from(zone.0) << 16 | kind.load(Relaxed) & 0xffff, Relaxed);
    }

    /// Ends that the block of `frame`, all of whose memory was removed, belongs to a zone. The
    /// caller holds the zone lock.
    pub(crate) fn leave_zone(&self, frame: FrameIndex) {
        self.update(frame, |kind| kind & !(UNMERGED | LATELY | MERGING));
        self.set_zone(frame, ZoneIndex(NO_ZONE));
    }

    /// The type of the block that `frame` lies in.
    #[inline(always)]
    pub(crate) fn block_type(&self, frame: FrameIndex) -> BlockType {
        self.get(frame).1
    }

    /// The migratetype of the block that `frame` lies in; for an isolated block, the one that it
    /// will have again.
    pub(crate) fn migratetype(&self, frame: FrameIndex) -> MigrateType {
        // Relaxed: as in `get`.
        let former = self.record(frame).kind.load(Relaxed) >> FORMER_SHIFT;
        let current = self.block_type(frame).migratetype();
        current.or(BlockType::from_bits(former).migratetype()).unwrap_or_default()
    }

    /// Retypes all pageblocks of the block of `order` at `head`, none of which is isolated. The
    /// caller holds the zone lock.
    pub(crate) fn set_migratetype(&self, head: FrameIndex, order: Order, migratetype: MigrateType) {
        for frame in pageblocks(head, order) {
            self.set_type(frame, BlockType::of(migratetype), migratetype);
        }
    }

    fn set_type(&self, frame: FrameIndex, of: BlockType, former: MigrateType) {
        let kind = &self.record(frame).kind;
        // Relaxed: as in `get`.
        let unmerged = kind.load(Relaxed) & (UNMERGED | LATELY | MERGING);
        kind.store(pack(self.get(frame).0, of, former) | unmerged, Relaxed);
    }

    /// Whether free frames of the block of `frame` may have been left unmerged. Exact under the
    /// zone lock; otherwise a hint.
    pub(crate) fn has_unmerged(&self, frame: FrameIndex) -> bool {
        // Relaxed: as in `get`.
        self.record(frame).kind.load(Relaxed) & UNMERGED != 0
    }

    /// Notes that free frames of the block of `frame` were left unmerged. The caller holds the zone
    /// lock.
    pub(crate) fn note_unmerged(&self, frame: FrameIndex) {
        self.update(frame, |kind| kind | UNMERGED | LATELY);
    }

    /// Whether a call is merging what was left unmerged in the block of `frame`. Exact under the
    /// zone lock; otherwise a hint.
    pub(crate) fn is_merging(&self, frame: FrameIndex) -> bool {
        // Relaxed: as in `get`.
        self.record(frame).kind.load(Relaxed) & MERGING != 0
    }

    /// Begins a merge of all unmerged frames in the block of `frame`; returns false if another call
    /// has begun one that has not ended. The caller holds the zone lock.
    pub(crate) fn begin_merge(&self, frame: FrameIndex) -> bool {
        let first = !self.is_merging(frame);
        if first {
            self.update(frame, |kind| kind & !LATELY | MERGING);
        }
        first
    }

    /// Ends the merge that the caller began. If it has come to its end, the block counts as merged,
    /// unless more frames were left unmerged since it began. Only then, so that no other search
    /// skips the block meanwhile. The caller holds the zone lock.
    pub(crate) fn end_merge(&self, frame: FrameIndex, complete: bool) {
        self.update(frame, |kind| {
            let merged = complete && kind & LATELY == 0;
            kind & !MERGING & if merged { !UNMERGED } else { !0 }
        });
    }

    fn update(&self, frame: FrameIndex, change: impl FnOnce(u32) -> u32) {
        let kind = &self.record(frame).kind;
        // Relaxed: as in `get`. Written only if it changes, since neighbours share the line.
        let old = kind.load(Relaxed);
        let new = change(old);
        if new != old {
            kind.store(new, Relaxed);
        }
        if (new ^ old) & UNMERGED != 0
            && let Some(unmerged) = &self.unmerged
        {
            let change = if new & UNMERGED != 0 { 1 } else { -1 };
            unmerged.note(ZoneIndex((old >> 16) as u16), frame, change);
        }
    }

    /// The first pageblock from `from` on and before `end` that is of this zone, available, and
    /// unmerged. A hint without the zone lock.
    ///
    /// Cost: a word for each group of 64 pageblocks without any, and one for each pageblock of the
    /// others.
    pub(crate) fn next_unmerged(
        &self,
        zone: ZoneIndex,
        from: FrameIndex,
        end: FrameIndex,
    ) -> Option<FrameIndex> {
        let unmerged = self.unmerged.as_ref()?;
        let mut at = from;
        while at < end {
            let group_end = behind_group(at).min(end);
            if unmerged.in_group(zone, at) > 0 {
                let mut group = (at.0..group_end.0).step_by(1 << Order::PAGEBLOCK.get());
                let found = group.find(|&at| self.is_unmerged_of(FrameIndex(at), zone));
                if found.is_some() {
                    return found.map(FrameIndex);
                }
            }
            at = group_end;
        }
        None
    }

    /// Whether the block is of this zone, not isolated, and has unmerged frames.
    fn is_unmerged_of(&self, block: FrameIndex, zone: ZoneIndex) -> bool {
        // Relaxed: as in `get`.
        let kind = self.record(block).kind.load(Relaxed);
        kind >> 16 == u32::from(zone.0)
            && kind & UNMERGED != 0
            && BlockType::from_bits(kind) != BlockType::Isolated
    }

    /// The pageblock at which the search for unmerged frames in a zone goes on, and the first frame
    /// behind all pageblocks.
    pub(crate) fn unmerged_from(&self, zone: ZoneIndex) -> (FrameIndex, FrameIndex) {
        let end = FrameIndex((self.records.len() as u32) << Order::PAGEBLOCK.get());
        let place = self.unmerged.as_ref().map_or(end, |unmerged| unmerged.place(zone));
        (place.min(end), end)
    }

    /// Lets searches in a zone go on at `next` if they would at `place`; returns whether they
    /// would. Requires no lock.
    pub(crate) fn search_on(&self, zone: ZoneIndex, place: FrameIndex, next: FrameIndex) -> bool {
        self.unmerged.as_ref().is_some_and(|unmerged| unmerged.move_place(zone, place, next))
    }

    /// Checks that all unmerged pageblocks of a zone are counted; the error is in the group of one
    /// that is not. The caller holds the zone lock.
    pub(crate) fn check_unmerged(&self, zone: ZoneIndex) -> Result<(), FrameIndex> {
        let Some(unmerged) = &self.unmerged else { return Ok(()) };
        let mut counted = 0;
        for block in self.pageblocks() {
            counted += u32::from(self.zone(block) == Some(zone) && self.has_unmerged(block));
            let next = block.after(Order::PAGEBLOCK);
            if next == behind_group(block)
                || next.index() >> Order::PAGEBLOCK.get() == self.records.len()
            {
                if counted != unmerged.in_group(zone, block) {
                    return Err(block);
                }
                counted = 0;
            }
        }
        Ok(())
    }

    /// Sets whether the block of `frame` is isolated. The caller holds the zone lock.
    pub(crate) fn set_isolated(&self, frame: FrameIndex, isolated: bool) {
        let former = self.migratetype(frame);
        let of = if isolated { BlockType::Isolated } else { BlockType::of(former) };
        self.set_type(frame, of, former);
    }

    /// Whether any block of the block of `order` at `head` is isolated. The caller holds the zone
    /// lock.
    pub(crate) fn has_isolated(&self, head: FrameIndex, order: Order) -> bool {
        pageblocks(head, order).any(|frame| self.block_type(frame) == BlockType::Isolated)
    }

    /// The CPU that owns the block that `frame` lies in.
    #[inline(always)]
    pub(crate) fn owner(&self, frame: FrameIndex) -> Option<usize> {
        // Relaxed: a hint, re-checked under the lock of the owner's lists. A caller that holds a
        // frame of the block and that lock reads the owner exactly, see
        // `block_owner`.
        (self.record(frame).owner.load(Relaxed) as usize).checked_sub(1)
    }

    /// Sets the owner of the block that `frame` lies in. The caller holds the zone lock.
    pub(crate) fn set_owner(&self, frame: FrameIndex, owner: Option<usize>) {
        // Relaxed: as in `owner`.
        self.record(frame).owner.store(owner.map_or(0, |cpu| cpu as u32 + 1), Relaxed);
    }
}

/// The first frames of all pageblocks that a block of `order` touches.
pub(crate) fn pageblocks(head: FrameIndex, order: Order) -> impl Iterator<Item = FrameIndex> {
    let end = head.0 + order.frames().get() as u32;
    let first = head.head(Order::PAGEBLOCK);
    (first.0..end).step_by(1 << Order::PAGEBLOCK.get()).map(FrameIndex)
}
