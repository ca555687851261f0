//! How much of each slot is accessible, and what of it may hold something.
#![expect(unsafe_code, reason = "resets the memory of slots that are not in use")]

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::SlotIndex;
use crate::reserved::Reserved;
use crate::slots::{BATCH_SLOTS_MAX, Reset};

/// The memory of all slots.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) reserved: Reserved,
    /// The distance between two slots: slot and guard.
    stride_bytes: usize,
    keep_resident_bytes: usize,
    extents: Box<[Extent]>,
}

/// What is known of a slot's memory, in bytes from its start, made of pages.
///
/// Only who has the slot reads and writes it: its user, or a call that resets it. The pool hands
/// slots over by locks, or by the allocator, which order these accesses. So all are relaxed.
#[derive(Debug, Default)]
struct Extent {
    /// So much is readable and writable.
    accessible: AtomicUsize,
    /// What is beyond reads as zero.
    used: AtomicUsize,
    /// So much reads as zero, whatever `used` says: it was cleared by writing.
    cleared: AtomicUsize,
}

impl Content {
    /// The memory of so many slots, none of which is accessible.
    ///
    /// # Errors
    ///
    /// That of `mmap(2)`.
    pub(crate) fn new(
        slots: u32,
        stride_bytes: usize,
        keep_resident_bytes: usize,
    ) -> io::Result<Self> {
        let reserved = Reserved::new(slots as usize * stride_bytes)?;
        let extents = (0..slots).map(|_| Extent::default()).collect();
        Ok(Content { reserved, stride_bytes, keep_resident_bytes, extents })
    }

    fn extent(&self, slot: SlotIndex) -> &Extent {
        &self.extents[slot.index()]
    }

    /// Where a part of a slot is.
    pub(crate) fn range(&self, slot: SlotIndex, part: Range<usize>) -> Range<usize> {
        let start = slot.index() * self.stride_bytes;
        start + part.start..start + part.end
    }

    /// How much of a slot is accessible.
    pub(crate) fn accessible(&self, slot: SlotIndex) -> usize {
        self.extent(slot).accessible.load(Relaxed)
    }

    /// The caller has taken the slot: from now on, all that is accessible may be used.
    pub(crate) fn begin_use(&self, slot: SlotIndex) {
        let extent = self.extent(slot);
        extent.cleared.store(0, Relaxed);
        extent.used.store(extent.used.load(Relaxed).max(self.accessible(slot)), Relaxed);
    }

    /// Changes how much is accessible, to whole pages. What is not accessible keeps its content.
    ///
    /// # Errors
    ///
    /// That of `mprotect(2)`; nothing is changed then.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and no reference into it.
    pub(crate) unsafe fn set_accessible(&self, slot: SlotIndex, bytes: usize) -> io::Result<()> {
        let (extent, now) = (self.extent(slot), self.accessible(slot));
        if bytes > now {
            self.reserved.open(self.range(slot, now..bytes))?;
            extent.used.store(extent.used.load(Relaxed).max(bytes), Relaxed);
        } else if bytes < now {
            // SAFETY: The range is the caller's, who has no reference.
            unsafe { self.reserved.close(self.range(slot, bytes..now)) }?;
        }
        extent.accessible.store(bytes, Relaxed);
        Ok(())
    }

    /// Clears what is to stay resident by writing. Returns whether all of the slot is zero then.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and no reference into it.
    pub(crate) unsafe fn clear_resident(&self, slot: SlotIndex) -> bool {
        let extent = self.extent(slot);
        let (accessible, used) = (self.accessible(slot), extent.used.load(Relaxed));
        let cleared = self.keep_resident_bytes.min(accessible).min(used);
        if cleared > 0 {
            // SAFETY: Accessible, and the caller's, who has no reference.
            unsafe { self.reserved.clear(self.range(slot, 0..cleared)) };
        }
        extent.cleared.store(cleared, Relaxed);
        if cleared == used {
            extent.used.store(0, Relaxed);
        }
        cleared == used
    }

    /// What is left to reset of a slot.
    fn rest(&self, slot: SlotIndex) -> Range<usize> {
        let extent = self.extent(slot);
        let (cleared, used) = (extent.cleared.load(Relaxed), extent.used.load(Relaxed));
        self.range(slot, cleared..used.max(cleared))
    }

    /// Resets a slot now.
    ///
    /// # Errors
    ///
    /// That of the operating system; the slot still has content then.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and no reference into it.
    pub(crate) unsafe fn reset_one(&self, slot: SlotIndex) -> io::Result<()> {
        let (extent, rest) = (self.extent(slot), self.rest(slot));
        // SAFETY: As the caller promises.
        if !rest.is_empty() && !unsafe { self.reserved.discard(rest.clone()) } {
            // SAFETY: As above.
            unsafe { self.reserved.replace(rest.clone()) }?;
            let left = rest.start - self.range(slot, 0..0).start;
            extent.accessible.store(left.min(self.accessible(slot)), Relaxed);
        }
        extent.used.store(0, Relaxed);
        Ok(())
    }

    /// The stretches to discard for these slots, sorted by number. Slots next to each other are one
    /// stretch, unless the second has pages that are to stay. Returns how many there are.
    fn stretches(&self, slots: &[SlotIndex], stretches: &mut [Stretch]) -> usize {
        let mut count = 0;
        for (at, &slot) in slots.iter().enumerate() {
            let rest = self.rest(slot);
            let starts = rest.start == self.range(slot, 0..0).start;
            let follows = at > 0 && slots[at - 1].get() + 1 == slot.get();
            if starts && follows {
                // Also what lies between: the rest of a slot that reads as zero, and a guard.
                let stretch: &mut Stretch = &mut stretches[count - 1];
                (stretch.bytes.end, stretch.slots.end) = (rest.end, at + 1);
            } else {
                stretches[count] = Stretch { bytes: rest, slots: at..at + 1 };
                count += 1;
            }
        }
        count
    }

    /// Discards a stretch. Returns how many system calls that took.
    fn discard(
        &self,
        slots: &[SlotIndex],
        bytes: &Range<usize>,
        lost: &mut dyn FnMut(SlotIndex),
    ) -> u64 {
        // SAFETY: No code has these slots but the call that resets them, which has no reference.
        // Between the slots of a stretch there is nothing that is used.
        if unsafe { self.reserved.discard(bytes.clone()) } {
            slots.iter().for_each(|&slot| self.extent(slot).used.store(0, Relaxed));
            return 1;
        }
        for &slot in slots {
            // SAFETY: As above.
            if unsafe { self.reset_one(slot) }.is_err() {
                lost(slot);
            }
        }
        1 + 2 * slots.len() as u64
    }
}

/// Part of the address space to be discarded.
#[derive(Clone, Debug, Default)]
struct Stretch {
    bytes: Range<usize>,
    /// Whose bytes these are, by position in the batch.
    slots: Range<usize>,
}

impl Reset for Content {
    fn reset(&self, slots: &[SlotIndex], lost: &mut dyn FnMut(SlotIndex)) -> u64 {
        let mut stretches: [Stretch; BATCH_SLOTS_MAX] = std::array::from_fn(|_| Stretch::default());
        let count = self.stretches(slots, &mut stretches);
        let stretches = &stretches[..count];
        let mut calls = 0;
        if count > 1 && self.reserved.is_batched() {
            let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
            let mut ranges = [empty; BATCH_SLOTS_MAX];
            let filled = ranges.iter_mut().zip(stretches);
            filled.for_each(|(to, from)| *to = self.reserved.range_of(&from.bytes));
            calls += 1;
            // SAFETY: As in `discard`.
            if unsafe { self.reserved.discard_all(&ranges[..count]) } {
                slots.iter().for_each(|&slot| self.extent(slot).used.store(0, Relaxed));
                return calls;
            }
        }
        for Stretch { bytes, slots: at } in stretches {
            calls += self.discard(&slots[at.clone()], bytes, lost);
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reserved::page_bytes;

    /// Slots of eight pages with a guard of one, of which the first three pages were written to.
    fn used(slots: &[u32], keep_resident_pages: usize) -> Content {
        let page = page_bytes();
        let content = Content::new(10, 9 * page, keep_resident_pages * page).unwrap();
        for slot in slots.iter().copied().map(SlotIndex::new) {
            content.begin_use(slot);
            // SAFETY: No other code has a slot.
            unsafe { content.set_accessible(slot, 3 * page) }.unwrap();
            let all = content.range(slot, 0..3 * page);
            // SAFETY: As above.
            unsafe { content.reserved.bytes_mut(all) }.fill(1);
        }
        content
    }

    fn indexes(slots: &[u32]) -> Vec<SlotIndex> {
        slots.iter().copied().map(SlotIndex::new).collect()
    }

    fn is_zero(content: &Content, slot: u32) -> bool {
        let slot = SlotIndex::new(slot);
        content.reserved.open(content.range(slot, 0..3 * page_bytes())).unwrap();
        // SAFETY: Accessible, and nothing writes to it.
        let bytes = unsafe { content.reserved.bytes(content.range(slot, 0..3 * page_bytes())) };
        bytes.iter().all(|byte| *byte == 0)
    }

    #[test]
    fn neighbours_are_one_stretch_unless_pages_are_to_stay() {
        let page = page_bytes();
        let slots = [0, 1, 2, 5, 7, 8];
        let mut found: [Stretch; BATCH_SLOTS_MAX] = std::array::from_fn(|_| Stretch::default());
        let content = used(&slots, 0);
        assert_eq!(content.stretches(&indexes(&slots), &mut found), 3);
        assert_eq!(found[0].bytes, 0..21 * page);
        assert_eq!((&found[1].bytes, &found[1].slots), (&(45 * page..48 * page), &(3..4)));
        assert_eq!((&found[2].bytes, &found[2].slots), (&(63 * page..75 * page), &(4..6)));

        let content = used(&slots, 1);
        for slot in indexes(&slots) {
            // SAFETY: It is not in use.
            assert!(!unsafe { content.clear_resident(slot) });
        }
        assert_eq!(content.stretches(&indexes(&slots), &mut found), 6);
        assert_eq!(found[1].bytes, 10 * page..12 * page);
    }

    #[test]
    fn a_batch_is_one_system_call_where_the_kernel_takes_it() {
        let slots = [0, 1, 3, 9];
        let content = used(&slots, 0);
        let calls = content.reset(&indexes(&slots), &mut |slot| panic!("{slot} is lost"));
        assert_eq!(calls, if content.reserved.is_batched() { 1 } else { 4 });
        assert!(slots.iter().all(|&slot| is_zero(&content, slot)));
    }

    #[test]
    fn locked_memory_is_mapped_anew() {
        let (slots, page) = ([0, 1, 3], page_bytes());
        for batched in [true, false] {
            let content = used(&slots, 0);
            if !batched {
                content.reserved.refuse_batches();
            }
            let start = content.reserved.at(content.range(SlotIndex::new(1), 0..0).start);
            // SAFETY: Locks pages of our own.
            if unsafe { rustix::mm::mlock(start.as_ptr().cast(), page) }.is_err() {
                return; // Not permitted here (`ulimit -l`).
            }
            content.reset(&indexes(&slots), &mut |slot| panic!("{slot} is lost"));
            let accessible = slots.map(|slot| content.accessible(SlotIndex::new(slot)));
            assert_eq!(accessible, [3 * page, 0, 3 * page]);
            assert!(slots.iter().all(|&slot| is_zero(&content, slot)));
        }
    }
}
