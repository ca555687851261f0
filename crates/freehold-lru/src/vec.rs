//! Lruvecs: the lists of one group on one node, and the lock over them.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::LruLock;
use super::balance::Carry;
use super::frame::FrameTable;
use super::history::History;
use super::kind::{Kind, List};
use super::state::{Motion, State};
use freehold::Error;
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::{End, ListHead};
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::platform::{IrqsOff, LockClass, Platform, RawLock, Word};
use freehold::units::ZoneKind;

/// The lists of one group on one node.
#[repr(C, align(64))]
pub(super) struct Lruvec<P: Platform> {
    lists: [ListHead<P::Cell<u32>>; List::COUNT],
    /// The recent cost of reclaim from each kind: frames written back, and put back unreclaimed.
    costs: [P::U64; Kind::COUNT],
    /// Guards lists, links and sizes of this lruvec or, with one lock per node, of all on the node.
    lock: P::Lock,
    /// Whether the group was removed and its lists were joined to those of the parent. Written
    /// under this lruvec's lock and the parent's.
    forwarded: P::U32,
    /// How many frames of each zone are on each list. Written under the lock; read without it as
    /// a hint.
    sizes: [[P::U32; ZoneKind::COUNT]; List::COUNT],
    /// What became of evicted frames of each kind.
    history: [History<P>; Kind::COUNT],
    /// Scans under way, which may have frames isolated.
    scans: P::U32,
    /// A [`Carry`] of reclaim. Two calls at once may lose some of it.
    carry: P::U64,
    /// How many frames of each list reclaim has scanned beyond its parts, since it scans blocks as
    /// a whole.
    debts: [P::U32; List::EVICTABLE.len()],
    /// How many frames at the front of each list the owner was asked for in vain, one after the
    /// other; less than there are if others came or went. Written under the lock; read without it
    /// as a hint.
    refused: [P::U32; List::COUNT],
}

/// The place of an lruvec: its group's slot and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u16,
    pub(super) node: usize,
}

/// All lruvecs; those of a node are contiguous.
pub(super) struct Lruvecs<P: Platform> {
    table: Table<Lruvec<P>>,
    slots: usize,
    lock: LruLock,
}

/// Where the lruvecs will lie.
pub(super) struct LruvecsPlan<P: Platform> {
    table: TablePlan<Lruvec<P>>,
    slots: usize,
}

impl<P: Platform> LruvecsPlan<P> {
    pub(super) fn new(
        nodes: usize,
        slots: usize,
        layout: &mut LayoutBuilder,
    ) -> Result<Self, Error> {
        let len = nodes.checked_mul(slots).ok_or(Error::SpanTooLarge)?;
        Ok(LruvecsPlan { table: layout.table(SectionKind::Lruvecs, len)?, slots })
    }
}

impl<P: Platform> Lruvecs<P> {
    pub(super) fn carve(plan: &LruvecsPlan<P>, lock: LruLock, carver: &mut Carver) -> Self {
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

    pub(super) fn nodes(&self) -> usize {
        self.table.len() / self.slots
    }

    fn get(&self, place: Place) -> &Lruvec<P> {
        self.table.get(place.node * self.slots + usize::from(place.slot))
    }

    /// The lock over an lruvec: its own, or that of the root group on its node.
    fn lock_of(&self, place: Place) -> &P::Lock {
        let slot = if self.lock == LruLock::Node { 0 } else { place.slot };
        &self.get(Place { slot, ..place }).lock
    }

    /// A recent size of a list.
    pub(super) fn size(&self, place: Place, list: List) -> u32 {
        // Relaxed: a hint, on which no other memory depends.
        self.get(place).sizes[list as usize].iter().map(|size| size.load(Relaxed)).sum()
    }

    /// Recent sizes of all lists, of frames of this kind of zone and lower ones.
    pub(super) fn sizes(&self, place: Place, highest: ZoneKind) -> [u32; List::COUNT] {
        let sizes = &self.get(place).sizes;
        List::ALL.map(|list| {
            let within = &sizes[list as usize][..=highest as usize];
            // Acquire: a call that finds too few sees the scan that has isolated the others.
            within.iter().map(|size| size.load(Acquire)).sum()
        })
    }

    /// How many frames of a list the owner was not asked for since it last gave one of the list.
    pub(super) fn not_refused(&self, place: Place, list: List) -> u32 {
        // Relaxed: as in `size`.
        let refused = self.get(place).refused[list as usize].load(Relaxed);
        self.size(place, list).saturating_sub(refused)
    }

    /// Notes that the owner gave frames of these lists: it may give others that it refused before.
    pub(super) fn forget_refused(&self, platform: &P, place: Place, kind: Kind) {
        let lists = [List::of(kind, false), List::of(kind, true)];
        // Relaxed: as in `size`. Most often there is nothing to forget.
        let is_refused = |list: List| self.get(place).refused[list as usize].load(Relaxed) > 0;
        if lists.into_iter().any(is_refused) {
            let guard = self.lock_at(platform, place);
            lists.into_iter().for_each(|list| guard.set_refused(list as usize, |_| 0));
        }
    }

    /// What became of evicted frames of a kind.
    pub(super) fn history(&self, place: Place, kind: Kind) -> &History<P> {
        &self.get(place).history[kind as usize]
    }

    /// Counts a scan until the guard is dropped.
    pub(super) fn begin_scan(&self, place: Place) -> CountedScan<'_, P> {
        let scans = &self.get(place).scans;
        // Relaxed: a call that finds a list without the frames that this scan has isolated has seen
        // its size since, and with it the count.
        scans.fetch_add(1, Relaxed);
        CountedScan(scans)
    }

    /// Whether scans are under way.
    pub(super) fn is_scanned(&self, place: Place) -> bool {
        // Acquire: a call that sees that a scan has ended finds what it had isolated free, or on
        // lists.
        self.get(place).scans.load(Acquire) != 0
    }

    /// The recent cost of reclaim from each kind.
    pub(super) fn costs(&self, place: Place) -> [u64; Kind::COUNT] {
        let costs = &self.get(place).costs;
        // Relaxed: counts on which no other memory depends.
        Kind::ALL.map(|kind| costs[kind as usize].load(Relaxed))
    }

    /// Adds the cost of reclaim. Old costs decay: once the sum exceeds a quarter of the frames, it
    /// is halved (Linux's `lru_note_cost`).
    pub(super) fn note_cost(&self, place: Place, kind: Kind, cost: u64) {
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
    pub(super) fn carry(&self, place: Place) -> Carry {
        // Relaxed: a count of its own.
        Carry(self.get(place).carry.load(Relaxed))
    }

    /// Sets what reclaim has left over.
    pub(super) fn set_carry(&self, place: Place, carry: Carry) {
        // Relaxed: as in `carry`.
        self.get(place).carry.store(carry.0, Relaxed);
    }

    /// Notes that more frames of a list were scanned than its part.
    pub(super) fn add_debt(&self, place: Place, list: List, frames: u32) {
        if let Some(debt) = self.get(place).debts.get(list as usize) {
            // Relaxed: a count of its own.
            debt.fetch_add(frames, Relaxed);
        }
    }

    /// The part of a list to scan, less what was scanned beyond earlier parts.
    pub(super) fn less_debt(&self, place: Place, list: List, part: u64) -> u64 {
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
    pub(super) fn resolve(&self, mut place: Place, parent: impl Fn(u16) -> u16) -> Place {
        // Acquire: the parent was written before the lists were joined.
        while self.get(place).forwarded.load(Acquire) != 0 {
            place.slot = parent(place.slot);
        }
        place
    }

    /// Locks the lruvec that holds the frames of `place`.
    pub(super) fn lock<'a>(
        &'a self,
        platform: &'a P,
        place: Place,
        parent: impl Fn(u16) -> u16,
    ) -> VecGuard<'a, P> {
        loop {
            let at = self.resolve(place, &parent);
            let guard = self.lock_at(platform, at);
            // The lists may have been joined to the parent's before the lock was taken. While it is
            // held they cannot be.
            if self.get(at).forwarded.load(Acquire) == 0 {
                return guard;
            }
        }
    }

    /// Locks just this lruvec.
    pub(super) fn lock_at<'a>(&'a self, platform: &'a P, at: Place) -> VecGuard<'a, P> {
        let irqs = IrqsOff::new(platform);
        self.lock_of(at).lock();
        VecGuard { vecs: self, at, _irqs: irqs }
    }

    /// The relock helper: keeps a lock that covers the lruvec of `place`, or exchanges it for one
    /// that does.
    pub(super) fn relock<'a>(
        &'a self,
        platform: &'a P,
        held: Option<VecGuard<'a, P>>,
        place: Place,
        parent: impl Fn(u16) -> u16,
    ) -> VecGuard<'a, P> {
        if let Some(mut guard) = held {
            // If the lock that is held covers `at`, `at` cannot have been joined to its parent
            // since it was resolved.
            let at = self.resolve(place, &parent);
            if core::ptr::eq(self.lock_of(at), self.lock_of(guard.at)) {
                guard.at = at;
                return guard;
            }
        }
        self.lock(platform, place, parent)
    }

    /// Joins the lists of a group that is being removed to its parent's, under both locks.
    pub(super) fn join(&self, platform: &P, frames: &FrameTable<P>, from: Place, to: Place) {
        // Locks are taken from a group to those above it; no other call holds two.
        let guard = self.lock_at(platform, from);
        let above = (self.lock == LruLock::Group).then(|| self.lock_at(platform, to));
        let (child, parent) = (self.get(from), self.get(to));
        for list in List::ALL.map(|list| list as usize) {
            // The last users of these frames are gone: they go behind the others.
            parent.lists[list].append(frames, &child.lists[list]);
            for (from, to) in child.sizes[list].iter().zip(&parent.sizes[list]) {
                // Relaxed: hints, as ever.
                to.fetch_add(from.swap(0, Relaxed), Relaxed);
            }
            child.refused[list].store(0, Relaxed);
        }
        for (cost, more) in parent.costs.iter().zip(&child.costs) {
            // Relaxed: as in `note_cost`.
            cost.fetch_add(more.swap(0, Relaxed), Relaxed);
        }
        // Release: a CPU that sees the mark without the lock finds the parent that was written
        // before.
        child.forwarded.store(1, Release);
        drop(above);
        drop(guard);
    }

    /// Makes the lruvec of a free slot ready for a new group.
    pub(super) fn open(&self, at: Place) {
        self.get(at).history.iter().for_each(History::clear);
        // Relaxed: as in `add_debt`.
        self.get(at).debts.iter().for_each(|debt| debt.store(0, Relaxed));
        // Release: as in `join`, for the new parent.
        self.get(at).forwarded.store(0, Release);
    }

    /// Whether the lists of an lruvec were joined to the parent's.
    pub(super) fn is_forwarded(&self, at: Place) -> bool {
        self.get(at).forwarded.load(Acquire) != 0
    }
}

/// A scan under way, counted.
pub(super) struct CountedScan<'a, P: Platform>(&'a P::U32);

impl<P: Platform> Drop for CountedScan<'_, P> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `is_scanned`. Adding the negative subtracts one.
        self.0.fetch_add(u32::MAX, Release);
    }
}

/// A lock over lruvecs, held, and the lruvec for which it was taken. Unlocks when dropped.
pub(super) struct VecGuard<'a, P: Platform> {
    vecs: &'a Lruvecs<P>,
    at: Place,
    _irqs: IrqsOff<'a, P>,
}

impl<P: Platform> VecGuard<'_, P> {
    fn vec(&self) -> &Lruvec<P> {
        self.vecs.get(self.at)
    }

    /// Links a frame by the marks that it has now.
    pub(super) fn link(
        &self,
        frames: &FrameTable<P>,
        frame: FrameIndex,
        state: State,
        motion: Motion,
    ) {
        let list = state.list() as usize;
        self.vec().lists[list].push(frames, frame, motion.end());
        self.resize(list, state, state.frames());
        self.set_refused(list, |refused| match motion {
            Motion::Refuse => refused.saturating_add(state.frames()),
            // At the back, the next to be taken.
            Motion::Rotate => refused,
            Motion::Keep | Motion::Activate | Motion::Deactivate => 0,
        });
    }

    /// Unlinks a frame from the list that its marks named when its LRU mark was cleared.
    pub(super) fn unlink(&self, frames: &FrameTable<P>, frame: FrameIndex, state: State) {
        let list = state.list() as usize;
        self.vec().lists[list].remove(frames, frame);
        self.resize(list, state, state.frames().wrapping_neg());
        self.set_refused(list, |refused| refused.saturating_sub(state.frames()));
    }

    /// As `unlink`, for the frame that has been on its list longest.
    pub(super) fn unlink_oldest(&self, frames: &FrameTable<P>, frame: FrameIndex, state: State) {
        let list = state.list();
        self.vec().lists[list as usize].remove(frames, frame);
        self.resize(list as usize, state, state.frames().wrapping_neg());
        self.set_refused(list as usize, |refused| refused.min(self.size(list)));
    }

    fn set_refused(&self, list: usize, refused: impl Fn(u32) -> u32) {
        let word = &self.vec().refused[list];
        // Relaxed: only holders of the lock write, and for others it is a hint.
        let before = word.load(Relaxed);
        if before != refused(before) {
            word.store(refused(before), Relaxed);
        }
    }

    fn resize(&self, list: usize, state: State, by: u32) {
        let size = &self.vec().sizes[list][state.zone()];
        // Relaxed: only holders of the lock write. Release: pairs with `sizes`.
        size.store(size.load(Relaxed).wrapping_add(by), Release);
    }

    /// The frame that has been on a list longest.
    pub(super) fn oldest(&self, list: List) -> Option<FrameIndex> {
        self.vec().lists[list as usize].last()
    }

    /// Moves a frame that another call is isolating or releasing out of the way.
    pub(super) fn rotate(&self, frames: &FrameTable<P>, frame: FrameIndex, list: List) {
        self.set_refused(list as usize, |_| 0);
        let list = &self.vec().lists[list as usize];
        list.remove(frames, frame);
        list.push(frames, frame, End::Front);
    }

    /// The slot of the group whose lruvec it is.
    pub(super) fn slot(&self) -> u16 {
        self.at.slot
    }

    /// What became of evicted frames of a kind.
    pub(super) fn history(&self, kind: Kind) -> &History<P> {
        &self.vec().history[kind as usize]
    }

    /// How many frames are on a list.
    pub(super) fn size(&self, list: List) -> u32 {
        self.vecs.size(self.at, list)
    }

    /// The frames of a list, first to last.
    pub(super) fn frames<'f>(
        &self,
        frames: &'f FrameTable<P>,
        list: List,
    ) -> impl Iterator<Item = FrameIndex> + 'f {
        self.vec().lists[list as usize].iter(frames)
    }
}

impl<P: Platform> Drop for VecGuard<'_, P> {
    fn drop(&mut self) {
        self.vecs.lock_of(self.at).unlock();
    }
}
