//! A slot: what one CPU holds of one zone. The lock over all slots of a CPU is tried, and if
//! somebody has it, the caller goes elsewhere: a holder that is preempted stalls nobody.
//!
//! The pageblocks of a slot are current: for each type one that single frames are taken from, and
//! one for larger blocks; on a shelf, where frames are known to be free; or aside, which costs
//! nothing: a free of a frame of such a one puts it on a shelf, under the lock, or else on the
//! stack of pending ones. Besides, a slot has whole pageblocks in reserve.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::blocks::{BlockIndex, Blocks, NIL};
use super::stat::CpuStat;
use super::state::State;
use crate::geometry::STACKS_MAX;
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

/// What is taken from a current pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Single frames.
    Singles,
    /// Blocks of more than one frame: they would find the words that single frames are taken from
    /// torn.
    Runs,
}

impl For {
    pub(super) const ALL: [Self; 2] = [For::Singles, For::Runs];
}

/// Migratetypes, with room for a fourth: then an index of two bits needs no check.
const TYPES: usize = 4;

/// So many whole pageblocks a slot keeps at most.
pub(super) const SPARES_MAX: usize = 16;

/// The shelves of a slot: two a type.
const SHELVES: usize = 2 * MigrateType::COUNT;

/// The slot, in two places.
pub(super) struct Slot<'a, P: Platform> {
    pub(super) hot: &'a Hot<P>,
    cold: &'a Cold<P>,
}

impl<P: Platform> Clone for Slot<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Slot<'_, P> {}

/// What every allocation touches.
#[repr(C)]
pub(super) struct Hot<P: Platform> {
    /// The word of a current pageblock to take from next, by what is taken and by type. Written
    /// under the lock; what others read is a hint.
    current: [[P::U32; TYPES]; For::ALL.len()],
    /// Frames that the slot's CPU took out of it, or the holder of a lease.
    allocated: P::LocalCell<u64>,
}

/// The rest.
#[repr(C, align(64))]
pub(super) struct Cold<P: Platform> {
    /// The hot part, if it does not lie with the lock.
    pub(super) hot: Hot<P>,
    /// How many stacks of pending pageblocks there are, a power of two. Never changes.
    stacks: u32,
    /// Whether a freeze has the lock of the slot.
    frozen: P::U32,
    rest: Rest<P>,
    shared: Shared<P>,
    stat: CpuStat<P>,
}

/// What is touched when a pageblock comes or goes.
#[repr(C, align(64))]
struct Rest<P: Platform> {
    /// The first pageblock of each shelf, and the last.
    shelves: [[P::LocalCell<u32>; 2]; SHELVES],
    /// Whole pageblocks in reserve, and how many: the last one goes first.
    spares: [P::LocalCell<u32>; SPARES_MAX],
    spare_count: P::LocalCell<u32>,
    /// State of the generator that picks frames, if they are picked at random.
    random: P::LocalCell<u64>,
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

impl<P: Platform> Hot<P> {
    pub(super) fn new() -> Self {
        Hot {
            current: core::array::from_fn(|_| core::array::from_fn(|_| P::U32::new(NO_WORD))),
            allocated: P::LocalCell::new(0),
        }
    }

    /// The word to take from next: exact under the lock.
    #[inline(always)]
    pub(super) fn current(&self, what: For, type_index: usize) -> u32 {
        // Relaxed: what it leads to is looked at under the lock.
        self.current[what as usize][type_index % TYPES].load(Relaxed)
    }

    /// For the holder of the lock.
    #[inline(always)]
    pub(super) fn set_current(&self, what: For, type_index: usize, word: u32) {
        // Relaxed: as above.
        self.current[what as usize][type_index % TYPES].store(word, Relaxed);
    }

    /// Counts frames that the slot's CPU took out of it. For whoever holds the lock.
    #[inline(always)]
    pub(super) fn note_alloc(&self, frames: u64) {
        self.allocated.set(self.allocated.get() + frames);
    }
}

impl<P: Platform> Cold<P> {
    /// The rest of the slot of one of so many CPUs.
    pub(super) fn new(seed: u64, cpus: usize) -> Self {
        let zero = || P::LocalCell::new(0);
        Cold {
            hot: Hot::new(),
            stacks: cpus.next_power_of_two().min(STACKS_MAX) as u32,
            frozen: P::U32::new(0),
            rest: Rest {
                shelves: core::array::from_fn(|_| [P::LocalCell::new(NIL), P::LocalCell::new(NIL)]),
                spares: core::array::from_fn(|_| P::LocalCell::new(NIL)),
                spare_count: P::LocalCell::new(0),
                // Never 0, where the generator would stay.
                random: P::LocalCell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
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
}

impl<'a, P: Platform> Slot<'a, P> {
    #[inline(always)]
    pub(super) fn new(hot: &'a Hot<P>, cold: &'a Cold<P>) -> Self {
        Slot { hot, cold }
    }

    /// Says that others have freed frames of a pageblock, whose mark [`State::PENDING`] the caller
    /// has set and so may write its link.
    pub(super) fn push_pending(&self, blocks: &Blocks<P>, block: BlockIndex) {
        // Neighbours are often freed at the same time: they go to different stacks.
        let stack = block.0.wrapping_mul(GOLDEN) >> 16 & (self.cold.stacks - 1);
        let pending = &self.cold.shared.pending[stack as usize];
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
    pub(super) fn stat(&self) -> &'a CpuStat<P> {
        &self.cold.stat
    }

    /// Notes whether a freeze has the lock of the slot; says whether it had it so far.
    pub(super) fn set_frozen(&self, frozen: bool) -> bool {
        // Relaxed: for that one thread alone.
        self.cold.frozen.swap(u32::from(frozen), Relaxed) != 0
    }

    /// The stacks of pending pageblocks.
    pub(super) fn stacks(&self) -> impl Iterator<Item = PendingStack> + use<'a, P> {
        (0..self.cold.stacks as usize).map(PendingStack)
    }

    /// Whether pageblocks are pending on a stack: a hint.
    pub(super) fn has_pending(&self, stack: PendingStack) -> bool {
        self.cold.shared.pending[stack.0].load(Relaxed) != NIL
    }

    /// Forgets which pageblocks are pending. No other CPU pushes any at the same time.
    pub(super) fn forget_pending(&self) {
        // Relaxed: there is no other thread.
        self.cold.shared.pending.iter().for_each(|stack| stack.store(NIL, Relaxed));
    }

    /// Takes all pageblocks of a stack; the caller follows their links, each before it clears the
    /// mark of the one that has it.
    pub(super) fn take_pending(&self, stack: PendingStack) -> Option<BlockIndex> {
        // Acquire: pairs with the release in `push_pending`, of all who pushed: their steps on the
        // stack are one chain of read-modify-writes. Release: who pushes from now on sees what the
        // caller did before.
        decode(self.cold.shared.pending[stack.0].swap(NIL, AcqRel))
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
impl<P: Platform> Slot<'_, P> {
    /// The pageblock that frames of a type are taken from.
    pub(super) fn current_block(&self, what: For, migratetype: MigrateType) -> Option<BlockIndex> {
        let word = self.hot.current(what, migratetype.index());
        (word != NO_WORD).then(|| BlockIndex::of_word(word as usize))
    }

    /// How many whole pageblocks are in reserve.
    #[inline(always)]
    pub(super) fn spare_count(&self) -> usize {
        self.cold.rest.spare_count.get() as usize
    }

    /// The whole pageblocks in reserve, the one that goes last first.
    pub(super) fn spares(&self) -> impl Iterator<Item = BlockIndex> {
        let spares = &self.cold.rest.spares;
        spares.iter().take(self.spare_count()).map(|spare| BlockIndex(spare.get()))
    }

    /// Takes a whole pageblock out of the reserve.
    #[inline(always)]
    pub(super) fn pop_spare(&self) -> Option<BlockIndex> {
        let rest = self.spare_count().checked_sub(1)?;
        let spare = self.cold.rest.spares.get(rest)?;
        self.cold.rest.spare_count.set(rest as u32);
        Some(BlockIndex(spare.get()))
    }

    /// Puts a whole pageblock into the reserve; says whether there was room.
    #[inline(always)]
    pub(super) fn push_spare(&self, block: BlockIndex) -> bool {
        let count = self.spare_count();
        let Some(place) = self.cold.rest.spares.get(count) else { return false };
        place.set(block.0);
        self.cold.rest.spare_count.set(count as u32 + 1);
        true
    }

    /// Takes those out of the reserve that are wanted, by place and pageblock: what would be used
    /// last has place 0.
    pub(super) fn remove_spares(&self, mut wanted: impl FnMut(usize, BlockIndex) -> bool) {
        let (mut kept, spares) = (0, &self.cold.rest.spares);
        for (place, spare) in spares.iter().enumerate().take(self.spare_count()) {
            let block = spare.get();
            if !wanted(place, BlockIndex(block)) {
                spares[kept].set(block);
                kept += 1;
            }
        }
        self.cold.rest.spare_count.set(kept as u32);
    }

    /// The next number of a xorshift generator (Marsaglia 2003): not for secrets, but enough to
    /// make neighbours unlikely.
    pub(super) fn random(&self) -> u64 {
        let mut number = self.cold.rest.random.get();
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        self.cold.rest.random.set(number);
        number
    }

    /// Counts frames that the slot's CPU took out of it.
    #[inline(always)]
    pub(super) fn note_alloc(&self, frames: u64) {
        self.hot.note_alloc(frames);
    }

    /// Counts free frames that came with a pageblock.
    pub(super) fn note_refill(&self, frames: u32) {
        let Rest { refills, refilled, .. } = &self.cold.rest;
        refills.set(refills.get() + 1);
        refilled.set(refilled.get() + u64::from(frames));
    }

    /// Counts free frames that left with a pageblock.
    pub(super) fn note_drain(&self, frames: u32) {
        let Rest { drains, drained, .. } = &self.cold.rest;
        drains.set(drains.get() + 1);
        drained.set(drained.get() + u64::from(frames));
    }

    /// Counts frames that were found to have been freed twice at the same time.
    pub(super) fn note_doubles(&self, frames: u32) {
        let doubles = &self.cold.rest.doubles;
        doubles.set(doubles.get() + u64::from(frames));
    }

    /// What was counted here and in the slot's [`CpuStat`]; but for frames freed, which nobody
    /// counts.
    pub(super) fn events(&self) -> Events {
        let Rest { refills, refilled, drains, drained, doubles, .. } = &self.cold.rest;
        let frames = |cell: &P::LocalCell<u64>| FrameCount::new(cell.get());
        let mut events = Events {
            allocated: frames(&self.hot.allocated),
            refills: refills.get(),
            refilled: frames(refilled),
            drains: drains.get(),
            drained: frames(drained),
            double_frees_late: frames(doubles),
            ..Events::default()
        };
        self.cold.stat.add_to(&mut events);
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
        let [first, last] = &self.cold.rest.shelves[index];
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
        let [first, last] = &self.cold.rest.shelves[shelf as usize];
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
        decode(self.cold.rest.shelves[shelf_index(migratetype, fill)][0].get())
    }

    /// The pageblocks on a shelf, from the front.
    pub(super) fn on_shelf<'b>(
        &'b self,
        blocks: &'b Blocks<P>,
        migratetype: MigrateType,
        fill: Fill,
    ) -> impl Iterator<Item = BlockIndex> + 'b {
        core::iter::successors(self.first(migratetype, fill), |&block| {
            decode(blocks.links(block).1)
        })
    }

    /// All pageblocks that are on a shelf or current, one after the other as long as the caller
    /// takes each away.
    pub(super) fn any_listed(&self) -> Option<BlockIndex> {
        self.any_shelved().or_else(|| self.any_current(|_, _| true))
    }

    /// A pageblock that is on a shelf, one of a type if there is one, or a current one other than
    /// that which single frames of the type are taken from.
    pub(super) fn any_but_current(&self, migratetype: MigrateType) -> Option<BlockIndex> {
        let shelved = [Fill::Plenty, Fill::Scarce].into_iter();
        let shelved = shelved.filter_map(|fill| self.first(migratetype, fill)).next();
        let is_other = |what, of| what != For::Singles || of != migratetype;
        shelved.or_else(|| self.any_shelved()).or_else(|| self.any_current(is_other))
    }

    fn any_shelved(&self) -> Option<BlockIndex> {
        self.cold.rest.shelves.iter().find_map(|[first, _]| decode(first.get()))
    }

    fn any_current(&self, wanted: impl Fn(For, MigrateType) -> bool) -> Option<BlockIndex> {
        For::ALL.into_iter().find_map(|what| {
            let mut types = MigrateType::ALL.into_iter().filter(|&of| wanted(what, of));
            types.find_map(|of| self.current_block(what, of))
        })
    }

    /// Takes a listed pageblock out of its place. It stays listed.
    pub(super) fn unlist(&self, blocks: &Blocks<P>, block: BlockIndex) {
        let state = blocks.state(block);
        if !state.is_current() {
            return self.unshelve(blocks, block);
        }
        let of = state.migratetype();
        let is_there = |&what: &For| self.current_block(what, of) == Some(block);
        if let Some(what) = For::ALL.into_iter().find(is_there) {
            self.hot.set_current(what, of.index(), NO_WORD);
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
