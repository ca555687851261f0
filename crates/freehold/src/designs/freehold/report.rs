//! What the design says about itself. All of it visits every pageblock.

use super::Freehold;
use super::blocks::BlockIndex;
use super::runs::{WORD_ORDER, starts};
use super::slot::Counts;
use super::state::{Holder, Use};
use super::zone::Zone;
use crate::buddy::ORDERS;
use crate::designs::Context;
use crate::memmap::block::ZoneIndex;
use crate::platform::Platform;
use crate::stat::{Events, ZoneStats};
use crate::units::{FrameCount, Order};

impl<P: Platform> Freehold<P> {
    /// The pageblocks of a zone.
    pub(super) fn blocks_of(&self, zone: ZoneIndex) -> impl Iterator<Item = BlockIndex> + '_ {
        self.blocks.all().filter(move |&block| self.blocks.zone_if_any(block) == Some(zone))
    }

    /// The state of a zone.
    pub(super) fn stats_of(&self, index: ZoneIndex) -> ZoneStats {
        let zone = self.zone(index);
        let (mut per_cpu, mut isolated, mut free_blocks) = (0, 0, [0; ORDERS]);
        for block in self.blocks_of(index) {
            let state = self.blocks.state(block);
            match (state.used_for(), state.holder()) {
                (Use::Split | Use::Whole, Holder::Cpu(_)) => {
                    per_cpu += self.blocks.count_free(block) + self.blocks.count_remote(block);
                }
                (Use::Split, _) if state.is_isolated() => {
                    isolated += self.blocks.count_free(block) + self.blocks.count_remote(block);
                }
                (Use::Whole, Holder::Nobody) => free_blocks[Order::PAGEBLOCK.index()] += 1,
                (Use::Split, Holder::Nobody) => self.count_runs(block, &mut free_blocks),
                _ => {}
            }
        }
        // The pool may change between one look and the other.
        let pairs = self.count_pairs(index).min(free_blocks[Order::PAGEBLOCK.index()] / 2);
        free_blocks[Order::PAGEBLOCK.index()] -= 2 * pairs;
        free_blocks[Order::BUDDY_MAX.index()] += pairs;
        ZoneStats {
            node: zone.node(),
            kind: zone.kind(),
            managed: FrameCount::new(zone.managed()),
            free: FrameCount::new(zone.level()),
            per_cpu: FrameCount::new(u64::from(per_cpu)),
            isolated: FrameCount::new(u64::from(isolated)),
            free_blocks,
            marks: zone.watermarks().get(),
            claims: zone.claims(),
            steals: zone.steals(),
        }
    }

    /// Counts the free blocks of a pageblock that is not whole, each as large as can be.
    fn count_runs(&self, block: BlockIndex, counts: &mut [u64; ORDERS]) {
        let mut full = 0;
        for (nth, word) in block.words().enumerate() {
            let free = self.blocks.free(word);
            if free == !0 {
                full |= 1 << nth;
            } else {
                count_largest(free, WORD_ORDER - 1, 0, counts);
            }
        }
        count_largest(full, Order::PAGEBLOCK.get() - WORD_ORDER, WORD_ORDER, counts);
    }

    /// How many pairs of buddies are whole and held by nobody.
    fn count_pairs(&self, zone: ZoneIndex) -> u64 {
        let pool = self.zone(zone).pool();
        let words = 0..pool.bits().div_ceil(64);
        let pairs = |word| u64::from(starts(self.forest.members(pool, word), 1).count_ones());
        words.map(pairs).sum()
    }

    /// The events of all CPUs and zones.
    pub(super) fn sum_events(&self, context: Context<'_, P>) -> Events {
        let (mut events, mut slots) = (Events::default(), Counts::default());
        let mut freed = 0;
        // The counters before the bitmaps, so that what is harvested meanwhile does not count
        // twice.
        for cpu in 0..self.cpus() {
            // One lock for the slots of all zones. Who holds it for long goes on counting
            // meanwhile.
            let _guard = self.lock_if_vacant(context, cpu, ZoneIndex(0));
            for zone in self.zone_indexes() {
                slots.add(&self.slot(cpu, zone).counts());
            }
            let home = self.homes.get(cpu);
            freed += home.freed();
            let [allocated, freed] = home.huge().map(FrameCount::new);
            events.add(&Events {
                allocated,
                allocated_directly: allocated,
                freed_directly: freed,
                ..Events::default()
            });
        }
        for zone in self.zone_indexes() {
            events.add(&self.zone(zone).events());
        }
        let (mut free, mut remote) = (0, 0);
        for block in self.blocks.all() {
            if let Holder::Cpu(_) = self.blocks.state(block).holder() {
                free += u64::from(self.blocks.count_free(block));
                remote += u64::from(self.blocks.count_remote(block));
            }
        }
        // After the bitmaps: who adds frames to a held pageblock counts them first.
        let added: u64 = self.zones.iter().map(Zone::added).sum();
        let Counts { refills, refilled, drains, drained, doubles } = slots;
        // What was handed out is what came less what went otherwise and what is left.
        let allocated = (refilled + freed).saturating_sub(drained + free);
        // What was added to held pageblocks looks as if somebody had freed it there.
        let freed = (freed + remote + events.freed_directly.get()).saturating_sub(added);
        events.add(&Events {
            allocated: FrameCount::new(allocated),
            freed: FrameCount::new(freed),
            refills,
            refilled: FrameCount::new(refilled + added),
            drains,
            drained: FrameCount::new(drained),
            double_frees_late: FrameCount::new(doubles),
            ..Events::default()
        });
        events
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.refills += other.refills;
        self.refilled += other.refilled;
        self.drains += other.drains;
        self.drained += other.drained;
        self.doubles += other.doubles;
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
