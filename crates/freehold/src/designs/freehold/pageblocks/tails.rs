//! Which frames belong to the same allocation: how tail bits are set, cleared and read.
//!
//! Users hold aligned blocks of powers of two. A block of which parts were freed counts as the
//! largest such blocks that fit in what is left. So the tail bits are enough: they tell where an
//! allocation begins, and how many of its frames are left in a row.
//!
//! An allocation of more than a word has all of its words, and these have bits of another meaning:
//! see [`extent`](super::extent).

use super::run::{Run, Span, WORD_FRAMES, WORD_ORDER};
use super::{PageblockIndex, Pageblocks};
use crate::Error;
use crate::compact::Migrate;
use crate::platform::Platform;
use crate::units::Order;

impl<P: Platform> Pageblocks<P> {
    /// Marks the frames of a run as one allocation. No frame of it is free.
    pub(crate) fn join(&self, run: Run) {
        let (word, order) = (run.word as usize, run.order.get());
        if order > WORD_ORDER {
            self.set_extents(run.words(), order);
        } else if order > 0 {
            self.maps_of(word).join(word, run.mask());
        }
    }

    /// Marks all frames of a pageblock, none of which is free, as two allocations of half of it.
    pub(crate) fn join_all(&self, pageblock: PageblockIndex) {
        self.set_extents(pageblock.words(), Order::PAGEBLOCK.get());
    }

    /// Claims a run that is an allocation or part of one, and ends its use: what is left begins
    /// behind it. Of two calls that claim the same frames at the same time, one succeeds.
    ///
    /// A single frame without tail bits is an exception: without [`in_use`](super::in_use), there
    /// is nothing to claim, and the step that sets its free bit decides. So it may be freed beside
    /// the block that it was part of until now.
    ///
    /// # Errors
    ///
    /// [`Error::WrongOrder`] if the frames belong to more than one allocation,
    /// [`Error::DoubleFree`] if another call is freeing them; nothing has changed.
    pub(crate) fn begin_free(&self, run: Run) -> Result<(), Error> {
        if run.order.get() > WORD_ORDER {
            return self.begin_free_long(run);
        }
        self.begin_free_frames(run.word as usize, run.mask(), run.mask() & !(1 << run.bit))
    }

    /// The same for adjacent frames of a word, which may be parts of several allocations.
    ///
    /// # Errors
    ///
    /// [`Error::DoubleFree`], as above.
    pub(crate) fn begin_free_parts(&self, word: usize, mask: u64) -> Result<(), Error> {
        self.begin_free_frames(word, mask, 0)
    }

    /// The same for adjacent frames of a word. Those of `needed` must belong to the allocation of
    /// the frame before.
    fn begin_free_frames(&self, word: usize, mask: u64, needed: u64) -> Result<(), Error> {
        self.open(word)?;
        let clear = mask | mask << 1;
        if !self.has_uses() {
            return self.unjoin(word, needed, clear);
        }
        if self.joined(word).1 & needed != needed {
            return Err(Error::WrongOrder);
        }
        // First the use, which decides, then the tail bits: a frame without these could be freed
        // by itself.
        if !self.try_end_use_of(word, mask, needed) {
            return Err(Error::DoubleFree);
        }
        self.unjoin(word, 0, clear)
    }

    /// Clears tail bits of a word if all of `needed` are set. Those of holes do not count.
    ///
    /// # Errors
    ///
    /// [`Error::WrongOrder`] if they are not; nothing has changed.
    fn unjoin(&self, word: usize, needed: u64, clear: u64) -> Result<(), Error> {
        loop {
            let (before, joined, _) = self.joined(word);
            // With a tail bit for its first frame, the word has become one of a larger block.
            if joined & (needed | 1) != needed {
                return Err(Error::WrongOrder);
            }
            if joined & clear == 0 || self.try_set_tails(word, before, before & !(joined & clear)) {
                return Ok(());
            }
        }
    }

    /// The first frame of a span that a user holds.
    pub(crate) fn next_used(&self, span: Span) -> Option<u32> {
        span.words().find_map(|(word, mask)| {
            let used = self.used(word) & mask;
            (used != 0).then(|| word as u32 * WORD_FRAMES + used.trailing_zeros())
        })
    }

    /// The block that a user holds in which a frame lies. A block that is being freed may look like
    /// several; its user knows nothing of those.
    pub(crate) fn part_of(&self, frame: u32) -> Run {
        let (word, bit) = (frame / WORD_FRAMES, frame % WORD_FRAMES);
        let (_, joined, extent) = self.joined(word as usize);
        if extent.is_some()
            && let Some(block) = self.long_block_of(word as usize)
        {
            return block;
        }
        // The first frame of a word begins an allocation, whatever it looks like meanwhile.
        let heads = !joined | 1;
        let mut at = bit - (heads << (WORD_FRAMES - 1 - bit)).leading_zeros();
        let behind = heads.checked_shr(bit + 1).unwrap_or(0);
        let end = (bit + 1 + behind.trailing_zeros()).min(WORD_FRAMES);
        loop {
            let order = at.trailing_zeros().min((end - at).ilog2());
            let part = Run::at(word * WORD_FRAMES + at, Order::new(order as u8));
            if frame < part.end() {
                return part;
            }
            at += 1 << order;
        }
    }

    /// The first block at or after `from` in a pageblock that a user holds and whose content may
    /// move, if it has less than order `below`.
    pub(crate) fn next_movable(
        &self,
        pageblock: PageblockIndex,
        from: u32,
        below: Order,
        owner: &dyn Migrate,
    ) -> Option<Run> {
        let mut at = Span { first: from, ..Span::of(pageblock, 1) };
        while let Some(frame) = self.next_used(at) {
            let part = self.part_of(frame);
            if part.order < below && self.may_move(part, owner) {
                return Some(part);
            }
            at.first = part.end();
        }
        None
    }

    /// Whether the content of a block that a user holds may move.
    pub(crate) fn may_move(&self, part: Run, owner: &dyn Migrate) -> bool {
        !self.may_be_unmovable(part) || owner.can_move(self.pfn_of(part.frame()), part.order)
    }
}
