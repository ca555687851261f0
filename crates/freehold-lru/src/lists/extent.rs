//! Extents: the records of the shards that a divided lruvec has beside shard 0, in a pool for each
//! node, and the sums of their sizes.

use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::shard::{PerZone, Shard};
use crate::frames::sharding::Sharding;
use crate::kind::{List, PerList};
use freehold::Error;
use freehold::config::Config;
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::platform::{LockClass, Platform, RawLock, SharedCell, Word};
use freehold::units::ZoneKind;

/// On each node, the lists of one group for so many CPUs of the machine can be divided: with fewer
/// CPUs at work in a group, its lock is not contended.
const CPUS_A_GROUP: usize = 2;

/// What an lruvec has of an extent: the number of the extent plus one, and marks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Hold(u32);

/// The shards of the extent are in use.
const DIVIDED: u32 = 1 << 31;
/// They are being joined to shard 0.
const JOINING: u32 = 1 << 30;
/// The lruvec is not to be divided, since its group is being removed.
const CLOSING: u32 = 1 << 29;
const MARKS: u32 = DIVIDED | JOINING | CLOSING;

impl Hold {
    const NONE: Self = Hold(0);

    /// Whether shards other than 0 may have frames.
    fn is_in_use(self) -> bool {
        self.0 & (DIVIDED | JOINING) != 0
    }

    #[inline]
    fn extent(self) -> Option<usize> {
        ((self.0 & !MARKS) as usize).checked_sub(1)
    }
}

/// A shard on cache lines of its own.
#[repr(C, align(64))]
struct Part<P: Platform>(Shard<P>);

/// What holds for all shards of an extent.
#[repr(C, align(64))]
pub(crate) struct Extent<P: Platform> {
    /// The lruvec that has it, plus one. Guarded by the lock of the pool.
    holder: P::Cell<u32>,
    /// How many frames of each zone are on each list of all shards, as far as these have told: for
    /// each of them, right within a 64th or seven frames, and zero only if it is.
    pub(super) totals: PerList<PerZone<P::U32>>,
    /// The most turns of each list: what a list begins with that had no frames.
    turns: [P::U32; List::EVICTABLE.len()],
    /// Whether the owner refused frames of a shard since it last gave one.
    refusing: P::U32,
}

/// All extents.
pub(crate) struct Extents<P: Platform> {
    /// A [`Hold`] for each lruvec.
    holds: Table<P::U32>,
    headers: Table<Extent<P>>,
    parts: Table<Part<P>>,
    /// Guards what is written to `holds` but for marks.
    pool: Table<P::Lock>,
    slots: usize,
    pub(super) sharding: Sharding,
    extents_a_node: usize,
}

/// Where they will lie.
pub(crate) struct ExtentsPlan<P: Platform> {
    holds: TablePlan<P::U32>,
    headers: TablePlan<Extent<P>>,
    parts: TablePlan<Part<P>>,
    pool: TablePlan<P::Lock>,
    slots: usize,
    extents_a_node: usize,
}

impl<P: Platform> ExtentsPlan<P> {
    pub(crate) fn new(
        config: &Config<'_>,
        sharding: Sharding,
        slots: usize,
        layout: &mut LayoutBuilder,
    ) -> Result<Self, Error> {
        let (nodes, kind) = (config.nodes(), SectionKind::Lruvecs);
        let is_any = sharding.shards() > 1;
        let most = config.cpu_nodes.len().div_ceil(CPUS_A_GROUP).min(slots);
        let extents_a_node = if is_any { most } else { 0 };
        let extents = nodes * extents_a_node;
        Ok(ExtentsPlan {
            holds: layout.table(kind, if is_any { nodes * slots } else { 0 })?,
            headers: layout.table(kind, extents)?,
            parts: layout.table(kind, extents * (sharding.shards() - 1))?,
            pool: layout.table(kind, usize::from(is_any))?,
            slots,
            extents_a_node,
        })
    }
}

impl<P: Platform> Extents<P> {
    pub(crate) fn carve(plan: &ExtentsPlan<P>, sharding: Sharding, carver: &mut Carver) -> Self {
        let zero = |_| P::U32::new(0);
        Extents {
            holds: carver.table(plan.holds, zero),
            headers: carver.table(plan.headers, |_| Extent {
                holder: P::Cell::new(0),
                totals: core::array::from_fn(|_| core::array::from_fn(zero)),
                turns: core::array::from_fn(zero),
                refusing: P::U32::new(0),
            }),
            parts: carver.table(plan.parts, |_| Part(Shard::new())),
            pool: carver.table(plan.pool, |_| P::Lock::new(LockClass::Lru)),
            slots: plan.slots,
            sharding,
            extents_a_node: plan.extents_a_node,
        }
    }

    #[inline]
    fn hold(&self, lruvec: usize) -> Hold {
        match self.holds.len() {
            0 => Hold::NONE,
            // Acquire: pairs with the exchange in `change`. What it leads to is looked at again
            // under a lock.
            _ => Hold(self.holds.get(lruvec).load(Acquire)),
        }
    }

    /// The extent of an lruvec that is divided, or is just being joined.
    #[inline]
    fn extent(&self, lruvec: usize) -> Option<usize> {
        let hold = self.hold(lruvec);
        hold.extent().filter(|_| hold.is_in_use())
    }

    /// Whether an lruvec is divided, or is just being joined.
    #[inline]
    pub(super) fn is_divided(&self, lruvec: usize) -> bool {
        self.extent(lruvec).is_some()
    }

    /// What holds for the shards of an lruvec that is divided.
    #[inline]
    pub(super) fn of(&self, lruvec: usize) -> Option<&Extent<P>> {
        self.extent(lruvec).map(|extent| self.headers.get(extent))
    }

    /// A shard other than 0 of an lruvec that is divided.
    #[inline]
    pub(super) fn part(&self, lruvec: usize, shard: usize) -> Option<&Shard<P>> {
        let first = self.extent(lruvec)? * (self.sharding.shards() - 1);
        Some(&self.parts.get(first + shard - 1).0)
    }

    /// All shards but 0 of an lruvec that is divided, or was.
    pub(super) fn parts(&self, lruvec: usize) -> impl Iterator<Item = &Shard<P>> {
        let each = self.sharding.shards() - 1;
        let range = self.hold(lruvec).extent().map_or(0..0, |at| at * each..(at + 1) * each);
        range.map(|part| &self.parts.get(part).0)
    }

    /// Gives an lruvec the shards of an extent, if there is a free one: the extent that it has, one
    /// that no lruvec has, or that of a slot that is free by now. `open` opens each of them.
    ///
    /// A shard is open only while the lruvec is divided, so that a late call which finds it open
    /// leaves no frame where others do not look. The caller holds the lock of shard 0, `first`.
    pub(super) fn divide(
        &self,
        lruvec: usize,
        first: &Shard<P>,
        is_free: impl Fn(u16) -> bool,
        open: impl Fn(&Shard<P>),
    ) {
        let pool = self.pool.get(0);
        pool.lock();
        if let Some(extent) = self.attach(lruvec, is_free) {
            self.headers.get(extent).begin(first);
            let divides = |hold: u32| (hold & MARKS == 0).then_some(hold | DIVIDED);
            if self.change(lruvec, divides) {
                self.parts(lruvec).for_each(open);
            }
        }
        pool.unlock();
    }

    /// The extent of an lruvec that is not divided.
    fn attach(&self, lruvec: usize, is_free: impl Fn(u16) -> bool) -> Option<usize> {
        let hold = self.hold(lruvec);
        if hold.0 & MARKS != 0 {
            return None;
        }
        if hold != Hold::NONE {
            return hold.extent();
        }
        let first = lruvec / self.slots * self.extents_a_node;
        let mut all: Range<usize> = first..first + self.extents_a_node;
        let extent = all.find(|&extent| match self.headers.get(extent).holder.get() {
            0 => true,
            // A slot that is free has no frames, and so no scan that has some of its isolated.
            holder => {
                let holder = holder as usize - 1;
                let leaves = |hold: u32| (hold & MARKS == 0).then_some(Hold::NONE.0);
                is_free((holder % self.slots) as u16) && self.change(holder, leaves)
            }
        })?;
        self.headers.get(extent).holder.set(lruvec as u32 + 1);
        // AcqRel: as in `change`.
        self.holds.get(lruvec).fetch_or(extent as u32 + 1, AcqRel);
        Some(extent)
    }

    /// Changes what an lruvec has of an extent; returns whether it did.
    fn change(&self, lruvec: usize, change: impl Fn(u32) -> Option<u32>) -> bool {
        let word = self.holds.get(lruvec);
        // Relaxed: the exchange fails if this was stale.
        let mut before = word.load(Relaxed);
        loop {
            // AcqRel: what leads to an extent, or away from it, was written before.
            let Some(after) = change(before) else { return false };
            match word.compare_exchange(before, after, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(found) => before = found,
            }
        }
    }

    /// Says whether the lists of an lruvec are about to be closed: then it is not divided.
    pub(super) fn set_closing(&self, lruvec: usize, is_closing: bool) {
        if self.holds.len() > 0 {
            // AcqRel: as in `change`.
            match is_closing {
                true => self.holds.get(lruvec).fetch_or(CLOSING, AcqRel),
                false => self.holds.get(lruvec).fetch_and(!CLOSING, AcqRel),
            };
        }
    }

    /// Begins to join the shards of an lruvec. Returns whether it was divided, and no other call
    /// does so.
    pub(super) fn begin_join(&self, lruvec: usize) -> bool {
        let begins = |hold| (hold & DIVIDED != 0).then_some(hold & !DIVIDED | JOINING);
        self.holds.len() > 0 && self.change(lruvec, begins)
    }

    /// Whether another call joins its shards.
    pub(super) fn is_joining(&self, lruvec: usize) -> bool {
        self.hold(lruvec).0 & JOINING != 0
    }

    /// Ends what `begin_join` began: all shards are closed.
    pub(super) fn end_join(&self, lruvec: usize) {
        self.forget_refusals(lruvec);
        // AcqRel: as in `change`.
        self.holds.get(lruvec).fetch_and(!JOINING, AcqRel);
    }

    /// Whether the sums are those of the sizes that shards have told. No other call is under way.
    pub(super) fn sums_agree(&self, lruvec: usize, first: &Shard<P>) -> bool {
        let Some(extent) = self.of(lruvec) else { return true };
        (0..List::COUNT * ZoneKind::COUNT).all(|at| {
            let (list, zone) = (at / ZoneKind::COUNT, at % ZoneKind::COUNT);
            let shards = core::iter::once(first).chain(self.parts(lruvec));
            let told = shards.map(|shard| shard.told(list, zone));
            told.fold(0, u32::wrapping_add) == extent.totals[list][zone].load(Relaxed)
        })
    }

    /// Whether the owner refused frames of a divided lruvec since it last gave one.
    pub(super) fn is_refusing(&self, lruvec: usize) -> bool {
        // Relaxed: a hint, here and below.
        self.of(lruvec).is_some_and(|extent| extent.refusing.load(Relaxed) != 0)
    }

    /// Notes that it gave one.
    pub(super) fn forget_refusals(&self, lruvec: usize) {
        if self.is_refusing(lruvec)
            && let Some(extent) = self.of(lruvec)
        {
            extent.refusing.store(0, Relaxed);
        }
    }
}

impl<P: Platform> Extent<P> {
    /// Adds the sizes of a shard that is about to be joined to shard 0. Both are locked.
    pub(super) fn add_sizes(&self, joined: &Shard<P>) {
        for (totals, sizes) in self.totals.iter().zip(&joined.sizes) {
            for (total, size) in totals.iter().zip(sizes) {
                // Relaxed: hints, as ever.
                total.fetch_add(size.load(Relaxed), Relaxed);
            }
        }
    }

    /// Begins with the sizes and turns of shard 0, whose lock the caller holds.
    fn begin(&self, first: &Shard<P>) {
        for (most, turns) in self.turns.iter().zip(&first.turns) {
            most.store(turns.load(Relaxed), Relaxed);
        }
        for list in 0..List::COUNT {
            first.unsummed[list].set(0);
            for (total, size) in self.totals[list].iter().zip(&first.sizes[list]) {
                // Relaxed: published with the extent.
                total.store(size.load(Relaxed), Relaxed);
            }
        }
    }

    /// Counts that a list of a shard has changed its size, now or later. The caller holds the lock
    /// of the shard.
    pub(super) fn note_size(&self, shard: &Shard<P>, list: usize, zone: usize, sizes: (u32, u32)) {
        let (before, after) = sizes;
        let (cell, shift) = (&shard.unsummed[list], zone as u32 * 8);
        let all = cell.get();
        let kept = (all >> shift) as u8 as i8;
        let due = i32::from(kept).wrapping_add(after.wrapping_sub(before) as i32);
        let most = (after / 64).clamp(7, 127);
        let keeps = before != 0 && after != 0 && due.unsigned_abs() <= most;
        if !keeps {
            // Release: pairs with the acquire in `sum_within`.
            self.totals[list][zone].fetch_add(due as u32, Release);
        }
        let keep = if keeps { due as u8 } else { 0 };
        if keep != kept as u8 {
            cell.set(all & !(0xff << shift) | u32::from(keep) << shift);
        }
    }

    /// Notes that the owner refused a frame.
    pub(super) fn note_refusal(&self) {
        // Relaxed: a hint.
        if self.refusing.load(Relaxed) == 0 {
            self.refusing.store(1, Relaxed);
        }
    }

    /// The most turns of a list.
    pub(super) fn turns(&self, list: usize) -> &P::U32 {
        &self.turns[list]
    }
}
