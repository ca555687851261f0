//! The record of a frame, and the table of all of them.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::kind::Kind;
use crate::pageblock::BlockType;
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::{LinkTable, Links};
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, StridedTable, TablePlan};
use freehold::memmap::stretches::{Stretches, StretchesTablePlan};
use freehold::memmap::zeroable::zeroable;
use freehold::platform::{Platform, SharedCell, Word};
use freehold::units::{FrameCount, Order, Pfn};
use freehold::{Error, config::Config};

/// The state of a frame, packed into one word: from the lowest bit 4 bits of tag, 4 of order, 2 of
/// type, the mark of a skipped merge, and in the upper half the CPU that keeps the block, if a
/// design records it. Only the head of a block carries a mark with an order; the other frames of
/// the block are tails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameState(u32);

const _: () = assert!(FrameState::HOLE.0 == 0, "a table of zeros is one of holes");
const _: () = assert!(Order::BUDDY_MAX.get() <= 15, "an order does not fit in four bits");

const ORDER_SHIFT: u32 = 4;
const TYPE_SHIFT: u32 = 8;
const UNMERGED: u32 = 1 << 10;
const KEEPER_SHIFT: u32 = 16;
const TAG_AND_ORDER: u32 = 0xff;

/// The kinds of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// Not managed: outside every range of memory. Zero, for the table begins with holes.
    Hole = 0,
    /// Part of a block whose head lies below.
    Tail = 1,
    /// Head of a free block on a list of its zone. Written under the zone lock.
    Buddy = 2,
    /// Head of a free block on a list of a CPU. Written under that CPU's pcp lock.
    Pcp = 3,
    /// Head of a block that a user holds; the type is the requested one.
    Allocated = 4,
    /// Head of a block on its way from its user to a list, or of an allocation being split.
    Claimed = 5,
    /// Head of a free block on a list of the CPU that owns its pageblock. Written under that CPU's
    /// pcp lock.
    PcpBuddy = 6,
}

impl FrameState {
    pub(crate) const TAIL: Self = FrameState(Tag::Tail as u32);
    pub(crate) const HOLE: Self = FrameState(Tag::Hole as u32);

    /// The state of the head of a block. `of` is the type of its pageblock for free blocks, and the
    /// requested one for allocations.
    #[inline(always)]
    pub(crate) const fn head(tag: Tag, order: Order, of: BlockType) -> Self {
        let (order, of) = ((order.get() as u32) << ORDER_SHIFT, (of as u32) << TYPE_SHIFT);
        FrameState(tag as u32 | order | of)
    }

    /// The state of a block that a user holds.
    #[inline(always)]
    pub(crate) const fn allocated(kind: Kind) -> Self {
        FrameState::head(Tag::Allocated, kind.order, BlockType::of(kind.migratetype))
    }

    /// The same block with another tag, and with no CPU that keeps it.
    #[inline(always)]
    pub(crate) const fn retag(self, tag: Tag) -> Self {
        FrameState(self.0 & (0x3ff & !0xf) | tag as u32)
    }

    /// The same block, marked as not merged with a buddy that may be free.
    #[inline]
    pub(crate) const fn unmerged(self) -> Self {
        FrameState(self.0 | UNMERGED)
    }

    /// Whether merging this block was deferred.
    #[inline]
    pub(crate) const fn is_unmerged(self) -> bool {
        self.0 & UNMERGED != 0
    }

    /// The same block, kept by this CPU.
    #[inline]
    pub(crate) const fn kept_by(self, cpu: u16) -> Self {
        FrameState(self.0 & 0xffff | (cpu as u32) << KEEPER_SHIFT)
    }

    /// Whether this is the head of a block of `order` with this tag that this CPU keeps.
    #[inline]
    pub(crate) const fn is_kept(self, tag: Tag, order: Order, cpu: u16) -> bool {
        self.is(tag, order) && self.0 >> KEEPER_SHIFT == cpu as u32
    }

    /// Whether this is the head of a block of `order` with this tag.
    #[inline(always)]
    pub(crate) const fn is(self, tag: Tag, order: Order) -> bool {
        // An order beyond four bits exceeds the mask and equals no state.
        self.0 & TAG_AND_ORDER == tag as u32 | (order.get() as u32) << ORDER_SHIFT
    }

    /// The kind of state.
    #[inline]
    pub(crate) const fn tag(self) -> Tag {
        match self.0 & 0xf {
            0 => Tag::Hole,
            1 => Tag::Tail,
            2 => Tag::Buddy,
            3 => Tag::Pcp,
            4 => Tag::Allocated,
            5 => Tag::Claimed,
            _ => Tag::PcpBuddy,
        }
    }

    /// The order of the block that this head stands for; `None` for tails and holes.
    #[inline]
    pub(crate) const fn order(self) -> Option<Order> {
        match self.tag() {
            Tag::Tail | Tag::Hole => None,
            _ => Some(Order::new((self.0 >> ORDER_SHIFT) as u8 & 0xf)),
        }
    }

    /// The type of the block that this head stands for.
    #[inline]
    pub(crate) const fn block_type(self) -> BlockType {
        BlockType::from_bits(self.0 >> TYPE_SHIFT)
    }
}

/// The record of a frame: 16 bytes, at a stride of 16 bytes or what the configuration asks for.
#[repr(C, align(16))]
pub(crate) struct FrameRecord<P: Platform> {
    /// A [`FrameState`]. Written under the lock of the list that the frame is on or moves to,
    /// except that a user's `free` claims an allocation by compare-exchange.
    state: P::U32,
    /// The next block on the same list. Guarded by the lock of that list.
    pub(crate) next: P::Cell<u32>,
    /// The previous block on the same list. Guarded by the lock of that list.
    pub(crate) prev: P::Cell<u32>,
    /// A design's data about a free block. Guarded by the zone lock.
    pub(crate) beside: P::Cell<u32>,
}

zeroable!(FrameRecord {
    state: P::U32::ZERO_BYTES,
    next: <P::Cell<u32>>::ZERO_BYTES,
    prev: <P::Cell<u32>>::ZERO_BYTES,
    beside: <P::Cell<u32>>::ZERO_BYTES,
});

/// The records of all frames that have indexes, holes included.
pub(crate) struct FrameTable<P: Platform> {
    records: StridedTable<FrameRecord<P>>,
    stretches: Stretches<P>,
}

/// Where the frame table will lie.
pub(crate) struct FrameTablePlan<P: Platform> {
    records: TablePlan<FrameRecord<P>>,
    stretches: StretchesTablePlan<P>,
}

impl<P: Platform> FrameTablePlan<P> {
    /// Plans a table for the stretches of `config`.
    pub(crate) fn new(config: &Config<'_>, layout: &mut LayoutBuilder) -> Result<Self, Error> {
        let stretches = Stretches::plan(config, layout)?;
        let frames = stretches.frames().get();
        let len = usize::try_from(frames).map_err(|_| Error::SpanTooLarge)?;
        let records = layout.strided_table(SectionKind::Frames, len, config.frame_record_bytes)?;
        Ok(FrameTablePlan { records, stretches })
    }
}

impl<P: Platform> FrameTable<P> {
    /// A table of holes.
    pub(crate) fn carve(
        plan: &FrameTablePlan<P>,
        config: &Config<'_>,
        carver: &mut Carver,
    ) -> Self {
        let stretches = Stretches::carve(&plan.stretches, config, carver);
        let records = carver.zero_strided_table(plan.records, |_| FrameRecord {
            state: P::U32::new(FrameState::HOLE.0),
            next: P::Cell::new(0),
            prev: P::Cell::new(0),
            beside: P::Cell::new(0),
        });
        FrameTable { records, stretches }
    }

    /// Which frames the table has records for.
    pub(crate) fn stretches(&self) -> &Stretches<P> {
        &self.stretches
    }

    /// How many records the table has.
    pub(crate) fn len(&self) -> FrameCount {
        FrameCount::new(self.records.len() as u64)
    }

    #[inline(always)]
    pub(crate) fn record(&self, frame: FrameIndex) -> &FrameRecord<P> {
        self.records.get(frame.index())
    }

    /// The index of `pfn` in the table, if the table has a record for it.
    #[inline(always)]
    pub(crate) fn index_of(&self, pfn: Pfn) -> Option<FrameIndex> {
        self.stretches.index_of(pfn)
    }

    /// The number of the frame at `frame`.
    #[inline(always)]
    pub(crate) fn pfn_of(&self, frame: FrameIndex) -> Pfn {
        self.stretches.pfn_of(frame)
    }

    /// The state of `frame`.
    #[inline(always)]
    pub(crate) fn state(&self, frame: FrameIndex) -> FrameState {
        // Relaxed: a caller that acts on the state holds the lock under which it was written, or
        // claims it by compare-exchange, which acquires.
        FrameState(self.record(frame).state.load(Relaxed))
    }

    /// Marks `frame`.
    #[inline(always)]
    pub(crate) fn set_state(&self, frame: FrameIndex, state: FrameState) {
        // Release: pairs with the acquire in `claim`, see there.
        self.record(frame).state.store(state.0, Release);
    }

    /// Marks `frame` with `new` if it is in state `current`; returns whether it was.
    ///
    /// Of several callers with the same `current`, exactly one succeeds. This turns a double free
    /// that races with the first one into an error.
    #[inline(always)]
    pub(crate) fn claim(&self, frame: FrameIndex, current: FrameState, new: FrameState) -> bool {
        let state = &self.record(frame).state;
        // Acquire: a caller that frees a block it was given saw it being allocated, so a relaxed
        // exchange would do for it. But an erroneous second free may claim a block that was
        // allocated again in the meantime. It must see what the last holder of the frame's links
        // wrote. Relaxed on failure: nothing is accessed then.
        state.compare_exchange(current.0, new.0, Acquire, Relaxed).is_ok()
    }
}

impl<P: Platform> LinkTable for FrameTable<P> {
    type Cell = P::Cell<u32>;

    #[inline(always)]
    fn links(&self, block: FrameIndex) -> Links<'_, P::Cell<u32>> {
        let record = self.record(block);
        Links { next: &record.next, prev: &record.prev }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_packing() {
        let order = Order::new(7);
        for of in BlockType::ALL {
            for tag in [Tag::Buddy, Tag::Pcp, Tag::Allocated, Tag::Claimed, Tag::PcpBuddy] {
                let state = FrameState::head(tag, order, of);
                for state in [state, state.unmerged(), state.kept_by(0xfffe)] {
                    assert_eq!(state.tag(), tag);
                    assert_eq!(state.order(), Some(order));
                    assert_eq!(state.block_type(), of);
                    assert!(state.is(tag, order) && !state.is(tag, order.up()));
                }
                assert!(state.unmerged().is_unmerged() && !state.is_unmerged());
                assert_ne!(state.kept_by(1), state.kept_by(2));
                let claimed = FrameState::head(Tag::Claimed, order, of);
                assert_eq!(state.kept_by(7).retag(Tag::Claimed), claimed);
                for beyond in Order::new(16).to(Order::new(63)) {
                    assert!(!state.is(tag, beyond));
                }
            }
        }
        assert_eq!((FrameState::TAIL.tag(), FrameState::TAIL.order()), (Tag::Tail, None));
        assert_eq!((FrameState::HOLE.tag(), FrameState::HOLE.order()), (Tag::Hole, None));
    }
}
