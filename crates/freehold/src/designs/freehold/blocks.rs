//! The tables of pageblocks: three bitmaps each, and a short record.
//!
//! * `free`: a set bit is a free frame. Written by the holder of the pageblock alone, by plain
//!   stores.
//! * `remote`: a set bit is a frame that somebody else has freed. Written by everybody, by one
//!   read-modify-write.
//! * `tails`: a set bit is a frame that belongs to the same allocation as the one before it, so
//!   single frames have none. A free of more than one frame, or of part of an allocation, claims
//!   what it frees here first, by compare-exchange.
//!
//! A frame that is free in any of the first two has no tail bit. A frame that is no memory is
//! marked in `remote` and `tails` at once, for good.
//!
//! Which frames are free is thus known from 3 bits a frame and half a cache line a pageblock, and
//! neither free frames nor records of frames are ever touched.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use super::runs::WORD_ORDER;
use super::state::{Holder, State};
use crate::Error;
use crate::config::Config;
use crate::designs::freehold::settings::DoubleFree;
use crate::memmap::index::ZoneIndex;
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan, Twins};
use crate::platform::{Platform, SharedCell, Word};
use crate::units::{Order, Pfn};

mod fixed;
mod free_runs;
mod in_use;
mod mend;
mod spot;
mod tails;

pub(super) use spot::Spot;

use fixed::MARK_WORDS;
use in_use::InUse;

const _: () = assert!(
    Order::PAGEBLOCK.get() > WORD_ORDER,
    "blocks of one word are taken to be less than a pageblock"
);

/// Words of a bitmap for one pageblock.
pub(super) const WORDS: usize = 1 << (Order::PAGEBLOCK.get() - WORD_ORDER);

/// Frames in a pageblock.
pub(super) const FRAMES: u32 = 1 << Order::PAGEBLOCK.get();

/// The link that ends a list or stack of pageblocks.
pub(super) const NIL: u32 = u32::MAX;

/// The mark of a pageblock without a zone.
const NO_ZONE: u32 = u32::MAX;

/// The place of a pageblock in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockIndex(pub(super) u32);

impl BlockIndex {
    #[inline(always)]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The pageblock that a word lies in.
    #[inline(always)]
    pub(super) const fn of_word(word: usize) -> Self {
        BlockIndex((word / WORDS) as u32)
    }

    /// The pageblock that a frame lies in.
    #[inline(always)]
    pub(super) const fn of_frame(frame: u32) -> Self {
        BlockIndex(frame / FRAMES)
    }

    /// The first frame.
    pub(super) const fn frame(self) -> u32 {
        self.0 * FRAMES
    }

    /// Its words.
    #[inline]
    pub(super) const fn words(self) -> core::ops::Range<usize> {
        let first = self.0 as usize * WORDS;
        first..first + WORDS
    }
}

/// The bitmaps of one pageblock, a cache line each, side by side.
#[repr(C, align(64))]
struct Maps<P: Platform>([[P::U64; WORDS]; MAPS]);

/// What is known of a pageblock besides its bitmaps: half a cache line.
#[repr(C, align(32))]
struct Record<P: Platform> {
    state: P::U32,
    /// The zone, once it has memory.
    zone: P::U32,
    /// The next pageblock on a stack of pending ones.
    pending: P::U32,
    /// Neighbours on a shelf of the holder. Guarded by the holder's lock, as is what follows.
    next: P::LocalCell<u32>,
    prev: P::LocalCell<u32>,
    /// The shelf that it lies on, if it does.
    shelf: P::LocalCell<u32>,
    /// Which frames may hold content that cannot move.
    fixed: [P::U64; MARK_WORDS],
}

/// How many bitmaps a pageblock has.
const MAPS: usize = 3;
const FREE: usize = 0;
const TAILS: usize = 1;
const REMOTE: usize = 2;

/// The tables. The order of the fields is that in which the fast paths want them in one cache line.
#[repr(C)]
pub(super) struct Blocks<P: Platform> {
    twins: Twins<Record<P>, Maps<P>>,
    first: Pfn,
    /// Empty unless it is to be known of each frame whether it is in use.
    in_use: Table<InUse<P>>,
}

impl<P: Platform> Maps<P> {
    #[inline(always)]
    fn word<const MAP: usize>(&self, word: usize) -> &P::U64 {
        &self.0[MAP][word % WORDS]
    }
}

/// Where the tables will lie.
pub(super) struct BlocksPlan<P: Platform> {
    records: TablePlan<Record<P>>,
    maps: TablePlan<Maps<P>>,
    in_use: TablePlan<InUse<P>>,
    first: Pfn,
}

/// What a harvest found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Harvest {
    /// Frames that others have freed.
    pub(super) frames: u32,
    /// Of those, frames that were free already: freed twice, at the same time.
    pub(super) doubles: u32,
}

impl<P: Platform> Blocks<P> {
    pub(super) fn plan(
        config: &Config<'_>,
        double_free: DoubleFree,
        layout: &mut LayoutBuilder,
    ) -> Result<BlocksPlan<P>, Error> {
        let (first, frames) = config.span_of_blocks()?;
        let blocks = (frames.get() >> Order::PAGEBLOCK.get()) as usize;
        let in_use = match double_free {
            DoubleFree::Fast => 0,
            DoubleFree::Exact => blocks,
        };
        Ok(BlocksPlan {
            maps: layout.table(SectionKind::Bitmaps, blocks)?,
            records: layout.table(SectionKind::Blocks, blocks)?,
            in_use: layout.table(SectionKind::Bitmaps, in_use)?,
            first,
        })
    }

    pub(super) fn carve(plan: &BlocksPlan<P>, carver: &mut Carver) -> Self {
        // No frame is memory yet.
        let word = |map| P::U64::new(if map == FREE { 0 } else { !0 });
        let maps = carver.table(plan.maps, |_| {
            Maps(core::array::from_fn(|map| core::array::from_fn(|_| word(map))))
        });
        let records = carver.table(plan.records, |_| Record {
            state: P::U32::new(State::ABSENT.0),
            zone: P::U32::new(NO_ZONE),
            pending: P::U32::new(NIL),
            next: P::LocalCell::new(NIL),
            prev: P::LocalCell::new(NIL),
            shelf: P::LocalCell::new(NIL),
            fixed: core::array::from_fn(|_| P::U64::new(0)),
        });
        let twins = Twins::new(records, maps);
        let in_use = carver.table(plan.in_use, |_| InUse::new());
        // What is at hand is not looked up in the bitmap of frames in use.
        let twins = if in_use.len() > 0 { twins.hidden() } else { twins };
        Blocks { twins, first: plan.first, in_use }
    }

    #[inline(always)]
    fn map<const MAP: usize>(&self, word: usize) -> &P::U64 {
        self.twins.second(word / WORDS).word::<MAP>(word)
    }

    /// How many pageblocks the tables span.
    pub(super) fn len(&self) -> usize {
        self.twins.len()
    }

    /// How many frames the tables span.
    pub(super) fn frames(&self) -> u64 {
        self.len() as u64 * u64::from(FRAMES)
    }

    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = BlockIndex> + use<P> {
        (0..self.len() as u32).map(BlockIndex)
    }

    /// The place of a frame, if the tables span it.
    #[inline(always)]
    pub(super) fn index_of(&self, pfn: Pfn) -> Option<u32> {
        let offset = pfn.get().wrapping_sub(self.first.get());
        // The tables span fewer than 2^32 frames, so the offset fits once it is below that.
        (offset < self.frames()).then_some(offset as u32)
    }

    #[inline(always)]
    pub(super) fn pfn_of(&self, frame: u32) -> Pfn {
        Pfn::new(self.first.get() + u64::from(frame))
    }

    /// The zone of a pageblock that has memory.
    #[inline(always)]
    pub(super) fn zone(&self, block: BlockIndex) -> ZoneIndex {
        // Relaxed: written once, before the pageblock's frames became available.
        ZoneIndex(self.twins.first().get(block.index()).zone.load(Relaxed) as u16)
    }

    /// The zone of a pageblock, if it has memory. The caller holds the hotplug lock, or wants a
    /// hint.
    pub(super) fn zone_if_any(&self, block: BlockIndex) -> Option<ZoneIndex> {
        // Relaxed: as in `zone`.
        let zone = self.twins.first().get(block.index()).zone.load(Relaxed);
        (zone != NO_ZONE).then_some(ZoneIndex(zone as u16))
    }

    /// Gives a pageblock to a zone. The caller holds the hotplug lock.
    pub(super) fn set_zone(&self, block: BlockIndex, zone: ZoneIndex) {
        // Relaxed: as in `zone`.
        self.twins.first().get(block.index()).zone.store(u32::from(zone.0), Relaxed);
    }

    /// The state of a pageblock. Of what its holder decides, it is a hint to everybody else.
    #[inline(always)]
    pub(super) fn state(&self, block: BlockIndex) -> State {
        // Acquire: who sees a state sees what its writer did to the pageblock before.
        State(self.twins.first().get(block.index()).state.load(Acquire))
    }

    /// Changes the state of a pageblock, if `change` wants to; returns the state before, or what
    /// stood in the way.
    pub(super) fn try_update(
        &self,
        block: BlockIndex,
        change: impl Fn(State) -> Option<State>,
    ) -> Result<State, State> {
        let state = &self.twins.first().get(block.index()).state;
        let mut before = self.state(block);
        loop {
            let Some(after) = change(before) else { return Err(before) };
            // Acquire: from the last holder. Release: for whoever sees the new state. SeqCst: the
            // change may say that the pageblock is no longer cared for, and a failure may be the
            // look of one who has freed a frame; see `hold`.
            match state.compare_exchange(before.0, after.0, SeqCst, SeqCst) {
                Ok(_) => return Ok(before),
                Err(now) => before = State(now),
            }
        }
    }

    /// Changes the state of a pageblock that the caller holds; returns the state before.
    pub(super) fn update(&self, block: BlockIndex, change: impl Fn(State) -> State) -> State {
        let (Ok(before) | Err(before)) = self.try_update(block, |state| Some(change(state)));
        before
    }

    /// Changes the state of a pageblock that the caller has for itself alone.
    pub(super) fn replace(&self, block: BlockIndex, change: impl Fn(State) -> State) {
        let before = self.state(block);
        if before.is_pending() {
            self.update(block, change);
        } else {
            // Release: as in `update`. Nobody else changes the state: only of a pageblock in use
            // frame by frame do others say that it is pending.
            self.twins.first().get(block.index()).state.store(change(before).0, Release);
        }
    }

    /// Becomes the holder of a pageblock that nobody holds and that is in use frame by frame.
    pub(super) fn try_hold(&self, block: BlockIndex, holder: Holder) -> Result<State, State> {
        self.try_update(block, |state| {
            let may = state.is_split() && state.holder() == Holder::Nobody;
            may.then_some(state.held_by(holder))
        })
    }

    /// The link of a pending pageblock. The caller took the stack.
    pub(super) fn pending(&self, block: BlockIndex) -> u32 {
        // Relaxed: taking the stack acquired it.
        self.twins.first().get(block.index()).pending.load(Relaxed)
    }

    /// Writes the link of a pageblock whose mark of being pending the caller has set.
    pub(super) fn set_pending(&self, block: BlockIndex, next: u32) {
        // Relaxed: pushing the pageblock releases it.
        self.twins.first().get(block.index()).pending.store(next, Relaxed);
    }

    // Links, and what else is known of a pageblock, are for its holder alone.

    /// The neighbours on the shelf, and the shelf.
    pub(super) fn links(&self, block: BlockIndex) -> (u32, u32, u32) {
        let Record { prev, next, shelf, .. } = self.twins.first().get(block.index());
        (prev.get(), next.get(), shelf.get())
    }

    pub(super) fn link(&self, block: BlockIndex, prev: u32, next: u32, shelf: u32) {
        let record = self.twins.first().get(block.index());
        record.prev.set(prev);
        record.next.set(next);
        record.shelf.set(shelf);
    }

    pub(super) fn set_prev(&self, block: BlockIndex, prev: u32) {
        self.twins.first().get(block.index()).prev.set(prev);
    }

    pub(super) fn set_next(&self, block: BlockIndex, next: u32) {
        self.twins.first().get(block.index()).next.set(next);
    }

    /// The free frames of a word, as its holder left them.
    #[inline(always)]
    pub(super) fn free(&self, word: usize) -> u64 {
        // Relaxed: exact for the holder; for others a hint that finds mistakes.
        self.map::<FREE>(word).load(Relaxed)
    }

    /// Writes the free frames of a word. The caller holds the pageblock.
    #[inline(always)]
    pub(super) fn set_free(&self, word: usize, free: u64) {
        // Relaxed: the next holder is ordered behind by the lock or the state.
        self.map::<FREE>(word).store(free, Relaxed);
    }

    /// Frames of a word that others have freed, and those that are no memory.
    #[inline(always)]
    pub(super) fn remote(&self, word: usize) -> u64 {
        // Acquire: who reuses a frame is ordered behind whoever freed it.
        self.map::<REMOTE>(word).load(Acquire)
    }

    /// The free frames of a word, wherever that is noted.
    #[inline(always)]
    pub(super) fn free_or_remote(&self, word: usize) -> u64 {
        // In this order: a harvest adds frames to the free ones before it takes them from the
        // others, so that a frame which is free all the time is found.
        let remote = self.remote(word);
        self.free(word) | remote
    }

    /// The frames of a word that belong to the same allocation as those before them, and those that
    /// are no memory.
    #[inline(always)]
    pub(super) fn tails(&self, word: usize) -> u64 {
        // Relaxed: exact for whoever holds the allocation.
        self.map::<TAILS>(word).load(Relaxed)
    }

    /// Whether frames of a word are allocations of their own, none part of a larger one. The word
    /// behind need not be looked at: see [`tails`].
    #[inline(always)]
    pub(super) fn are_single(&self, word: usize, mask: u64) -> bool {
        self.tails(word) & (mask | mask << 1) == 0
    }

    /// Frames of a word that are no memory.
    #[inline]
    pub(super) fn holes(&self, word: usize) -> u64 {
        self.remote(word) & self.tails(word)
    }

    /// Frees frames of a pageblock that others hold; returns those that had been freed already.
    #[inline]
    pub(super) fn free_remotely(&self, word: usize, mask: u64) -> u64 {
        // Release: whoever harvests the frames is ordered behind what was done with them. SeqCst:
        // for the look at the state that follows; see `hold`.
        self.map::<REMOTE>(word).fetch_or(mask, SeqCst)
    }

    /// The state of a pageblock, for the look that follows a step on a remote bitmap.
    #[inline(always)]
    pub(super) fn state_after_step(&self, block: BlockIndex) -> State {
        // SeqCst: see `hold`.
        State(self.twins.first().get(block.index()).state.load(SeqCst))
    }

    /// Moves frames that others have freed to the free ones. The caller holds the pageblock. If it
    /// has just said in the state that it no longer cares for it, this is the last look.
    pub(super) fn harvest(&self, block: BlockIndex) -> Harvest {
        let mut found = Harvest::default();
        for word in block.words() {
            // SeqCst: it may be the last look; see `hold`.
            let remote = self.map::<REMOTE>(word).load(SeqCst);
            let freed = remote & !self.tails(word);
            if freed != 0 {
                let free = self.free(word);
                // First free, then no longer freed: who frees once more finds one or the other,
                // unless both happen at the same time.
                self.set_free(word, free | freed);
                self.map::<REMOTE>(word).fetch_and(!freed, AcqRel);
                found.frames += (freed & !free).count_ones();
                found.doubles += (freed & free).count_ones();
            }
        }
        found
    }

    /// Whether others have freed frames of a pageblock that the caller has just given up: the last
    /// look.
    pub(super) fn has_remote(&self, block: BlockIndex) -> bool {
        block.words().any(|word| {
            // SeqCst: see `hold`.
            let remote = self.map::<REMOTE>(word).load(SeqCst);
            remote & !self.tails(word) != 0
        })
    }

    /// Forgets what others have freed of a whole pageblock that the caller has for itself alone;
    /// returns how many frames that were.
    pub(super) fn forget_remote(&self, block: BlockIndex) -> u32 {
        let forget = |word| match self.remote(word) {
            0 => 0,
            // Acquire: from whoever freed them. Release: for whoever frees one of them once more.
            _ => self.map::<REMOTE>(word).swap(0, AcqRel).count_ones(),
        };
        block.words().map(forget).sum()
    }

    /// How many frames of a pageblock are free, without those that others have freed.
    pub(super) fn count_free(&self, block: BlockIndex) -> u32 {
        block.words().map(|word| self.free(word).count_ones()).sum()
    }

    /// How many frames of a pageblock others have freed.
    pub(super) fn count_remote(&self, block: BlockIndex) -> u32 {
        block.words().map(|word| (self.remote(word) & !self.tails(word)).count_ones()).sum()
    }

    /// How many frames of a pageblock are memory.
    pub(super) fn count_present(&self, block: BlockIndex) -> u32 {
        block.words().map(|word| (!self.holes(word)).count_ones()).sum()
    }

    /// Makes frames of a word memory, which are free then. The caller holds the pageblock.
    pub(super) fn add_free(&self, word: usize, mask: u64) {
        // No frame looks as if it were in use meanwhile: as freed by others at first, then as both.
        self.map::<TAILS>(word).fetch_and(!mask, AcqRel);
        self.set_free(word, self.free(word) | mask);
        self.map::<REMOTE>(word).fetch_and(!mask, AcqRel);
    }

    /// Makes frames of a word memory, as if somebody had freed them there.
    pub(super) fn add_freed(&self, word: usize, mask: u64) {
        // What marks them as freed is set already. The second step changes nothing, but is ordered
        // against the last look of the holder as that of a remote free is.
        self.map::<TAILS>(word).fetch_and(!mask, AcqRel);
        self.map::<REMOTE>(word).fetch_or(0, SeqCst);
    }
}
