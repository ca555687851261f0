//! What a CPU has of a zone: the tree that it has reserved, and how many frames it may take of it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::trees::TreeIndex;
use freehold::platform::{Platform, Word};
use freehold::stat::{Events, NumaExceptions};
use freehold::units::FrameCount;

/// After so many frees in a row of one tree, the CPU reserves it.
const FREES: u32 = 4;

/// Where a word of sections has how often frames were moved, above those under way.
pub(crate) const MOVED_SHIFT: u32 = u32::BITS;

/// Where the tree lies in a reservation: above the count, plus one.
const TREE_SHIFT: u32 = 32;

/// The record of a CPU for a zone: a line that others write when they steal, and when memory runs
/// out.
#[repr(C, align(64))]
pub(crate) struct Local<P: Platform> {
    /// The frames that may be taken of the reserved tree, and which one that is; 0 if none is.
    reserved: P::U64,
    /// The last frame that was allocated: where the next search begins.
    hint: P::U32,
    /// The tree of the last free, and how many of the last ones it had.
    freed_in: P::U32,
    /// How many calls that run here have free frames in hand, and above it how often one had such
    /// that it left elsewhere.
    sections: P::U64,
    /// By [`Count`].
    counts: [P::U64; 7],
    pub(crate) numa: NumaExceptions<P>,
}

/// What is counted, the first two by each call, the others when a reservation changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    Allocated,
    Freed,
    /// Past all reservations.
    AllocatedDirectly,
    Refills,
    Refilled,
    Drains,
    Drained,
}

/// A reservation as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    pub(crate) tree: TreeIndex,
    pub(crate) count: u32,
}

const fn unpack(word: u64) -> Option<Reserved> {
    match (word >> TREE_SHIFT) as u32 {
        0 => None,
        tree => Some(Reserved { tree: TreeIndex(tree - 1), count: word as u32 }),
    }
}

const fn pack(Reserved { tree, count }: Reserved) -> u64 {
    (tree.0 as u64 + 1) << TREE_SHIFT | count as u64
}

impl<P: Platform> Local<P> {
    pub(crate) fn new() -> Self {
        let zero = || P::U64::new(0);
        Local {
            reserved: zero(),
            hint: P::U32::new(0),
            freed_in: P::U32::new(u32::MAX),
            sections: zero(),
            counts: core::array::from_fn(|_| zero()),
            numa: NumaExceptions::new(),
        }
    }

    // As for trees: acquire when frames are taken, release when they are given.

    pub(crate) fn reserved(&self) -> Option<Reserved> {
        unpack(self.reserved.load(Acquire))
    }

    /// Takes frames of the reserved tree, if there are so many; returns which one that is.
    #[inline]
    pub(crate) fn take(&self, frames: u32) -> Option<TreeIndex> {
        let taken = self.update(|of| Some(Reserved { count: of.count.checked_sub(frames)?, ..of }));
        taken.map(|of| of.tree)
    }

    /// Gives frames of a tree; returns whether that is the reserved one.
    #[inline]
    pub(crate) fn give(&self, tree: TreeIndex, frames: u32) -> bool {
        let more = |of: Reserved| Reserved { count: of.count + frames, ..of };
        self.update(|of| (of.tree == tree).then(|| more(of))).is_some()
    }

    #[inline]
    fn update(&self, change: impl Fn(Reserved) -> Option<Reserved>) -> Option<Reserved> {
        let mut now = self.reserved.load(Acquire);
        loop {
            let of = unpack(now)?;
            match self.reserved.compare_exchange(now, pack(change(of)?), AcqRel, Acquire) {
                Ok(_) => return Some(of),
                Err(other) => now = other,
            }
        }
    }

    /// Puts a reservation in place of the one that there is, which the caller ends.
    pub(crate) fn replace(&self, with: Option<Reserved>) -> Option<Reserved> {
        unpack(self.reserved.swap(with.map_or(0, pack), AcqRel))
    }

    /// A section: `act` takes frames of a count, and returns something if it has moved them to
    /// another count or a user, or nothing once it has given them back.
    pub(crate) fn section<T>(&self, act: impl FnOnce() -> Option<T>) -> Option<T> {
        // Acquire: frames are taken after it. Whoever sees that they are gone, by an acquire, sees
        // the section too.
        self.sections.fetch_add(1, Acquire);
        let done = act();
        let moved = u64::from(done.is_some()) << MOVED_SHIFT;
        // Release: whoever sees the end sees where the frames are now.
        self.sections.fetch_add(moved.wrapping_sub(1), Release);
        done
    }

    /// Ends the reservation, and the sections of calls that do not exist in a copy.
    pub(crate) fn reset(&self) {
        self.replace(None);
        // Relaxed: what other calls come after makes it visible.
        self.sections.store(0, Relaxed);
    }

    /// How many sections are under way, and above it how many have moved frames. Sums of these
    /// words count those of several CPUs.
    pub(crate) fn sections(&self) -> u64 {
        self.sections.load(Acquire)
    }

    // Relaxed below: hints, and counters that order nothing.

    pub(crate) fn hint(&self) -> u32 {
        self.hint.load(Relaxed)
    }

    /// Notes where a block was allocated.
    #[inline]
    pub(crate) fn set_hint(&self, first: u32) {
        self.hint.store(first, Relaxed);
    }

    #[inline]
    pub(crate) fn note(&self, what: Count, many: u32) {
        self.counts[what as usize].fetch_add(u64::from(many), Relaxed);
    }

    /// Counts frames that were allocated past all reservations.
    pub(crate) fn note_direct_alloc(&self, frames: u32) {
        self.note(Count::Allocated, frames);
        self.note(Count::AllocatedDirectly, frames);
    }

    pub(crate) fn note_refill(&self, frames: u32) {
        self.note(Count::Refills, 1);
        self.note(Count::Refilled, frames);
    }

    pub(crate) fn note_drain(&self, frames: u32) {
        if frames > 0 {
            self.note(Count::Drains, 1);
            self.note(Count::Drained, frames);
        }
    }

    /// Notes a free in a tree that is not reserved here; returns whether it was the last of several
    /// in a row.
    pub(crate) fn note_free(&self, tree: TreeIndex) -> bool {
        let (now, of_tree) = (self.freed_in.load(Relaxed), tree.0 * FREES);
        let is_next = (of_tree..of_tree + FREES - 1).contains(&now);
        let next = if is_next { now + 1 } else { of_tree };
        self.freed_in.store(next, Relaxed);
        next == of_tree + FREES - 1
    }

    /// The events of this CPU, but for how many frames were freed past all reservations.
    pub(crate) fn events(&self) -> Events {
        let count = |what| self.counts[what as usize].load(Relaxed);
        let frames = |what| FrameCount::new(count(what));
        Events {
            allocated: frames(Count::Allocated),
            freed: frames(Count::Freed),
            allocated_directly: frames(Count::AllocatedDirectly),
            refills: count(Count::Refills),
            refilled: frames(Count::Refilled),
            drains: count(Count::Drains),
            drained: frames(Count::Drained),
            ..Events::default()
        }
    }
}
