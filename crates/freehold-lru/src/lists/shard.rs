//! The record of a shard: lists, the lock over them, and what is counted there.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::carry::Carry;
use crate::frames::table::FrameTable;
use crate::id::Place;
use crate::kind::{List, PerList};
use crate::settings::BATCH_MAX;
use freehold::memmap::list::ListHead;
use freehold::platform::{LockClass, Platform, RawLock, SharedCell, Word};
use freehold::units::ZoneKind;

/// The lists of an lruvec, or of a part of its frames. The sizes begin the second cache line, since
/// calls that wait for the lock have the first one.
#[repr(C)]
pub(crate) struct Shard<P: Platform> {
    pub(super) lists: [ListHead<P::Cell<u32>>; List::COUNT],
    /// Guards lists, links and sizes of this shard or, with one lock per node, of all on the node.
    pub(super) lock: P::Lock,
    /// The lruvec that it is open for, or [`CLOSED`]. Written under this lock, and closed under
    /// that of the shard that got its frames as well.
    open_for: P::U32,
    /// Scans under way that began on CPUs of this shard, and may have frames isolated.
    scans: P::U32,
    /// The shard that those look at next, beside this one.
    pub(super) neighbour: P::U32,
    /// A [`Carry`] of reclaim by them. Two calls at once may lose some of it.
    carry: P::U64,
    /// By how much the sizes of each list are more than what the sum of all shards counts, in a
    /// byte for each zone.
    pub(super) unsummed: [P::Cell<u32>; List::COUNT],
    /// How many frames of each zone are on each list. Written under the lock; read without it as
    /// a hint.
    pub(super) sizes: PerList<PerZone<P::U32>>,
    /// How many frames at the front of each list the owner was asked for in vain, one after the
    /// other; less than there are if others came or went. Written under the lock; read without it
    /// as a hint.
    pub(super) refused: [P::U32; List::COUNT],
    /// How many frames of each list they have scanned beyond their parts, since blocks are scanned
    /// as a whole; negative if they missed some, since the lock was held.
    debts: [P::U32; List::EVICTABLE.len()],
    /// How often reclaim went through each list: see [`turns`](super::turns).
    pub(super) turns: [P::U32; List::EVICTABLE.len()],
    /// Content that came back, noted by these CPUs; and of this, content that should have stayed.
    refaulted: P::U64,
    restored: P::U64,
}

/// The mark of a shard that has no frames, and gets none.
const CLOSED: u32 = u32::MAX;

impl Place {
    /// The number of a place: below that of [`CLOSED`].
    const fn code(self) -> u32 {
        (self.node as u32) << 16 | self.slot as u32
    }
}

/// Counts of frames of each zone.
pub(super) type PerZone<U> = [U; ZoneKind::COUNT];

/// Their sum, up to this kind of zone.
#[inline]
pub(super) fn sum_within<U: Word<u32>>(counts: &PerZone<U>, highest: ZoneKind) -> u32 {
    let mut sum = 0;
    for count in &counts[..=highest as usize] {
        // Acquire: a call that finds too few sees the scan that has isolated the others.
        sum += count.load(Acquire);
    }
    sum
}

impl<P: Platform> Shard<P> {
    /// A shard that is closed.
    pub(super) fn new() -> Self {
        let zero = || P::U32::new(0);
        Shard {
            lists: core::array::from_fn(|_| ListHead::new()),
            lock: P::Lock::new(LockClass::Lru),
            open_for: P::U32::new(CLOSED),
            sizes: core::array::from_fn(|_| core::array::from_fn(|_| zero())),
            unsummed: core::array::from_fn(|_| P::Cell::new(0)),
            refused: core::array::from_fn(|_| zero()),
            scans: zero(),
            neighbour: zero(),
            carry: P::U64::new(0),
            debts: core::array::from_fn(|_| zero()),
            turns: core::array::from_fn(|_| zero()),
            refaulted: P::U64::new(0),
            restored: P::U64::new(0),
        }
    }

    #[inline]
    pub(super) fn is_open_for(&self, place: Place) -> bool {
        // Acquire: pairs with the release in `open` and `close`.
        self.open_for.load(Acquire) == place.code()
    }

    /// Opens an empty shard.
    pub(super) fn open(&self, place: Place) {
        // Release: a CPU that finds it open finds what was written for it before.
        self.open_for.store(place.code(), Release);
    }

    /// Closes a shard whose frames have gone elsewhere.
    pub(super) fn close(&self) {
        // Release: a CPU that sees the mark without the lock finds what leads to where they went.
        self.open_for.store(CLOSED, Release);
    }

    /// Forgets what reclaim knows of the frames that were here.
    pub(super) fn forget(&self) {
        // Relaxed: counts of their own, here and below.
        self.debts.iter().for_each(|debt| debt.store(0, Relaxed));
        self.refaulted.store(0, Relaxed);
        self.restored.store(0, Relaxed);
    }

    /// Has had as many turns as another shard.
    pub(super) fn begin_as(&self, other: &Self) {
        for (mine, theirs) in self.turns.iter().zip(&other.turns) {
            mine.store(theirs.load(Relaxed), Relaxed);
        }
    }

    /// A recent size of a list.
    pub(crate) fn size(&self, list: List) -> u32 {
        // Relaxed: a hint, on which no other memory depends.
        self.sizes[list as usize].iter().map(|size| size.load(Relaxed)).sum()
    }

    /// A recent size of a list, of frames of this kind of zone and lower ones.
    pub(super) fn size_within(&self, list: List, highest: ZoneKind) -> u32 {
        sum_within(&self.sizes[list as usize], highest)
    }

    /// How many frames of a zone are on a list, as far as the sum of all shards counts them. The
    /// caller holds the lock, or no other call is under way.
    pub(super) fn told(&self, list: usize, zone: usize) -> u32 {
        let kept = (self.unsummed[list].get() >> (zone * 8)) as u8 as i8;
        self.sizes[list][zone].load(Relaxed).wrapping_sub(i32::from(kept) as u32)
    }

    /// Of a list, how many frames the owner was asked for in vain.
    #[inline]
    pub(super) fn refused(&self, list: List) -> u32 {
        // Relaxed: a hint.
        self.refused[list as usize].load(Relaxed)
    }

    /// Counts a scan until the guard is dropped.
    pub(crate) fn begin_scan(&self) -> CountedScan<'_, P> {
        // Relaxed: a call that finds a list without the frames that this scan has isolated has seen
        // its size since, and with it the count.
        self.scans.fetch_add(1, Relaxed);
        CountedScan(&self.scans)
    }

    /// Whether scans are under way.
    pub(super) fn is_scanned(&self) -> bool {
        // Acquire: a call that sees that a scan has ended finds what it had isolated free, or on
        // lists.
        self.scans.load(Acquire) != 0
    }

    /// What reclaim has left over.
    pub(crate) fn carry(&self) -> Carry {
        // Relaxed: a count of its own.
        Carry(self.carry.load(Relaxed))
    }

    /// Sets what reclaim has left over.
    pub(crate) fn set_carry(&self, carry: Carry) {
        // Relaxed: as in `carry`.
        self.carry.store(carry.0, Relaxed);
    }

    /// Notes that fewer frames of a list were scanned than its part; a batch in all is remembered.
    pub(crate) fn note_missed(&self, list: List, frames: u32) {
        if let Some(debt) = self.debts.get(list as usize) {
            // Relaxed: as in `less_debt`.
            let due = (debt.load(Relaxed) as i32).saturating_sub_unsigned(frames);
            debt.store(due.max(-(BATCH_MAX as i32)) as u32, Relaxed);
        }
    }

    /// Notes that more frames of a list were scanned than its part.
    pub(crate) fn add_debt(&self, list: List, frames: u32) {
        if let Some(debt) = self.debts.get(list as usize) {
            // Relaxed: a count of its own.
            debt.fetch_add(frames, Relaxed);
        }
    }

    /// The part of a list to scan, less what was scanned beyond earlier parts, and with what these
    /// missed.
    pub(crate) fn less_debt(&self, list: List, part: u64) -> u64 {
        let debt = &self.debts[list as usize];
        // Relaxed: as in `add_debt`. Two calls at once may lose some of it.
        let due = debt.load(Relaxed);
        if due == 0 {
            return part;
        }
        let due = i64::from(due as i32);
        let left = (due - part as i64).max(0);
        debt.store(left as u32, Relaxed);
        (part as i64 - due).max(0) as u64
    }

    /// Notes that content came back, and whether it should have stayed.
    pub(crate) fn note_refault(&self, is_restored: bool, frames: u32) {
        // Relaxed: counts of their own.
        self.refaulted.fetch_add(frames.into(), Relaxed);
        if is_restored {
            self.restored.fetch_add(frames.into(), Relaxed);
        }
    }

    /// How much content came back, and how much of it should have stayed.
    pub(super) fn refaults(&self) -> [u64; 2] {
        // Relaxed: as in `note_refault`.
        [&self.refaulted, &self.restored].map(|count| count.load(Relaxed))
    }

    /// Puts all frames of another shard behind those of this one. Both are locked.
    pub(super) fn take_over(&self, frames: &FrameTable<P>, other: &Self) {
        for list in List::ALL.map(|list| list as usize) {
            // The last users of these frames are gone: they go behind the others.
            self.lists[list].append(frames, &other.lists[list]);
            for (from, to) in other.sizes[list].iter().zip(&self.sizes[list]) {
                // Relaxed: hints, as ever.
                to.fetch_add(from.swap(0, Relaxed), Relaxed);
            }
            other.unsummed[list].set(0);
            other.refused[list].store(0, Relaxed);
        }
    }

    /// Takes the counts of content that came back from another shard of the lruvec.
    pub(super) fn take_refaults(&self, other: &Self) {
        // Relaxed: as in `note_refault`.
        let [refaulted, restored] = [&other.refaulted, &other.restored];
        self.refaulted.fetch_add(refaulted.swap(0, Relaxed), Relaxed);
        self.restored.fetch_add(restored.swap(0, Relaxed), Relaxed);
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
