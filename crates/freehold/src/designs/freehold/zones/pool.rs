//! The pool: whole pageblocks that no cache holds, and blocks of them, from one up to a GiB.

use super::Zones;
use super::tree::around;
use crate::designs::Context;
use crate::designs::freehold::pageblocks::huge::{order_in_pageblocks, pageblocks_in};
use crate::designs::freehold::pageblocks::run::starts;
use crate::designs::freehold::pageblocks::state::{Holder, State, Use};
use crate::designs::freehold::pageblocks::{FRAMES, PageblockIndex};
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order};

/// As many pageblocks as a word of the pool has bits, as a power of two.
const WORD_ORDER: u8 = 6;

impl<P: Platform> Zones<P> {
    /// Puts a whole pageblock into the pool. The caller holds it, and its frames are in the level.
    pub(crate) fn put_in_pool(&self, pageblock: PageblockIndex) {
        self.pageblocks.mark_whole(pageblock, Holder::None);
        self.forest.insert(self.zone_of(pageblock).pool(), self.bit(pageblock));
    }

    /// The same for one that a hypervisor has.
    pub(crate) fn put_reported_in_pool(&self, pageblock: PageblockIndex) {
        self.pageblocks.mark_whole(pageblock, Holder::None);
        self.pageblocks.update(pageblock, State::report);
        self.forest.insert(self.zone_of(pageblock).pool(), self.bit(pageblock));
    }

    /// Takes a whole pageblock for content of a type out of the pool. Its frames stay in the level.
    pub(crate) fn acquire_whole(
        &self,
        zone: ZoneIndex,
        cpu: usize,
        migratetype: MigrateType,
    ) -> Option<PageblockIndex> {
        let pool = self.zone(zone).pool();
        let found = around(self.start(pool, cpu, migratetype), |from| self.forest.next(pool, from));
        let bit = { found }.find_map(|bit| self.forest.remove_or_other(pool, bit, cpu))?;
        Some(self.pageblock_at(zone, bit))
    }

    /// Splits a whole pageblock that the caller took, which `holder` holds from now on.
    pub(crate) fn split(
        &self,
        pageblock: PageblockIndex,
        holder: Holder,
        migratetype: MigrateType,
    ) {
        let before = self.pageblocks.state(pageblock).migratetype();
        if before != migratetype {
            self.note_claim_of(pageblock);
        }
        if let Holder::Cpu(_) = holder {
            self.pageblocks.mark_unmovable_for(pageblock, migratetype);
        }
        self.mark_split(pageblock, holder, migratetype);
    }

    /// Marks a whole pageblock that the caller alone can reach as split, for content of a type, and
    /// as held by `holder`, which is about to take frames from it. Remote frees of it are
    /// discarded: its frames were free already, so these were freed twice at the same time.
    /// Otherwise they would be free while in use.
    pub(crate) fn mark_split(
        &self,
        pageblock: PageblockIndex,
        holder: Holder,
        migratetype: MigrateType,
    ) {
        self.zone_of(pageblock).note_doubles(self.pageblocks.discard_remote(pageblock));
        self.pageblocks.replace(pageblock, |state| state.split_whole(holder, migratetype));
    }

    /// Takes a block of whole pageblocks out of the pool.
    #[inline(never)]
    pub(crate) fn alloc_huge(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
    ) -> Option<u32> {
        let (order, migratetype) = (request.order(), request.content());
        let cpu = context.cpu_here();
        let section = self.section(cpu, zone);
        let pageblock = if order == Order::PAGEBLOCK {
            self.acquire_whole(zone, cpu, migratetype)?
        } else {
            loop {
                let pageblock = self.find_whole(zone, order)?;
                if self.acquire_adjacent(zone, pageblock, order) {
                    break pageblock;
                }
            }
        };
        self.hand_out_of_pool(context, zone, section, pageblock, order, migratetype);
        Some(pageblock.frame())
    }

    /// Hands out a block that the caller has taken out of the pool, in `section`, which ends here.
    pub(crate) fn hand_out_of_pool(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        section: impl Sized,
        pageblock: PageblockIndex,
        order: Order,
        migratetype: MigrateType,
    ) {
        self.zone(zone).sub_free(order.frames().get() as u32);
        drop(section);
        self.hand_out(pageblock, order, migratetype);
        self.note_direct_alloc(context, zone, order.frames());
    }

    /// The lowest aligned block of whole pageblocks in the pool.
    pub(crate) fn find_whole(&self, zone: ZoneIndex, order: Order) -> Option<PageblockIndex> {
        let (pool, up) = (self.zone(zone).pool(), order_in_pageblocks(order));
        let mut next = self.forest.next(pool, 0);
        while let Some(bit) = next {
            let word = bit / 64;
            if up <= WORD_ORDER {
                let starts = starts(self.forest.members(pool, word), up);
                if starts != 0 {
                    return Some(
                        self.pageblock_at(zone, word * 64 + starts.trailing_zeros() as usize),
                    );
                }
                next = self.forest.next(pool, (word + 1) * 64);
                continue;
            }
            let words = 1 << (up - WORD_ORDER);
            let first = self.pageblock_at(zone, word * 64);
            let is_full = |word| word * 64 < pool.bits() && self.forest.members(pool, word) == !0;
            if self.pageblocks.number(first).is_multiple_of(u64::from(pageblocks_in(order)))
                && (word..word + words).all(is_full)
            {
                return Some(first);
            }
            next = self.forest.next(pool, (word + 1) * 64);
        }
        None
    }

    /// The lowest of so many adjacent pageblocks in the pool, of which the first has a number that
    /// is a multiple of `align`: a hint. Those of two stretches of memory may be among them.
    pub(crate) fn find_adjacent(
        &self,
        zone: ZoneIndex,
        count: usize,
        align: u64,
    ) -> Option<PageblockIndex> {
        let pool = self.zone(zone).pool();
        let mut next = self.forest.next(pool, 0);
        while let Some(bit) = next {
            let number = self.pageblocks.number(self.pageblock_at(zone, bit));
            let start = bit + (number.next_multiple_of(align) - number) as usize;
            let end = self.forest.run_end(pool, start, start + count);
            if end == start + count {
                return Some(self.pageblock_at(zone, start));
            }
            next = self.forest.next(pool, end.max(bit + 1));
        }
        None
    }

    /// Takes adjacent pageblocks out of the pool, all or none; returns whether it did.
    fn acquire_adjacent(&self, zone: ZoneIndex, pageblock: PageblockIndex, order: Order) -> bool {
        let (pool, first) = (self.zone(zone).pool(), self.bit(pageblock));
        let count = pageblocks_in(order) as usize;
        if count <= 64 {
            let mask = if count == 64 { !0 } else { ((1 << count) - 1) << (first % 64) };
            return self.forest.remove_mask(pool, first / 64, mask);
        }
        let words = first / 64..(first + count) / 64;
        let taken =
            words.clone().take_while(|&word| self.forest.remove_mask(pool, word, !0)).count();
        if taken < words.len() {
            for word in words.take(taken) {
                self.forest.insert_mask(pool, word, !0);
            }
            return false;
        }
        true
    }

    /// Marks pageblocks that the caller took as allocated whole.
    pub(crate) fn hand_out(
        &self,
        pageblock: PageblockIndex,
        order: Order,
        migratetype: MigrateType,
    ) {
        for nth in (0..pageblocks_in(order)).rev() {
            let pageblock = PageblockIndex(pageblock.0 + nth);
            if self.pageblocks.state(pageblock).migratetype() != migratetype {
                self.note_claim_of(pageblock);
            }
            let used_for = if nth == 0 { Use::Huge } else { Use::HugeTail };
            let hand_out = |state: State| state.hand_out(used_for, order, migratetype);
            self.pageblocks.replace(pageblock, hand_out);
        }
    }

    /// Marks a whole pageblock that the caller alone can reach as allocated whole.
    #[inline(always)]
    pub(crate) fn hand_out_one(&self, pageblock: PageblockIndex, migratetype: MigrateType) {
        let Some(frame_ref) = self.pageblocks.lookup_pageblock(pageblock) else { return };
        let state = frame_ref.state();
        if state.migratetype() != migratetype {
            self.note_claim_of(pageblock);
        }
        match state.is_queued() {
            true => self.hand_out(pageblock, Order::PAGEBLOCK, migratetype),
            // As `Pageblocks::replace` does.
            false => {
                frame_ref.set_state(state.hand_out(Use::Huge, Order::PAGEBLOCK, migratetype));
            }
        }
    }

    /// Splits a pageblock that was allocated whole: all its frames belong to one allocation. If it
    /// is isolated, a walker holds it from now on.
    pub(crate) fn split_huge(&self, pageblock: PageblockIndex) {
        // Frames that were freed twice just before the pageblock was allocated would look like
        // holes.
        let found = self.pageblocks.collect_remote(pageblock);
        self.zone_of(pageblock).note_doubles(found.doubles);
        for word in pageblock.words() {
            self.pageblocks.set_free(word, 0);
        }
        self.pageblocks.join_all(pageblock);
        self.pageblocks.begin_use_of_all(pageblock);
        let migratetype = self.pageblocks.state(pageblock).migratetype();
        self.pageblocks.mark_unmovable_for(pageblock, migratetype);
        self.pageblocks.update(pageblock, State::split_huge);
    }

    /// Takes back a block of whole pageblocks that its user has freed.
    /// `put` puts each pageblock into the pool.
    pub(crate) fn release_huge(
        &self,
        context: Context<'_, P>,
        head: PageblockIndex,
        order: Order,
        put: impl Fn(&Self, PageblockIndex),
    ) {
        let index = self.pageblocks.zone(head);
        let zone = self.zone(index);
        self.note_direct_free(context, index, order.frames());
        // The head last: a call that finds another pageblock of the block finds its head as well.
        for nth in (0..pageblocks_in(order)).rev() {
            let pageblock = PageblockIndex(head.0 + nth);
            if self.pageblocks.end_huge(pageblock) {
                zone.add_free(FRAMES);
                put(self, pageblock);
            }
        }
    }

    /// Counts a pageblock that changes its type.
    #[cold]
    pub(crate) fn note_claim_of(&self, pageblock: PageblockIndex) {
        self.zone_of(pageblock).note_claim();
    }
}
