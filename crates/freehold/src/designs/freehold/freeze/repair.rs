//! Repair of a copy of the metadata, of which one thread is left.
//!
//! Calls of other threads may have come to any step. And since the copy is made a page of memory at
//! a time, it may have a later step of a call and lack an earlier one, in another page. What is
//! certain:
//!
//! * Frames and pageblocks that a thread of the copy has allocated, or a cache holds, look as they
//!   did all the time, since no other thread changes them.
//! * Each frame, and each state of a pageblock, looks as it did at some time meanwhile.
//!
//! So the repair believes states and bitmaps, and makes the rest anew. What is doubtful is lost to
//! the copy rather than allocated twice.
//!
//! | what the copy has | what becomes of it |
//! |---|---|
//! | levels, trees, remote queues, sections | made anew from states and bitmaps |
//! | caches whose lock the freeze has | stay; claims in their pageblocks are ended |
//! | caches whose lock it does not have | are used no more |
//! | a split pageblock that no cache holds | an orphan with its remote frees, or whole |
//! | a whole one that no cache holds | in the pool, all frames free |
//! | the head of a block all of whose tails are there | stays allocated |
//! | the head of one of which a part is left | what is left stays allocated, as blocks of its own |
//! | a tail without its head | a block of its own |
//! | a frame that looks like a hole, in a zone without holes | in use |

use core::ops::Range;

use super::ANY_ZONE;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::huge::pageblocks_in;
use crate::designs::freehold::pageblocks::state::{Holder, State, Use};
use crate::designs::freehold::pageblocks::{FRAMES, PageblockIndex};
use crate::designs::freehold::zones::{TREES, Zones};
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::stat::Census;
use crate::units::Order;

impl<P: Platform> Freehold<P> {
    /// Repairs everything but what caches hold. All locks are held, except for those of leases.
    pub(super) fn repair(&self) {
        for cpu in 0..self.zones.cpu_count() {
            self.repair_cpu(cpu);
            for zone in self.zones.indexes() {
                self.zones.cpu_zone(cpu, zone).queue.clear();
                self.zones.forget_sections(cpu, zone);
            }
        }
        for zone in self.zones.indexes() {
            self.repair_zone(zone);
        }
    }

    /// Keeps the caches from all callers for good if the freeze does not have their lock. The lease
    /// that could not be revoked may have ended since, and another call may have taken the lock. It
    /// is not known what of these caches is half done.
    fn repair_cpu(&self, cpu: usize) {
        if !self.cache(cpu, ANY_ZONE).is_frozen() {
            let per_cpu = self.per_cpu(cpu);
            per_cpu.try_lock();
            per_cpu.lease.lose();
        }
    }

    /// In this order: heads tell which tails are lost, states and bitmaps what is in trees, these
    /// what the level is, and remote frees are collected by what all of it says.
    fn repair_zone(&self, zone: ZoneIndex) {
        let pageblocks = || self.zones.pageblocks_of(zone);
        self.repair_holes(zone);
        pageblocks().for_each(|pageblock| self.repair_head(pageblock));
        pageblocks().for_each(|pageblock| self.repair_pageblock(pageblock));
        self.repair_trees(zone);
        let mut census = Census::default();
        self.zones.count(zone, &mut census);
        self.zones.zone(zone).set_level(census.free.get());
        pageblocks().for_each(|pageblock| self.repair_queued(pageblock));
    }

    /// Repairs frames that look like holes: the copy has their being freed, but not the claim
    /// before it. Only where all pageblocks of a zone are memory throughout, and so none of them is
    /// a hole.
    fn repair_holes(&self, zone: ZoneIndex) {
        let has_memory =
            |at: &PageblockIndex| self.pageblocks().state(*at).used_for() != Use::Absent;
        let all = || self.zones.pageblocks_of(zone).filter(has_memory);
        if self.zones.zone(zone).managed() == all().count() as u64 * u64::from(FRAMES) {
            all().for_each(|pageblock| self.pageblocks().fill_holes(pageblock));
        }
    }

    /// Repairs a block of whole pageblocks of which only a part is left, or that another thread was
    /// about to free in whole or in part.
    fn repair_head(&self, head: PageblockIndex) {
        let state = self.pageblocks().state(head);
        if state.used_for() != Use::Huge {
            return;
        }
        let end = (head.0 + pageblocks_in(state.order())).min(self.pageblocks().len() as u32);
        if state.holder() == Holder::None && self.are_tails(head.0 + 1..end) {
            return;
        }
        let mut at = head.0;
        while at < end {
            let pageblock = PageblockIndex(at);
            let now = self.pageblocks().state(pageblock);
            at += match now.used_for() {
                Use::Huge if pageblock != head => pageblocks_in(now.order()),
                Use::Huge | Use::HugeTail => {
                    let fits = |order: &Order| self.fits(pageblock, *order, end);
                    let order = Order::PAGEBLOCK.to(state.order()).take_while(fits).last();
                    let order = order.unwrap_or(Order::PAGEBLOCK);
                    self.mark_huge(pageblock, order);
                    pageblocks_in(order)
                }
                Use::Absent | Use::Whole | Use::Split => 1,
            };
        }
    }

    /// Whether these pageblocks, which exist, are all tails.
    fn are_tails(&self, mut numbers: Range<u32>) -> bool {
        numbers.all(|at| self.pageblocks().state(PageblockIndex(at)).used_for() == Use::HugeTail)
    }

    /// Whether a block of an order may begin at a pageblock and end at `end` at the latest, by its
    /// alignment and its tails.
    fn fits(&self, pageblock: PageblockIndex, order: Order, end: u32) -> bool {
        let (number, count) = (self.pageblocks().number(pageblock), pageblocks_in(order));
        number.is_multiple_of(u64::from(count))
            && pageblock.0 + count <= end
            && self.are_tails(pageblock.0 + 1..pageblock.0 + count)
    }

    /// Makes a pageblock the head of an allocated block.
    fn mark_huge(&self, pageblock: PageblockIndex, order: Order) {
        let state = self.pageblocks().state(pageblock).repaired(Use::Huge, order);
        self.pageblocks().repair_state(pageblock, state);
        (0..pageblocks_in(order))
            .for_each(|nth| self.pageblocks().set_all_free(PageblockIndex(pageblock.0 + nth)));
    }

    /// Makes a pageblock agree with its state, unless a cache holds it. There are no other holders,
    /// and no pageblock is isolated.
    fn repair_pageblock(&self, pageblock: PageblockIndex) {
        let (pageblocks, state) = (self.pageblocks(), self.pageblocks().state(pageblock));
        let is_cached = matches!(state.holder(), Holder::Cpu(_));
        let (mut used_for, mut order) = (state.used_for(), state.order());
        match used_for {
            Use::Absent | Use::Huge => {}
            // The block that it was part of is gone, or was not there yet.
            Use::HugeTail if pageblocks.head_of(pageblock).is_none() => {
                pageblocks.set_all_free(pageblock);
                (used_for, order) = (Use::Huge, Order::PAGEBLOCK);
            }
            Use::HugeTail => {}
            Use::Whole if is_cached => {}
            Use::Whole => pageblocks.set_all_free(pageblock),
            Use::Split if is_cached => pageblocks.end_claims(pageblock),
            Use::Split => {
                pageblocks.merge_remote(pageblock);
                pageblocks.end_claims(pageblock);
                if pageblocks.is_whole(pageblock) {
                    pageblocks.clear_all_unmovable(pageblock);
                    (used_for, order) = (Use::Whole, Order::ZERO);
                } else {
                    order = pageblocks.largest_run(pageblock);
                }
            }
        }
        pageblocks.repair_state(pageblock, state.repaired(used_for, order));
        pageblocks.repair_uses(pageblock);
    }

    /// Rebuilds the trees of a zone.
    fn repair_trees(&self, zone: ZoneIndex) {
        let state = |bit| {
            let pageblock = self.zones.pageblock_at(zone, bit);
            // A word of the trees has bits before the tables, and behind the zone.
            let is_here = pageblock.index() < self.pageblocks().len()
                && self.pageblocks().zone_if_any(pageblock) == Some(zone);
            let state = if is_here { self.pageblocks().state(pageblock) } else { State::ABSENT };
            (pageblock, state, state.holder() == Holder::None)
        };
        let trees = |bit| match state(bit) {
            (_, state, true) if state.used_for() == Use::Whole => 1,
            (pageblock, state, true)
                if state.is_split() && self.pageblocks().count_free(pageblock) > 0 =>
            {
                Zones::<P>::trees_of(state) << 1
            }
            _ => 0,
        };
        let record = self.zones.zone(zone);
        let bits = match record.extent() {
            none if none.is_empty() => 0..0,
            of => record.bit(PageblockIndex(of.start))..record.bit(PageblockIndex(of.end - 1)) + 1,
        };
        self.zones.forest.rebuild(record.pool(), TREES, bits, trees);
    }

    /// Queues a pageblock with remote frees, or collects them.
    fn repair_queued(&self, pageblock: PageblockIndex) {
        if self.pageblocks().state(pageblock).is_split() && self.pageblocks().has_remote(pageblock)
        {
            self.zones.ensure_collected(0, pageblock);
        }
    }
}
