//! What is kept of CPUs and of slots.

use freehold::platform::{LockClass, Platform, RawLock, SharedCell, Word};

use super::SlotIndex;
use crate::stat::PoolStats;

/// In a link: no slot.
pub(crate) const NONE: u32 = u32::MAX;

/// Chains of warm slots by key, of each CPU.
pub(crate) const CHAINS: usize = 32;

/// A slot that waits in a CPU's lists, by the links of the lists. Guarded by the lock of that CPU.
///
/// A line of its own: neighbours are used by different CPUs.
#[repr(C, align(64))]
pub struct SlotRecord<P: Platform> {
    /// The key of the last user, or 0.
    pub(crate) key: P::Cell<u64>,
    /// 1 if the slot must be reset before a user without this key may have it.
    pub(crate) kept: P::Cell<u32>,
    /// Towards the front of the list by age (of warm slots), or below in the stack (of dirty ones).
    pub(crate) older: P::Cell<u32>,
    pub(crate) newer: P::Cell<u32>,
    /// The next in the chain, which was parked before; and the one before, parked later.
    pub(crate) chain_next: P::Cell<u32>,
    pub(crate) chain_prev: P::Cell<u32>,
    /// Not of this slot, but of keys: on which CPU, plus one, a slot of a key with this hash was
    /// parked. A hint, which any CPU may write.
    pub(crate) hint: P::U32,
}

impl<P: Platform> SlotRecord<P> {
    /// The record of a slot that no list has.
    pub fn new() -> Self {
        SlotRecord {
            key: SharedCell::new(0),
            kept: SharedCell::new(0),
            older: SharedCell::new(NONE),
            newer: SharedCell::new(NONE),
            chain_next: SharedCell::new(NONE),
            chain_prev: SharedCell::new(NONE),
            hint: Word::new(0),
        }
    }
}

impl<P: Platform> Default for SlotRecord<P> {
    fn default() -> Self {
        SlotRecord::new()
    }
}

impl<P: Platform> std::fmt::Debug for SlotRecord<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SlotRecord")
    }
}

/// The slots that wait on one CPU: the dirty ones, to be reset, and the warm ones.
#[repr(C, align(128))]
pub struct CpuRecord<P: Platform> {
    pub(crate) lock: P::Lock,
    /// The stack of dirty slots.
    pub(crate) dirty: P::LocalCell<u32>,
    pub(crate) dirty_slots: P::LocalCell<u32>,
    /// The list of warm slots by age.
    pub(crate) oldest: P::LocalCell<u32>,
    pub(crate) newest: P::LocalCell<u32>,
    pub(crate) warm_slots: P::LocalCell<u32>,
    /// So many calls have slots in hand that are no user's and in no list.
    pub(crate) in_hand: P::U32,
    /// How often a slot came to a list or left one.
    pub(crate) changes: P::LocalCell<u64>,
    pub(crate) counts: Counts<P>,
    pub(crate) chains: [P::LocalCell<u32>; CHAINS],
}

/// What happened on a CPU. Words, since parts of it are counted outside the lock.
pub(crate) struct Counts<P: Platform> {
    pub(crate) taken: P::U64,
    pub(crate) warm: P::U64,
    pub(crate) warm_elsewhere: P::U64,
    pub(crate) scarce: P::U64,
    pub(crate) batches: P::U64,
    pub(crate) reset_slots: P::U64,
    pub(crate) calls: P::U64,
    pub(crate) lost: P::U64,
}

impl<P: Platform> Counts<P> {
    fn new() -> Self {
        Counts {
            taken: Word::new(0),
            warm: Word::new(0),
            warm_elsewhere: Word::new(0),
            scarce: Word::new(0),
            batches: Word::new(0),
            reset_slots: Word::new(0),
            calls: Word::new(0),
            lost: Word::new(0),
        }
    }

    pub(crate) fn add_to(&self, stats: &mut PoolStats) {
        let read = super::count_of::<P>;
        stats.taken += read(&self.taken);
        stats.warm_hits += read(&self.warm);
        stats.warm_hits_elsewhere += read(&self.warm_elsewhere);
        stats.scarce += read(&self.scarce);
        stats.batches += read(&self.batches);
        stats.reset_slots += read(&self.reset_slots);
        stats.system_calls += read(&self.calls);
        stats.lost_slots += read(&self.lost);
    }
}

impl<P: Platform> CpuRecord<P> {
    /// The record of a CPU on which no slot waits.
    pub fn new() -> Self {
        CpuRecord {
            // Reports of simulated machines tell it from the locks of the allocator.
            lock: RawLock::new(LockClass::Owner),
            dirty: SharedCell::new(NONE),
            dirty_slots: SharedCell::new(0),
            oldest: SharedCell::new(NONE),
            newest: SharedCell::new(NONE),
            warm_slots: SharedCell::new(0),
            in_hand: Word::new(0),
            changes: SharedCell::new(0),
            counts: Counts::new(),
            chains: std::array::from_fn(|_| SharedCell::new(NONE)),
        }
    }
}

impl<P: Platform> Default for CpuRecord<P> {
    fn default() -> Self {
        CpuRecord::new()
    }
}

impl<P: Platform> std::fmt::Debug for CpuRecord<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CpuRecord")
    }
}

/// A link as an index.
pub(crate) fn slot_at(link: u32) -> Option<SlotIndex> {
    (link != NONE).then(|| SlotIndex::new(link))
}
