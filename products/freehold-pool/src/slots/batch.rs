//! Dirty slots, reset a batch at a time.

use freehold::platform::Platform;
use freehold::{Order, Pfn};

use super::lists::{InHand, Lists, Parked};
use super::{BATCH_SLOTS_MAX, Reset, SlotIndex, Slots, Tables, count};

/// Slots that were dirty, on their way to their next place.
pub(super) struct Batch {
    slots: [Parked; BATCH_SLOTS_MAX],
    len: usize,
}

impl Batch {
    pub(super) fn new() -> Self {
        let none = Parked { slot: SlotIndex::new(0), key: None, kept: false };
        Batch { slots: [none; BATCH_SLOTS_MAX], len: 0 }
    }

    /// Adds dirty slots of a CPU, up to so many in all; returns whether there were any.
    pub(super) fn fill<P: Platform>(&mut self, lists: &Lists<'_, P>, slots_max: usize) -> bool {
        let added = lists.take_dirty(&mut self.slots[self.len..slots_max]);
        self.len += added;
        added > 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A batch of one.
    pub(super) fn of(parked: Parked) -> Self {
        let mut batch = Batch::new();
        (batch.slots[0], batch.len) = (parked, 1);
        batch
    }

    /// Takes one slot out of the batch.
    pub(super) fn pop(&mut self) -> Option<SlotIndex> {
        self.len = self.len.checked_sub(1)?;
        Some(self.slots[self.len].slot)
    }

    fn slots(&self) -> &[Parked] {
        &self.slots[..self.len]
    }
}

impl<P: Platform, T: Tables<P>> Slots<P, T> {
    /// Resets the dirty slots of a CPU if they are enough for a batch. Does so without its lock.
    pub(super) fn reset_if_batch(&self, own: usize, lists: Lists<'_, P>, reset: &impl Reset) {
        if lists.dirty_slots() < self.settings.batch_slots {
            return;
        }
        let (mut batch, in_hand) = (Batch::new(), lists.take_in_hand());
        batch.fill(&lists, self.settings.batch_slots);
        drop(lists);
        self.reset_batch(own, &mut batch, reset);
        self.settle(own, &batch);
        drop(in_hand);
    }

    /// Resets all slots that wait for it, on all CPUs.
    pub fn reset_all(&self, reset: &impl Reset) {
        for cpu in 0..self.tables.cpus().len() {
            while let Some((mut batch, in_hand)) = self.dirty_batch(cpu) {
                self.reset_batch(cpu, &mut batch, reset);
                self.settle(cpu, &batch);
                drop(in_hand);
            }
        }
    }

    /// Resets all clean slots once more, by way of the list of this CPU, and all that wait for it:
    /// for a reset that does more than the one by which they became clean.
    pub fn reset_clean(&self, reset: &impl Reset) {
        let own = self.cpu();
        // No more than there are: others free slots meanwhile.
        let in_hand = self.lists(own).take_in_hand();
        for _ in 0..self.settings.slots {
            let Some(slot) = self.take_clean() else { break };
            self.lists(own).push_dirty(slot, None);
        }
        drop(in_hand);
        self.reset_all(reset);
    }

    /// A batch of the dirty slots of a CPU, if it has any, which is in hand as long as the second
    /// result lives.
    fn dirty_batch(&self, cpu: usize) -> Option<(Batch, InHand<'_, P>)> {
        let mut batch = Batch::new();
        let lists = self.lists(cpu);
        let in_hand = lists.take_in_hand();
        batch.fill(&lists, self.settings.batch_slots).then_some((batch, in_hand))
    }

    /// Resets the slots of a batch, which keeps those that are clean then.
    pub(super) fn reset_batch(&self, own: usize, batch: &mut Batch, reset: &impl Reset) {
        let filled = &mut batch.slots[..batch.len];
        filled.sort_unstable_by_key(|parked| parked.slot);
        let mut slots = [SlotIndex::new(0); BATCH_SLOTS_MAX];
        slots.iter_mut().zip(&*filled).for_each(|(slot, parked)| *slot = parked.slot);
        let mut lost = 0;
        let calls = reset.reset(&slots[..batch.len], &mut |slot| {
            lost += 1;
            let left = &mut batch.slots[..batch.len];
            if let Some(at) = left.iter().position(|parked| parked.slot == slot) {
                left.swap(at, left.len() - 1);
                batch.len -= 1;
            }
        });
        let counts = &self.tables.cpus()[own].counts;
        count::<P>(&counts.batches, 1);
        count::<P>(&counts.reset_slots, batch.len as u64);
        count::<P>(&counts.calls, calls);
        if lost > 0 {
            count::<P>(&counts.lost, lost);
        }
    }

    /// Parks clean slots for users of the same key, as far as this CPU may have warm ones, and
    /// frees the others. The caller still has the batch noted as in hand, which also covers what is
    /// evicted here.
    fn settle(&self, own: usize, batch: &Batch) {
        if self.warm_share(own) == 0 || batch.slots().iter().all(|parked| parked.key.is_none()) {
            return self.free_batch(batch);
        }
        let mut rest = Batch::new();
        let lists = self.lists(own);
        for parked in batch.slots() {
            let out = match parked.key {
                // In hand by the caller, too, so that is enough of it.
                Some(key) => {
                    self.park_in(&lists, own, parked.slot, key, false).map(|(slot, _)| slot)
                }
                None => Some(parked.slot),
            };
            if let Some(slot) = out {
                (rest.slots[rest.len].slot, rest.len) = (slot, rest.len + 1);
            }
        }
        drop(lists);
        batch.slots().iter().filter_map(|parked| parked.key).for_each(|key| {
            self.note_hint(own, key);
        });
        self.free_batch(&rest);
    }

    /// Frees clean slots.
    pub(super) fn free_batch(&self, batch: &Batch) {
        let mut frames = [Pfn::new(0); BATCH_SLOTS_MAX];
        let parked = batch.slots();
        frames.iter_mut().zip(parked).for_each(|(to, from)| *to = self.layout.frame(from.slot));
        let freed = self.tables.frames().free_bulk(&frames[..parked.len()], Order::ZERO);
        assert!(freed.is_ok(), "a slot was put back twice");
    }
}
