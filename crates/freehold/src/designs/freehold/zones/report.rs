//! Statistics and checks of a zone: counted from the states and bitmaps of its pageblocks.

use super::Zones;
use crate::designs::freehold::pageblocks::huge::pageblocks_in;
use crate::designs::freehold::pageblocks::run::{WORD_FRAMES, WORD_ORDER, longer};
use crate::designs::freehold::pageblocks::state::{Holder, Use};
use crate::designs::freehold::pageblocks::{FRAMES, PageblockIndex};
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::stat::{Census, FreeByType, Rule, ZoneStats};
use crate::units::{FrameCount, ORDERS, Order};

impl<P: Platform> Zones<P> {
    /// The state of a zone.
    pub(crate) fn stats_of(&self, index: ZoneIndex) -> ZoneStats {
        let zone = self.zone(index);
        let (mut per_cpu, mut isolated) = (0, 0);
        for pageblock in self.pageblocks_of(index) {
            let state = self.pageblocks.state(pageblock);
            let free =
                || self.pageblocks.count_free(pageblock) + self.pageblocks.count_remote(pageblock);
            match (state.used_for(), state.holder()) {
                (Use::Whole, Holder::Cpu(_)) => per_cpu += FRAMES,
                (Use::Split, Holder::Cpu(_)) => per_cpu += free(),
                (Use::Split, _) if state.is_isolated() => isolated += free(),
                // A cache will find them on its remote queue, though it has lost the pageblock.
                (Use::Split, _) if state.is_queued() => {
                    per_cpu += self.pageblocks.count_remote(pageblock);
                }
                _ => {}
            }
        }
        ZoneStats {
            node: zone.node(),
            kind: zone.kind(),
            managed: FrameCount::new(zone.managed()),
            free: FrameCount::new(zone.level()),
            per_cpu: FrameCount::new(u64::from(per_cpu)),
            isolated: FrameCount::new(u64::from(isolated)),
            free_blocks: self.free_blocks(index),
            marks: zone.watermarks().get(),
            claims: zone.claims(),
            steals: zone.steals(),
        }
    }

    /// The free frames of a zone, with those that CPUs cache, and those of them that lie in whole
    /// pageblocks.
    pub(crate) fn free_and_whole(&self, zone: ZoneIndex) -> [u64; 2] {
        let (mut free, mut whole) = (self.zone(zone).level(), 0);
        for pageblock in self.pageblocks_of(zone) {
            let state = self.pageblocks.state(pageblock);
            let is_cached = matches!(state.holder(), Holder::Cpu(_));
            match state.used_for() {
                Use::Whole => {
                    whole += u64::from(FRAMES);
                    free += if is_cached { u64::from(FRAMES) } else { 0 };
                }
                Use::Split if is_cached => {
                    let late = self.pageblocks.count_remote(pageblock);
                    free += u64::from(self.pageblocks.count_free(pageblock) + late);
                }
                _ => {}
            }
        }
        [free, whole]
    }

    /// The free blocks of a zone by order.
    pub(crate) fn free_blocks(&self, zone: ZoneIndex) -> [u64; ORDERS] {
        let by_type = self.count_by_type(zone).blocks;
        core::array::from_fn(|order| by_type.iter().map(|counts| counts[order]).sum())
    }

    /// The free blocks of a zone in its pool and orphans, each as large as can be, by the type of
    /// the pageblock that they begin in.
    pub(crate) fn count_by_type(&self, zone: ZoneIndex) -> FreeByType {
        let mut counts = FreeByType::default();
        // What lies before this pageblock has been counted.
        let mut behind = PageblockIndex(0);
        for pageblock in self.pageblocks_of(zone) {
            let state = self.pageblocks.state(pageblock);
            let of = state.migratetype().index();
            if !state.is_isolated() && state.used_for() != Use::Absent {
                counts.pageblocks[of] += 1;
            }
            match (state.used_for(), state.holder()) {
                (Use::Whole, Holder::None) if pageblock >= behind => {
                    let order = self.largest_free(zone, pageblock);
                    counts.blocks[of][order.index()] += 1;
                    behind = PageblockIndex(pageblock.0 + pageblocks_in(order));
                }
                (Use::Split, Holder::None) => self.count_runs(pageblock, &mut counts.blocks[of]),
                _ => {}
            }
        }
        counts
    }

    /// The order of the largest block of whole pageblocks, at most the buddy system's largest, that
    /// begins with this one.
    fn largest_free(&self, zone: ZoneIndex, pageblock: PageblockIndex) -> Order {
        let is_free = |pageblock| {
            let state = self.pageblocks.state(pageblock);
            let of_zone = self.pageblocks.zone_if_any(pageblock) == Some(zone);
            of_zone && (state.used_for(), state.holder()) == (Use::Whole, Holder::None)
        };
        let begins = |order: &Order| {
            let count = pageblocks_in(*order);
            let upper = pageblock.0 + count / 2..pageblock.0 + count;
            self.pageblocks.number(pageblock).is_multiple_of(u64::from(count))
                && upper.map(PageblockIndex).all(is_free)
        };
        let larger = Order::PAGEBLOCK.up().to(Order::BUDDY_MAX);
        larger.take_while(begins).last().unwrap_or(Order::PAGEBLOCK)
    }

    /// Counts the free blocks of a pageblock that is not whole, each as large as can be.
    fn count_runs(&self, pageblock: PageblockIndex, counts: &mut [u64; ORDERS]) {
        if self.pageblocks.is_whole(pageblock) {
            counts[Order::PAGEBLOCK.index()] += 1;
            return;
        }
        let words = pageblock.words();
        for first in words.clone().step_by(WORD_FRAMES as usize) {
            let mut full = 0;
            let end = words.end.min(first + WORD_FRAMES as usize);
            for (nth, word) in (first..end).enumerate() {
                let free = self.pageblocks.free(word);
                if free == !0 {
                    full |= 1 << nth;
                } else {
                    count_largest(free, WORD_ORDER - 1, 0, counts);
                }
            }
            let most = (Order::PAGEBLOCK.get() - WORD_ORDER).min(WORD_ORDER);
            count_largest(full, most, WORD_ORDER, counts);
        }
    }

    /// How many frames of a pageblock users hold, and how many were freed twice, which will be
    /// discarded when it is split.
    pub(crate) fn count_used(&self, pageblock: PageblockIndex) -> (u32, u32) {
        match self.pageblocks.state(pageblock).used_for() {
            Use::Absent => (0, 0),
            Use::Whole => (0, self.pageblocks.count_remote(pageblock)),
            Use::Huge | Use::HugeTail => (FRAMES, self.pageblocks.count_remote(pageblock)),
            // If it was allocated whole since the read of its state, then it was free before.
            Use::Split => {
                (pageblock.words().map(|word| self.pageblocks.used(word).count_ones()).sum(), 0)
            }
        }
    }

    /// Counts the frames of a zone by where they are.
    pub(crate) fn count(&self, zone: ZoneIndex, census: &mut Census) {
        for pageblock in self.pageblocks_of(zone) {
            let (state, present) =
                (self.pageblocks.state(pageblock), self.pageblocks.count_present(pageblock));
            let free = self.pageblocks.count_free(pageblock).min(present);
            let with_remote = (free + self.pageblocks.count_remote(pageblock)).min(present);
            let frames = |count: u32| FrameCount::new(u64::from(count));
            census.managed += frames(present);
            match (state.used_for(), state.holder()) {
                (Use::Huge | Use::HugeTail, _) | (Use::Absent, _) => {
                    census.allocated += frames(present);
                }
                (_, Holder::Cpu(_)) => {
                    census.per_cpu += frames(with_remote);
                    census.allocated += frames(present - with_remote);
                }
                _ if state.is_isolated() => {
                    census.isolated += frames(with_remote);
                    census.allocated += frames(present - with_remote);
                }
                // Remote frees that a cache will find on its remote queue.
                _ if state.is_queued() => {
                    census.free += frames(free);
                    census.per_cpu += frames(with_remote - free);
                    census.allocated += frames(present - with_remote);
                }
                _ => {
                    census.free += frames(free);
                    census.allocated += frames(present - free);
                }
            }
        }
    }

    /// Checks that a pageblock is where its state says.
    pub(crate) fn check_pageblock(
        &self,
        index: ZoneIndex,
        pageblock: PageblockIndex,
    ) -> Option<Rule> {
        let (zone, state) = (self.zone(index), self.pageblocks.state(pageblock));
        let in_pool = self.forest.contains(zone.pool(), self.bit(pageblock));
        let in_trees = self.trees_with(pageblock);
        let tails_unmarked = || {
            pageblock.words().all(|word| {
                let free = self.pageblocks.free_or_remote(word) & !self.pageblocks.holes(word);
                free & self.pageblocks.tails(word) == 0 && self.pageblocks.is_extent_valid(word)
            })
        };
        match (state.used_for(), state.holder()) {
            // Its memory was removed.
            (Use::Absent, _) => {
                (self.pageblocks.count_present(pageblock) > 0).then_some(Rule::ZoneOfBlock)
            }
            _ if !self.pageblocks.uses_agree(pageblock) => Some(Rule::KeptBeside),
            (Use::Whole, Holder::None) if !in_pool => Some(Rule::KeptBeside),
            (Use::Whole, _) if !self.pageblocks.is_whole(pageblock) => Some(Rule::BlocksCounted),
            (Use::Split, _) if !tails_unmarked() => Some(Rule::TailsUnmarked),
            (Use::Split, Holder::None) => {
                let free = self.pageblocks.count_free(pageblock);
                if self.pageblocks.is_whole(pageblock) {
                    return Some(Rule::BuddiesMerged);
                }
                let expected = if free > 0 { Self::trees_of(state) } else { 0 };
                let right = in_trees == expected
                    && state.order() == self.pageblocks.largest_run(pageblock)
                    && !in_pool;
                (!right).then_some(Rule::KeptBeside)
            }
            (Use::Split | Use::Huge | Use::HugeTail, Holder::Cpu(_)) if in_pool || in_trees > 0 => {
                Some(Rule::KeptBeside)
            }
            (Use::Huge, Holder::None) if in_pool => Some(Rule::KeptBeside),
            (Use::HugeTail, _) if self.pageblocks.head_of(pageblock).is_none() => {
                Some(Rule::FrameInOneBlock)
            }
            _ => None,
        }
    }

    /// Checks that the level of a zone agrees with its pageblocks, if it is steady enough to tell.
    pub(crate) fn check_level(&self, index: ZoneIndex) -> Option<Rule> {
        let zone = self.zone(index);
        let (before, managed) = (zone.level(), zone.managed());
        let mut census = Census::default();
        self.count(index, &mut census);
        let steady = zone.level() == before;
        if census.managed.get() != managed {
            return Some(Rule::ManagedCounted);
        }
        (steady && census.free.get() != before).then_some(Rule::FreeCounted)
    }
}

/// Counts the largest aligned runs of set bits of up to `2^order`, each as one block of an order
/// that is larger by `shift`.
fn count_largest(bits: u64, order: u8, shift: u8, counts: &mut [u64; ORDERS]) {
    let mut runs = bits;
    for at in 0..=order {
        let longer = if at < order { longer(runs, at) } else { 0 };
        // But for the halves of longer ones.
        let largest = runs.count_ones() - 2 * longer.count_ones();
        counts[usize::from(at + shift)] += u64::from(largest);
        runs = longer;
    }
}
