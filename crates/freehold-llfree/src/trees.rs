//! The upper allocator's trees: 32 children each, with a count of the free frames of all of them,
//! less what a CPU that has reserved the tree took of it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::block::Word32;
use crate::entry::CHILD_FRAMES;
use crate::lower::TREE_CHILDREN;
use freehold::memmap::index::ZoneIndex;
use freehold::memmap::region::Table;
use freehold::platform::{Platform, Word};

/// How many frames a tree has.
pub(crate) const TREE_FRAMES: u32 = TREE_CHILDREN * CHILD_FRAMES;

/// A CPU has reserved the tree.
const RESERVED: u32 = 1 << 31;

/// The index of a tree: zones may share the children that one tree has room for, so that each zone
/// has an entry of its own for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeIndex(pub(crate) u32);

/// The entries of all trees: those of the first zone, of the second, and so on. Each says how many
/// frames may be taken of it, and whether it is reserved.
pub(crate) struct Trees<P: Platform> {
    pub(crate) table: Table<Word32<P>>,
    /// Those of one zone.
    pub(crate) per_zone: u32,
}

impl<P: Platform> Trees<P> {
    pub(crate) fn of(&self, zone: ZoneIndex, child: u32) -> TreeIndex {
        TreeIndex(u32::from(zone.0) * self.per_zone + child / TREE_CHILDREN)
    }

    /// The zone of a tree, and which of that it is: so which children it has.
    pub(crate) fn place(&self, tree: TreeIndex) -> (ZoneIndex, u32) {
        (ZoneIndex((tree.0 / self.per_zone) as u16), tree.0 % self.per_zone)
    }

    fn word(&self, tree: TreeIndex) -> &P::U32 {
        &self.table.get(tree.0 as usize).0
    }

    // Release when a count rises, and acquire when it is taken: so a call finds in the children
    // what it has the count of. Acquire as well when it is looked at: whoever sees that frames are
    // gone sees the section of the call that has them.

    /// How many frames may be taken of a tree.
    pub(crate) fn count(&self, tree: TreeIndex) -> u32 {
        self.word(tree).load(Acquire) & !RESERVED
    }

    /// Whether a CPU has reserved a tree.
    pub(crate) fn is_reserved(&self, tree: TreeIndex) -> bool {
        // Relaxed: a hint.
        self.word(tree).load(Relaxed) & RESERVED != 0
    }

    /// Counts frames that are free.
    pub(crate) fn give(&self, tree: TreeIndex, frames: u32) {
        self.word(tree).fetch_add(frames, AcqRel);
    }

    /// Ends a reservation, and counts what is left of it.
    pub(crate) fn end_reservation(&self, tree: TreeIndex, left: u32) {
        // One step, or a call could reserve what is not there yet.
        self.give(tree, left.wrapping_sub(RESERVED));
    }

    /// Reserves a tree that is not, and takes of its frames at least so many and at most so many;
    /// returns how many.
    pub(crate) fn reserve(&self, tree: TreeIndex, least: u32, most: u32) -> Option<u32> {
        self.take_marking(tree, least, most, RESERVED)
    }

    /// Takes at least so many frames of a tree, reserved or not, and at most so many.
    pub(crate) fn take(&self, tree: TreeIndex, least: u32, most: u32) -> Option<u32> {
        self.take_marking(tree, least, most, 0)
    }

    /// The same, unless there is a mark already, which it sets.
    fn take_marking(&self, tree: TreeIndex, least: u32, most: u32, mark: u32) -> Option<u32> {
        let mut now = self.word(tree).load(Acquire);
        loop {
            let taken = (now & !RESERVED).min(most);
            if taken < least || now & mark != 0 {
                return None;
            }
            let left = (now | mark) - taken;
            match self.word(tree).compare_exchange(now, left, AcqRel, Acquire) {
                Ok(_) => return Some(taken),
                Err(other) => now = other,
            }
        }
    }

    /// Makes an entry anew, in a copy that no other call uses.
    pub(crate) fn reset(&self, tree: TreeIndex) {
        // Relaxed: what other calls come after makes it visible.
        self.word(tree).store(0, Relaxed);
    }
}
