//! Blocks of whole pageblocks, as their states describe them: the head has the order, the others
//! are tails.

use super::run::{ORDER_MAX, Span};
use super::state::{Holder, State, Use};
use super::{PageblockIndex, Pageblocks};
use crate::Error;
use crate::compact::Migrate;
use crate::platform::{IrqsOff, Platform};
use crate::units::{MigrateType, Order};

/// How many pageblocks a block of `order` has.
pub(crate) const fn pageblocks_in(order: Order) -> u32 {
    1 << order_in_pageblocks(order)
}

/// The same as a power of two.
pub(crate) const fn order_in_pageblocks(order: Order) -> u8 {
    order.get() - Order::PAGEBLOCK.get()
}

/// An allocated block that the caller holds as a walker. Frees of other parts of the block wait for
/// it. So the CPU runs nothing else until this is dropped: no other thread, no interrupt handler.
pub(crate) struct HeldHuge<'a, P: Platform> {
    pub(crate) head: PageblockIndex,
    pub(crate) state: State,
    _irqs: IrqsOff<'a, P>,
}

impl<'a, P: Platform> HeldHuge<'a, P> {
    fn new(platform: &'a P, head: PageblockIndex, state: State) -> Self {
        HeldHuge { head, state, _irqs: IrqsOff::new(platform) }
    }
}

impl<P: Platform> Pageblocks<P> {
    /// The number of a pageblock, counted from frame 0 rather than from the span: by it blocks are
    /// aligned.
    ///
    /// Trees may begin before the span, so the pageblock need not exist.
    pub(crate) fn number(&self, pageblock: PageblockIndex) -> u64 {
        let first = self.pfn_of(0).get() >> Order::PAGEBLOCK.get();
        first.wrapping_add_signed(i64::from(pageblock.0.cast_signed()))
    }

    /// The head of the allocated block that a pageblock lies in.
    pub(crate) fn head_of(&self, pageblock: PageblockIndex) -> Option<(PageblockIndex, State)> {
        Order::PAGEBLOCK.to(ORDER_MAX).find_map(|order| {
            let offset = self.number(pageblock) & u64::from(pageblocks_in(order) - 1);
            let head = PageblockIndex(pageblock.0.checked_sub(offset as u32)?);
            let state = self.state(head);
            let is_head = state.used_for() == Use::Huge && state.order() >= order;
            is_head.then_some((head, state))
        })
    }

    /// The frames of the block whose head this is.
    pub(crate) fn span_of_huge(&self, head: PageblockIndex, state: State) -> Span {
        Span::of(head, pageblocks_in(state.order()))
    }

    /// Whether the content of the block whose head this is may move.
    pub(crate) fn may_move_huge(
        &self,
        head: PageblockIndex,
        state: State,
        owner: &dyn Migrate,
    ) -> bool {
        state.migratetype() == MigrateType::Movable
            || owner.can_move(self.pfn_of(head.frame()), state.order())
    }

    /// Acquires, as a walker, the allocated block that a pageblock lies in; the block must have at
    /// least `order`. Other CPUs may free other parts of it at the same time: while one call breaks
    /// it up, the others wait. `None` if the pageblock has been split meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::DoubleFree`] if the pageblock is not allocated; [`Error::WrongOrder`] if the block
    /// has less than `order`.
    pub(crate) fn acquire_huge<'a>(
        &self,
        platform: &'a P,
        pageblock: PageblockIndex,
        order: Order,
    ) -> Result<Option<HeldHuge<'a, P>>, Error> {
        loop {
            match self.state(pageblock).used_for() {
                Use::Huge | Use::HugeTail => {}
                Use::Split => return Ok(None),
                Use::Whole | Use::Absent => return Err(Error::DoubleFree),
            }
            if let Some((head, state)) = self.head_of(pageblock)
                && state.holder() == Holder::None
            {
                if order > state.order() {
                    return Err(Error::WrongOrder);
                }
                let held = HeldHuge::new(platform, head, state);
                let hold = |now: State| (now == state).then(|| now.acquire(Holder::Walker));
                if self.try_update(head, hold).is_ok() {
                    return Ok(Some(held));
                }
            }
            platform.relax();
        }
    }

    /// Breaks up a block of which only a part is freed; the rest stays allocated, as blocks of its
    /// own. Returns the first pageblock of the part. If the part is less than a pageblock, returns
    /// the pageblock that it lies in as well.
    pub(crate) fn break_up(
        &self,
        head: PageblockIndex,
        state: State,
        frame: u32,
        order: Order,
    ) -> (PageblockIndex, Option<PageblockIndex>) {
        let part = PageblockIndex::of_frame(frame);
        let (mut at, mut half) = (head, state.order());
        while half > order.max(Order::PAGEBLOCK) {
            half = Order::new(half.get() - 1);
            let upper = PageblockIndex(at.0 + pageblocks_in(half));
            let (with_part, rest) = if part >= upper { (upper, at) } else { (at, upper) };
            if rest == at {
                // So far the caller holds it through the head. The part stays held, for calls that
                // look for its head.
                self.update(with_part, |now| now.break_off(half, Holder::Walker));
            }
            self.update(rest, |now| now.break_off(half, Holder::None));
            if rest != at {
                self.update(at, |now| now.break_off(half, Holder::Walker));
            }
            at = with_part;
        }
        (at, (order < Order::PAGEBLOCK).then_some(at))
    }

    /// Ends the use of a pageblock as part of a block that was freed: it is whole, and the caller
    /// holds it. Returns whether that is so. If the pageblock is isolated, the call that isolated
    /// it holds it instead.
    pub(crate) fn end_huge(&self, pageblock: PageblockIndex) -> bool {
        self.clear_all_unmovable(pageblock);
        let before = self.update(pageblock, State::end_huge);
        !before.is_isolated()
    }
}
