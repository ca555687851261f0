//! What is free, in blocks: read without a lock, for statistics, checks, and calls that fail.

use crate::Llfree;
use crate::block::{Block, WORD, WORDS, find_in_word, frames_in, largest};
use crate::entry::{CHILD_FRAMES, Entry};
use crate::lower::Lower;
use freehold::Order;
use freehold::memmap::index::ZoneIndex;
use freehold::platform::Platform;
use freehold::units::ORDERS;

/// The free frames of a zone.
pub(crate) struct FreeOf {
    /// In the counts of trees.
    pub(crate) level: u64,
    /// In what CPUs have reserved.
    pub(crate) reserved: u64,
    /// In children that are isolated.
    pub(crate) isolated: u64,
}

impl FreeOf {
    pub(crate) fn all(&self) -> u64 {
        self.level + self.reserved + self.isolated
    }
}

impl<P: Platform> Lower<P> {
    /// The words of a child.
    pub(crate) fn words_of(child: u32) -> core::ops::Range<usize> {
        child as usize * WORDS..(child as usize + 1) * WORDS
    }

    /// How many frames of a child have bits that say free. Of a huge one all have.
    pub(crate) fn count_bits(&self, child: u32) -> u32 {
        Self::words_of(child).map(|word| self.taken(word).count_zeros()).sum()
    }

    /// Whether a child of a zone, or it and its neighbour, has a free block of an order.
    pub(crate) fn has_block(&self, zone: ZoneIndex, child: u32, order: Order) -> bool {
        let is_whole = |child| {
            self.zone_of(child) == Some(zone) && self.entries.get(child) == Entry::WHOLE //
        };
        if order >= Order::PAGEBLOCK {
            let is_child = order == Order::PAGEBLOCK;
            let is_first = || child.is_multiple_of(2) && is_whole(child + 1);
            return is_whole(child) && (is_child || is_first());
        }
        let entry = self.entries.get(child);
        let has = |word: usize| match order <= WORD {
            true => find_in_word(!self.taken(word), order).is_some(),
            false => {
                let block = Block { first: word as u32 * 64, order };
                block.words().all(|word| self.taken(word) == 0)
            }
        };
        let step = frames_in(order).div_ceil(64) as usize;
        entry.take(frames_in(order)).is_some() && Self::words_of(child).step_by(step).any(has)
    }

    /// Adds the free blocks of a child which is not all free.
    fn add_blocks(&self, child: u32, blocks: &mut [u64; ORDERS]) {
        let is_free = |at: u32| self.taken(at as usize / 64) & Block::frame(at).bit() == 0;
        let (mut at, end) = (child * CHILD_FRAMES, (child + 1) * CHILD_FRAMES);
        while at < end {
            let run_end = (at..end).find(|&frame| !is_free(frame)).unwrap_or(end);
            while at < run_end {
                let order = largest(at, run_end, Order::PAGEBLOCK);
                blocks[order.index()] += 1;
                at += frames_in(order);
            }
            at += 1;
        }
    }
}

impl<P: Platform> Llfree<P> {
    /// The children of a zone that have memory.
    pub(crate) fn children_of(&self, zone: ZoneIndex) -> impl Iterator<Item = u32> {
        let trees = self.zone(zone).trees();
        let first = trees.start.min(trees.end) * crate::lower::TREE_CHILDREN;
        let end = trees.end * crate::lower::TREE_CHILDREN;
        let all = first..end.min(self.lower.children());
        all.filter(move |&child| self.lower.zone_of(child) == Some(zone))
    }

    /// The free blocks of a zone by order. In a tree that is reserved, any of the free frames may
    /// be those that its CPU takes next: what it has not reserved counts as single frames.
    pub(crate) fn free_blocks(&self, zone: ZoneIndex) -> [u64; ORDERS] {
        let mut blocks = [0; ORDERS];
        let is_reserved = |child| self.trees.is_reserved(self.trees.of(zone, child));
        for tree in self.trees_of(zone).filter(|&tree| self.trees.is_reserved(tree)) {
            blocks[0] += u64::from(self.trees.count(tree));
        }
        let is_whole = |child| {
            self.lower.zone_of(child) == Some(zone) && self.lower.entries.get(child) == Entry::WHOLE
        };
        for child in self.children_of(zone).filter(|&child| !is_reserved(child)) {
            let entry = self.lower.entries.get(child);
            let is_paired = crate::ORDER_MAX > Order::PAGEBLOCK && is_whole(child ^ 1);
            match entry == Entry::WHOLE {
                true if is_paired => {
                    blocks[Order::PAGEBLOCK.index() + 1] += u64::from(child.is_multiple_of(2));
                }
                true => blocks[Order::PAGEBLOCK.index()] += 1,
                false if entry.is_huge() || entry.is_isolated() => {}
                false => self.lower.add_blocks(child, &mut blocks),
            }
        }
        blocks
    }

    /// Where the free frames of a zone are, a moment ago each.
    pub(crate) fn free_of(&self, zone: ZoneIndex) -> FreeOf {
        let reserved = self.locals_of(zone).filter_map(|local| local.reserved());
        let entries = self.children_of(zone).map(|child| self.lower.entries.get(child));
        let isolated = entries.filter(|entry| entry.is_isolated());
        FreeOf {
            level: self.level_up_to(zone, u64::MAX),
            reserved: reserved.map(|of| u64::from(of.count)).sum(),
            isolated: isolated.map(|entry| u64::from(entry.count())).sum(),
        }
    }
}
