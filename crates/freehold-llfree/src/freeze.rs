//! Stopping the calls that take locks while the metadata is copied, and repairing the copy: calls
//! without locks go on meanwhile, and the copy has any step of them without the others.

use crate::Llfree;
use crate::block::{Block, words_of};
use crate::entry::{CHILD_FRAMES, Entry};
use crate::local::Local;
use crate::lower::Lower;
use freehold::Order;
use freehold::designs::Context;
use freehold::designs::traits::Freeze;
use freehold::platform::{Platform, RawLock};

impl<P: Platform> Freeze<P> for Llfree<P> {
    fn freeze(&self, _context: Context<'_, P>) {
        self.hotplug.get(0).lock().lock();
        self.zones.iter().for_each(|zone| zone.lock.lock());
    }

    fn thaw(&self, _context: Context<'_, P>) {
        self.zones.iter().for_each(|zone| zone.lock.unlock());
        self.hotplug.get(0).lock().unlock();
    }

    /// Believes the bits, and makes the counts anew. What a call had in hand is lost.
    fn thaw_copy(&self, context: Context<'_, P>) {
        for zone in self.zone_indexes() {
            self.locals_of(zone).for_each(Local::reset);
            self.trees_of(zone).for_each(|tree| self.trees.reset(tree));
            for child in self.children_of(zone) {
                self.trees.give(self.trees.of(zone, child), self.lower.repair(child));
            }
        }
        self.thaw(context);
    }
}

impl<P: Platform> Lower<P> {
    /// Makes the entry of a child what its bits say, and its marks those of blocks; returns how
    /// many of its frames are free.
    fn repair(&self, child: u32) -> u32 {
        // Without marks of changes.
        self.set_zone(child, self.zone_of(child));
        let (entry, neighbour) = (self.entries.get(child), self.entries.get(child ^ 1));
        let (repaired, free) = if entry.is_huge() {
            self.fill(child, false, false);
            // A neighbour without its other half is one child.
            let order = entry.huge_order().filter(|_| entry.huge_order() == neighbour.huge_order());
            (Entry::huge(order.unwrap_or(Order::PAGEBLOCK), entry.is_fixed()), 0)
        } else {
            words_of(child).for_each(|word| self.clear_free_marks(word));
            let (mut at, end) = (child * CHILD_FRAMES, (child + 1) * CHILD_FRAMES);
            while at < end {
                at = match self.block_of(at) {
                    Some(of) if of.first == at => of.end(),
                    // A tail of no block is a frame by itself.
                    _ => {
                        self.clear_tail(Block::frame(at));
                        at + 1
                    }
                };
            }
            let free = self.count_bits(child);
            (Entry::free(free), free)
        };
        // `Some`: nothing is refused.
        let _ = self.entries.update(child, |_| Some(repaired));
        free
    }
}
