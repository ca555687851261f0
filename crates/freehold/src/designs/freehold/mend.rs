//! What a copy of the metadata has to put right that was made while calls of others went on.
//!
//! The copy was made with the locks of all slots held (`freeze`), and there is one thread in it. So
//! what slots hold is in order. The rest is changed without locks, step by step: any call of others
//! may have come to any step, and since the copy is made a page of memory at a time, it may have a
//! later step of theirs and not an earlier one, in another page. What is certain:
//!
//! * Frames and pageblocks that a thread of the copy has allocated, or a slot holds, look the way
//!   they did all the time, since nobody else had any business with them.
//! * Each frame, and each state of a pageblock, looks the way it did at some time meanwhile.
//!
//! So states and bitmaps are what is believed; levels, trees and stacks are made anew from them. A
//! frame that is in use in the bitmap stays in use, whoever had it. What says of itself that it
//! was handed out whole stays handed out, though not as what it was part of, if that does not fit.
//! Whatever is doubtful is lost to the copy rather than handed out twice.

use core::sync::atomic::Ordering::Relaxed;

use super::Freehold;
use super::blocks::{BlockIndex, FRAMES};
use super::guard::HELD;
use super::huge::blocks_in;
use super::state::{Holder, State, Use};
use super::tree::Tree;
use crate::memmap::block::ZoneIndex;
use crate::platform::{Platform, Word};
use crate::stat::Census;
use crate::units::{MigrateType, Order};

impl<P: Platform> Freehold<P> {
    /// Puts everything right that slots do not hold. All locks are held, but for those of leases.
    pub(super) fn mend(&self) {
        for cpu in 0..self.cpus() {
            self.mend_home(cpu);
            self.zone_indexes().for_each(|zone| self.slot(cpu, zone).forget_pending());
        }
        for zone in self.zone_indexes() {
            self.mend_holes(zone);
            self.blocks_of(zone).for_each(|block| self.mend_head(block));
            self.blocks_of(zone).for_each(|block| self.mend_block(block));
            self.mend_trees(zone);
            let mut census = Census::default();
            self.count(zone, &mut census);
            self.zone(zone).set_level(census.free.get());
            self.blocks_of(zone).for_each(|block| self.mend_pending(block));
        }
    }

    /// A lease that could not be revoked may have ended since, and somebody taken the lock. Then
    /// nobody knows what of these slots is half done: they stay leased for good.
    fn mend_home(&self, cpu: usize) {
        let (home, slot) = (self.home(cpu), self.slot(cpu, ZoneIndex(0)));
        let frozen = slot.set_frozen(false);
        slot.set_frozen(frozen);
        if !frozen {
            home.try_lock();
            // Relaxed: there is nobody else. If it says `ASKED`, that request is forgotten.
            home.lease.store(HELD, Relaxed);
        }
    }

    /// A frame whose claim was not copied, but that it was freed, looks like no memory. Where all
    /// pageblocks of a zone are memory throughout, there is none such.
    fn mend_holes(&self, zone: ZoneIndex) {
        let has_memory = |block: &BlockIndex| self.blocks.state(*block).used_for() != Use::Absent;
        let blocks = self.blocks_of(zone).filter(has_memory).count() as u64;
        if self.zone(zone).managed() == blocks * u64::from(FRAMES) {
            let all = self.blocks_of(zone).filter(has_memory);
            all.for_each(|block| self.blocks.fill_holes(block));
        }
    }

    /// Divides a block of whole pageblocks anew of which only a part is left, or that somebody was
    /// about to free in whole or in part. It stays handed out.
    fn mend_head(&self, head: BlockIndex) {
        let state = self.blocks.state(head);
        if state.used_for() != Use::Huge {
            return;
        }
        let end = (head.0 + blocks_in(state.order())).min(self.blocks.len() as u32);
        let used_for = |block: u32| self.blocks.state(BlockIndex(block)).used_for();
        let are_tails = |from: u32, to: u32| {
            to <= end && (from..to).all(|block| used_for(block) == Use::HugeTail)
        };
        if state.holder() == Holder::Nobody && are_tails(head.0 + 1, end) {
            return;
        }
        let mut at = head.0;
        while at < end {
            let block = BlockIndex(at);
            at += match used_for(at) {
                Use::Huge if block != head => blocks_in(self.blocks.state(block).order()),
                Use::Huge | Use::HugeTail => {
                    let fits = |order: &Order| {
                        self.number(block).is_multiple_of(u64::from(blocks_in(*order)))
                            && are_tails(at + 1, at + blocks_in(*order))
                    };
                    let order = Order::PAGEBLOCK.to(state.order()).take_while(fits).last();
                    let order = order.unwrap_or(Order::PAGEBLOCK);
                    self.keep_huge(block, order);
                    blocks_in(order)
                }
                Use::Absent | Use::Whole | Use::Split => 1,
            };
        }
    }

    /// Makes a pageblock the first of a block that was handed out.
    fn keep_huge(&self, block: BlockIndex, order: Order) {
        let state = self.blocks.state(block).used(Use::Huge, order);
        self.blocks.set_state(block, state.held_by(Holder::Nobody));
        (0..blocks_in(order)).for_each(|nth| self.blocks.set_all_free(BlockIndex(block.0 + nth)));
    }

    /// Makes a pageblock be what its state says, but for those that slots hold. Nobody else holds
    /// any, or has any out of circulation.
    fn mend_block(&self, block: BlockIndex) {
        let mut state = self.blocks.state(block);
        state = State(state.0 & !(State::PENDING | State::ISOLATED));
        self.blocks.set_state(block, state);
        let is_of_slot = matches!(state.holder(), Holder::Cpu(_));
        match state.used_for() {
            Use::Absent => {}
            Use::Huge => {}
            // What it was part of is gone, or was not there yet.
            Use::HugeTail if self.head_of(block).is_none() => {
                self.keep_huge(block, Order::PAGEBLOCK);
            }
            Use::HugeTail => {}
            Use::Whole if is_of_slot => {}
            Use::Whole => {
                self.blocks.set_all_free(block);
                self.blocks.set_state(block, state.held_by(Holder::Nobody).listed(false));
            }
            Use::Split if is_of_slot => self.blocks.end_claims(block),
            Use::Split => {
                self.blocks.settle(block);
                self.blocks.end_claims(block);
                self.blocks.set_state(block, state.held_by(Holder::Nobody).listed(false));
                if self.blocks.is_whole(block) {
                    self.mark_whole(block, Holder::Nobody);
                }
            }
        }
    }

    /// Makes the trees of a zone anew.
    fn mend_trees(&self, zone: ZoneIndex) {
        let state = |bit| {
            let block = self.block_at(zone, bit);
            // Trees may begin before the tables, and end behind the zone.
            let is_here =
                block.index() < self.blocks.len() && self.blocks.zone_if_any(block) == Some(zone);
            let state = if is_here { self.blocks.state(block) } else { State::ABSENT };
            (block, state, state.holder() == Holder::Nobody)
        };
        let is_whole = |bit| {
            let (_, state, is_free) = state(bit);
            is_free && state.used_for() == Use::Whole
        };
        let tree: &Tree = self.zone(zone).pool();
        self.forest.rebuild(tree, is_whole);
        for of in MigrateType::ALL {
            self.forest.rebuild(self.zone(zone).partial(of), |bit| {
                let (block, state, is_free) = state(bit);
                let is_partial = is_free && state.is_split() && state.migratetype() == of;
                is_partial && self.blocks.count_free(block) > 0
            });
        }
    }

    /// Has the slot that holds a pageblock look at what others have freed there.
    fn mend_pending(&self, block: BlockIndex) {
        if self.blocks.state(block).is_split() && self.blocks.has_remote(block) {
            self.notify(block);
        }
    }
}
