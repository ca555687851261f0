//! The last free slots, wherever they are.

use freehold::platform::Platform;

use super::batch::Batch;
use super::{Exhausted, Reset, SlotIndex, Slots, Tables, Taken, count};

/// How many CPUs a call that is short of slots looks at for the dirty slots of a batch.
const NEAR_CPUS: usize = 8;

/// What a look at all places found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Clean(SlotIndex),
    /// There was a moment at which no slot was anywhere.
    Nothing,
    /// A slot may have gone from a place that was not looked at yet to one that was.
    Changes,
}

impl<P: Platform, T: Tables<P>> Slots<P, T> {
    /// Takes a slot when none is clean and free.
    ///
    /// It fails only if at some moment no slot was anywhere: the lists of all CPUs were empty and
    /// no call had a slot of them in hand, both before and after the allocator was asked, and none
    /// has changed in between. At the moment at which the allocator had no frame, that held too.
    #[cold]
    #[inline(never)]
    pub(super) fn take_scarce(&self, own: usize, reset: &impl Reset) -> Result<Taken, Exhausted> {
        count::<P>(&self.tables.cpus()[own].counts.scarce, 1);
        let clean = |slot| Ok(Taken { slot, warm: false, kept: false });
        loop {
            if let Some(slot) = self.gather(own, reset) {
                return clean(slot);
            }
            match self.look_everywhere(|| self.take_clean()) {
                Found::Clean(slot) => return clean(slot),
                Found::Nothing => return Err(Exhausted),
                // Another call has slots in hand, and will free them.
                Found::Changes => self.platform.relax(),
            }
        }
    }

    /// Asks the allocator between two looks at the lists.
    fn look_everywhere(&self, ask: impl FnOnce() -> Option<SlotIndex>) -> Found {
        let before = self.changes_if_all_empty();
        match ask() {
            Some(slot) => Found::Clean(slot),
            // Both looks may find the lists empty although a slot went by way of one in between:
            // the count tells.
            None if before.is_some() && before == self.changes_if_all_empty() => Found::Nothing,
            None => Found::Changes,
        }
    }

    /// Takes a slot of the lists: a dirty one of this CPU or of those near it, the oldest warm one
    /// of this CPU, a dirty one of any CPU, or the oldest warm one of any. So CPUs that are short
    /// of slots mostly leave each other alone.
    fn gather(&self, own: usize, reset: &impl Reset) -> Option<SlotIndex> {
        let all = || std::iter::once(own).chain(self.others(own));
        self.gather_dirty(own, all().take(NEAR_CPUS), reset)
            .or_else(|| self.gather_warm(own, own, reset))
            .or_else(|| self.gather_dirty(own, all().skip(NEAR_CPUS), reset))
            .or_else(|| self.others(own).find_map(|cpu| self.gather_warm(own, cpu, reset)))
    }

    /// Resets a batch of dirty slots of these CPUs and takes one of them. Having found some, it
    /// looks at few more CPUs for the rest of the batch.
    fn gather_dirty(
        &self,
        own: usize,
        cpus: impl Iterator<Item = usize>,
        reset: &impl Reset,
    ) -> Option<SlotIndex> {
        let mut batch = Batch::new();
        let (mut in_hand, mut givers) = ([const { None }; NEAR_CPUS], 0);
        for (nth, cpu) in cpus.enumerate() {
            let lists = self.lists(cpu);
            let noted = lists.take_in_hand();
            if batch.fill(&lists, self.settings.batch_slots) {
                (in_hand[givers], givers) = (Some(noted), givers + 1);
            }
            let is_full = batch.len() == self.settings.batch_slots;
            if is_full || givers > 0 && nth + 1 >= NEAR_CPUS {
                break;
            }
        }
        if batch.len() == 0 {
            return None;
        }
        self.reset_batch(own, &mut batch, reset);
        let slot = batch.pop();
        // Not parked: others may be short of slots, too.
        self.free_batch(&batch);
        drop(in_hand);
        slot
    }

    fn gather_warm(&self, own: usize, cpu: usize, reset: &impl Reset) -> Option<SlotIndex> {
        let lists = self.lists(cpu);
        let oldest = lists.take_oldest()?;
        drop(lists);
        if !oldest.kept {
            return Some(oldest.slot);
        }
        let mut batch = Batch::of(oldest);
        self.reset_batch(own, &mut batch, reset);
        batch.pop()
    }

    /// How often the lists of all CPUs have changed; `None` if they have a slot, or had one that
    /// some call has in hand now.
    fn changes_if_all_empty(&self) -> Option<u64> {
        let cpus = 0..self.tables.cpus().len();
        cpus.map(|cpu| self.lists(cpu).changes_if_empty()).sum()
    }

    /// The other CPUs, beginning with the next.
    fn others(&self, own: usize) -> impl Iterator<Item = usize> {
        let cpus = self.tables.cpus().len();
        (own + 1..cpus).chain(0..own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::tests::{Nothing, pool};
    use crate::slots::{Left, ModuleKey, SlotsSettings};

    /// Of two slots one is in use all the time, so one is free all the time. But when the allocator
    /// is asked, that one is in a list, and when the lists are looked at, before and after, in the
    /// allocator.
    #[test]
    fn a_slot_that_goes_by_way_of_a_list_between_two_looks_is_not_missed() {
        let settings = SlotsSettings { slots: 2, batch_slots: 1, warm_slots_max: 2 };
        let pool = pool(settings, 1);
        let key = Some(ModuleKey::new(1));
        let take = |key| pool.take(key, &Nothing).unwrap();
        let first = take(key).slot;
        let found = pool.look_everywhere(|| {
            pool.put(first, key, Left::Clean, &Nothing);
            let second = take(None).slot;
            assert_ne!(second, first, "the warm one stays in its list");
            let asked = pool.take_clean();
            pool.put(second, None, Left::Clean, &Nothing);
            assert_eq!(take(key).slot, first);
            asked
        });
        assert_eq!(found, Found::Changes);
        // Both in use, and nothing changes.
        take(None);
        assert_eq!(pool.look_everywhere(|| pool.take_clean()), Found::Nothing);
    }
}
