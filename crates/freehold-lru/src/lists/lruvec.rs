//! The record of an lruvec, the lists of one group on one node: what is read and counted there
//! without its lock.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::carry::Carry;
use super::history::History;
use crate::id::Place;
use crate::kind::{Kind, List, PerList};
use crate::settings::LruLock;
use freehold::Error;
use freehold::memmap::list::ListHead;
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::platform::{LockClass, Platform, RawLock, Word};
use freehold::units::ZoneKind;

/// The lists of one group on one node.
#[repr(C, align(64))]
pub(crate) struct Lruvec<P: Platform> {
    pub(super) lists: [ListHead<P::Cell<u32>>; List::COUNT],
    /// The recent cost of reclaim from each kind: frames written back, and put back unreclaimed.
    pub(super) costs: [P::U64; Kind::COUNT],
    /// Guards lists, links and sizes of this lruvec or, with one lock per node, of all on the node.
    pub(super) lock: P::Lock,
    /// Whether the group was removed and its lists were joined to those of the parent. Written
    /// under this lruvec's lock and the parent's.
    pub(super) forwarded: P::U32,
    /// How many frames of each zone are on each list. Written under the lock; read without it as
    /// a hint.
    pub(super) sizes: [[P::U32; ZoneKind::COUNT]; List::COUNT],
    /// What became of evicted frames of each kind.
    pub(super) history: [History<P>; Kind::COUNT],
    /// Scans under way, which may have frames isolated.
    pub(super) scans: P::U32,
    /// A [`Carry`] of reclaim. Two calls at once may lose some of it.
    pub(super) carry: P::U64,
    /// How many frames of each list reclaim has scanned beyond its parts, since it scans blocks as
    /// a whole.
    pub(super) debts: [P::U32; List::EVICTABLE.len()],
    /// How many frames at the front of each list the owner was asked for in vain, one after the
    /// other; less than there are if others came or went. Written under the lock; read without it
    /// as a hint.
    pub(super) refused: [P::U32; List::COUNT],
}

/// All lruvecs; those of a node are contiguous.
pub(crate) struct Lruvecs<P: Platform> {
    table: Table<Lruvec<P>>,
    slots: usize,
    pub(super) lock: LruLock,
}

/// Where the lruvecs will lie.
pub(crate) struct LruvecsPlan<P: Platform> {
    table: TablePlan<Lruvec<P>>,
    slots: usize,
}

impl<P: Platform> LruvecsPlan<P> {
    pub(crate) fn new(
        nodes: usize,
        slots: usize,
        layout: &mut LayoutBuilder,
    ) -> Result<Self, Error> {
        let len = nodes.checked_mul(slots).ok_or(Error::SpanTooLarge)?;
        Ok(LruvecsPlan { table: layout.table(SectionKind::Lruvecs, len)?, slots })
    }
}

impl<P: Platform> Lruvecs<P> {
    pub(crate) fn carve(plan: &LruvecsPlan<P>, lock: LruLock, carver: &mut Carver) -> Self {
        let table = carver.table(plan.table, |_| Lruvec {
            lists: core::array::from_fn(|_| ListHead::new()),
            costs: core::array::from_fn(|_| P::U64::new(0)),
            lock: P::Lock::new(LockClass::Lru),
            forwarded: P::U32::new(0),
            sizes: core::array::from_fn(|_| core::array::from_fn(|_| P::U32::new(0))),
            history: core::array::from_fn(|_| History::new()),
            scans: P::U32::new(0),
            carry: P::U64::new(0),
            debts: core::array::from_fn(|_| P::U32::new(0)),
            refused: core::array::from_fn(|_| P::U32::new(0)),
        });
        Lruvecs { table, slots: plan.slots, lock }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.table.len() / self.slots
    }

    pub(super) fn get(&self, place: Place) -> &Lruvec<P> {
        self.table.get(place.node * self.slots + usize::from(place.slot))
    }

    /// A recent size of a list.
    pub(crate) fn size(&self, place: Place, list: List) -> u32 {
        // Relaxed: a hint, on which no other memory depends.
        self.get(place).sizes[list as usize].iter().map(|size| size.load(Relaxed)).sum()
    }

    /// Recent sizes of all lists, of frames of this kind of zone and lower ones.
    pub(crate) fn sizes(&self, place: Place, highest: ZoneKind) -> PerList<u32> {
        let sizes = &self.get(place).sizes;
        List::ALL.map(|list| {
            let within = &sizes[list as usize][..=highest as usize];
            // Acquire: a call that finds too few sees the scan that has isolated the others.
            within.iter().map(|size| size.load(Acquire)).sum()
        })
    }

    /// How many frames of a list the owner was not asked for since it last gave one of the list.
    pub(crate) fn not_refused(&self, place: Place, list: List) -> u32 {
        // Relaxed: as in `size`.
        let refused = self.get(place).refused[list as usize].load(Relaxed);
        self.size(place, list).saturating_sub(refused)
    }

    /// What became of evicted frames of a kind.
    pub(crate) fn history(&self, place: Place, kind: Kind) -> &History<P> {
        &self.get(place).history[kind as usize]
    }

    /// Counts a scan until the guard is dropped.
    pub(crate) fn begin_scan(&self, place: Place) -> CountedScan<'_, P> {
        let scans = &self.get(place).scans;
        // Relaxed: a call that finds a list without the frames that this scan has isolated has seen
        // its size since, and with it the count.
        scans.fetch_add(1, Relaxed);
        CountedScan(scans)
    }

    /// Whether scans are under way.
    pub(crate) fn is_scanned(&self, place: Place) -> bool {
        // Acquire: a call that sees that a scan has ended finds what it had isolated free, or on
        // lists.
        self.get(place).scans.load(Acquire) != 0
    }

    /// The recent cost of reclaim from each kind.
    pub(crate) fn costs(&self, place: Place) -> [u64; Kind::COUNT] {
        let costs = &self.get(place).costs;
        // Relaxed: counts on which no other memory depends.
        Kind::ALL.map(|kind| costs[kind as usize].load(Relaxed))
    }

    /// Adds the cost of reclaim. Old costs decay: once the sum exceeds a quarter of the frames, it
    /// is halved (Linux's `lru_note_cost`).
    pub(crate) fn note_cost(&self, place: Place, kind: Kind, cost: u64) {
        if cost == 0 {
            return;
        }
        let costs = &self.get(place).costs;
        // Relaxed: as in `costs`. Two calls at once may lose some of it.
        costs[kind as usize].fetch_add(cost, Relaxed);
        let frames = List::EVICTABLE.iter().map(|&list| u64::from(self.size(place, list)));
        if self.costs(place).iter().sum::<u64>() > frames.sum::<u64>() / 4 {
            costs.iter().for_each(|cost| cost.store(cost.load(Relaxed) / 2, Relaxed));
        }
    }

    /// What reclaim has left over.
    pub(crate) fn carry(&self, place: Place) -> Carry {
        // Relaxed: a count of its own.
        Carry(self.get(place).carry.load(Relaxed))
    }

    /// Sets what reclaim has left over.
    pub(crate) fn set_carry(&self, place: Place, carry: Carry) {
        // Relaxed: as in `carry`.
        self.get(place).carry.store(carry.0, Relaxed);
    }

    /// Notes that more frames of a list were scanned than its part.
    pub(crate) fn add_debt(&self, place: Place, list: List, frames: u32) {
        if let Some(debt) = self.get(place).debts.get(list as usize) {
            // Relaxed: a count of its own.
            debt.fetch_add(frames, Relaxed);
        }
    }

    /// The part of a list to scan, less what was scanned beyond earlier parts.
    pub(crate) fn less_debt(&self, place: Place, list: List, part: u64) -> u64 {
        let debt = &self.get(place).debts[list as usize];
        // Relaxed: as in `add_debt`. Two calls at once may lose some of it.
        let due = debt.load(Relaxed);
        if due == 0 {
            return part;
        }
        let paid = part.min(due.into());
        debt.store(due - paid as u32, Relaxed);
        part - paid
    }

    /// The lruvec that holds the frames of `place`: its own or, if its group was removed, that of
    /// the nearest group above that was not. A hint until its lock is held.
    pub(crate) fn resolve(&self, mut place: Place, parent: impl Fn(u16) -> u16) -> Place {
        // Acquire: the parent was written before the lists were joined.
        while self.get(place).forwarded.load(Acquire) != 0 {
            place.slot = parent(place.slot);
        }
        place
    }

    /// Makes the lruvec of a free slot ready for a new group.
    pub(crate) fn open(&self, at: Place) {
        self.get(at).history.iter().for_each(History::clear);
        // Relaxed: as in `add_debt`.
        self.get(at).debts.iter().for_each(|debt| debt.store(0, Relaxed));
        // Release: as in `join`, for the new parent.
        self.get(at).forwarded.store(0, Release);
    }

    /// Whether the lists of an lruvec were joined to the parent's.
    pub(crate) fn is_forwarded(&self, at: Place) -> bool {
        self.get(at).forwarded.load(Acquire) != 0
    }
}

/// A scan under way, counted.
pub(crate) struct CountedScan<'a, P: Platform>(&'a P::U32);

impl<P: Platform> Drop for CountedScan<'_, P> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `is_scanned`. Adding the negative subtracts one.
        self.0.fetch_add(u32::MAX, Release);
    }
}
