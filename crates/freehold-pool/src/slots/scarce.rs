//! The last free slots, wherever they are.

use freehold::platform::Platform;

use super::batch::Batch;
use super::{Exhausted, Reset, SlotIndex, Slots, Tables, Taken, count};

impl<P: Platform, T: Tables<P>> Slots<P, T> {
    /// Takes a slot when none is clean and free.
    ///
    /// It fails only if at some moment no slot was anywhere: the lists of all CPUs were empty and
    /// nobody had a slot of them in hand, both before and after the allocator was asked, and none
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
            let before = self.changes_if_all_empty();
            if let Some(slot) = self.take_clean() {
                return clean(slot);
            }
            if before.is_some() && before == self.changes_if_all_empty() {
                return Err(Exhausted);
            }
            // Another call has slots in hand, and will free them.
            self.platform.relax();
        }
    }

    /// Resets the dirty slots of a CPU and takes one of them, or takes its oldest warm slot: of this
    /// CPU first, so that CPUs that are short of slots mostly leave each other alone. What is dirty
    /// elsewhere comes before what is warm there.
    fn gather(&self, own: usize, reset: &impl Reset) -> Option<SlotIndex> {
        self.gather_dirty(own, own, reset)
            .or_else(|| self.gather_warm(own, own, reset))
            .or_else(|| self.others(own).find_map(|cpu| self.gather_dirty(own, cpu, reset)))
            .or_else(|| self.others(own).find_map(|cpu| self.gather_warm(own, cpu, reset)))
    }

    fn gather_dirty(&self, own: usize, cpu: usize, reset: &impl Reset) -> Option<SlotIndex> {
        let (mut batch, in_hand) = self.dirty_batch(cpu)?;
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
