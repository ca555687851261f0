//! What one CPU cache holds: the pageblocks of one CPU in one zone.
//!
//! A pageblock of a cache is *active* (for each migratetype one that single frames are taken from,
//! and one for larger blocks), on a list of *partial* ones, *full*, or a *spare*: whole, in reserve.
//! Full ones are in no list and cost nothing: the first free of one of their frames links them
//! again, directly under the lock or through the remote queue.

use core::sync::atomic::Ordering::Relaxed;

use crate::designs::freehold::pageblocks::{NIL, PageblockIndex, Pageblocks};
use crate::designs::freehold::zones::zone::SPARES_MAX;
use crate::platform::{Platform, SharedCell, Word};
use crate::stat::Events;
use crate::units::{FrameCount, MigrateType};

/// The word that no bitmap has: there is no current pageblock.
pub(crate) const NO_WORD: u32 = u32::MAX;

/// How full the pageblocks of a shelf were when they came there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Few frames are free: such are used up first, so that the others become whole.
    NearlyFull,
    /// Many are.
    Sparse,
}

/// A pageblock with more free frames than this has plenty.
pub(crate) const NEARLY_FULL_FREE_MAX: u32 = 64;

/// A pageblock with fewer free frames than this waits on its shelf for more of them, as long as
/// there are others: making it the current one would cost more than its frames.
pub(crate) const WORTHWHILE_FREE_MIN: u32 = 16;

/// What is taken from a current pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Active {
    /// Single frames.
    Singles,
    /// Blocks of more than one frame: they would find the words that single frames are taken from
    /// torn.
    Runs,
}

impl Active {
    pub(crate) const ALL: [Self; 2] = [Active::Singles, Active::Runs];
}

/// Migratetypes, with room for a fourth: then an index of two bits needs no check.
const TYPES: usize = 4;

/// The shelves of a slot: two a type.
const PARTIAL_LISTS: usize = 2 * MigrateType::COUNT;

/// The slot, in two places.
pub(crate) struct CpuCache<'a, P: Platform> {
    pub(crate) hot: &'a Hot<P>,
    cold: &'a Cold<P>,
}

impl<P: Platform> Clone for CpuCache<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for CpuCache<'_, P> {}

/// What every allocation touches.
#[repr(C)]
pub(crate) struct Hot<P: Platform> {
    /// The word of a current pageblock to take from next, by what is taken and by type. Written
    /// under the lock; what others read is a hint.
    active: [[P::U32; TYPES]; Active::ALL.len()],
    /// Frames that the slot's CPU took out of it, or the holder of a lease.
    allocated: P::LocalCell<u64>,
}

/// The rest.
#[repr(C, align(64))]
pub(crate) struct Cold<P: Platform> {
    /// The hot part, if it does not lie with the lock.
    pub(crate) hot: Hot<P>,
    /// Whether a freeze has the lock of the slot.
    frozen: P::U32,
    rest: Rest<P>,
}

/// What is touched when a pageblock comes or goes.
#[repr(C, align(64))]
struct Rest<P: Platform> {
    /// The first pageblock of each shelf, and the last.
    partial: [[P::LocalCell<u32>; 2]; PARTIAL_LISTS],
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

impl<P: Platform> Hot<P> {
    pub(crate) fn new() -> Self {
        Hot {
            active: core::array::from_fn(|_| core::array::from_fn(|_| P::U32::new(NO_WORD))),
            allocated: P::LocalCell::new(0),
        }
    }

    /// The word to take from next: exact under the lock.
    #[inline(always)]
    pub(crate) fn active_word(&self, what: Active, type_index: usize) -> u32 {
        // Relaxed: what it leads to is looked at under the lock.
        self.active[what as usize][type_index % TYPES].load(Relaxed)
    }

    /// For the holder of the lock.
    #[inline(always)]
    pub(crate) fn set_active_word(&self, what: Active, type_index: usize, word: u32) {
        // Relaxed: as above.
        self.active[what as usize][type_index % TYPES].store(word, Relaxed);
    }

    /// Counts frames that the slot's CPU took out of it. For whoever holds the lock.
    #[inline(always)]
    pub(crate) fn note_alloc(&self, frames: u64) {
        self.allocated.set(self.allocated.get() + frames);
    }
}

impl<P: Platform> Cold<P> {
    /// The rest of the slot of one of so many CPUs.
    pub(crate) fn new(seed: u64) -> Self {
        let zero = || P::LocalCell::new(0);
        Cold {
            hot: Hot::new(),
            frozen: P::U32::new(0),
            rest: Rest {
                partial: core::array::from_fn(|_| [P::LocalCell::new(NIL), P::LocalCell::new(NIL)]),
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
        }
    }
}

impl<'a, P: Platform> CpuCache<'a, P> {
    #[inline(always)]
    pub(crate) fn new(hot: &'a Hot<P>, cold: &'a Cold<P>) -> Self {
        CpuCache { hot, cold }
    }

    /// Notes whether a freeze has the lock of the slot; says whether it had it so far.
    pub(crate) fn set_frozen(&self, frozen: bool) -> bool {
        // Relaxed: for that one thread alone.
        self.cold.frozen.swap(u32::from(frozen), Relaxed) != 0
    }
}

// What follows is for whoever holds the lock.
impl<P: Platform> CpuCache<'_, P> {
    /// The pageblock that frames of a type are taken from.
    pub(crate) fn active_pageblock(
        &self,
        what: Active,
        migratetype: MigrateType,
    ) -> Option<PageblockIndex> {
        let word = self.hot.active_word(what, migratetype.index());
        (word != NO_WORD).then(|| PageblockIndex::of_word(word as usize))
    }

    /// How many whole pageblocks are in reserve.
    #[inline(always)]
    pub(crate) fn spare_count(&self) -> usize {
        self.cold.rest.spare_count.get() as usize
    }

    /// The whole pageblocks in reserve, the one that goes last first.
    pub(crate) fn spares(&self) -> impl Iterator<Item = PageblockIndex> {
        let spares = &self.cold.rest.spares;
        spares.iter().take(self.spare_count()).map(|spare| PageblockIndex(spare.get()))
    }

    /// Takes a whole pageblock out of the reserve.
    #[inline(always)]
    pub(crate) fn pop_spare(&self) -> Option<PageblockIndex> {
        let rest = self.spare_count().checked_sub(1)?;
        let spare = self.cold.rest.spares.get(rest)?;
        self.cold.rest.spare_count.set(rest as u32);
        Some(PageblockIndex(spare.get()))
    }

    /// Puts a whole pageblock into the reserve; says whether there was room.
    #[inline(always)]
    pub(crate) fn push_spare(&self, pageblock: PageblockIndex) -> bool {
        let count = self.spare_count();
        let Some(place) = self.cold.rest.spares.get(count) else { return false };
        place.set(pageblock.0);
        self.cold.rest.spare_count.set(count as u32 + 1);
        true
    }

    /// Takes those out of the reserve that are wanted, by place and pageblock: what would be used
    /// last has place 0.
    pub(crate) fn remove_spares(&self, mut wanted: impl FnMut(usize, PageblockIndex) -> bool) {
        let (mut kept, spares) = (0, &self.cold.rest.spares);
        for (place, spare) in spares.iter().enumerate().take(self.spare_count()) {
            let pageblock = spare.get();
            if !wanted(place, PageblockIndex(pageblock)) {
                spares[kept].set(pageblock);
                kept += 1;
            }
        }
        self.cold.rest.spare_count.set(kept as u32);
    }

    /// The next number of a xorshift generator (Marsaglia 2003): not for secrets, but enough to
    /// make neighbours unlikely.
    pub(crate) fn random(&self) -> u64 {
        let mut number = self.cold.rest.random.get();
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        self.cold.rest.random.set(number);
        number
    }

    /// Counts frames that the slot's CPU took out of it.
    #[inline(always)]
    pub(crate) fn note_alloc(&self, frames: u64) {
        self.hot.note_alloc(frames);
    }

    /// Counts free frames that came with a pageblock.
    pub(crate) fn note_refill(&self, frames: u32) {
        let Rest { refills, refilled, .. } = &self.cold.rest;
        refills.set(refills.get() + 1);
        refilled.set(refilled.get() + u64::from(frames));
    }

    /// Counts free frames that left with a pageblock.
    pub(crate) fn note_drain(&self, frames: u32) {
        let Rest { drains, drained, .. } = &self.cold.rest;
        drains.set(drains.get() + 1);
        drained.set(drained.get() + u64::from(frames));
    }

    /// Counts frames that were found to have been freed twice at the same time.
    pub(crate) fn note_doubles(&self, frames: u32) {
        let doubles = &self.cold.rest.doubles;
        doubles.set(doubles.get() + u64::from(frames));
    }

    /// What was counted here; but for frames freed, which are not counted.
    pub(crate) fn events(&self) -> Events {
        let Rest { refills, refilled, drains, drained, doubles, .. } = &self.cold.rest;
        let frames = |cell: &P::LocalCell<u64>| FrameCount::new(cell.get());
        Events {
            allocated: frames(&self.hot.allocated),
            refills: refills.get(),
            refilled: frames(refilled),
            drains: drains.get(),
            drained: frames(drained),
            double_frees_late: frames(doubles),
            ..Events::default()
        }
    }

    /// Puts a pageblock of a type at the back of a shelf, and notes that it is listed.
    pub(crate) fn link_partial(
        &self,
        pageblocks: &Pageblocks<P>,
        pageblock: PageblockIndex,
        migratetype: MigrateType,
        fill: Fill,
    ) {
        let index = list_index(migratetype, fill);
        let [first, last] = &self.cold.rest.partial[index];
        pageblocks.link(pageblock, last.get(), NIL, index as u32);
        match PageblockIndex::of_link(last.get()) {
            Some(last) => pageblocks.set_next(last, pageblock.0),
            None => first.set(pageblock.0),
        }
        last.set(pageblock.0);
        if !pageblocks.state(pageblock).is_listed() {
            pageblocks.update(pageblock, |state| state.listed(true));
        }
    }

    /// Takes a pageblock off its shelf. It stays listed.
    pub(crate) fn unlink_partial(&self, pageblocks: &Pageblocks<P>, pageblock: PageblockIndex) {
        let (prev, next, list) = pageblocks.links(pageblock);
        let [first, last] = &self.cold.rest.partial[list as usize];
        match PageblockIndex::of_link(prev) {
            Some(prev) => pageblocks.set_next(prev, next),
            None => first.set(next),
        }
        match PageblockIndex::of_link(next) {
            Some(next) => pageblocks.set_prev(next, prev),
            None => last.set(prev),
        }
        pageblocks.link(pageblock, NIL, NIL, NIL);
    }

    /// The first pageblock on a shelf.
    pub(crate) fn first_partial(
        &self,
        migratetype: MigrateType,
        fill: Fill,
    ) -> Option<PageblockIndex> {
        PageblockIndex::of_link(self.cold.rest.partial[list_index(migratetype, fill)][0].get())
    }

    /// The pageblocks on a shelf, from the front.
    pub(crate) fn partial_list<'b>(
        &'b self,
        pageblocks: &'b Pageblocks<P>,
        migratetype: MigrateType,
        fill: Fill,
    ) -> impl Iterator<Item = PageblockIndex> + 'b {
        core::iter::successors(self.first_partial(migratetype, fill), |&pageblock| {
            PageblockIndex::of_link(pageblocks.links(pageblock).1)
        })
    }

    /// All pageblocks that are on a shelf or current, one after the other as long as the caller
    /// takes each away.
    pub(crate) fn any_listed(&self) -> Option<PageblockIndex> {
        self.any_partial().or_else(|| self.any_active(|_, _| true))
    }

    /// A pageblock that is on a shelf, one of a type if there is one, or a current one other than
    /// that which single frames of the type are taken from.
    pub(crate) fn any_but_active(&self, migratetype: MigrateType) -> Option<PageblockIndex> {
        let shelved = [Fill::Sparse, Fill::NearlyFull].into_iter();
        let shelved = shelved.filter_map(|fill| self.first_partial(migratetype, fill)).next();
        let is_other = |what, of| what != Active::Singles || of != migratetype;
        shelved.or_else(|| self.any_partial()).or_else(|| self.any_active(is_other))
    }

    fn any_partial(&self) -> Option<PageblockIndex> {
        self.cold.rest.partial.iter().find_map(|[first, _]| PageblockIndex::of_link(first.get()))
    }

    fn any_active(&self, wanted: impl Fn(Active, MigrateType) -> bool) -> Option<PageblockIndex> {
        Active::ALL.into_iter().find_map(|what| {
            let mut types = MigrateType::ALL.into_iter().filter(|&of| wanted(what, of));
            types.find_map(|of| self.active_pageblock(what, of))
        })
    }

    /// Takes a listed pageblock out of its place. It stays listed.
    pub(crate) fn unlink(&self, pageblocks: &Pageblocks<P>, pageblock: PageblockIndex) {
        let state = pageblocks.state(pageblock);
        if !state.is_active() {
            return self.unlink_partial(pageblocks, pageblock);
        }
        let of = state.migratetype();
        let is_there = |&what: &Active| self.active_pageblock(what, of) == Some(pageblock);
        if let Some(what) = Active::ALL.into_iter().find(is_there) {
            self.hot.set_active_word(what, of.index(), NO_WORD);
        }
    }
}

/// The shelf for a type and fill.
const fn list_index(migratetype: MigrateType, fill: Fill) -> usize {
    migratetype.index() * 2 + fill as usize
}

/// The type and fill of a shelf.
pub(crate) fn list_of(migratetype: MigrateType, fill: Fill) -> u32 {
    list_index(migratetype, fill) as u32
}
