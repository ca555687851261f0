//! The entry of a child, which is a pageblock: how many of its frames are free, or that it is
//! handed out whole.

use core::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::block::Word32;
use freehold::memmap::region::Table;
use freehold::platform::{Platform, Word};
use freehold::units::Order;

/// How many frames a child has.
pub(crate) const CHILD_FRAMES: u32 = 1 << Order::PAGEBLOCK.get();

/// A huge block: a child, or two, that one user has as a whole. Its bitfield has all frames free.
const HUGE: u16 = 1 << 15;
/// No call allocates from the child, and what is free of it is in no tree's count.
const ISOLATED: u16 = 1 << 14;
/// The free frames, at most 2^13; of a huge block, the three marks below.
const COUNT: u16 = ISOLATED - 1;
/// The block is this child and its neighbour.
const PAIR: u16 = 1;
/// The content cannot move.
const FIXED: u16 = 2;
/// A call makes a huge block one of frames.
const SPLITTING: u16 = 4;

/// The entry of a child: 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry(u16);

impl Entry {
    /// All frames are free.
    pub(crate) const WHOLE: Self = Entry(CHILD_FRAMES as u16);

    /// So many frames are free.
    pub(crate) const fn free(frames: u32) -> Self {
        Entry(frames as u16)
    }

    /// A huge block of an order.
    pub(crate) fn huge(order: Order, is_fixed: bool) -> Self {
        let is_pair = order > Order::PAGEBLOCK;
        Entry(HUGE | if is_pair { PAIR } else { 0 } | if is_fixed { FIXED } else { 0 })
    }

    pub(crate) const fn is_huge(self) -> bool {
        self.0 & HUGE != 0
    }

    pub(crate) const fn is_isolated(self) -> bool {
        self.0 & ISOLATED != 0
    }

    pub(crate) const fn is_fixed(self) -> bool {
        self.is_huge() && self.0 & FIXED != 0
    }

    pub(crate) const fn is_splitting(self) -> bool {
        self.is_huge() && self.0 & SPLITTING != 0
    }

    /// The order of the huge block, which no call is splitting.
    pub(crate) const fn huge_order(self) -> Option<Order> {
        match self.0 & (HUGE | PAIR | SPLITTING) {
            HUGE => Some(Order::PAGEBLOCK),
            of if of == HUGE | PAIR => Some(Order::PAGEBLOCK.up()),
            _ => None,
        }
    }

    /// How many frames are free.
    pub(crate) const fn count(self) -> u32 {
        if self.is_huge() { 0 } else { (self.0 & COUNT) as u32 }
    }

    /// The same child with fewer free frames, if it has so many.
    pub(crate) fn less(self, frames: u32) -> Option<Self> {
        (self.count() >= frames).then(|| Entry(self.0 - frames as u16))
    }

    /// Isolated, or no longer so, and otherwise as this one.
    pub(crate) const fn isolated(self, is_isolated: bool) -> Self {
        Entry(self.0 & !ISOLATED | if is_isolated { ISOLATED } else { 0 })
    }

    /// Another entry, isolated if this one is.
    pub(crate) const fn becomes(self, other: Self) -> Self {
        other.isolated(self.is_isolated())
    }

    /// A huge block that the caller splits, and no other call.
    pub(crate) const fn splitting(self) -> Self {
        Entry(self.0 | SPLITTING)
    }
}

/// The entries of all children, two a word: those of a largest block change in one step.
pub(crate) struct Entries<P: Platform>(pub(crate) Table<Word32<P>>);

const fn unpack(pair: u32) -> [Entry; 2] {
    [Entry(pair as u16), Entry((pair >> 16) as u16)]
}

const fn pack([low, high]: [Entry; 2]) -> u32 {
    low.0 as u32 | (high.0 as u32) << 16
}

impl<P: Platform> Entries<P> {
    // Acquire wherever an entry is read, and release wherever it is changed: who finds all frames
    // of a child free has what was done by those that freed them before it, to bits, to marks and
    // to the frames themselves. It looks at no bit.

    fn pair(&self, child: u32) -> &P::U32 {
        &self.0.get(child as usize / 2).0
    }

    #[inline]
    pub(crate) fn get(&self, child: u32) -> Entry {
        unpack(self.pair(child).load(Acquire))[child as usize % 2]
    }

    /// Changes an entry as `change` says; returns what it was. `None` if `change` refuses.
    #[inline]
    pub(crate) fn update(
        &self,
        child: u32,
        change: impl Fn(Entry) -> Option<Entry>,
    ) -> Option<Entry> {
        let [was, _] = self.update_all(child, Order::PAGEBLOCK, |_, entry| change(entry))?;
        Some(was)
    }

    /// The same for all children of a huge block, the first of which this is: for a second one as
    /// well, or the second is the default.
    #[inline]
    pub(crate) fn update_all(
        &self,
        child: u32,
        order: Order,
        change: impl Fn(u32, Entry) -> Option<Entry>,
    ) -> Option<[Entry; 2]> {
        let (word, nth, is_pair) = (self.pair(child), child as usize % 2, order > Order::PAGEBLOCK);
        let mut now = word.load(Acquire);
        loop {
            let (was, mut pair) = (unpack(now), unpack(now));
            pair[nth] = change(child, pair[nth])?;
            if is_pair {
                pair[1] = change(child + 1, pair[1])?;
            }
            match word.compare_exchange(now, pack(pair), AcqRel, Acquire) {
                Ok(_) if is_pair => return Some(was),
                Ok(_) => return Some([was[nth], Entry::default()]),
                Err(other) => now = other,
            }
        }
    }

    /// Counts frames that are free now; returns what the entry was.
    #[inline]
    pub(crate) fn add(&self, child: u32, frames: u32) -> Entry {
        let nth = child % 2;
        unpack(self.pair(child).fetch_add(frames << (16 * nth), AcqRel))[nth as usize]
    }
}
