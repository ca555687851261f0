//! Surplus: what no CPU caches, given to an allocator that this one stands in front of.
//!
//! There, the lists of the other allocator have most of the free memory, and this one has what its
//! CPUs work with. What the other one has counts as allocated here. It gives frames by freeing
//! them, whole pageblocks at best, and gets them back a pageblock at a time, adjacent ones as
//! blocks: its lock is taken once for all of these, and it has that much less to merge.

use super::Freehold;
use super::pageblocks::run::{WORD_FRAMES, WORD_ORDER, ones, starts};
use super::pageblocks::{PageblockIndex, WORDS};
use super::zones::Zones;
use crate::PageAllocator;
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{FrameCount, MigrateType, Order, Pfn};

impl<P: Platform> PageAllocator<P, Freehold<P>> {
    /// Allocates what no CPU caches, until each zone has at most `keep` frames of that: whole
    /// pageblocks first, then all that is free of others, those with the largest free blocks first.
    /// Calls `taken` for each block, of up to a pageblock. Returns how many frames these have.
    ///
    /// The frames are as if a range had been allocated, for content that cannot move: any part can
    /// be freed by [`free_range`](Self::free_range), and each frame by itself. To take what CPUs
    /// cache as well, call [`drain_all`](Self::drain_all) before.
    ///
    /// Waits for no other call, so a handler may call it: a pageblock that another call holds at
    /// the moment is passed over. Cost: a few cache lines for each
    /// pageblock.
    pub fn take_surplus(&self, keep: FrameCount, mut taken: impl FnMut(Pfn, Order)) -> FrameCount {
        let (zones, context) = (&self.design().zones, self.context());
        let mut all = 0;
        for zone in zones.indexes() {
            // What is freed meanwhile is for the next call.
            let mut surplus = zones.zone(zone).level().saturating_sub(keep.get());
            while surplus > 0 {
                let Some((pageblock, free)) = zones.take_rest_of_any(context, zone) else { break };
                let frames = u64::from(count(&free));
                for_each_block(pageblock, free, |frame, order| {
                    taken(zones.pageblocks.pfn_of(frame), order)
                });
                surplus = surplus.saturating_sub(frames);
                all += frames;
            }
        }
        FrameCount::new(all)
    }
}

impl<P: Platform> Zones<P> {
    /// Takes all that is free of one pageblock, as bits.
    fn take_rest_of_any(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
    ) -> Option<(PageblockIndex, [u64; WORDS])> {
        let whole = Request::new(Order::PAGEBLOCK).migratetype(MigrateType::Unmovable);
        if let Some(frame) = self.alloc_huge(context, zone, &whole) {
            return Some((PageblockIndex::of_frame(frame), [!0; WORDS]));
        }
        let cpu = context.cpu_here();
        (0..Order::PAGEBLOCK.get()).rev().find_map(|order| {
            let of_type =
                |migratetype| self.orphans_with_run(zone, migratetype, Order::new(order), 0);
            let mut orphans = MigrateType::ALL.into_iter().flat_map(of_type);
            orphans.find_map(|pageblock| {
                let free =
                    self.with_acquired(cpu, zone, pageblock, || self.take_rest(zone, pageblock))?;
                self.note_direct_alloc(context, zone, FrameCount::new(u64::from(count(&free))));
                Some((pageblock, free))
            })
        })
    }

    /// Takes all that is free of a pageblock that the caller holds as a walker.
    fn take_rest(&self, zone: ZoneIndex, pageblock: PageblockIndex) -> Option<[u64; WORDS]> {
        let mut free = [0; WORDS];
        for (free, word) in free.iter_mut().zip(pageblock.words()) {
            *free = self.pageblocks.free(word);
            if *free != 0 {
                self.pageblocks.mark_unmovable_frames(word..word + 1, *free);
                self.pageblocks.set_free(word, 0);
                self.pageblocks.begin_use(word, *free);
            }
        }
        let frames = count(&free);
        self.zone(zone).sub_free(frames);
        (frames > 0).then_some(free)
    }
}

/// How many frames bits of a pageblock stand for.
fn count(free: &[u64; WORDS]) -> u32 {
    free.iter().map(|word| word.count_ones()).sum()
}

/// The largest aligned blocks that bits of a pageblock make up.
fn for_each_block(pageblock: PageblockIndex, free: [u64; WORDS], mut each: impl FnMut(u32, Order)) {
    let mut word = 0;
    while word < WORDS {
        let first = pageblock.frame() + word as u32 * WORD_FRAMES;
        // Whole words: as many as are aligned and all free.
        let mut words = 1;
        while word.is_multiple_of(2 * words)
            && free.get(word..word + 2 * words).is_some_and(|free| free.iter().all(|&of| of == !0))
        {
            words *= 2;
        }
        if free[word] == !0 {
            each(first, Order::new(WORD_ORDER + words.ilog2() as u8));
            word += words;
            continue;
        }
        let mut left = free[word];
        for order in (0..WORD_ORDER).rev() {
            let mut heads = starts(left, order);
            while heads != 0 {
                let bit = heads.trailing_zeros();
                heads &= heads - 1;
                left &= !(ones(order) << bit);
                each(first + bit, Order::new(order));
            }
        }
        word += 1;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::super::pageblocks::FRAMES;
    use super::*;

    #[test]
    fn blocks_are_aligned_and_as_large_as_they_can_be() {
        let found = |free: [u64; WORDS]| {
            let mut found = Vec::new();
            for_each_block(PageblockIndex(3), free, |frame, order| {
                found.push((frame - 3 * FRAMES, order.get()));
            });
            found
        };
        let mut free = [0; WORDS];
        assert_eq!(found(free), []);
        (free[0], free[2], free[3], free[4]) = (0b1011_0110, !0, !0, !0);
        assert_eq!(found(free), [(4, 1), (1, 0), (2, 0), (7, 0), (128, 7), (256, 6)]);
        free[4..].fill(!0);
        assert_eq!(found(free)[4..], [(128, 7), (256, 8)]);
        assert_eq!(found([!0; WORDS]), [(0, Order::PAGEBLOCK.get())]);
    }
}
