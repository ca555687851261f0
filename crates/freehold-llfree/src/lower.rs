//! The lower allocator: the bitfields of children, their entries, and which frames are one block.
//!
//! An allocation lowers the count of a child's entry first, and then takes bits; a free gives bits
//! back first, and then raises the count. So a child has at least as many free bits as its entry
//! counts, a call that has lowered it finds a bit, and one that finds all frames counted has them
//! all: no other call is about to take one.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::block::{Block, WORD, WORDS, Word32, blocks, frames_in, words_of};
use crate::entry::{CHILD_FRAMES, Entries, Entry};
use freehold::config::Config;
use freehold::memmap::bits::{Span, WORD_FRAMES, starts};
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::memmap::stretches::{Stretches, StretchesTablePlan};
use freehold::platform::{Platform, Word};
use freehold::units::{Order, Pfn};
use freehold::{Error, zeroable};

mod changes;

/// How many children a tree has: their entries fill a cache line.
pub(crate) const TREE_CHILDREN: u32 = 32;

/// 64 frames of a bitfield: the bits of those that are allocated, or no memory.
struct Field<P: Platform>(P::U64);

/// What else is known of the same frames. Written for blocks of more than one frame, and content
/// that cannot move; read by frees.
struct Marks<P: Platform> {
    /// The frames of blocks but their first.
    tails: P::U64,
    /// The frames of blocks whose content cannot move.
    fixed: P::U64,
    /// Those that are no memory.
    holes: P::U64,
}

/// Where the marks of words begin in the word with the zone of a child. Word 16 of a child has the
/// mark of word 0, and so on.
const CHANGING_SHIFT: u32 = 16;

zeroable!(Field { 0: P::U64::ZERO_BYTES });
zeroable!(Marks {
    tails: P::U64::ZERO_BYTES,
    fixed: P::U64::ZERO_BYTES,
    holes: P::U64::ZERO_BYTES,
});

/// The lower allocator.
pub(crate) struct Lower<P: Platform> {
    fields: Table<Field<P>>,
    marks: Table<Marks<P>>,
    /// The zone of a child plus one, 0 if it has no memory; and above it, which of its words have a
    /// block that a call frees or halves.
    zones: Table<Word32<P>>,
    pub(crate) entries: Entries<P>,
    pub(crate) stretches: Stretches<P>,
}

/// Where its tables lie.
pub(crate) struct LowerPlan<P: Platform> {
    stretches: StretchesTablePlan<P>,
    entries: TablePlan<Word32<P>>,
    fields: TablePlan<Field<P>>,
    marks: TablePlan<Marks<P>>,
    zones: TablePlan<Word32<P>>,
}

impl<P: Platform> LowerPlan<P> {
    pub(crate) fn new(config: &Config<'_>, layout: &mut LayoutBuilder<'_>) -> Result<Self, Error> {
        let stretches = Stretches::plan(config, layout)?;
        let children = stretches.frames().get().div_ceil(u64::from(CHILD_FRAMES)) as usize;
        Ok(LowerPlan {
            stretches,
            entries: layout.table(SectionKind::Bitmaps, children.div_ceil(2))?,
            fields: layout.table(SectionKind::Bitmaps, children * WORDS)?,
            marks: layout.table(SectionKind::Bitmaps, children * WORDS)?,
            zones: layout.table(SectionKind::Blocks, children)?,
        })
    }

    /// How many trees a zone has that has all memory.
    pub(crate) fn trees(&self) -> usize {
        let frames = u64::from(TREE_CHILDREN * CHILD_FRAMES);
        self.stretches.frames().get().div_ceil(frames) as usize
    }
}

impl<P: Platform> Lower<P> {
    pub(crate) fn carve(plan: &LowerPlan<P>, config: &Config<'_>, carver: &mut Carver) -> Self {
        let zero = || P::U64::new(0);
        Lower {
            // The tables are carved in the order in which they were planned.
            stretches: Stretches::carve(&plan.stretches, config, carver),
            entries: Entries(carver.zero_table(plan.entries, |_| Word32::zero())),
            fields: carver.zero_table(plan.fields, |_| Field(zero())),
            marks: carver.zero_table(plan.marks, |_| Marks {
                tails: zero(),
                fixed: zero(),
                holes: zero(),
            }),
            zones: carver.zero_table(plan.zones, |_| Word32::zero()),
        }
    }

    pub(crate) fn children(&self) -> u32 {
        self.zones.len() as u32
    }

    pub(crate) fn pfn_of(&self, frame: u32) -> Pfn {
        self.stretches.pfn_of(FrameIndex(frame))
    }

    /// The zone of a child, if it has memory.
    #[inline]
    pub(crate) fn zone_of(&self, child: u32) -> Option<ZoneIndex> {
        // Relaxed: of a child that a caller has frames of, it does not change; others look again
        // when they have some.
        let zone = self.zones.try_get(child as usize)?.0.load(Relaxed);
        (zone as u16).checked_sub(1).map(ZoneIndex)
    }

    /// Gives a child to a zone, or to none. Under the hotplug lock.
    pub(crate) fn set_zone(&self, child: u32, zone: Option<ZoneIndex>) {
        let zone = zone.map_or(0, |zone| u32::from(zone.0) + 1);
        // Relaxed: the count of the first frames, which comes after it, publishes it.
        self.zones.get(child as usize).0.store(zone, Relaxed);
    }

    /// The frames of a word that are allocated, or no memory.
    #[inline]
    pub(crate) fn taken(&self, word: usize) -> u64 {
        // Acquire: marks are read after it that were written before the bits were changed.
        self.fields.get(word).0.load(Acquire)
    }

    // Relaxed for marks, but where two calls may claim one block: those of a block are written by
    // the call that has its bits, before its user knows of it and before the bits are given back.

    /// The frames of a word that are no memory.
    pub(crate) fn holes(&self, word: usize) -> u64 {
        self.marks.get(word).holes.load(Relaxed)
    }

    /// Whether a frame is no memory.
    pub(crate) fn is_hole(&self, frame: Block) -> bool {
        self.holes(frame.words().start) & frame.bit() != 0
    }

    /// Checks that frames of a word, whose child is not huge, are allocated.
    #[inline]
    pub(crate) fn check_used(&self, word: usize, mask: u64) -> Result<(), Error> {
        let taken = self.taken(word) & mask;
        match self.holes(word) & mask {
            0 if taken == mask => Ok(()),
            0 => Err(Error::DoubleFree),
            _ => Err(Error::ForeignFrame),
        }
    }

    /// The frames of a word that are those of blocks but their first.
    fn tails(&self, word: usize) -> u64 {
        // Acquire: whoever has seen one step of a split sees those before it when it looks again.
        self.marks.get(word).tails.load(Acquire)
    }

    /// The marks of frames of a word that are free, which have none.
    pub(crate) fn free_marks(&self, word: usize) -> u64 {
        let Marks { tails, fixed, .. } = self.marks.get(word);
        (tails.load(Relaxed) | fixed.load(Relaxed)) & !self.taken(word)
    }

    /// Clears them, in a copy that no other call uses.
    pub(crate) fn clear_free_marks(&self, word: usize) {
        let (Marks { tails, fixed, .. }, taken) = (self.marks.get(word), self.taken(word));
        tails.fetch_and(taken, Relaxed);
        fixed.fetch_and(taken, Relaxed);
    }

    /// Makes a frame the first one of a block.
    pub(crate) fn clear_tail(&self, frame: Block) {
        // Release: see `tails`.
        self.marks.get(frame.words().start).tails.fetch_and(!frame.bit(), Release);
    }

    /// Whether the content of the block that begins at a frame was allocated as unmovable.
    pub(crate) fn is_fixed(&self, first: u32) -> bool {
        let block = Block::frame(first);
        self.marks.get(block.words().start).fixed.load(Relaxed) & block.bit() != 0
    }

    /// The block that an allocated frame of a child that is not huge is of. `None`: a call is
    /// breaking it up, and has been seen to shorten it at one place and not yet at another.
    pub(crate) fn block_of(&self, frame: u32) -> Option<Block> {
        let mut head = frame;
        let head = loop {
            let word = head / WORD_FRAMES;
            let up_to = u64::MAX >> (WORD_FRAMES - 1 - head % WORD_FRAMES);
            let heads = !self.tails(word as usize) & up_to;
            if heads != 0 || (word as usize).is_multiple_of(WORDS) {
                break word * WORD_FRAMES + heads.checked_ilog2().unwrap_or(0);
            }
            head = word * WORD_FRAMES - 1;
        };
        let aligned = head.trailing_zeros().min(u32::from(Order::PAGEBLOCK.get()));
        let (most, mut end) = (Order::new(aligned as u8), head + 1);
        while end - head < frames_in(most) {
            let run =
                (self.tails((end / WORD_FRAMES) as usize) >> (end % WORD_FRAMES)).trailing_ones();
            end += run;
            if run == 0 || !end.is_multiple_of(WORD_FRAMES) {
                break;
            }
        }
        let order = Order::new((end - head).ilog2() as u8).min(most);
        let block = Block { first: head, order };
        (frame < block.end()).then_some(block)
    }

    /// Takes a block out of a child of a zone, or of it and the next one; the caller has so many
    /// frames of the tree's count. `Err`: how many of these it has still.
    #[inline]
    pub(crate) fn take_in_child(
        &self,
        zone: ZoneIndex,
        child: u32,
        hint: u32,
        order: Order,
        is_fixed: bool,
    ) -> Result<u32, u32> {
        // The zone comes second: it changes only when all frames of the child have left it.
        let fits = |child, of: Entry| !of.is_isolated() && self.zone_of(child) == Some(zone);
        self.take(child, order, is_fixed, fits, || self.take_bits(child, hint, order))
    }

    /// Takes a block out of children that the caller has isolated, if all of it is free.
    pub(crate) fn take_isolated(&self, block: Block, is_fixed: bool) -> bool {
        let find = || self.take_exactly(block).then_some(block.first);
        self.take(block.child(), block.order, is_fixed, |_, _| true, find).is_ok()
    }

    /// Takes a block out of children that `fits`: of less than a child, the one of which `find` has
    /// taken the bits. Frames that go back to a child that is isolated by now are gone from the
    /// count as well.
    #[inline]
    fn take(
        &self,
        child: u32,
        order: Order,
        is_fixed: bool,
        fits: impl Fn(u32, Entry) -> bool,
        find: impl FnOnce() -> Option<u32>,
    ) -> Result<u32, u32> {
        let (frames, first) = (frames_in(order), child * CHILD_FRAMES);
        if order >= Order::PAGEBLOCK {
            let huge = Entry::huge(order, is_fixed);
            let take = |child, of: Entry| {
                let is_whole = of.isolated(false) == Entry::WHOLE && fits(child, of);
                is_whole.then(|| of.becomes(huge))
            };
            let is_first = first.is_multiple_of(frames);
            let taken = is_first.then(|| self.entries.update_all(child, order, take)).flatten();
            return taken.map(|_| first).ok_or(frames);
        }
        let take = |of: Entry| of.less(frames).filter(|_| fits(child, of));
        self.entries.update(child, take).ok_or(frames)?;
        match find() {
            Some(first) => {
                self.mark(Block { first, order }, is_fixed);
                Ok(first)
            }
            None if self.entries.add(child, frames).is_isolated() => Err(0),
            None => Err(frames),
        }
    }

    /// Takes a block of less than a child out of its bitfield, beginning with the word of a frame:
    /// the first word with room. The caller has so many frames of the count. A single frame is
    /// always found: there is one, but the search may have passed where it was freed.
    #[inline]
    pub(crate) fn take_bits(&self, child: u32, hint: u32, order: Order) -> Option<u32> {
        let first = child as usize * WORDS;
        let from = hint as usize / WORD_FRAMES as usize % WORDS;
        loop {
            let found = match order <= WORD {
                true => (0..WORDS)
                    .find_map(|nth| self.take_in_word(first + (from + nth) % WORDS, order)),
                false => {
                    let span =
                        Span { first: child * CHILD_FRAMES, end: (child + 1) * CHILD_FRAMES };
                    let mut all = blocks(span, order);
                    all.find(|&block| self.take_exactly(block)).map(|block| block.first)
                }
            };
            if found.is_some() || order > Order::ZERO {
                return found;
            }
        }
    }

    /// Takes frames of a word that `pick` finds among the free ones; returns which.
    #[inline]
    fn take_of_word(&self, word: usize, pick: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let field = &self.fields.get(word).0;
        let mut taken = field.load(Relaxed);
        loop {
            let mask = pick(!taken)?;
            // Acquire: what was done to the frames and to their marks before they were freed comes
            // before what their new user does. Relaxed if it fails, since then nothing is taken.
            match field.compare_exchange(taken, taken | mask, Acquire, Relaxed) {
                Ok(_) => return Some(mask),
                Err(now) => taken = now,
            }
        }
    }

    #[inline]
    fn take_in_word(&self, word: usize, order: Order) -> Option<u32> {
        let at = |bit| Block { first: word as u32 * WORD_FRAMES + bit, order };
        let pick = |free| match starts(free, order.get()) {
            0 => None,
            bits => Some(at(bits.trailing_zeros()).mask()),
        };
        self.take_of_word(word, pick).map(|mask| at(mask.trailing_zeros()).first)
    }

    /// Takes this block, if all of it is free; otherwise what was taken of it is given back.
    pub(crate) fn take_exactly(&self, block: Block) -> bool {
        let (mut words, mask) = (block.words(), block.mask());
        let pick = |free| (free & mask == mask).then_some(mask);
        let Some(refused) = words.find(|&word| self.take_of_word(word, pick).is_none()) else {
            return true;
        };
        for word in block.words().start..refused {
            // Release: as in `put_bits`, for the marks of those that had the frames before.
            self.fields.get(word).0.fetch_and(!mask, Release);
        }
        false
    }

    /// Marks a block whose bits the caller has taken.
    #[inline]
    pub(crate) fn mark(&self, block: Block, is_fixed: bool) {
        if block.order > Order::ZERO {
            for word in block.words() {
                let head = if word == block.words().start { block.bit() } else { 0 };
                self.marks.get(word).tails.fetch_or(block.mask() & !head, Relaxed);
            }
        }
        if is_fixed {
            for word in block.words() {
                self.marks.get(word).fixed.fetch_or(block.mask(), Relaxed);
            }
        }
    }

    /// Gives the bits of a block back; returns how many of its frames were allocated. Of less than
    /// a word all or none: once its tails are gone, another call may free a frame of it.
    #[inline]
    pub(crate) fn put_bits(&self, block: Block) -> u32 {
        let (mask, is_long) = (block.mask(), block.order > WORD);
        let put = |word| {
            let (field, fixed) = (&self.fields.get(word).0, &self.marks.get(word).fixed);
            let mut taken = field.load(Relaxed);
            while is_long || taken & mask == mask {
                if fixed.load(Relaxed) & mask != 0 {
                    fixed.fetch_and(!mask, Relaxed);
                }
                // Release: whoever takes the frames has what was done to them, and to their marks.
                // Acquire: of two that give back one frame, the second has what the first one did.
                match field.compare_exchange(taken, taken & !mask, AcqRel, Acquire) {
                    Ok(_) => return taken & mask,
                    Err(now) => taken = now,
                }
            }
            0
        };
        block.words().map(|word| put(word).count_ones()).sum()
    }

    /// Makes holes of frames that no call allocates or frees, in one word.
    pub(crate) fn make_holes(&self, word: usize, mask: u64) {
        let Marks { tails, fixed, holes } = self.marks.get(word);
        self.fields.get(word).0.fetch_or(mask, Relaxed);
        holes.fetch_or(mask, Relaxed);
        tails.fetch_and(!mask, Relaxed);
        fixed.fetch_and(!mask, Relaxed);
    }

    /// Makes free frames of holes, in one word; the caller counts them.
    pub(crate) fn fill_holes(&self, word: usize, mask: u64) {
        self.marks.get(word).holes.fetch_and(!mask, Relaxed);
        // Release: as in `put_bits`.
        self.fields.get(word).0.fetch_and(!mask, Release);
    }

    /// Makes all frames of a child allocated ones of one block, for the call that splits a huge
    /// one; or all of them free again, in a copy.
    pub(crate) fn fill(&self, child: u32, is_taken: bool, is_fixed: bool) {
        for word in words_of(child) {
            let bits = if is_taken { u64::MAX } else { 0 };
            let Marks { tails, fixed, .. } = self.marks.get(word);
            tails.store(bits & !u64::from(word.is_multiple_of(WORDS)), Relaxed);
            fixed.store(if is_fixed { bits } else { 0 }, Relaxed);
            // Relaxed: the entry, which changes after it, publishes it.
            self.fields.get(word).0.store(bits, Relaxed);
        }
    }
}
