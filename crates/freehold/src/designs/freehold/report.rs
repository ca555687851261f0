//! What the design says about itself. All of it visits every pageblock.

use super::Freehold;
use super::blocks::{BlockIndex, FRAMES};
use super::huge::blocks_in;
use super::runs::{WORD_FRAMES, WORD_ORDER, starts};
use super::state::{Holder, Use};
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::stat::{Events, FreeByType, ZoneStats};
use crate::units::{FrameCount, ORDERS, Order};

impl<P: Platform> Freehold<P> {
    /// The pageblocks of a zone.
    pub(super) fn blocks_of(&self, zone: ZoneIndex) -> impl Iterator<Item = BlockIndex> + '_ {
        self.blocks.all().filter(move |&block| self.blocks.zone_if_any(block) == Some(zone))
    }

    /// The state of a zone.
    pub(super) fn stats_of(&self, index: ZoneIndex) -> ZoneStats {
        let zone = self.zone(index);
        let (mut per_cpu, mut isolated) = (0, 0);
        for block in self.blocks_of(index) {
            let state = self.blocks.state(block);
            let free = || self.blocks.count_free(block) + self.blocks.count_remote(block);
            match (state.used_for(), state.holder()) {
                (Use::Whole, Holder::Cpu(_)) => per_cpu += FRAMES,
                (Use::Split, Holder::Cpu(_)) => per_cpu += free(),
                (Use::Split, _) if state.is_isolated() => isolated += free(),
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

    /// The free blocks of a zone by order.
    pub(super) fn free_blocks(&self, zone: ZoneIndex) -> [u64; ORDERS] {
        let by_type = self.count_by_type(zone).blocks;
        core::array::from_fn(|order| by_type.iter().map(|counts| counts[order]).sum())
    }

    /// The free blocks of a zone in pageblocks that nobody holds, each as large as can be, by the
    /// type of the pageblock that they begin in.
    pub(super) fn count_by_type(&self, zone: ZoneIndex) -> FreeByType {
        let mut counts = FreeByType::default();
        // What lies before this pageblock has been counted.
        let mut behind = BlockIndex(0);
        for block in self.blocks_of(zone) {
            let state = self.blocks.state(block);
            let of = state.migratetype().index();
            if !state.is_isolated() {
                counts.pageblocks[of] += 1;
            }
            match (state.used_for(), state.holder()) {
                (Use::Whole, Holder::Nobody) if block >= behind => {
                    let order = self.largest_free(zone, block);
                    counts.blocks[of][order.index()] += 1;
                    behind = BlockIndex(block.0 + blocks_in(order));
                }
                (Use::Split, Holder::Nobody) => self.count_runs(block, &mut counts.blocks[of]),
                _ => {}
            }
        }
        counts
    }

    /// The order of the largest block of whole pageblocks, at most the buddy system's largest, that
    /// begins with this one.
    fn largest_free(&self, zone: ZoneIndex, block: BlockIndex) -> Order {
        let is_free = |block| {
            let state = self.blocks.state(block);
            let of_zone = self.blocks.zone_if_any(block) == Some(zone);
            of_zone && (state.used_for(), state.holder()) == (Use::Whole, Holder::Nobody)
        };
        let begins = |order: &Order| {
            let count = blocks_in(*order);
            let mut upper = (block.0 + count / 2..block.0 + count).map(BlockIndex);
            self.number(block).is_multiple_of(u64::from(count)) && upper.all(is_free)
        };
        let larger = Order::PAGEBLOCK.up().to(Order::BUDDY_MAX);
        larger.take_while(begins).last().unwrap_or(Order::PAGEBLOCK)
    }

    /// Counts the free blocks of a pageblock that is not whole, each as large as can be.
    fn count_runs(&self, block: BlockIndex, counts: &mut [u64; ORDERS]) {
        let words = block.words();
        if words.clone().all(|word| self.blocks.free(word) == !0) {
            counts[Order::PAGEBLOCK.index()] += 1;
            return;
        }
        for first in words.clone().step_by(WORD_FRAMES as usize) {
            let mut full = 0;
            let end = words.end.min(first + WORD_FRAMES as usize);
            for (nth, word) in (first..end).enumerate() {
                let free = self.blocks.free(word);
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

    /// The events of all CPUs and zones.
    ///
    /// Nobody counts what is freed. What is in use is read off the bitmaps, each frame at some
    /// moment of the look, and that pageblocks change hands meanwhile makes no difference to it.
    /// So what was handed out less what was freed lacks at most what calls under way do, and so
    /// does each of the two; neither is ever ahead of the truth.
    pub(super) fn sum_events(&self, context: Context<'_, P>) -> Events {
        let mut events = Events::default();
        for zone in self.zone_indexes() {
            events.add(&self.zone(zone).events());
        }
        for cpu in 0..self.cpus() {
            self.while_steady(context, cpu, || {
                self.zone_indexes().for_each(|zone| events.add(&self.slot(cpu, zone).events()));
            });
        }
        // After what was handed out: of that, only what is not in use any more has been freed.
        let (mut used, mut doubles) = (0, 0);
        for block in self.blocks.all() {
            let (of_block, twice) = self.count_used(block);
            used += u64::from(of_block);
            doubles += u64::from(twice);
        }
        // More may have been handed out since.
        events.freed = FrameCount::new(events.allocated.get().saturating_sub(used));
        events.double_frees_late += FrameCount::new(doubles);
        events
    }

    /// How many frames of a pageblock users hold, and how many were freed twice and will be
    /// forgotten when it is in use frame by frame.
    fn count_used(&self, block: BlockIndex) -> (u32, u32) {
        match self.blocks.state(block).used_for() {
            Use::Absent => (0, 0),
            Use::Whole => (0, self.blocks.count_remote(block)),
            Use::Huge | Use::HugeTail => (FRAMES, self.blocks.count_remote(block)),
            // If it was handed out whole since this look at its state, then it was free before.
            Use::Split => (block.words().map(|word| self.blocks.used(word).count_ones()).sum(), 0),
        }
    }
}

/// Counts the largest aligned runs of set bits of up to `2^order`, each as one block of an order
/// that is larger by `shift`.
fn count_largest(mut bits: u64, order: u8, shift: u8, counts: &mut [u64; ORDERS]) {
    for order in (0..=order).rev() {
        let mut run = starts(bits, order);
        counts[usize::from(order + shift)] += u64::from(run.count_ones());
        for step in 0..order {
            run |= run << (1 << step);
        }
        bits &= !run;
    }
}
