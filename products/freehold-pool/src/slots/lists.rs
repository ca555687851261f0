//! The lists of one CPU, under its lock: a stack of dirty slots, and warm slots by age and by key.

use freehold::platform::{Platform, RawLock, SharedCell, Word};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::record::{CHAINS, CpuRecord, NONE, SlotRecord, slot_at};
use super::{ModuleKey, SlotIndex};

/// A CPU's lists while the caller has their lock.
pub(crate) struct Lists<'a, P: Platform> {
    pub(crate) cpu: &'a CpuRecord<P>,
    slots: &'a [SlotRecord<P>],
}

/// What is known of a slot that comes out of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    pub(crate) slot: SlotIndex,
    pub(crate) key: Option<ModuleKey>,
    /// Whether it has the content that its last user left.
    pub(crate) kept: bool,
}

/// The right to have slots of a CPU in hand that are no user's, noted in its record for calls that
/// look for the last free slot.
#[must_use]
pub(crate) struct InHand<'a, P: Platform> {
    cpu: &'a CpuRecord<P>,
}

impl<P: Platform> Drop for InHand<'_, P> {
    fn drop(&mut self) {
        // Release: a call that no longer sees it, sees where the slots went. The sum wraps: - 1.
        self.cpu.in_hand.fetch_add(u32::MAX, Release);
    }
}

impl<P: Platform> Drop for Lists<'_, P> {
    fn drop(&mut self) {
        self.cpu.lock.unlock();
    }
}

impl<'a, P: Platform> Lists<'a, P> {
    pub(crate) fn lock(cpu: &'a CpuRecord<P>, slots: &'a [SlotRecord<P>]) -> Self {
        cpu.lock.lock();
        Lists { cpu, slots }
    }

    pub(crate) fn try_lock(cpu: &'a CpuRecord<P>, slots: &'a [SlotRecord<P>]) -> Option<Self> {
        cpu.lock.try_lock().then(|| Lists { cpu, slots })
    }

    /// Notes that the caller will have slots of this CPU in hand.
    pub(crate) fn take_in_hand(&self) -> InHand<'a, P> {
        // Relaxed: the CPUs that look for it have the lock.
        self.cpu.in_hand.fetch_add(1, Relaxed);
        InHand { cpu: self.cpu }
    }

    /// How often these lists have changed; `None` if a slot of them is in a list or in hand.
    pub(crate) fn changes_if_empty(&self) -> Option<u64> {
        // Acquire: pairs with the release of a call that had slots in hand.
        let in_hand = self.cpu.in_hand.load(Acquire) > 0;
        let empty = self.dirty_slots() == 0 && self.warm_slots() == 0;
        (empty && !in_hand).then(|| self.cpu.changes.get())
    }

    pub(crate) fn dirty_slots(&self) -> usize {
        self.cpu.dirty_slots.get() as usize
    }

    pub(crate) fn warm_slots(&self) -> usize {
        self.cpu.warm_slots.get() as usize
    }

    fn record(&self, slot: SlotIndex) -> &'a SlotRecord<P> {
        &self.slots[slot.index()]
    }

    fn note_change(&self) {
        self.cpu.changes.set(self.cpu.changes.get().wrapping_add(1));
    }

    /// Puts a slot on the stack of those to be reset.
    pub(crate) fn push_dirty(&self, slot: SlotIndex, key: Option<ModuleKey>) {
        let record = self.record(slot);
        record.key.set(key.map_or(0, ModuleKey::get));
        record.older.set(self.cpu.dirty.get());
        self.cpu.dirty.set(slot.get());
        self.cpu.dirty_slots.set(self.cpu.dirty_slots.get() + 1);
        self.note_change();
    }

    /// Takes dirty slots, as many as fit, with their keys; returns how many.
    pub(crate) fn take_dirty(&self, batch: &mut [Parked]) -> usize {
        let mut count = 0;
        while count < batch.len()
            && let Some(slot) = slot_at(self.cpu.dirty.get())
        {
            let record = self.record(slot);
            self.cpu.dirty.set(record.older.get());
            let key = ModuleKey::from_word(record.key.get());
            batch[count] = Parked { slot, key, kept: false };
            count += 1;
        }
        if count > 0 {
            self.cpu.dirty_slots.set(self.cpu.dirty_slots.get() - count as u32);
            self.note_change();
        }
        count
    }

    /// Makes a slot the newest of the warm ones.
    pub(crate) fn park(&self, slot: SlotIndex, key: ModuleKey, kept: bool) {
        let record = self.record(slot);
        record.key.set(key.get());
        record.kept.set(kept.into());
        let newest = self.cpu.newest.get();
        record.older.set(newest);
        record.newer.set(NONE);
        match slot_at(newest) {
            Some(newest) => self.record(newest).newer.set(slot.get()),
            None => self.cpu.oldest.set(slot.get()),
        }
        self.cpu.newest.set(slot.get());
        let chain = self.chain(key);
        let head = chain.get();
        record.chain_next.set(head);
        record.chain_prev.set(NONE);
        if let Some(head) = slot_at(head) {
            self.record(head).chain_prev.set(slot.get());
        }
        chain.set(slot.get());
        self.cpu.warm_slots.set(self.cpu.warm_slots.get() + 1);
        self.note_change();
    }

    /// Takes the newest warm slot of a key. Looks at warm slots of other keys that share the chain.
    pub(crate) fn take_warm(&self, key: ModuleKey) -> Option<Parked> {
        let mut at = self.chain(key).get();
        while let Some(slot) = slot_at(at) {
            let record = self.record(slot);
            if record.key.get() == key.get() {
                return Some(self.unlink(slot));
            }
            at = record.chain_next.get();
        }
        None
    }

    /// Takes the warm slot that has waited longest, whatever its key.
    pub(crate) fn take_oldest(&self) -> Option<Parked> {
        slot_at(self.cpu.oldest.get()).map(|slot| self.unlink(slot))
    }

    fn unlink(&self, slot: SlotIndex) -> Parked {
        let record = self.record(slot);
        let key = ModuleKey::from_word(record.key.get()).expect("what is warm has a key");
        let (older, newer) = (record.older.get(), record.newer.get());
        match slot_at(older) {
            Some(older) => self.record(older).newer.set(newer),
            None => self.cpu.oldest.set(newer),
        }
        match slot_at(newer) {
            Some(newer) => self.record(newer).older.set(older),
            None => self.cpu.newest.set(older),
        }
        let (next, prev) = (record.chain_next.get(), record.chain_prev.get());
        match slot_at(prev) {
            Some(prev) => self.record(prev).chain_next.set(next),
            None => self.chain(key).set(next),
        }
        if let Some(next) = slot_at(next) {
            self.record(next).chain_prev.set(prev);
        }
        self.cpu.warm_slots.set(self.cpu.warm_slots.get() - 1);
        self.note_change();
        Parked { slot, key: Some(key), kept: record.kept.get() != 0 }
    }

    fn chain(&self, key: ModuleKey) -> &'a P::LocalCell<u32> {
        &self.cpu.chains[key.hash() % CHAINS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_host::Host;

    fn key(number: u64) -> ModuleKey {
        ModuleKey::new(number)
    }

    /// The lists against a vector, oldest first.
    #[test]
    fn warm_slots_come_out_by_key_newest_first_and_by_age() {
        let slots: Vec<SlotRecord<Host>> = (0..40).map(|_| SlotRecord::new()).collect();
        let cpu = CpuRecord::new();
        let lists = Lists::lock(&cpu, &slots);
        let (mut rng, mut model) = (fastrand::Rng::with_seed(7), Vec::<Parked>::new());
        let mut free: Vec<u32> = (0..40).collect();
        for _ in 0..20_000 {
            match rng.u32(0..5) {
                0 | 1 if !free.is_empty() => {
                    let slot = SlotIndex::new(free.swap_remove(rng.usize(..free.len())));
                    // More keys than chains, so that some share one.
                    let (key, kept) = (key(rng.u64(0..60)), rng.bool());
                    lists.park(slot, key, kept);
                    model.push(Parked { slot, key: Some(key), kept });
                }
                2 => {
                    let expected = (!model.is_empty()).then(|| model.remove(0));
                    assert_eq!(lists.take_oldest(), expected);
                    free.extend(expected.map(|parked| parked.slot.get()));
                }
                _ => {
                    let key = key(rng.u64(0..60));
                    let at = model.iter().rposition(|parked| parked.key == Some(key));
                    let expected = at.map(|at| model.remove(at));
                    assert_eq!(lists.take_warm(key), expected);
                    free.extend(expected.map(|parked| parked.slot.get()));
                }
            }
            assert_eq!(lists.warm_slots(), model.len());
        }
    }

    #[test]
    fn dirty_slots_come_out_with_their_keys() {
        let slots: Vec<SlotRecord<Host>> = (0..4).map(|_| SlotRecord::new()).collect();
        let cpu = CpuRecord::new();
        let lists = Lists::lock(&cpu, &slots);
        lists.push_dirty(SlotIndex::new(2), None);
        lists.push_dirty(SlotIndex::new(0), Some(key(5)));
        lists.push_dirty(SlotIndex::new(3), None);
        let nothing = Parked { slot: SlotIndex::new(0), key: None, kept: false };
        let mut batch = [nothing; 2];
        assert_eq!((lists.take_dirty(&mut batch), lists.dirty_slots()), (2, 1));
        assert_eq!(batch[0].slot, SlotIndex::new(3));
        assert_eq!((batch[1].slot, batch[1].key), (SlotIndex::new(0), Some(key(5))));
        assert_eq!((lists.take_dirty(&mut batch), batch[0].slot), (1, SlotIndex::new(2)));
        assert_eq!(lists.take_dirty(&mut batch), 0);
    }

    #[test]
    fn lists_are_empty_only_with_nothing_in_hand() {
        let slots: Vec<SlotRecord<Host>> = (0..1).map(|_| SlotRecord::new()).collect();
        let cpu = CpuRecord::new();
        let lists = Lists::lock(&cpu, &slots);
        let before = lists.changes_if_empty().unwrap();
        lists.park(SlotIndex::new(0), key(1), true);
        assert_eq!(lists.changes_if_empty(), None);
        let in_hand = lists.take_in_hand();
        assert!(lists.take_oldest().is_some());
        assert_eq!(lists.changes_if_empty(), None);
        drop(in_hand);
        assert!(lists.changes_if_empty().unwrap() > before);
    }
}
