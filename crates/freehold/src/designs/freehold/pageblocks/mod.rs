//! The lower layer: pageblocks, their bitmaps and their states. It knows no CPU cache, no zone's
//! level and no policy.
//!
//! | word or bitmap | a set bit is | written by |
//! |---|---|---|
//! | state | see [`State`] | the holder; others set single bits, by compare-exchange |
//! | `free` | a free frame | the holder alone, by plain stores |
//! | `remote` | a frame that was freed by another CPU than the holder | any CPU, by one RMW |
//! | `tails` | a frame that belongs to the same allocation as the frame before it | see [`tails`] |
//!
//! Single frames have no tail bit, as in compound pages. A free of more than one frame, or of part
//! of an allocation, first clears the bits of what it frees, by compare-exchange. A frame that is
//! free in either of the first two bitmaps has no tail bit. A frame that is no memory (a hole) is
//! marked in both `remote` and `tails`, until memory is added there. A pageblock that never had
//! memory, and so has no zone, is all zeros: its bitmaps mean nothing.
//!
//! So 3 bits a frame and half a cache line a pageblock tell which frames are free. Free frames are
//! never touched, and there are no records of frames.

use core::sync::atomic::Ordering::Relaxed;

use crate::Error;
use crate::config::Config;
use crate::designs::freehold::settings::DoubleFree;
use crate::memmap::index::{FrameIndex, ZoneIndex};
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan, Twins};
use crate::memmap::stretches::{Stretches, StretchesTablePlan};
use crate::memmap::zeroable::zeroable;
use crate::platform::{Platform, SharedCell, Word, ZeroBytes};
use crate::units::{Order, Pfn};
use in_use::InUse;
use run::WORD_ORDER;
use state::State;
use unmovable::MARK_WORDS;

pub(super) mod bitmaps;
mod extent;
mod frame_ref;
pub(super) mod huge;
mod in_use;
pub(super) mod remote;
mod repair;
pub(super) mod run;
pub(super) mod state;
mod tails;
mod unmovable;
mod words;

pub(super) use frame_ref::FrameRef;

const _: () = assert!(
    Order::PAGEBLOCK.get() > WORD_ORDER,
    "blocks of one word are taken to be less than a pageblock"
);

/// Words of a bitmap for one pageblock.
pub(crate) const WORDS: usize = 1 << (Order::PAGEBLOCK.get() - WORD_ORDER);

/// Frames in a pageblock.
pub(crate) const FRAMES: u32 = 1 << Order::PAGEBLOCK.get();

/// The link that ends a list or stack of pageblocks.
pub(crate) const NIL: u32 = u32::MAX;

/// The place of a pageblock in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageblockIndex(pub(crate) u32);

impl PageblockIndex {
    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The pageblock that a word lies in.
    #[inline(always)]
    pub(crate) const fn of_word(word: usize) -> Self {
        PageblockIndex((word / WORDS) as u32)
    }

    /// The pageblock that a frame lies in.
    #[inline(always)]
    pub(crate) const fn of_frame(frame: u32) -> Self {
        PageblockIndex(frame / FRAMES)
    }

    /// The pageblock that a link leads to.
    pub(crate) const fn of_link(link: u32) -> Option<Self> {
        if link == NIL { None } else { Some(PageblockIndex(link)) }
    }

    /// The first frame.
    pub(crate) const fn frame(self) -> u32 {
        self.0 * FRAMES
    }

    /// Its words.
    #[inline]
    pub(crate) const fn words(self) -> core::ops::Range<usize> {
        let first = self.0 as usize * WORDS;
        first..first + WORDS
    }
}

/// The bitmaps of one pageblock, word beside word: a call finds all about a frame in one cache line
/// or two. And a CPU that frees what another has just allocated soon lags behind the line that this
/// one writes to.
#[repr(C, align(64))]
struct Maps<P: Platform>([[P::U64; MAPS]; WORDS]);

/// What is known of a pageblock besides its bitmaps: half a cache line.
#[repr(C, align(32))]
struct Record<P: Platform> {
    state: P::U32,
    /// The number of the zone that it has memory of, or had last, plus one; 0: it never had any.
    zone: P::U32,
    /// The next pageblock on a stack of a remote queue.
    queue_link: P::U32,
    /// Neighbours on a list of partial pageblocks of the holder. Guarded by the holder's lock, as
    /// is what follows.
    next: P::LocalCell<u32>,
    prev: P::LocalCell<u32>,
    /// The list that it is on, if it is.
    list: P::LocalCell<u32>,
    /// Which frames may hold content that cannot move.
    unmovable: [P::U64; MARK_WORDS],
}

zeroable!(Maps { 0: ZeroBytes::array(ZeroBytes::array(P::U64::ZERO_BYTES)) });

zeroable!(Record {
    state: P::U32::ZERO_BYTES,
    zone: P::U32::ZERO_BYTES,
    queue_link: P::U32::ZERO_BYTES,
    next: <P::LocalCell<u32>>::ZERO_BYTES,
    prev: <P::LocalCell<u32>>::ZERO_BYTES,
    list: <P::LocalCell<u32>>::ZERO_BYTES,
    unmovable: ZeroBytes::array(P::U64::ZERO_BYTES),
});

/// How many bitmaps a pageblock has.
const MAPS: usize = 3;
const FREE: usize = 0;
const TAILS: usize = 1;
const REMOTE: usize = 2;

/// The tables. The order of the fields is that in which the fast paths want them in one cache line.
#[repr(C)]
pub(crate) struct Pageblocks<P: Platform> {
    /// The first frame of the near stretch.
    near: Pfn,
    twins: Twins<Record<P>, Maps<P>>,
    /// Empty unless each frame has a bit that says whether it is in use.
    in_use: Table<InUse<P>>,
    stretches: Stretches<P>,
}

impl<P: Platform> Maps<P> {
    #[inline(always)]
    fn word<const MAP: usize>(&self, word: usize) -> &P::U64 {
        &self.0[word % WORDS][MAP]
    }

    /// The words of one bitmap.
    #[inline(always)]
    fn words<const MAP: usize>(&self) -> impl Iterator<Item = &P::U64> {
        self.0.iter().map(|word| &word[MAP])
    }
}

/// Where the tables will lie.
pub(crate) struct PageblocksPlan<P: Platform> {
    records: TablePlan<Record<P>>,
    maps: TablePlan<Maps<P>>,
    in_use: TablePlan<InUse<P>>,
    stretches: StretchesTablePlan<P>,
}

impl<P: Platform> Pageblocks<P> {
    /// How many bytes of it the fast paths read.
    #[cfg(test)]
    pub(crate) const FAST_BYTES: usize =
        core::mem::offset_of!(Self, twins) + Twins::<Record<P>, Maps<P>>::FAST_BYTES;

    pub(crate) fn plan(
        config: &Config<'_>,
        double_free: DoubleFree,
        layout: &mut LayoutBuilder,
    ) -> Result<PageblocksPlan<P>, Error> {
        let stretches = Stretches::plan(config, layout)?;
        let pageblocks = (stretches.frames().get() >> Order::PAGEBLOCK.get()) as usize;
        let in_use = match double_free {
            DoubleFree::Fast => 0,
            DoubleFree::Exact => pageblocks,
        };
        Ok(PageblocksPlan {
            maps: layout.table(SectionKind::Bitmaps, pageblocks)?,
            records: layout.table(SectionKind::Blocks, pageblocks)?,
            in_use: layout.table(SectionKind::Bitmaps, in_use)?,
            stretches,
        })
    }

    pub(crate) fn carve(
        plan: &PageblocksPlan<P>,
        config: &Config<'_>,
        carver: &mut Carver,
    ) -> Self {
        // The tables are carved in the order in which they were planned.
        let stretches = Stretches::carve(&plan.stretches, config, carver);
        let maps = carver.zero_table(plan.maps, |_| {
            Maps(core::array::from_fn(|_| core::array::from_fn(|_| P::U64::new(0))))
        });
        let records = carver.zero_table(plan.records, |_| Record {
            state: P::U32::new(State::ABSENT.0),
            zone: P::U32::new(0),
            queue_link: P::U32::new(0),
            next: P::LocalCell::new(0),
            prev: P::LocalCell::new(0),
            list: P::LocalCell::new(0),
            unmovable: core::array::from_fn(|_| P::U64::new(0)),
        });
        let twins = Twins::new(records, maps);
        let in_use = carver.zero_table(plan.in_use, |_| InUse::new());
        // The fast paths find the near stretch alone. And they do not look at the bitmap of frames
        // in use: if there is one, they find nothing.
        let near = (stretches.near_frames() >> Order::PAGEBLOCK.get()) as usize;
        let twins = twins.showing(if in_use.len() > 0 { 0 } else { near });
        Pageblocks { near: stretches.first(), twins, in_use, stretches }
    }

    fn record(&self, pageblock: PageblockIndex) -> &Record<P> {
        self.twins.first().get(pageblock.index())
    }

    #[inline(always)]
    fn map<const MAP: usize>(&self, word: usize) -> &P::U64 {
        self.maps_of(word).word::<MAP>(word)
    }

    /// The bitmaps that a word lies in.
    #[inline(always)]
    fn maps_of(&self, word: usize) -> &Maps<P> {
        self.twins.second(word / WORDS)
    }

    #[inline(always)]
    fn maps(&self, pageblock: PageblockIndex) -> &Maps<P> {
        self.twins.second(pageblock.index())
    }

    /// How many pageblocks the tables have records for.
    pub(crate) fn len(&self) -> usize {
        self.twins.len()
    }
    /// Which frames the tables have records for.
    pub(crate) fn stretches(&self) -> &Stretches<P> {
        &self.stretches
    }

    /// The place of a frame, if the tables have a record for it.
    #[inline(always)]
    pub(crate) fn index_of(&self, pfn: Pfn) -> Option<u32> {
        self.stretches.index_of(pfn).map(|frame| frame.0)
    }

    #[inline(always)]
    pub(crate) fn pfn_of(&self, frame: u32) -> Pfn {
        self.stretches.pfn_of(FrameIndex(frame))
    }

    /// The same for a frame of a word that a fast path has found.
    #[inline(always)]
    pub(crate) fn near_pfn_of(&self, frame: u32) -> Pfn {
        debug_assert!(u64::from(frame) < self.stretches.near_frames());
        Pfn::new(self.near.get() + u64::from(frame))
    }

    /// The zone of a pageblock that has memory.
    #[inline(always)]
    pub(crate) fn zone(&self, pageblock: PageblockIndex) -> ZoneIndex {
        self.record(pageblock).zone()
    }

    /// The zone of a pageblock, if it has memory or had some. The caller holds the hotplug lock, or
    /// wants a hint.
    pub(crate) fn zone_if_any(&self, pageblock: PageblockIndex) -> Option<ZoneIndex> {
        // Relaxed: as in `Record::zone`.
        let zone = self.record(pageblock).zone.load(Relaxed);
        zone.checked_sub(1).map(|zone| ZoneIndex(zone as u16))
    }

    /// Gives a pageblock without memory to a zone. The caller holds the hotplug lock.
    pub(crate) fn set_zone(&self, pageblock: PageblockIndex, zone: ZoneIndex) {
        // Relaxed throughout: the state that follows, which says that there is memory, orders it.
        let record = self.record(pageblock);
        if record.zone.load(Relaxed) == 0 {
            for word in pageblock.words() {
                self.map::<REMOTE>(word).store(!0, Relaxed);
                self.map::<TAILS>(word).store(!0, Relaxed);
            }
            record.queue_link.store(NIL, Relaxed);
            self.link(pageblock, NIL, NIL, NIL);
        }
        record.zone.store(u32::from(zone.0) + 1, Relaxed);
    }

    /// The state of a pageblock. Of what its holder decides, it is a hint to every other CPU.
    #[inline(always)]
    pub(crate) fn state(&self, pageblock: PageblockIndex) -> State {
        self.record(pageblock).state()
    }

    /// Changes the state of a pageblock, if `change` wants to; returns the state before, or what
    /// stood in the way.
    pub(crate) fn try_update(
        &self,
        pageblock: PageblockIndex,
        change: impl Fn(State) -> Option<State>,
    ) -> Result<State, State> {
        self.record(pageblock).try_update(change)
    }

    /// Changes the state of a pageblock that the caller holds; returns the state before.
    pub(crate) fn update(
        &self,
        pageblock: PageblockIndex,
        change: impl Fn(State) -> State,
    ) -> State {
        let (Ok(before) | Err(before)) = self.try_update(pageblock, |state| Some(change(state)));
        before
    }

    /// Changes the state of a pageblock that the caller alone can reach.
    pub(crate) fn replace(&self, pageblock: PageblockIndex, change: impl Fn(State) -> State) {
        let before = self.state(pageblock);
        if before.is_queued() {
            self.update(pageblock, change);
        } else {
            self.record(pageblock).set_state(change(before));
        }
    }

    /// The link of a pageblock on a stack of a remote queue: see `zones/remote_queue.rs`.
    pub(crate) fn queue_link(&self, pageblock: PageblockIndex) -> &P::U32 {
        &self.record(pageblock).queue_link
    }

    // Links of lists are for the holder alone.

    /// The neighbours on the list of partial pageblocks, and the list.
    pub(crate) fn links(&self, pageblock: PageblockIndex) -> (u32, u32, u32) {
        let Record { prev, next, list, .. } = self.record(pageblock);
        (prev.get(), next.get(), list.get())
    }

    pub(crate) fn link(&self, pageblock: PageblockIndex, prev: u32, next: u32, list: u32) {
        let record = self.record(pageblock);
        record.prev.set(prev);
        record.next.set(next);
        record.list.set(list);
    }

    pub(crate) fn set_prev(&self, pageblock: PageblockIndex, prev: u32) {
        self.record(pageblock).prev.set(prev);
    }

    pub(crate) fn set_next(&self, pageblock: PageblockIndex, next: u32) {
        self.record(pageblock).next.set(next);
    }
}
