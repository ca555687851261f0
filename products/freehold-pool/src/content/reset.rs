//! Resets of many slots at a time.
#![expect(unsafe_code, reason = "resets the memory of slots that are not in use")]

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use freehold_host::{Stretch, discard_stretches};

use super::Content;
use crate::SlotIndex;
use crate::slots::{BATCH_SLOTS_MAX, Reset};

/// Part of the address space to be discarded.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    pub(super) bytes: Range<usize>,
    /// Whose bytes these are, by position in the batch.
    pub(super) slots: Range<usize>,
}

impl Content {
    /// The stretches to discard for these slots, sorted by number. Slots next to each other are one
    /// stretch, unless the second has pages that are to stay. Returns how many there are.
    pub(super) fn dirty(&self, slots: &[SlotIndex], stretches: &mut [Dirty]) -> usize {
        let mut count = 0;
        for (at, &slot) in slots.iter().enumerate() {
            let (starts, rest) = (self.rest(slot).start == 0, self.range(slot, self.rest(slot)));
            let follows = at > 0 && slots[at - 1].get() + 1 == slot.get();
            if starts && follows {
                // Also what lies between: the rest of a slot that reads as zero, and a guard.
                let stretch: &mut Dirty = &mut stretches[count - 1];
                (stretch.bytes.end, stretch.slots.end) = (rest.end, at + 1);
            } else {
                stretches[count] = Dirty { bytes: rest, slots: at..at + 1 };
                count += 1;
            }
        }
        count
    }

    /// Resets slots as [`Reset`] says. Those that are accessible and for which `closes` holds,
    /// asked one after the other, become inaccessible.
    fn reset_batch(
        &self,
        slots: &[SlotIndex],
        lost: &mut dyn FnMut(SlotIndex),
        closes: impl Fn() -> bool,
    ) -> u64 {
        let (mut left, mut left_count, mut more_calls) =
            ([SlotIndex::new(0); BATCH_SLOTS_MAX], 0, 0);
        for &slot in slots {
            if self.accessible(slot) > 0 && closes() {
                more_calls += 1;
                // SAFETY: No code has these slots but the call that resets them, which has no
                // reference.
                let _left_to_discard = unsafe { self.close_one(slot) };
            }
            if self.is_lost(slot) {
                lost(slot);
            } else if !self.rest(slot).is_empty() {
                (left[left_count], left_count) = (slot, left_count + 1);
            }
        }
        let slots = &left[..left_count];
        let mut ranges: [Dirty; BATCH_SLOTS_MAX] = std::array::from_fn(|_| Dirty::default());
        let count = self.dirty(slots, &mut ranges);
        let mut stretches = [Stretch::EMPTY; BATCH_SLOTS_MAX];
        let filled = stretches.iter_mut().zip(&ranges[..count]);
        filled.for_each(|(to, from)| *to = self.reserved.stretch(&from.bytes));
        let mut refused = [false; BATCH_SLOTS_MAX];
        // SAFETY: As above. Between the slots of a stretch there is nothing that is used.
        let calls = unsafe {
            let refused = |at: usize, _error| refused[at] = true;
            discard_stretches(&stretches[..count], !self.single_calls, refused)
        };
        for (Dirty { slots: at, .. }, refused) in ranges[..count].iter().zip(refused) {
            for &slot in &slots[at.clone()] {
                if !refused {
                    self.extent(slot).used.store(0, Relaxed);
                    continue;
                }
                more_calls += 2;
                // SAFETY: As above.
                if unsafe { self.reset_one(slot) }.is_err() {
                    lost(slot);
                }
            }
        }
        calls + more_calls
    }
}

impl Reset for Content {
    fn reset(&self, slots: &[SlotIndex], lost: &mut dyn FnMut(SlotIndex)) -> u64 {
        self.reset_batch(slots, lost, || self.is_crowded())
    }
}

/// A reset after which nothing of a slot is accessible.
pub(crate) struct Closing<'a>(pub(crate) &'a Content);

impl Reset for Closing<'_> {
    fn reset(&self, slots: &[SlotIndex], lost: &mut dyn FnMut(SlotIndex)) -> u64 {
        self.0.reset_batch(slots, lost, || true)
    }
}
