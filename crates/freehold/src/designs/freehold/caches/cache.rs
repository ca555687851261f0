//! The data of one CPU cache: the pageblocks that one CPU holds in one zone.
//!
//! A pageblock of a cache is in one of these places:
//!
//! * *active*: for each migratetype, one that single frames are taken from, and one for larger
//!   blocks. For content that cannot move these may be the same;
//! * on a list of *partial* pageblocks: two for each migratetype, by fill;
//! * *full*: in no list, at no cost. The first free of one of its frames links it again, directly
//!   under the lock or through the remote queue;
//! * among the *spares*: whole.

use core::sync::atomic::Ordering::Relaxed;

use crate::designs::freehold::pageblocks::state::State;
use crate::designs::freehold::pageblocks::{NIL, PageblockIndex, Pageblocks};
use crate::designs::freehold::zones::zone::SPARES_MAX;
use crate::platform::{Platform, SharedCell, Word};
use crate::stat::Events;
use crate::units::{FrameCount, MigrateType};

/// The number that no word has: there is no active pageblock.
pub(crate) const NO_WORD: u32 = u32::MAX;

/// How full the pageblocks of a partial list were when they were linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Few frames were free.
    NearlyFull,
    /// Enough frames were free, or none until a free: how many there are now is yet to be counted.
    /// These lie roughly in the order of their addresses, and the lowest is used first: so what was
    /// just freed is used again before memory that has gone cold, and those at the other end become
    /// whole.
    Worthwhile,
}

/// A pageblock with fewer free frames than this is not activated as long as there are others: it
/// would cost more than its frames are worth.
pub(crate) const WORTHWHILE_FREE_MIN: u32 = 16;

/// At most so many pageblocks are passed in search of the place that one has among the worthwhile
/// ones.
const STEPS: usize = 16;

/// What is taken from an active pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Active {
    /// Single frames.
    Singles,
    /// Blocks of more than one frame. In the words that single frames are taken from, they would
    /// rarely find an aligned run.
    Runs,
}

impl Active {
    pub(crate) const ALL: [Self; 2] = [Active::Singles, Active::Runs];
}

/// Migratetypes, with room for a fourth, so that an index of two bits needs no check.
const TYPES: usize = 4;

/// The partial lists of a cache: two for each type.
const PARTIAL_LISTS: usize = 2 * MigrateType::COUNT;

/// One CPU cache. Its data lies in two places.
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

/// The part that every allocation touches.
#[repr(C)]
pub(crate) struct Hot<P: Platform> {
    /// The active words: by what is taken and by type, the word to take from next. Written under
    /// the lock; without it, what is read is a hint.
    active: [[P::U32; TYPES]; Active::ALL.len()],
    /// Frames that the CPU of the cache took out of it, or the owner of a lease.
    allocated: P::LocalCell<u64>,
}

/// The part that allocations touch less often.
#[repr(C, align(64))]
pub(crate) struct Cold<P: Platform> {
    /// The hot part, if it does not lie in `PerCpu`.
    pub(crate) hot: Hot<P>,
    /// Whether a freeze has the lock of the CPU's caches.
    frozen: P::U32,
    rest: Rest<P>,
}

/// What is touched when a pageblock comes or goes.
#[repr(C, align(64))]
struct Rest<P: Platform> {
    /// The first and the last pageblock of each partial list.
    partial: [[P::LocalCell<u32>; 2]; PARTIAL_LISTS],
    /// The spares, and how many there are: a stack.
    spares: [P::LocalCell<u32>; SPARES_MAX],
    spare_count: P::LocalCell<u32>,
    /// The state of the generator that picks frames, if they are picked at random.
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
        // Relaxed: what it leads to is read under the lock.
        self.active[what as usize][type_index % TYPES].load(Relaxed)
    }

    /// The caller has the lock.
    #[inline(always)]
    pub(crate) fn set_active_word(&self, what: Active, type_index: usize, word: u32) {
        // Relaxed: as above.
        self.active[what as usize][type_index % TYPES].store(word, Relaxed);
    }

    /// Counts frames that the CPU of the cache took out of it. The caller has the lock.
    #[inline(always)]
    pub(crate) fn note_alloc(&self, frames: u64) {
        self.allocated.set(self.allocated.get() + frames);
    }
}

impl<P: Platform> Cold<P> {
    /// The rest of a cache; each cache has a seed of its own.
    pub(crate) fn new(seed: u64) -> Self {
        let zero = || P::LocalCell::new(0);
        Cold {
            hot: Hot::new(),
            frozen: P::U32::new(0),
            rest: Rest {
                partial: core::array::from_fn(|_| [P::LocalCell::new(NIL), P::LocalCell::new(NIL)]),
                spares: core::array::from_fn(|_| P::LocalCell::new(NIL)),
                spare_count: P::LocalCell::new(0),
                // Never 0, from which the generator would not move.
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

    /// Whether a freeze has the lock of the CPU's caches.
    pub(crate) fn is_frozen(&self) -> bool {
        // Relaxed: the freezing thread alone reads and writes it.
        self.cold.frozen.load(Relaxed) != 0
    }

    pub(crate) fn set_frozen(&self, frozen: bool) {
        // Relaxed: as above.
        self.cold.frozen.store(u32::from(frozen), Relaxed);
    }
}

// The caller has the lock, from here on.
impl<P: Platform> CpuCache<'_, P> {
    /// The active pageblock for frames of a type.
    pub(crate) fn active_pageblock(
        &self,
        what: Active,
        migratetype: MigrateType,
    ) -> Option<PageblockIndex> {
        let word = self.hot.active_word(what, migratetype.index());
        (word != NO_WORD).then(|| PageblockIndex::of_word(word as usize))
    }

    /// How many spares there are.
    #[inline(always)]
    pub(crate) fn spare_count(&self) -> usize {
        self.cold.rest.spare_count.get() as usize
    }

    /// The spares: the one that is used last comes first.
    pub(crate) fn spares(&self) -> impl Iterator<Item = PageblockIndex> {
        let spares = &self.cold.rest.spares;
        spares.iter().take(self.spare_count()).map(|spare| PageblockIndex(spare.get()))
    }

    /// Takes a spare.
    #[inline(always)]
    pub(crate) fn pop_spare(&self) -> Option<PageblockIndex> {
        let rest = self.spare_count().checked_sub(1)?;
        let spare = self.cold.rest.spares.get(rest)?;
        self.cold.rest.spare_count.set(rest as u32);
        Some(PageblockIndex(spare.get()))
    }

    /// Adds a spare; returns whether there was room.
    #[inline(always)]
    pub(crate) fn push_spare(&self, pageblock: PageblockIndex) -> bool {
        let count = self.spare_count();
        let Some(place) = self.cold.rest.spares.get(count) else { return false };
        place.set(pageblock.0);
        self.cold.rest.spare_count.set(count as u32 + 1);
        true
    }

    /// Removes those spares that `wanted` selects, by place and pageblock. The spare that would be
    /// used last has place 0.
    pub(crate) fn remove_spares(&self, mut wanted: impl FnMut(usize, PageblockIndex) -> bool) {
        let (mut left, spares) = (0, &self.cold.rest.spares);
        for (place, spare) in spares.iter().enumerate().take(self.spare_count()) {
            let pageblock = spare.get();
            if !wanted(place, PageblockIndex(pageblock)) {
                spares[left].set(pageblock);
                left += 1;
            }
        }
        self.cold.rest.spare_count.set(left as u32);
    }

    /// The next number of a xorshift generator (Marsaglia 2003). Not fit for secrets, but it makes
    /// adjacent frames unlikely.
    pub(crate) fn random(&self) -> u64 {
        let mut number = self.cold.rest.random.get();
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        self.cold.rest.random.set(number);
        number
    }

    /// Counts frames that the CPU of the cache took out of it.
    #[inline(always)]
    pub(crate) fn note_alloc(&self, frames: u64) {
        self.hot.note_alloc(frames);
    }

    /// Counts a pageblock that came to the cache, and its free frames.
    pub(crate) fn note_refill(&self, frames: u32) {
        let Rest { refills, refilled, .. } = &self.cold.rest;
        refills.set(refills.get() + 1);
        refilled.set(refilled.get() + u64::from(frames));
    }

    /// Counts a pageblock that left the cache, and its free frames.
    pub(crate) fn note_drain(&self, frames: u32) {
        let Rest { drains, drained, .. } = &self.cold.rest;
        drains.set(drains.get() + 1);
        drained.set(drained.get() + u64::from(frames));
    }

    /// Counts frames that were freed twice at the same time.
    pub(crate) fn note_doubles(&self, frames: u32) {
        let doubles = &self.cold.rest.doubles;
        doubles.set(doubles.get() + u64::from(frames));
    }

    /// What the cache has counted. Frees are not counted.
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

    /// Puts a pageblock on a partial list, and marks it as listed.
    pub(crate) fn link_partial(
        &self,
        pageblocks: &Pageblocks<P>,
        pageblock: PageblockIndex,
        migratetype: MigrateType,
        fill: Fill,
    ) {
        let index = list_index(migratetype, fill);
        let [first, last] = &self.cold.rest.partial[index];
        let (prev, next) = match fill {
            Fill::NearlyFull => (last.get(), NIL),
            Fill::Worthwhile => neighbours(pageblocks, pageblock, first.get(), last.get()),
        };
        pageblocks.link(pageblock, prev, next, index as u32);
        match PageblockIndex::of_link(prev) {
            Some(prev) => pageblocks.set_next(prev, pageblock.0),
            None => first.set(pageblock.0),
        }
        match PageblockIndex::of_link(next) {
            Some(next) => pageblocks.set_prev(next, pageblock.0),
            None => last.set(pageblock.0),
        }
        if !pageblocks.state(pageblock).is_listed() {
            pageblocks.update(pageblock, State::list);
        }
    }

    /// Takes a pageblock off its partial list. It stays marked as listed.
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

    /// The first pageblock on a partial list.
    pub(crate) fn first_partial(
        &self,
        migratetype: MigrateType,
        fill: Fill,
    ) -> Option<PageblockIndex> {
        PageblockIndex::of_link(self.cold.rest.partial[list_index(migratetype, fill)][0].get())
    }

    /// The pageblocks on a partial list, from the front.
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

    /// The last pageblock on a partial list: the one that its cache would use last.
    fn last_partial(&self, migratetype: MigrateType, fill: Fill) -> Option<PageblockIndex> {
        PageblockIndex::of_link(self.cold.rest.partial[list_index(migratetype, fill)][1].get())
    }

    /// Any pageblock that is partial or active. If the caller unlinks each, calls return all of
    /// them.
    pub(crate) fn any_listed(&self) -> Option<PageblockIndex> {
        self.any_partial().or_else(|| self.any_active(|_, _| true))
    }

    /// Any partial pageblock, preferably of a type; or an active one, except the one that single
    /// frames of the type are taken from.
    pub(crate) fn any_but_active(&self, migratetype: MigrateType) -> Option<PageblockIndex> {
        let partial = [Fill::Worthwhile, Fill::NearlyFull].into_iter();
        let partial = partial.filter_map(|fill| self.last_partial(migratetype, fill)).next();
        let singles = self.active_pageblock(Active::Singles, migratetype);
        let is_other = |what, of| self.active_pageblock(what, of) != singles;
        partial.or_else(|| self.any_partial()).or_else(|| self.any_active(is_other))
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

    /// Unlinks a partial or active pageblock. It stays marked as listed.
    pub(crate) fn unlink(&self, pageblocks: &Pageblocks<P>, pageblock: PageblockIndex) {
        let state = pageblocks.state(pageblock);
        if !state.is_active() {
            return self.unlink_partial(pageblocks, pageblock);
        }
        let of = state.migratetype();
        for what in Active::ALL {
            if self.active_pageblock(what, of) == Some(pageblock) {
                self.hot.set_active_word(what, of.index(), NO_WORD);
            }
        }
    }
}

/// Between which pageblocks of a list, in the order of their addresses, one belongs: looked for
/// from the nearer end. A pageblock that lies many steps away comes nearer to that end than it
/// should.
fn neighbours<P: Platform>(
    pageblocks: &Pageblocks<P>,
    PageblockIndex(own): PageblockIndex,
    first: u32,
    last: u32,
) -> (u32, u32) {
    let from_last = own.saturating_sub(first) > last.saturating_sub(own);
    let (mut prev, mut next) = if from_last { (last, NIL) } else { (NIL, first) };
    for _ in 0..STEPS {
        match PageblockIndex::of_link(if from_last { prev } else { next }) {
            Some(other) if from_last && other.0 > own => {
                (prev, next) = (pageblocks.links(other).0, prev);
            }
            Some(other) if !from_last && other.0 < own => {
                (prev, next) = (next, pageblocks.links(other).1);
            }
            _ => break,
        }
    }
    (prev, next)
}

/// The index of the partial list for a type and fill.
const fn list_index(migratetype: MigrateType, fill: Fill) -> usize {
    migratetype.index() * 2 + fill as usize
}

/// The same, as links record it.
pub(crate) fn list_of(migratetype: MigrateType, fill: Fill) -> u32 {
    list_index(migratetype, fill) as u32
}
