//! Every change of a pageblock's state, by name. No code changes a state in another way.
//!
//! | name | from | to | who may | looked at next |
//! |---|---|---|---|---|
//! | `add` | absent | split, walker | who has the hotplug lock | its frames, then `release` |
//! | `remove` | split, walker, isolated | absent | who has the hotplug lock | |
//! | `acquire` | split or huge, no holder | the caller's | any call | split: its tree, its zone |
//! | `release` | split, walker | no holder | its walker | remote frees: last look |
//! | `hand_to_walker` | split, cache | walker | its cache | `release` |
//! | `activate` | split, cache | active, listed | its cache | |
//! | `list` | split, cache | listed, not active | its cache | |
//! | `unlist` | split, cache, listed | neither | its cache | remote frees: last look |
//! | `queue` | split, cache, unwatched | queued | a free, after its RMW | push, `mark_cached` |
//! | `unqueue` | queued | not queued | who took its stack | remote frees: last look |
//! | `claim` | split, walker | of another type | its walker | its marks |
//! | `become_whole` | split, all free; whole | whole, of a holder | who has it | pool or spares |
//! | `report` | whole, not in the pool | reported | who took it | the pool |
//! | `split_whole` | whole | split, of a holder | who took it | |
//! | `hand_out` | whole; split, isolated, all free | huge or its tail | who took it | |
//! | `break_off` | huge, walker; its tail | huge, of a holder | its walker | |
//! | `split_huge` | huge, walker | split, no holder | its walker | |
//! | `end_huge` | huge, walker; its tail | whole, walker | its walker | the pool |
//! | `free_to_spares` | huge, no holder | whole, cache | a cache | spares, `mark_cached` |
//! | `isolate` | huge or its tail; split, walker | isolated | any call; its walker | the level |
//! | `end_isolation` | isolated | not isolated | who isolated it | split: level, `release` |
//! | `repaired` | any, in a copy | no walker, no mark | a thaw | trees, level, queues |
//!
//! Two marks can be set by calls that do not hold the pageblock, at any time: *queued*, while a
//! cache has it split and does not watch it, and *isolated*, while it is allocated whole. So
//! transitions preserve both; but `remove` and `hand_out` end an isolation. An isolated pageblock
//! that `split_huge` or `end_huge` comes to is split, with a walker: the call that isolated it.
//!
//! A transition that others may forestall is a compare-exchange from the state that the caller has
//! checked. The others change what the caller holds, or took out of the pool or the spares.
//!
//! Why last looks follow is in [`remote`](crate::designs::freehold::pageblocks::remote).

use super::{Holder, State, Use};
use crate::units::{MigrateType, Order};

/// Pageblocks change hands.
impl State {
    /// Memory is added to a pageblock that has none.
    pub(crate) fn add(self) -> Self {
        debug_assert!(self.used_for() == Use::Absent && self.holder() == Holder::None, "{self:?}");
        self.used(Use::Split, Order::ZERO).of_type(MigrateType::Movable).held_by(Holder::Walker)
    }

    /// The last of its memory is removed.
    pub(crate) fn remove(self) -> Self {
        debug_assert!(self.is_of_walker(Use::Split) && self.is_isolated(), "{self:?}");
        debug_assert!(!self.is_queued(), "it would come to another zone in a queue of this one");
        self.used(Use::Absent, Order::ZERO).held_by(Holder::None).isolated(false)
    }

    /// A call or a cache begins to hold it. What a cache holds is no orphan any more, and so has no
    /// order.
    pub(crate) fn acquire(self, holder: Holder) -> Self {
        let is_cached = matches!(holder, Holder::Cpu(_));
        debug_assert!(self.holder() == Holder::None && holder != Holder::None, "{self:?}");
        debug_assert!(self.is_split() || !is_cached && self.used_for() == Use::Huge, "{self:?}");
        let held = self.held_by(holder);
        if is_cached { held.used(Use::Split, Order::ZERO) } else { held }
    }

    /// It has no holder any more. As an orphan it has its largest run in a tree, by `order`.
    pub(crate) fn release(self, order: Order) -> Self {
        debug_assert!(self.is_of_walker(Use::Split) && !self.is_isolated(), "{self:?}");
        debug_assert!(!self.is_listed(), "no cache has it");
        self.used(Use::Split, order).held_by(Holder::None)
    }

    /// A cache leaves it to the call that has the lock.
    pub(crate) fn hand_to_walker(self) -> Self {
        debug_assert!(self.is_split_of_cache(), "{self:?}");
        self.held_by(Holder::Walker).listed(false)
    }
}

/// A cache watches a pageblock, or does not.
impl State {
    /// The cache takes frames from it.
    pub(crate) fn activate(self) -> Self {
        debug_assert!(self.is_split_of_cache(), "{self:?}");
        self.active()
    }

    /// The cache has it on a list of partial pageblocks, or is about to.
    pub(crate) fn list(self) -> Self {
        debug_assert!(self.is_split_of_cache(), "{self:?}");
        self.listed(true)
    }

    /// The cache has used it up, and no longer watches it.
    pub(crate) fn unlist(self) -> Self {
        debug_assert!(self.is_split_of_cache() && self.is_listed(), "{self:?}");
        self.listed(false)
    }

    /// A call that has freed frames of it remotely is about to push it on the queue of its cache.
    pub(crate) fn queue(self) -> Self {
        debug_assert!(self.is_split_of_cache() && !self.is_watched(), "{self:?}");
        self.queued(true)
    }

    /// It is off the queue, whatever has become of it there.
    pub(crate) fn unqueue(self) -> Self {
        debug_assert!(self.is_queued(), "{self:?}");
        self.queued(false)
    }
}

/// What a pageblock is used for changes.
impl State {
    /// It is for content of another type from now on. The caller has taken it out of its trees, and
    /// it has no order.
    pub(crate) fn claim(self, migratetype: MigrateType) -> Self {
        debug_assert!(self.is_of_walker(Use::Split), "{self:?}");
        self.used(Use::Split, Order::ZERO).of_type(migratetype)
    }

    /// It is whole, and `holder` has it: the pool if none, the spares of a cache.
    pub(crate) fn become_whole(self, holder: Holder) -> Self {
        let is_held = self.is_split() && self.holder() != Holder::None && !self.is_isolated();
        debug_assert!(is_held || self.used_for() == Use::Whole, "{self:?}");
        self.used(Use::Whole, Order::ZERO).held_by(holder).listed(false)
    }

    /// A hypervisor has its memory, until it is used for anything.
    pub(crate) fn report(self) -> Self {
        debug_assert!(self.used_for() == Use::Whole && self.holder() == Holder::None, "{self:?}");
        self.used(Use::Whole, Order::PAGEBLOCK)
    }

    /// It is split, for content of a type, and `holder` is about to take frames from it.
    pub(crate) fn split_whole(self, holder: Holder, migratetype: MigrateType) -> Self {
        debug_assert!(self.used_for() == Use::Whole, "{self:?}");
        let state = self.used(Use::Split, Order::ZERO).of_type(migratetype);
        let state = state.held_by(holder).listed(false);
        match holder {
            Holder::Cpu(_) => state.active(),
            _ => state,
        }
    }

    /// It is allocated, as the head of a block of `order` or as a tail of one.
    #[inline(always)]
    pub(crate) fn hand_out(self, used_for: Use, order: Order, migratetype: MigrateType) -> Self {
        let is_emptied = self.is_of_walker(Use::Split) && self.is_isolated();
        debug_assert!(is_emptied || self.used_for() == Use::Whole, "{self:?}");
        self.used(used_for, order).of_type(migratetype).held_by(Holder::None).isolated(false)
    }

    /// It is the head of a block of `order` that was part of a larger one, or of what is left of
    /// that. `holder` is a walker if the caller goes on to break it up.
    pub(crate) fn break_off(self, order: Order, holder: Holder) -> Self {
        let is_part = self.used_for() == Use::HugeTail || self.is_of_walker(Use::Huge);
        debug_assert!(is_part, "{self:?}");
        self.used(Use::Huge, order).held_by(holder)
    }

    /// A block of one pageblock is split, and stays allocated.
    pub(crate) fn split_huge(self) -> Self {
        debug_assert!(self.is_of_walker(Use::Huge), "{self:?}");
        let holder = if self.is_isolated() { Holder::Walker } else { Holder::None };
        self.used(Use::Split, Order::ZERO).held_by(holder)
    }

    /// The block that it is part of has been freed.
    pub(crate) fn end_huge(self) -> Self {
        let is_part = self.used_for() == Use::HugeTail || self.is_of_walker(Use::Huge);
        debug_assert!(is_part, "{self:?}");
        let held = self.held_by(Holder::Walker);
        match self.is_isolated() {
            true => held.used(Use::Split, Order::ZERO).of_type(MigrateType::Movable),
            false => held.used(Use::Whole, Order::ZERO),
        }
    }

    /// A block of one pageblock is freed to the spares of a cache.
    #[inline(always)]
    pub(crate) fn free_to_spares(self, cpu: usize) -> Self {
        let is_alone = self.used_for() == Use::Huge && self.order() == Order::PAGEBLOCK;
        debug_assert!(is_alone && self.holder() == Holder::None, "{self:?}");
        debug_assert!(!self.is_isolated(), "{self:?}");
        self.used(Use::Whole, Order::ZERO).held_by(Holder::Cpu(cpu))
    }
}

/// A pageblock is out of circulation, or in a copy.
impl State {
    /// It is being emptied. A split one is no orphan any more, and has no order.
    pub(crate) fn isolate(self) -> Self {
        let is_huge = matches!(self.used_for(), Use::Huge | Use::HugeTail);
        debug_assert!(is_huge || self.is_of_walker(Use::Split), "{self:?}");
        debug_assert!(!self.is_isolated(), "{self:?}");
        let state = if is_huge { self } else { self.used(Use::Split, Order::ZERO) };
        state.isolated(true)
    }

    /// It is no longer being emptied.
    pub(crate) fn end_isolation(self) -> Self {
        debug_assert!(self.is_isolated(), "{self:?}");
        self.isolated(false)
    }

    /// It has no mark, and no walker holds it: in a copy there is none. What a cache holds stays as
    /// it is otherwise.
    pub(crate) fn repaired(self, used_for: Use, order: Order) -> Self {
        let state = self.queued(false).isolated(false);
        match self.holder() {
            Holder::Cpu(_) => state,
            Holder::None | Holder::Walker => {
                state.used(used_for, order).held_by(Holder::None).listed(false)
            }
        }
    }
}

/// What transitions begin with.
impl State {
    fn is_of_walker(self, used_for: Use) -> bool {
        self.used_for() == used_for && self.holder() == Holder::Walker
    }

    fn is_split_of_cache(self) -> bool {
        self.is_split() && matches!(self.holder(), Holder::Cpu(_))
    }
}

/// Something wrong, or half done by another call, that a test plants.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Planted {
    Use(Use, Order),
    Holder(Holder),
    Queued,
    Isolated,
}

#[cfg(test)]
impl State {
    pub(crate) fn planted(self, what: Planted) -> Self {
        match what {
            Planted::Use(used_for, order) => self.used(used_for, order),
            Planted::Holder(holder) => self.held_by(holder),
            Planted::Queued => self.queued(true),
            Planted::Isolated => self.isolated(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(State) -> State;

    #[test]
    fn marks_that_others_may_set_survive() {
        let split = State::new(Use::Split, MigrateType::Movable);
        let (cached, walked) = (split.held_by(Holder::Cpu(3)), split.held_by(Holder::Walker));
        let whole = State::new(Use::Whole, MigrateType::Movable);
        let huge = whole.used(Use::Huge, Order::PAGEBLOCK);
        let head = huge.used(Use::Huge, Order::new(18)).held_by(Holder::Walker);
        let of_huge: [(State, Change); 4] = [
            (huge, |state| state.acquire(Holder::Walker)),
            (head, |state| state.break_off(Order::PAGEBLOCK, Holder::None)),
            (head, State::split_huge),
            (huge.used(Use::HugeTail, Order::ZERO), State::end_huge),
        ];
        let of_others: [(State, Change); 15] = [
            (split, |state| state.acquire(Holder::Cpu(0))),
            (walked, |state| state.release(Order::new(4))),
            (cached, State::hand_to_walker),
            (cached, State::activate),
            (cached, State::list),
            (cached.listed(true), State::unlist),
            (walked, |state| state.claim(MigrateType::Unmovable)),
            (walked, |state| state.become_whole(Holder::None)),
            (whole, State::report),
            (whole, |state| state.split_whole(Holder::Cpu(7), MigrateType::Reclaimable)),
            (whole, |state| state.hand_out(Use::Huge, Order::new(12), MigrateType::Movable)),
            (huge, |state| state.free_to_spares(1)),
            (huge, State::isolate),
            (walked, State::isolate),
            (walked.isolated(true), State::end_isolation),
        ];
        for (nth, &(from, change)) in of_huge.iter().chain(&of_others).enumerate() {
            assert_eq!(change(from.queued(true)), change(from).queued(true), "{nth}");
        }
        for (nth, &(from, change)) in of_huge.iter().enumerate() {
            assert!(change(from.isolated(true)).is_isolated(), "{nth}");
        }
    }

    #[test]
    fn what_ends_a_block_that_is_isolated_leaves_it_to_the_call_that_isolated_it() {
        let huge = State::new(Use::Whole, MigrateType::Unmovable).used(Use::Huge, Order::PAGEBLOCK);
        let held = huge.acquire(Holder::Walker);
        assert_eq!(held.split_huge().holder(), Holder::None);
        assert_eq!(held.end_huge().used_for(), Use::Whole);
        for ended in [held.isolate().split_huge(), held.isolate().end_huge()] {
            assert_eq!((ended.used_for(), ended.holder()), (Use::Split, Holder::Walker));
            assert!(ended.remove().used_for() == Use::Absent && !ended.remove().is_isolated());
            assert_eq!(ended.remove().add().holder(), Holder::Walker);
        }
        assert_eq!(held.isolate().repaired(Use::Huge, Order::PAGEBLOCK), huge);
    }
}
