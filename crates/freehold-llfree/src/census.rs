//! What is free, in blocks: read without a lock, for statistics, checks, and calls that fail.

use crate::block::{Block, blocks, words_of};
use crate::entry::{CHILD_FRAMES, Entry};
use crate::lower::{Lower, TREE_CHILDREN};
use crate::trees::TreeIndex;
use crate::{Llfree, ORDER_MAX};
use freehold::Order;
use freehold::memmap::bits::Span;
use freehold::memmap::index::ZoneIndex;
use freehold::platform::Platform;
use freehold::units::ORDERS;

impl<P: Platform> Lower<P> {
    /// How many frames of a child have bits that say free. Of a huge one all have.
    pub(crate) fn count_bits(&self, child: u32) -> u32 {
        words_of(child).map(|word| self.taken(word).count_zeros()).sum()
    }

    /// Adds the free blocks of a child which is not all free.
    fn add_blocks(&self, child: u32, into: &mut [u64; ORDERS]) {
        let mut at = child * CHILD_FRAMES;
        let end = at + CHILD_FRAMES;
        while at < end {
            let is_free = |&at: &u32| self.taken(at as usize / 64) & Block::frame(at).bit() == 0;
            let behind = at + (at..end).take_while(is_free).count() as u32;
            for block in blocks(Span { first: at, end: behind }, Order::PAGEBLOCK) {
                into[block.order.index()] += 1;
            }
            at = behind + 1;
        }
    }
}

impl<P: Platform> Llfree<P> {
    /// The children of a zone that have memory.
    pub(crate) fn children_of(&self, zone: ZoneIndex) -> impl Iterator<Item = u32> {
        let trees = self.zone(zone).trees();
        let first = trees.start.min(trees.end) * TREE_CHILDREN;
        let all = first..(trees.end * TREE_CHILDREN).min(self.lower.children());
        all.filter(move |&child| self.lower.zone_of(child) == Some(zone))
    }

    /// The free blocks of a zone by order. In a tree that is reserved, any of the free frames may
    /// be those that its CPU takes next: what it has not reserved counts as single frames.
    pub(crate) fn free_blocks(&self, zone: ZoneIndex) -> [u64; ORDERS] {
        let mut found = [0; ORDERS];
        let is_reserved = |tree: &TreeIndex| self.trees.is_reserved(*tree);
        let rest = self.trees_of(zone).filter(is_reserved).map(|tree| self.trees.count(tree));
        found[0] += rest.map(u64::from).sum::<u64>();
        let entry = |child: u32| match self.lower.zone_of(child) == Some(zone) {
            true => self.lower.entries.get(child),
            false => Entry::default(),
        };
        for child in self.children_of(zone) {
            match entry(child) {
                _ if is_reserved(&self.trees.of(zone, child)) => {}
                Entry::WHOLE
                    if ORDER_MAX > Order::PAGEBLOCK && entry(child ^ 1) == Entry::WHOLE =>
                {
                    found[ORDER_MAX.index()] += u64::from(child.is_multiple_of(2));
                }
                Entry::WHOLE => found[Order::PAGEBLOCK.index()] += 1,
                of if of.count() == 0 || of.is_isolated() => {}
                _ => self.lower.add_blocks(child, &mut found),
            }
        }
        found
    }

    /// How many frames of a zone are free, a moment ago each: in the counts of trees, in what CPUs
    /// have reserved, and in children that are isolated.
    pub(crate) fn free_of(&self, zone: ZoneIndex) -> [u64; 3] {
        let reserved = self.locals_of(zone).filter_map(|local| local.reserved());
        let entries = self.children_of(zone).map(|child| self.lower.entries.get(child));
        let isolated = entries.filter(|entry| entry.is_isolated());
        [
            self.level_up_to(zone, u64::MAX),
            reserved.map(|of| u64::from(of.count)).sum(),
            isolated.map(|entry| u64::from(entry.count())).sum(),
        ]
    }
}
