//! A slot: what one CPU holds of one zone. The lock over all slots of a CPU is tried, and if
//! somebody has it, the caller goes elsewhere: a holder that is preempted stalls nobody.
//!
//! The pageblocks of a slot are current, one a type, from which frames are taken; on a shelf, where
//! frames are known to be free; or aside, which costs nothing: whoever frees a frame of such a one
//! puts it on a shelf, if he has the lock, or else on the stack of pending ones.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::blocks::{BlockIndex, Blocks, NIL};
use super::stat::CpuStat;
use super::state::State;
use crate::platform::{Platform, SharedCell, Word};
use crate::stat::Events;
use crate::units::{FrameCount, MigrateType};

/// The word that no bitmap has: there is no current pageblock.
pub(super) const NO_WORD: u32 = u32::MAX;

/// How full the pageblocks of a shelf were when they came there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// Few frames are free: such are used up first, so that the others become whole.
    Scarce,
    /// Many are.
    Plenty,
}

/// A pageblock with more free frames than this has plenty.
pub(super) const SCARCE_MAX: u32 = 64;

/// A pageblock with fewer free frames than this waits on its shelf for more of them, as long as
/// there are others: making it the current one would cost more than its frames.
pub(super) const SCARCE_MIN: u32 = 16;

/// 2^32 by the golden ratio: spreads numbers that lie close together (Knuth, volume 3, 6.4).
const GOLDEN: u32 = 0x9e37_79b9;

/// The shelves of a slot: two a type.
const SHELVES: usize = 2 * MigrateType::COUNT;

/// The slot. The first cache line is what every allocation touches.
#[repr(C, align(64))]
pub(super) struct Slot<P: Platform> {
    /// The word of the current pageblock to take from next, by type.
    current: [P::LocalCell<u32>; MigrateType::COUNT],
    /// State of the generator that picks frames, if they are picked at random.
    random: P::LocalCell<u64>,
    /// Frames that the slot's CPU took out of it, or whoever holds it for long.
    allocated: P::LocalCell<u64>,
    /// How many stacks of pending pageblocks there are, a power of two. Never changes.
    stacks: u32,
    rest: Rest<P>,
    shared: Shared<P>,
    stat: CpuStat<P>,
}

/// What is touched when a pageblock comes or goes.
#[repr(C, align(64))]
struct Rest<P: Platform> {
    /// The first pageblock of each shelf, and the last.
    shelves: [[P::LocalCell<u32>; 2]; SHELVES],
    /// A whole pageblock in reserve.
    spare: P::LocalCell<u32>,
    refills: P::LocalCell<u64>,
    refilled: P::LocalCell<u64>,
    drains: P::LocalCell<u64>,
    drained: P::LocalCell<u64>,
    doubles: P::LocalCell<u64>,
}

/// What other CPUs write to.
#[repr(C, align(64))]
struct Shared<P: Platform> {
    /// Stacks of pageblocks in which others have freed frames: several on one cache line. Where
    /// many CPUs push at the same time, the line goes round among them, and of those who push on
    /// one stack each time round but one comes too late and tries again.
    pending: [P::U32; STACKS_MAX],
}

/// How many stacks of pending pageblocks a slot has, if there are as many CPUs.
const STACKS_MAX: usize = 16;

impl<P: Platform> Slot<P> {
    /// The slot of one of so many CPUs.
    pub(super) fn new(seed: u64, cpus: usize) -> Self {
        let zero = || P::LocalCell::new(0);
        Slot {
            current: core::array::from_fn(|_| P::LocalCell::new(NO_WORD)),
            // Never 0, where the generator would stay.
            random: P::LocalCell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            allocated: zero(),
            stacks: cpus.next_power_of_two().min(STACKS_MAX) as u32,
            rest: Rest {
                shelves: core::array::from_fn(|_| [P::LocalCell::new(NIL), P::LocalCell::new(NIL)]),
                spare: P::LocalCell::new(NIL),
                refills: zero(),
                refilled: zero(),
                drains: zero(),
                drained: zero(),
                doubles: zero(),
            },
            shared: Shared { pending: core::array::from_fn(|_| P::U32::new(NIL)) },
            stat: CpuStat::new(),
        }
    }

    /// Says that others have freed frames of a pageblock, whose mark [`State::PENDING`] the caller
    /// has set and so may write its link.
    pub(super) fn push_pending(&self, blocks: &Blocks<P>, block: BlockIndex) {
        // Neighbours are often freed at the same time: they go to different stacks.
        let stack = block.0.wrapping_mul(GOLDEN) >> 16 & (self.stacks - 1);
        let pending = &self.shared.pending[stack as usize];
        // Relaxed: the link is only followed by whoever takes the stack.
        let mut first = pending.load(Relaxed);
        loop {
            blocks.set_pending(block, first);
            // Release: publishes the link. Acquire: from whoever took the stack to drain the slot,
            // and had noted before that the zone's slots keep nothing; see `take_pending`.
            match pending.compare_exchange(first, block.0, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// What the slot's CPU did past it.
    pub(super) fn stat(&self) -> &CpuStat<P> {
        &self.stat
    }

    /// The stacks of pending pageblocks.
    pub(super) fn stacks(&self) -> impl Iterator<Item = PendingStack> + use<P> {
        (0..self.stacks as usize).map(PendingStack)
    }

    /// Whether pageblocks are pending on a stack: a hint.
    pub(super) fn has_pending(&self, stack: PendingStack) -> bool {
        self.shared.pending[stack.0].load(Relaxed) != NIL
    }

    /// Takes all pageblocks of a stack; the caller follows their links, each before it clears the
    /// mark of the one that has it.
    pub(super) fn take_pending(&self, stack: PendingStack) -> Option<BlockIndex> {
        // Acquire: pairs with the release in `push_pending`, of all who pushed: their steps on the
        // stack are one chain of read-modify-writes. Release: who pushes from now on sees what the
        // caller did before.
        decode(self.shared.pending[stack.0].swap(NIL, AcqRel))
    }
}

/// One of the stacks of pending pageblocks.
#[derive(Clone, Copy)]
pub(super) struct PendingStack(usize);

/// The pageblock that a link leads to.
pub(super) const fn decode(link: u32) -> Option<BlockIndex> {
    if link == NIL { None } else { Some(BlockIndex(link)) }
}

// What follows is for whoever holds the lock.
impl<P: Platform> Slot<P> {
    /// The word to take frames of a type from next.
    #[inline(always)]
    pub(super) fn current(&self, migratetype: MigrateType) -> u32 {
        self.current[migratetype.index()].get()
    }

    #[inline(always)]
    pub(super) fn set_current(&self, migratetype: MigrateType, word: u32) {
        self.current[migratetype.index()].set(word);
    }

    /// The pageblock that frames of a type are taken from.
    pub(super) fn current_block(&self, migratetype: MigrateType) -> Option<BlockIndex> {
        let word = self.current(migratetype);
        (word != NO_WORD).then(|| BlockIndex::of_word(word as usize))
    }

    /// The whole pageblock in reserve.
    pub(super) fn spare(&self) -> Option<BlockIndex> {
        decode(self.rest.spare.get())
    }

    pub(super) fn set_spare(&self, spare: Option<BlockIndex>) {
        self.rest.spare.set(spare.map_or(NIL, |block| block.0));
    }

    /// The next number of a xorshift generator (Marsaglia 2003): not for secrets, but enough to
    /// make neighbours unlikely.
    pub(super) fn random(&self) -> u64 {
        let mut number = self.random.get();
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        self.random.set(number);
        number
    }

    /// Counts frames that the slot's CPU took out of it.
    #[inline(always)]
    pub(super) fn note_alloc(&self, frames: u64) {
        self.allocated.set(self.allocated.get() + frames);
    }

    /// Counts free frames that came with a pageblock.
    pub(super) fn note_refill(&self, frames: u32) {
        let Rest { refills, refilled, .. } = &self.rest;
        refills.set(refills.get() + 1);
        refilled.set(refilled.get() + u64::from(frames));
    }

    /// Counts free frames that left with a pageblock.
    pub(super) fn note_drain(&self, frames: u32) {
        let Rest { drains, drained, .. } = &self.rest;
        drains.set(drains.get() + 1);
        drained.set(drained.get() + u64::from(frames));
    }

    /// Counts frames that were found to have been freed twice at the same time.
    pub(super) fn note_doubles(&self, frames: u32) {
        let doubles = &self.rest.doubles;
        doubles.set(doubles.get() + u64::from(frames));
    }

    /// What was counted here and in the slot's [`CpuStat`]; but for frames freed, which nobody
    /// counts.
    pub(super) fn events(&self) -> Events {
        let Rest { refills, refilled, drains, drained, doubles, .. } = &self.rest;
        let frames = |cell: &P::LocalCell<u64>| FrameCount::new(cell.get());
        let mut events = Events {
            allocated: frames(&self.allocated),
            refills: refills.get(),
            refilled: frames(refilled),
            drains: drains.get(),
            drained: frames(drained),
            double_frees_late: frames(doubles),
            ..Events::default()
        };
        self.stat.add_to(&mut events);
        events
    }

    /// Puts a pageblock of a type at the back of a shelf, and notes that it is listed.
    pub(super) fn shelve(
        &self,
        blocks: &Blocks<P>,
        block: BlockIndex,
        migratetype: MigrateType,
        fill: Fill,
    ) {
        let index = shelf_index(migratetype, fill);
        let [first, last] = &self.rest.shelves[index];
        blocks.link(block, last.get(), NIL, index as u32);
        match decode(last.get()) {
            Some(last) => blocks.set_next(last, block.0),
            None => first.set(block.0),
        }
        last.set(block.0);
        if !blocks.state(block).is_listed() {
            blocks.update(block, |state| state.listed(true));
        }
    }

    /// Takes a pageblock off its shelf. It stays listed.
    pub(super) fn unshelve(&self, blocks: &Blocks<P>, block: BlockIndex) {
        let (prev, next, shelf) = blocks.links(block);
        let [first, last] = &self.rest.shelves[shelf as usize];
        match decode(prev) {
            Some(prev) => blocks.set_next(prev, next),
            None => first.set(next),
        }
        match decode(next) {
            Some(next) => blocks.set_prev(next, prev),
            None => last.set(prev),
        }
        blocks.link(block, NIL, NIL, NIL);
    }

    /// The first pageblock on a shelf.
    pub(super) fn first(&self, migratetype: MigrateType, fill: Fill) -> Option<BlockIndex> {
        decode(self.rest.shelves[shelf_index(migratetype, fill)][0].get())
    }

    /// The pageblocks on a shelf, from the front.
    pub(super) fn on_shelf<'a>(
        &'a self,
        blocks: &'a Blocks<P>,
        migratetype: MigrateType,
        fill: Fill,
    ) -> impl Iterator<Item = BlockIndex> + 'a {
        core::iter::successors(self.first(migratetype, fill), |&block| {
            decode(blocks.links(block).1)
        })
    }

    /// All pageblocks that are on a shelf or current, one after the other as long as the caller
    /// takes each away.
    pub(super) fn any_listed(&self) -> Option<BlockIndex> {
        self.any_shelved().or_else(|| self.any_current(|_| true))
    }

    /// A pageblock that is on a shelf, one of a type if there is one, or current for another type.
    pub(super) fn any_but_current(&self, migratetype: MigrateType) -> Option<BlockIndex> {
        let shelved = [Fill::Plenty, Fill::Scarce].into_iter();
        let shelved = shelved.filter_map(|fill| self.first(migratetype, fill)).next();
        shelved.or_else(|| self.any_shelved()).or_else(|| self.any_current(|of| of != migratetype))
    }

    fn any_shelved(&self) -> Option<BlockIndex> {
        self.rest.shelves.iter().find_map(|[first, _]| decode(first.get()))
    }

    fn any_current(&self, wanted: impl Fn(MigrateType) -> bool) -> Option<BlockIndex> {
        let mut types = MigrateType::ALL.into_iter().filter(|&of| wanted(of));
        types.find_map(|of| self.current_block(of))
    }

    /// Takes a listed pageblock out of its place. It stays listed.
    pub(super) fn unlist(&self, blocks: &Blocks<P>, block: BlockIndex) {
        let state = blocks.state(block);
        match state.is_current() {
            true => self.set_current(state.migratetype(), NO_WORD),
            false => self.unshelve(blocks, block),
        }
    }
}

/// The shelf for a type and fill.
const fn shelf_index(migratetype: MigrateType, fill: Fill) -> usize {
    migratetype.index() * 2 + fill as usize
}

/// The type and fill of a shelf.
pub(super) fn shelf_of(migratetype: MigrateType, fill: Fill) -> u32 {
    shelf_index(migratetype, fill) as u32
}

// How a pageblock comes to be pending, and stops being so.
impl<P: Platform> Blocks<P> {
    /// Ends a pageblock's being pending; returns its state, and the next on the stack. The caller
    /// took the stack.
    pub(super) fn end_pending(&self, block: BlockIndex) -> (State, Option<BlockIndex>) {
        // Before the mark is cleared: then others may write the link.
        let next = decode(self.pending(block));
        let before = self.update(block, |state| State(state.0 & !State::PENDING));
        (before, next)
    }
}
