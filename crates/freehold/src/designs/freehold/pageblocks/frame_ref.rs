//! A frame, looked up once: what the fast paths work with.

use core::num::NonZeroU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use super::run::{WORD_FRAMES, ones, starts};
use super::state::State;
use super::{FRAMES, Maps, PageblockIndex, Pageblocks, REMOTE, Record, TAILS, WORDS};
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, Word};
use crate::units::Pfn;

/// A frame, the record of its pageblock, and the bitmaps of its pageblock: all reads and writes
/// through it share one bounds check.
pub(crate) struct FrameRef<'a, P: Platform> {
    record: &'a Record<P>,
    maps: &'a Maps<P>,
    /// The index of the frame.
    frame: u32,
}

impl<P: Platform> Clone for FrameRef<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for FrameRef<'_, P> {}

impl<P: Platform> Pageblocks<P> {
    /// Looks up a frame, if the tables have a record for it.
    #[inline(always)]
    pub(crate) fn lookup(&self, pfn: Pfn) -> Option<FrameRef<'_, P>> {
        self.lookup_fast(pfn).or_else(|| self.lookup_any(pfn))
    }

    /// The same for the fast paths, which allocate and free without a look at the bitmap of frames
    /// in use: finds frames of the near stretch, and none if there is such a bitmap.
    #[inline(always)]
    pub(crate) fn lookup_fast(&self, pfn: Pfn) -> Option<FrameRef<'_, P>> {
        let offset = pfn.get().wrapping_sub(self.near.get());
        let (record, maps) = self.twins.try_get_shown((offset / u64::from(FRAMES)) as usize)?;
        // There are fewer than 2^32 indexes.
        Some(FrameRef { record, maps, frame: offset as u32 })
    }

    /// The same as `lookup_fast` for frames of far stretches.
    #[inline(always)]
    pub(crate) fn lookup_far(&self, pfn: Pfn) -> Option<FrameRef<'_, P>> {
        match self.stretches.is_far(pfn) && !self.has_uses() {
            true => self.lookup_any(pfn),
            false => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn lookup_any(&self, pfn: Pfn) -> Option<FrameRef<'_, P>> {
        let frame = self.index_of(pfn)?;
        let (record, maps) = self.twins.try_get((frame / FRAMES) as usize)?;
        Some(FrameRef { record, maps, frame })
    }

    /// Looks up the first frame of a word, if there is one.
    #[inline(always)]
    pub(crate) fn lookup_word(&self, word: u32) -> Option<FrameRef<'_, P>> {
        let (record, maps) = self.twins.try_get(word as usize / WORDS)?;
        Some(FrameRef { record, maps, frame: word.wrapping_mul(WORD_FRAMES) })
    }

    /// The same for the fast paths; see [`Pageblocks::lookup_fast`].
    #[inline(always)]
    pub(crate) fn lookup_word_fast(&self, word: u32) -> Option<FrameRef<'_, P>> {
        let (record, maps) = self.twins.try_get_shown(word as usize / WORDS)?;
        Some(FrameRef { record, maps, frame: word.wrapping_mul(WORD_FRAMES) })
    }

    /// Looks up the first frame of a pageblock, if there is one.
    #[inline(always)]
    pub(crate) fn lookup_pageblock(&self, pageblock: PageblockIndex) -> Option<FrameRef<'_, P>> {
        self.lookup_word(pageblock.0.wrapping_mul(WORDS as u32))
    }
}

impl<P: Platform> FrameRef<'_, P> {
    #[inline(always)]
    fn word<const MAP: usize>(&self) -> &P::U64 {
        self.maps.word::<MAP>(self.word_index())
    }

    /// The word that the frame lies in.
    #[inline(always)]
    pub(crate) fn word_index(&self) -> usize {
        (self.frame / WORD_FRAMES) as usize
    }

    /// The index of the frame.
    #[inline(always)]
    pub(crate) fn frame(&self) -> u32 {
        self.frame
    }

    /// The pageblock.
    #[inline(always)]
    pub(crate) fn pageblock(&self) -> PageblockIndex {
        PageblockIndex::of_frame(self.frame)
    }

    /// The bits of a block of `order`, at most that of a word, that begins at the frame.
    #[inline(always)]
    pub(crate) fn mask(&self, order: u8) -> u64 {
        ones(order) << (self.frame % WORD_FRAMES)
    }

    #[inline(always)]
    pub(crate) fn zone(&self) -> ZoneIndex {
        self.record.zone()
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> State {
        self.record.state()
    }

    /// The state, for the look that follows a step on the remote bitmap.
    #[inline(always)]
    pub(crate) fn state_after_step(&self) -> State {
        self.record.state_after_step()
    }

    /// Changes the state of a block that is allocated whole if it is still `before`; returns
    /// whether it was.
    #[inline(always)]
    pub(crate) fn try_change(&self, before: State, after: State) -> bool {
        // Acquire, release: as in `Record::try_update`. No look follows: no frame of the block is
        // freed remotely. Relaxed: after a failure, the caller takes another path.
        self.record.state.compare_exchange(before.0, after.0, AcqRel, Relaxed).is_ok()
    }

    /// As [`Pageblocks::replace`], where the pageblock is not queued.
    #[inline(always)]
    pub(crate) fn set_state(&self, state: State) {
        self.record.set_state(state);
    }

    #[inline(always)]
    pub(crate) fn free(&self) -> u64 {
        self.maps.free(self.word_index())
    }

    #[inline(always)]
    pub(crate) fn set_free(&self, free: u64) {
        self.maps.set_free(self.word_index(), free);
    }

    #[inline(always)]
    pub(crate) fn remote(&self) -> u64 {
        self.maps.remote(self.word_index())
    }

    /// Frees frames of the word remotely, if the remote bitmap still is as it was `seen`; returns
    /// whether it was.
    #[inline(always)]
    pub(crate) fn try_put_remotely(&self, seen: u64, mask: u64) -> bool {
        // SeqCst: as in `Pageblocks::put_remotely`. Relaxed: after a failure, the caller takes
        // another path.
        self.word::<REMOTE>().compare_exchange(seen, seen | mask, SeqCst, Relaxed).is_ok()
    }

    /// The lowest word of the pageblock with a free block of `order`, at most that of a word.
    pub(crate) fn word_with_run(&self, order: u8) -> Option<Self> {
        let first = self.frame & !(FRAMES - 1);
        let words =
            (0..WORDS as u32).map(|word| FrameRef { frame: first + word * WORD_FRAMES, ..*self });
        { words }.find(|word| starts(word.free(), order) != 0)
    }

    /// The free frames of the word, in either bitmap.
    #[inline(always)]
    pub(crate) fn free_or_remote(&self) -> u64 {
        self.maps.free_or_remote(self.word_index())
    }

    /// Whether the frame is an allocation of its own, and not in `free`, the free frames that the
    /// caller has read.
    #[inline(always)]
    pub(crate) fn is_single_in_use(&self, free: u64) -> bool {
        let tails = self.maps.tails_of_user(self.word_index());
        let not_so = tails | tails >> 1 | free;
        not_so >> (self.frame % WORD_FRAMES) & 1 == 0
    }

    /// Claims a block of one word, as [`Pageblocks::begin_free`] does, if it is an allocation and
    /// not part of a larger one; returns whether it is.
    #[inline(always)]
    pub(crate) fn try_begin_free(&self, mask: u64) -> bool {
        let (tails, inner) = (self.maps.tails_of_user(self.word_index()), mask & (mask << 1));
        // A word of a larger block looks otherwise: see `extent`.
        tails & (mask | mask << 1) == inner
            && self
                .word::<TAILS>()
                // Relaxed: a CPU that frees frames got them from the CPU that allocated them, and
                // the free bit that is set next orders how they are passed on.
                .compare_exchange(tails, tails & !inner, Relaxed, Relaxed)
                .is_ok()
    }

    /// Takes the lowest free block of `order`, at least 1 and at most that of a word, if the word
    /// has one; returns its first frame. The caller holds the pageblock. `self` is the first frame
    /// of the word.
    #[inline(always)]
    pub(crate) fn take_run(&self, order: u8) -> Option<u32> {
        let free = self.free();
        let bit = NonZeroU64::new(starts(free, order))?.trailing_zeros();
        let mask = ones(order) << bit;
        self.set_free(free & !mask);
        self.maps.join(self.word_index(), mask);
        Some(self.frame + bit)
    }

    /// Frees frames of the word, which their user has claimed, in the bitmap of a pageblock that a
    /// cache has listed; `state` is that of the pageblock, and the caller has the lock of the
    /// cache. Returns whether nothing else need be done. If not, nothing has changed: a frame is
    /// free already, or the pageblock may become whole.
    #[inline(always)]
    pub(crate) fn try_put_here(&self, state: State, mask: u64) -> bool {
        let free = self.free();
        let after = free | mask;
        let usual = free & mask == 0 && (after != !0 || state.is_active());
        if usual {
            self.set_free(after);
        }
        usual
    }
}
