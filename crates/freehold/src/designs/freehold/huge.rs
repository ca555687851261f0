//! Blocks of whole pageblocks: from one up to a GiB and more.

use super::Freehold;
use super::blocks::{BlockIndex, FRAMES};
use super::runs::starts;
use super::state::{Holder, State, Use};
use crate::Error;
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order};

/// The order of as many pageblocks as a word of the pool has bits, counted in pageblocks.
const WORD_ORDER: u8 = 6;

/// A block that was handed out and that the caller holds. Others who free parts of it wait, so its
/// CPU runs nothing else until this is dropped: neither another thread nor an interrupt handler.
struct HeldHuge<'a, P: Platform> {
    head: BlockIndex,
    state: State,
    platform: &'a P,
    irq: P::IrqState,
}

impl<'a, P: Platform> HeldHuge<'a, P> {
    fn new(platform: &'a P, head: BlockIndex, state: State) -> Self {
        platform.pin();
        HeldHuge { head, state, platform, irq: platform.irq_save() }
    }
}

impl<P: Platform> Drop for HeldHuge<'_, P> {
    fn drop(&mut self) {
        self.platform.irq_restore(self.irq);
        self.platform.unpin();
    }
}

/// How many pageblocks a block of `order` has, as a power of two.
const fn order_in_blocks(order: Order) -> u8 {
    order.get() - Order::PAGEBLOCK.get()
}

/// How many pageblocks a block of `order` has.
pub(super) const fn blocks_in(order: Order) -> u32 {
    1 << order_in_blocks(order)
}

impl<P: Platform> Freehold<P> {
    /// Takes a block of whole pageblocks out of the pool.
    pub(super) fn take_huge(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
    ) -> Option<u32> {
        let (order, migratetype) = (request.order(), request.content());
        let cpu = self.cpu_here(context);
        let section = self.section(cpu, zone);
        let block = if order == Order::PAGEBLOCK {
            self.take_whole(zone, cpu, migratetype)?
        } else {
            loop {
                let block = self.find_whole(zone, order)?;
                if self.take_adjacent(zone, block, order) {
                    break block;
                }
            }
        };
        self.zone(zone).sub_free(order.frames().get() as u32);
        drop(section);
        self.hand_out(block, order, migratetype);
        self.note_direct_alloc(context, zone, order.frames());
        Some(block.frame())
    }

    /// Counts a pageblock that changes its type.
    #[cold]
    pub(super) fn note_claim_of(&self, block: BlockIndex) {
        self.zone(self.blocks.zone(block)).note_claim();
    }

    /// The number of a pageblock in all memory, by which blocks are aligned.
    ///
    /// Trees may begin before the span, so it may be that of a pageblock that is not there.
    pub(super) fn number(&self, block: BlockIndex) -> u64 {
        let first = self.blocks.pfn_of(0).get() >> Order::PAGEBLOCK.get();
        first.wrapping_add_signed(i64::from(block.0.cast_signed()))
    }

    /// The lowest aligned block of whole pageblocks in the pool.
    pub(super) fn find_whole(&self, zone: ZoneIndex, order: Order) -> Option<BlockIndex> {
        let (pool, up) = (self.zone(zone).pool(), order_in_blocks(order));
        let mut next = self.forest.next(pool, 0);
        while let Some(bit) = next {
            let word = bit / 64;
            if up <= WORD_ORDER {
                let starts = starts(self.forest.members(pool, word), up);
                if starts != 0 {
                    return Some(self.block_at(zone, word * 64 + starts.trailing_zeros() as usize));
                }
                next = self.forest.next(pool, (word + 1) * 64);
                continue;
            }
            let words = 1 << (up - WORD_ORDER);
            let first = self.block_at(zone, word * 64);
            let is_full = |word| word * 64 < pool.bits() && self.forest.members(pool, word) == !0;
            if self.number(first).is_multiple_of(u64::from(blocks_in(order)))
                && (word..word + words).all(is_full)
            {
                return Some(first);
            }
            next = self.forest.next(pool, (word + 1) * 64);
        }
        None
    }

    /// Takes adjacent pageblocks out of the pool, all or none; says whether.
    fn take_adjacent(&self, zone: ZoneIndex, block: BlockIndex, order: Order) -> bool {
        let (pool, first) = (self.zone(zone).pool(), self.bit(block));
        let count = blocks_in(order) as usize;
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

    /// Marks pageblocks that the caller took as handed out.
    pub(super) fn hand_out(&self, block: BlockIndex, order: Order, migratetype: MigrateType) {
        for nth in (0..blocks_in(order)).rev() {
            let block = BlockIndex(block.0 + nth);
            if self.blocks.state(block).migratetype() != migratetype {
                self.note_claim_of(block);
            }
            let used_for = if nth == 0 { Use::Huge } else { Use::HugeTail };
            self.blocks.replace(block, |state| {
                let state = state.used(used_for, order).of_type(migratetype);
                state.held_by(Holder::Nobody).isolated(false)
            });
        }
    }

    /// Frees a block of whole pageblocks, or part of one, in which `block` lies.
    pub(super) fn free_huge(
        &self,
        context: Context<'_, P>,
        frame: u32,
        order: Order,
    ) -> Result<(), Error> {
        let block = BlockIndex::of_frame(frame);
        let is_alone = |state: State| {
            state.used_for() == Use::Huge && state.order() == Order::PAGEBLOCK //
        };
        if order == Order::PAGEBLOCK
            && is_alone(self.blocks.state(block))
            && self.free_into_reserve(context, block)?
        {
            return Ok(());
        }
        let Some(held) = self.hold_huge(context, block, order)? else {
            return self.free_split(context, frame, order);
        };
        let HeldHuge { head, state, .. } = held;
        if order == state.order() {
            self.take_back(context, head, order);
            return Ok(());
        }
        let (part, rest) = self.break_up(head, state, frame, order);
        if let Some(rest) = rest {
            self.end_part(rest);
        }
        drop(held);
        if order < Order::PAGEBLOCK {
            return self.free_split(context, frame, order);
        }
        self.take_back(context, part, order);
        Ok(())
    }

    /// Becomes the holder of the block, of at least `order`, that a pageblock which was handed out
    /// lies in. Others may free other parts of it at the same time: while one breaks it up, the
    /// rest wait. `None` if the pageblock is in use frame by frame by then.
    fn hold_huge<'a>(
        &self,
        context: Context<'a, P>,
        block: BlockIndex,
        order: Order,
    ) -> Result<Option<HeldHuge<'a, P>>, Error> {
        loop {
            match self.blocks.state(block).used_for() {
                Use::Huge | Use::HugeTail => {}
                Use::Split => return Ok(None),
                Use::Whole | Use::Absent => return Err(Error::DoubleFree),
            }
            if let Some((head, state)) = self.head_of(block)
                && state.holder() == Holder::Nobody
            {
                if order > state.order() {
                    return Err(Error::WrongOrder);
                }
                let held = HeldHuge::new(context.platform, head, state);
                let hold = |now: State| (now == state).then_some(now.held_by(Holder::Walker));
                if self.blocks.try_update(head, hold).is_ok() {
                    return Ok(Some(held));
                }
            }
            context.platform.relax();
        }
    }

    /// The first pageblock of the block that one which was handed out lies in.
    pub(super) fn head_of(&self, block: BlockIndex) -> Option<(BlockIndex, State)> {
        let largest = <Self as crate::designs::Design<P>>::ORDER_MAX;
        Order::PAGEBLOCK.to(largest).find_map(|order| {
            let offset = self.number(block) & u64::from(blocks_in(order) - 1);
            let head = BlockIndex(block.0.checked_sub(offset as u32)?);
            let state = self.blocks.state(head);
            let is_head = state.used_for() == Use::Huge && state.order() >= order;
            is_head.then_some((head, state))
        })
    }

    /// Breaks up a block of which only a part is freed; what is left is handed out in blocks of its
    /// own. Returns the first pageblock of the part, and, if that is less than a pageblock, the
    /// pageblock that it lies in.
    fn break_up(
        &self,
        head: BlockIndex,
        state: State,
        frame: u32,
        order: Order,
    ) -> (BlockIndex, Option<BlockIndex>) {
        let part = BlockIndex::of_frame(frame);
        let (mut at, mut half) = (head, state.order());
        while half > order.max(Order::PAGEBLOCK) {
            half = Order::new(half.get() - 1);
            let upper = BlockIndex(at.0 + blocks_in(half));
            let (with_part, rest) = if part >= upper { (upper, at) } else { (at, upper) };
            if rest == at {
                // Held by us so far: the part goes on as held, for whoever looks for its head.
                self.blocks
                    .update(with_part, |now| now.used(Use::Huge, half).held_by(Holder::Walker));
            }
            self.blocks.update(rest, |now| now.used(Use::Huge, half).held_by(Holder::Nobody));
            if rest != at {
                self.blocks.update(at, |now| now.used(Use::Huge, half));
            }
            at = with_part;
        }
        (at, (order < Order::PAGEBLOCK).then_some(at))
    }

    /// Turns a pageblock that was handed out whole into one in use frame by frame, all of which
    /// belong to one allocation. If it is isolated, it is held from now on.
    fn end_part(&self, block: BlockIndex) {
        // What was freed twice just before it was handed out would look like no memory.
        let found = self.blocks.harvest(block);
        self.zone(self.blocks.zone(block)).note_doubles(found.doubles);
        for word in block.words() {
            self.blocks.set_free(word, 0);
        }
        self.blocks.join_all(block);
        self.blocks.begin_use_of_all(block);
        let migratetype = self.blocks.state(block).migratetype();
        self.set_fixed_for(block, migratetype);
        self.blocks.update(block, |state| {
            let holder = if state.is_isolated() { Holder::Walker } else { Holder::Nobody };
            state.used(Use::Split, Order::ZERO).held_by(holder).listed(false)
        });
    }

    /// Takes back a block that its user has given up.
    fn take_back(&self, context: Context<'_, P>, head: BlockIndex, order: Order) {
        let index = self.blocks.zone(head);
        let zone = self.zone(index);
        self.note_direct_free(context, index, order.frames());
        // The head last: whoever finds another one finds its head as well.
        for nth in (0..blocks_in(order)).rev() {
            let block = BlockIndex(head.0 + nth);
            if self.take_apart(block) {
                zone.add_free(FRAMES);
                self.give_whole(block);
            }
        }
    }

    /// Ends a pageblock's being part of a block that was given back: it is whole, and the caller
    /// holds it. Says whether that is so: if it is isolated, those get it who isolated it.
    fn take_apart(&self, block: BlockIndex) -> bool {
        self.blocks.unfix_all(block);
        let before = self.blocks.update(block, |state| match state.is_isolated() {
            true => {
                let state = state.used(Use::Split, Order::ZERO).of_type(MigrateType::Movable);
                state.held_by(Holder::Walker)
            }
            false => state.used(Use::Whole, Order::ZERO).held_by(Holder::Walker),
        });
        !before.is_isolated()
    }
}
