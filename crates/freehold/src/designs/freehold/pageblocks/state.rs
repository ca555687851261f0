//! The state word of a pageblock: its holder, its use, its migratetype and some flags, and how they
//! are read. How a state may change is in [`transitions`].

use crate::geometry::CPUS_MAX;
use crate::units::{MigrateType, Order};

mod transitions;

#[cfg(test)]
pub(crate) use transitions::Planted;

/// From the lowest bit: 16 bits of holder, [`State::LISTED`], [`State::QUEUED`], 2 bits of
/// migratetype, 3 of use, 5 of order, [`State::ACTIVE`], [`State::ISOLATED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(pub(super) u32);

/// What a pageblock is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Use {
    /// It has no memory.
    Absent = 0,
    /// All its frames are free, and so the bitmap says.
    Whole = 1,
    /// It is allocated frame by frame: the bitmaps say which frames are free.
    Split = 2,
    /// It is allocated whole, as the head: the first pageblock of a block of one or more. The
    /// bitmap of free frames is left as it was.
    Huge = 3,
    /// It is allocated whole, as part of a larger block, and not the head.
    HugeTail = 4,
}

/// The holder of a pageblock: it alone writes the bitmap of free frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// None: a call that wants to write must first become the holder.
    None,
    /// The caches of this CPU: a call that has their lock.
    Cpu(usize),
    /// A walker: one call, until it returns.
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
    /// The pageblock is active in its cache, or on a list of partial pageblocks: the cache will
    /// collect remote frees without being told.
    const LISTED: u32 = 1 << 16;
    /// It is in a remote queue, or about to be.
    const QUEUED: u32 = 1 << 17;
    /// It is being emptied. If it is split, a walker holds it. If it is allocated whole, a walker
    /// will hold it as soon as it is freed. Its free frames are not in the level.
    const ISOLATED: u32 = 1 << 29;

    /// Its cache takes frames from it. An active pageblock is listed as well.
    const ACTIVE: u32 = 1 << 28;

    /// A pageblock without memory: zero, for the table begins with such.
    pub(crate) const ABSENT: Self = State(Use::Absent as u32);

    /// A pageblock without a holder.
    const fn new(used_for: Use, migratetype: MigrateType) -> Self {
        State((used_for as u32) << USE_SHIFT | (migratetype as u32) << TYPE_SHIFT)
    }

    #[inline(always)]
    pub(crate) const fn used_for(self) -> Use {
        match self.0 >> USE_SHIFT & 7 {
            1 => Use::Whole,
            2 => Use::Split,
            3 => Use::Huge,
            4 => Use::HugeTail,
            _ => Use::Absent,
        }
    }

    #[inline(always)]
    pub(crate) const fn is_split(self) -> bool {
        self.0 >> USE_SHIFT & 7 == Use::Split as u32
    }

    /// The order of a block that is allocated whole, or of the largest run of an orphan; of a whole
    /// one, whether it was reported.
    pub(crate) const fn order(self) -> Order {
        Order::new((self.0 >> ORDER_SHIFT & ORDER_MASK) as u8)
    }

    /// Whether it is whole, and a hypervisor has its memory.
    pub(crate) const fn is_reported(self) -> bool {
        matches!(self.used_for(), Use::Whole) && self.order().get() != 0
    }

    pub(crate) const fn migratetype(self) -> MigrateType {
        match self.0 >> TYPE_SHIFT & 3 {
            0 => MigrateType::Unmovable,
            2 => MigrateType::Reclaimable,
            _ => MigrateType::Movable,
        }
    }

    pub(crate) const fn holder(self) -> Holder {
        match self.0 & HOLDER {
            0 => Holder::None,
            WALKER => Holder::Walker,
            cpu => Holder::Cpu(cpu as usize - 1),
        }
    }

    /// Whether it is split and held by the caches of this CPU.
    #[inline(always)]
    pub(crate) const fn is_split_of(self, cpu: usize) -> bool {
        self.0 & (HOLDER | 7 << USE_SHIFT) == (cpu as u32 + 1) | (Use::Split as u32) << USE_SHIFT
    }

    /// Whether it is an allocated block of just one pageblock, and no flag is set.
    #[inline(always)]
    pub(crate) const fn is_lone_pageblock(self) -> bool {
        let lone = State::new(Use::Huge, MigrateType::Unmovable).used(Use::Huge, Order::PAGEBLOCK);
        self.0 & !(3 << TYPE_SHIFT) == lone.0
    }

    /// As `is_split_of`, and listed.
    #[inline(always)]
    pub(crate) const fn is_listed_of(self, cpu: usize) -> bool {
        const MASK: u32 = HOLDER | 7 << USE_SHIFT | State::LISTED;
        const LISTED_OF: u32 = (Use::Split as u32) << USE_SHIFT | State::LISTED;
        // A number that no CPU has fails when its `PerCpu` is looked up.
        self.0 & MASK == (cpu as u32).wrapping_add(LISTED_OF + 1)
    }

    /// Whether it is split, and its remote frees will be collected without further notice.
    #[inline(always)]
    pub(crate) const fn is_watched(self) -> bool {
        self.is_split() && self.0 & (State::LISTED | State::QUEUED) != 0
    }

    #[inline(always)]
    pub(crate) const fn is_listed(self) -> bool {
        self.0 & State::LISTED != 0
    }

    #[inline(always)]
    pub(crate) const fn is_active(self) -> bool {
        self.0 & State::ACTIVE != 0
    }

    pub(crate) const fn is_queued(self) -> bool {
        self.0 & State::QUEUED != 0
    }

    pub(crate) const fn is_isolated(self) -> bool {
        self.0 & State::ISOLATED != 0
    }
}

/// The fields one by one, for the transitions alone.
impl State {
    const fn isolated(self, isolated: bool) -> Self {
        State(if isolated { self.0 | State::ISOLATED } else { self.0 & !State::ISOLATED })
    }

    const fn held_by(self, holder: Holder) -> Self {
        let holder = match holder {
            Holder::None => 0,
            Holder::Walker => WALKER,
            Holder::Cpu(cpu) => cpu as u32 + 1,
        };
        State(self.0 & !HOLDER | holder)
    }

    const fn listed(self, listed: bool) -> Self {
        let rest = self.0 & !(State::LISTED | State::ACTIVE);
        State(if listed { rest | State::LISTED } else { rest })
    }

    const fn active(self) -> Self {
        State(self.0 | State::LISTED | State::ACTIVE)
    }

    const fn queued(self, queued: bool) -> Self {
        State(if queued { self.0 | State::QUEUED } else { self.0 & !State::QUEUED })
    }

    const fn of_type(self, migratetype: MigrateType) -> Self {
        State(self.0 & !(3 << TYPE_SHIFT) | (migratetype as u32) << TYPE_SHIFT)
    }

    const fn used(self, used_for: Use, order: Order) -> Self {
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
        assert!(state.is_listed() && !state.is_queued() && state.is_split_of(111));
        assert!(state.is_listed_of(111) && !state.is_listed_of(110) && state.is_watched());
        assert!(!state.listed(false).is_listed_of(111) && !state.listed(false).is_watched());
        assert!(!state.is_split_of(110) && !state.held_by(Holder::Walker).is_split_of(111));
        let huge = state.used(Use::Huge, Order::new(18)).of_type(MigrateType::Unmovable);
        assert_eq!((huge.order(), huge.holder()), (Order::new(18), Holder::Cpu(111)));
        assert_eq!((huge.used_for(), huge.is_listed()), (Use::Huge, true));
        assert_eq!(huge.held_by(Holder::None).listed(false).migratetype(), MigrateType::Unmovable);
        let lone = State::new(Use::Whole, MigrateType::Movable).used(Use::Huge, Order::PAGEBLOCK);
        assert!(lone.is_lone_pageblock() && !lone.queued(true).is_lone_pageblock());
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
