//! What a pageblock is at the moment, packed into one word.

use crate::geometry::CPUS_MAX;
use crate::units::{MigrateType, Order};

/// Who may write to the bitmap of a pageblock, and what it is used for. From the lowest bit: 16
/// bits of holder, [`State::LISTED`], [`State::PENDING`], 2 bits of type, 3 of use, 5 of order,
/// [`State::CURRENT`], [`State::ISOLATED`].
///
/// All changes keep [`State::PENDING`] and [`State::ISOLATED`], which others than the holder set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) u32);

/// What a pageblock is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Use {
    /// It has no memory.
    Absent = 0,
    /// All its frames are free, and the bitmap says so.
    Whole = 1,
    /// Its frames come and go one by one: the bitmaps say which are free.
    Split = 2,
    /// It was handed out whole, as the first of perhaps many. The bitmap is left as it was.
    Huge = 3,
    /// It was handed out whole, as part of a larger block.
    HugeTail = 4,
}

/// Who holds a pageblock: who may write to its bitmap of free frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Nobody: whoever wants to must first become its holder.
    Nobody,
    /// Whoever holds the lock of this CPU's slot.
    Cpu(usize),
    /// Somebody, for the time of a call.
    Walker,
}

const HOLDER: u32 = 0xffff;
const WALKER: u32 = HOLDER;
const TYPE_SHIFT: u32 = 18;
const USE_SHIFT: u32 = 20;
const ORDER_SHIFT: u32 = 23;
const ORDER_MASK: u32 = 31;

const _: () = assert!(CPUS_MAX < WALKER as usize, "a CPU's number does not fit in `HOLDER`");

impl State {
    /// Its holder will look at what others have freed, without being told.
    pub(super) const LISTED: u32 = 1 << 16;
    /// It is on a stack of pageblocks that somebody will look at, or about to be.
    pub(super) const PENDING: u32 = 1 << 17;
    /// Somebody empties it. If it is in use frame by frame, he holds it as a walker; if it was
    /// handed out whole, he will once it is given back. Its free frames are not in the level.
    pub(super) const ISOLATED: u32 = 1 << 29;

    /// Its holder takes frames from it at the moment. Such a pageblock is listed.
    pub(super) const CURRENT: u32 = 1 << 28;

    /// A pageblock without memory.
    pub(super) const ABSENT: Self = State::new(Use::Absent, MigrateType::Movable);

    /// A pageblock that nobody holds.
    pub(super) const fn new(used_for: Use, migratetype: MigrateType) -> Self {
        State((used_for as u32) << USE_SHIFT | (migratetype as u32) << TYPE_SHIFT)
    }

    #[inline(always)]
    pub(super) const fn used_for(self) -> Use {
        match self.0 >> USE_SHIFT & 7 {
            1 => Use::Whole,
            2 => Use::Split,
            3 => Use::Huge,
            4 => Use::HugeTail,
            _ => Use::Absent,
        }
    }

    #[inline(always)]
    pub(super) const fn is_split(self) -> bool {
        self.0 >> USE_SHIFT & 7 == Use::Split as u32
    }

    /// The order of a block that was handed out whole.
    pub(super) const fn order(self) -> Order {
        Order::new((self.0 >> ORDER_SHIFT & ORDER_MASK) as u8)
    }

    pub(super) const fn migratetype(self) -> MigrateType {
        match self.0 >> TYPE_SHIFT & 3 {
            0 => MigrateType::Unmovable,
            2 => MigrateType::Reclaimable,
            _ => MigrateType::Movable,
        }
    }

    pub(super) const fn holder(self) -> Holder {
        match self.0 & HOLDER {
            0 => Holder::Nobody,
            WALKER => Holder::Walker,
            cpu => Holder::Cpu(cpu as usize - 1),
        }
    }

    /// Whether it is in use frame by frame and this CPU's slot holds it.
    #[inline(always)]
    pub(super) const fn is_split_of(self, cpu: usize) -> bool {
        self.0 & (HOLDER | 7 << USE_SHIFT) == (cpu as u32 + 1) | (Use::Split as u32) << USE_SHIFT
    }

    /// Whether it was handed out by itself, and that is all there is to say of it.
    #[inline(always)]
    pub(super) const fn is_lone_pageblock(self) -> bool {
        let lone = State::new(Use::Huge, MigrateType::Unmovable).used(Use::Huge, Order::PAGEBLOCK);
        self.0 & !(3 << TYPE_SHIFT) == lone.0
    }

    /// As `is_split_of`, and listed.
    #[inline(always)]
    pub(super) const fn is_listed_of(self, cpu: usize) -> bool {
        const MASK: u32 = HOLDER | 7 << USE_SHIFT | State::LISTED;
        const LISTED_OF: u32 = (Use::Split as u32) << USE_SHIFT | State::LISTED;
        // A number that is no CPU's is found out when its home is looked up.
        self.0 & MASK == (cpu as u32).wrapping_add(LISTED_OF + 1)
    }

    /// Whether it is in use frame by frame, and what others free of it will be looked at without
    /// further notice.
    #[inline(always)]
    pub(super) const fn is_cared_for(self) -> bool {
        self.is_split() && self.0 & (State::LISTED | State::PENDING) != 0
    }

    #[inline(always)]
    pub(super) const fn is_listed(self) -> bool {
        self.0 & State::LISTED != 0
    }

    #[inline(always)]
    pub(super) const fn is_current(self) -> bool {
        self.0 & State::CURRENT != 0
    }

    pub(super) const fn is_pending(self) -> bool {
        self.0 & State::PENDING != 0
    }

    pub(super) const fn is_isolated(self) -> bool {
        self.0 & State::ISOLATED != 0
    }

    #[must_use]
    pub(super) const fn isolated(self, isolated: bool) -> Self {
        State(if isolated { self.0 | State::ISOLATED } else { self.0 & !State::ISOLATED })
    }

    #[must_use]
    pub(super) const fn held_by(self, holder: Holder) -> Self {
        let holder = match holder {
            Holder::Nobody => 0,
            Holder::Walker => WALKER,
            Holder::Cpu(cpu) => cpu as u32 + 1,
        };
        State(self.0 & !HOLDER | holder)
    }

    #[must_use]
    pub(super) const fn listed(self, listed: bool) -> Self {
        let rest = self.0 & !(State::LISTED | State::CURRENT);
        State(if listed { rest | State::LISTED } else { rest })
    }

    #[must_use]
    pub(super) const fn current(self) -> Self {
        State(self.0 | State::LISTED | State::CURRENT)
    }

    #[must_use]
    pub(super) const fn pending(self) -> Self {
        State(self.0 | State::PENDING)
    }

    #[must_use]
    pub(super) const fn of_type(self, migratetype: MigrateType) -> Self {
        State(self.0 & !(3 << TYPE_SHIFT) | (migratetype as u32) << TYPE_SHIFT)
    }

    #[must_use]
    pub(super) const fn used(self, used_for: Use, order: Order) -> Self {
        let rest = self.0 & !(7 << USE_SHIFT | ORDER_MASK << ORDER_SHIFT);
        State(rest | (used_for as u32) << USE_SHIFT | (order.get() as u32) << ORDER_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_disturb_each_other() {
        let state =
            State::new(Use::Split, MigrateType::Reclaimable).held_by(Holder::Cpu(111)).listed(true);
        assert_eq!((state.used_for(), state.migratetype()), (Use::Split, MigrateType::Reclaimable));
        assert!(state.is_listed() && !state.is_pending() && state.is_split_of(111));
        assert!(state.is_listed_of(111) && !state.is_listed_of(110) && state.is_cared_for());
        assert!(!state.listed(false).is_listed_of(111) && !state.listed(false).is_cared_for());
        assert!(!state.is_split_of(110) && !state.held_by(Holder::Walker).is_split_of(111));
        let huge = state.used(Use::Huge, Order::new(18)).of_type(MigrateType::Unmovable);
        assert_eq!((huge.order(), huge.holder()), (Order::new(18), Holder::Cpu(111)));
        assert_eq!((huge.used_for(), huge.is_listed()), (Use::Huge, true));
        assert_eq!(
            huge.held_by(Holder::Nobody).listed(false).migratetype(),
            MigrateType::Unmovable
        );
        let lone = State::new(Use::Whole, MigrateType::Movable).used(Use::Huge, Order::PAGEBLOCK);
        assert!(lone.is_lone_pageblock() && !lone.pending().is_lone_pageblock());
        assert!(!huge.is_lone_pageblock() && !lone.isolated(true).is_lone_pageblock());
        let isolated = huge.isolated(true);
        assert_eq!((isolated.order(), isolated.is_isolated()), (Order::new(18), true));
        assert!(isolated.used(Use::Split, Order::ZERO).is_isolated() && !huge.is_isolated());
        assert_eq!(isolated.isolated(false), huge);
        let last = Holder::Cpu(CPUS_MAX - 1);
        assert_eq!(State::ABSENT.held_by(last).holder(), last);
        assert_eq!(State::ABSENT.held_by(Holder::Walker).holder(), Holder::Walker);
    }
}
