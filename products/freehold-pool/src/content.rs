//! How much of each slot is accessible, what of it may hold something, what a reset brings back.
#![expect(unsafe_code, reason = "resets the memory of slots that are not in use")]

use core::cell::UnsafeCell;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::reserved::{Left, NotMapped, Reserved};
use crate::{Image, PoolStats, SlotIndex};

mod reset;

pub(crate) use reset::Closing;

/// The memory of all slots.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) reserved: Reserved,
    /// The distance between two slots: slot and guard.
    stride_bytes: usize,
    keep_resident_bytes: usize,
    /// Whether each stretch of a batch has a system call of its own.
    single_calls: bool,
    extents: Box<[Extent]>,
    /// Of how many slots a part is accessible, in use or not. Changes with a system call.
    accessible_slots: AtomicUsize,
    accessible_slots_max: usize,
    /// Statistics of images. Words of all CPUs: each change makes system calls, which take longer.
    image_changes: AtomicU64,
    image_calls: AtomicU64,
}

/// What is known of a slot's memory, in bytes from its start, made of pages.
///
/// Only who has the slot reads and writes it: its user, or a call that resets it. The pool hands
/// slots over by locks, or by the allocator, which order these accesses. So all are relaxed.
#[derive(Debug, Default)]
struct Extent {
    /// So much is readable and writable.
    accessible: AtomicUsize,
    /// What is beyond reads as after a reset.
    used: AtomicUsize,
    /// So much reads as after a reset, whatever `used` says: it was restored by writing.
    cleared: AtomicUsize,
    /// What is mapped in the slot, and so comes back by a reset.
    image: UnsafeCell<Option<Image>>,
    /// Whether a part of it may be others' memory: then it is used no more.
    is_lost: AtomicBool,
}

// SAFETY: The image is reached by unsafe functions alone, whose callers have the slot, one after
// the other, on any threads: an `Image` is `Send`.
unsafe impl Sync for Extent {}

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
        accessible_slots_max: usize,
        single_calls: bool,
    ) -> io::Result<Self> {
        let reserved = Reserved::new(slots as usize * stride_bytes)?;
        let extents = (0..slots).map(|_| Extent::default()).collect();
        let (image_changes, image_calls) = Default::default();
        Ok(Content {
            reserved,
            stride_bytes,
            keep_resident_bytes,
            single_calls,
            extents,
            accessible_slots: AtomicUsize::new(0),
            accessible_slots_max,
            image_changes,
            image_calls,
        })
    }

    /// Adds what is counted here.
    pub(crate) fn add_to(&self, stats: &mut PoolStats) {
        // Relaxed: a statistic, by which nothing is decided.
        stats.image_changes += self.image_changes.load(Relaxed);
        stats.image_calls += self.image_calls.load(Relaxed);
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

    /// Notes how much of a slot is accessible.
    fn note_accessible(&self, slot: SlotIndex, bytes: usize) {
        let before = self.extent(slot).accessible.swap(bytes, Relaxed);
        match (before, bytes) {
            (0, 1..) => drop(self.accessible_slots.fetch_add(1, Relaxed)),
            (1.., 0) => drop(self.accessible_slots.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }

    /// Whether so many slots are accessible that one that comes back must not stay so.
    pub(crate) fn is_crowded(&self) -> bool {
        self.accessible_slots.load(Relaxed) > self.accessible_slots_max
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
    /// That of `mprotect(2)`. As much is accessible then as before, or as was asked for if that is
    /// less; of what lies between, some pages may be, too.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and no reference into it.
    pub(crate) unsafe fn set_accessible(&self, slot: SlotIndex, bytes: usize) -> io::Result<()> {
        let (extent, now) = (self.extent(slot), self.accessible(slot));
        if self.is_lost(slot) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        // Over several mappings, as of an image and what follows it, a call may be refused half
        // way.
        if bytes > now {
            extent.used.store(extent.used.load(Relaxed).max(bytes), Relaxed);
            self.reserved.open(self.range(slot, now..bytes))?;
        } else if bytes < now {
            let range = self.range(slot, bytes..now);
            // SAFETY: The range is the caller's, who has no reference.
            let closed = unsafe { self.reserved.close(range.clone()) };
            if closed.is_err() && self.reserved.open(range).is_ok() {
                return closed;
            }
            self.note_accessible(slot, bytes);
            return closed;
        }
        self.note_accessible(slot, bytes);
        Ok(())
    }

    /// Whether the slot is used no more.
    pub(crate) fn is_lost(&self, slot: SlotIndex) -> bool {
        self.extent(slot).is_lost.load(Relaxed)
    }

    /// Notes what a mapping has left that was refused over a part of a slot; returns why.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and no reference into it or to its image.
    #[cold]
    pub(crate) unsafe fn note_refusal(
        &self,
        slot: SlotIndex,
        start: usize,
        refused: NotMapped,
    ) -> io::Error {
        let accessible = match refused.left {
            Left::Same => return refused.source,
            Left::Empty => start.min(self.accessible(slot)),
            Left::Lost => 0,
        };
        let extent = self.extent(slot);
        self.note_accessible(slot, accessible);
        extent.is_lost.store(refused.left == Left::Lost, Relaxed);
        // SAFETY: As the caller promises.
        unsafe { self.note_image(slot, None) };
        refused.source
    }

    /// The image that is mapped in a slot.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and changes its image only after the last use of this reference.
    pub(crate) unsafe fn image(&self, slot: SlotIndex) -> Option<&Image> {
        // SAFETY: No other code has the slot, and the caller does not change the image meanwhile.
        unsafe { (*self.extent(slot).image.get()).as_ref() }
    }

    /// Whether a slot has this image, or none.
    ///
    /// # Safety
    ///
    /// The caller has the slot.
    pub(crate) unsafe fn has(&self, slot: SlotIndex, image: Option<&Image>) -> bool {
        // SAFETY: As the caller promises; the reference ends here.
        match (unsafe { self.image(slot) }, image) {
            (None, None) => true,
            (Some(old), Some(new)) => old.is(new),
            _ => false,
        }
    }

    /// Whether a slot has this image, all of it accessible, or none.
    ///
    /// # Safety
    ///
    /// The caller has the slot.
    pub(crate) unsafe fn fits(&self, slot: SlotIndex, image: Option<&Image>) -> bool {
        let is_open = image.is_none_or(|image| image.range().end <= self.accessible(slot));
        // SAFETY: As the caller promises.
        is_open && unsafe { self.has(slot, image) }
    }

    /// Notes which image is mapped in a slot; returns the one that was.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and no reference to its image.
    unsafe fn note_image(&self, slot: SlotIndex, image: Option<Image>) -> Option<Image> {
        // SAFETY: No other code has the slot, and there is no reference.
        unsafe { self.extent(slot).image.get().replace(image) }
    }

    /// Has a slot, which reads as after a reset, read as this image from now on, or as zero. All of
    /// the image is accessible then.
    ///
    /// # Errors
    ///
    /// That of the operating system. The slot has its last image then, or none; `image` says so. It
    /// may be lost.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and no reference into it or to its image.
    pub(crate) unsafe fn set_image(
        &self,
        slot: SlotIndex,
        image: Option<&Image>,
    ) -> io::Result<()> {
        // Relaxed: statistics, as in `add_to`.
        self.image_changes.fetch_add(1, Relaxed);
        // SAFETY: As the caller promises; the reference ends before the image changes.
        let old = unsafe { self.image(slot) }.map(Image::range);
        let covered = |old: &Range<usize>| {
            image.map(Image::range).is_some_and(|new| new.start <= old.start && old.end <= new.end)
        };
        if let Some(old) = old.filter(|old| !covered(old)) {
            self.image_calls.fetch_add(1, Relaxed);
            let open = old.end <= self.accessible(slot);
            // SAFETY: As the caller promises.
            let replaced = unsafe { self.reserved.replace(self.range(slot, old.clone()), open) };
            // SAFETY: As above.
            replaced.map_err(|refused| unsafe { self.note_refusal(slot, old.start, refused) })?;
            if !open {
                let left = self.accessible(slot).min(old.start);
                self.note_accessible(slot, left);
            }
            // SAFETY: As above.
            unsafe { self.note_image(slot, None) };
        }
        let Some(image) = image else { return Ok(()) };
        let new = image.range();
        if self.accessible(slot) < new.start {
            self.image_calls.fetch_add(1, Relaxed);
            // SAFETY: As above.
            unsafe { self.set_accessible(slot, new.start) }?;
        }
        self.image_calls.fetch_add(1, Relaxed);
        // SAFETY: As above.
        let mapped = unsafe { self.reserved.map_image(self.range(slot, new.clone()), image) };
        // SAFETY: As above.
        mapped.map_err(|refused| unsafe { self.note_refusal(slot, new.start, refused) })?;
        let accessible = self.accessible(slot).max(new.end);
        self.note_accessible(slot, accessible);
        // SAFETY: As above.
        unsafe { self.note_image(slot, Some(image.clone())) };
        Ok(())
    }

    /// Restores what is to stay resident by writing. Returns whether all of the slot reads as after
    /// a reset then.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and no reference into it.
    pub(crate) unsafe fn restore_resident(&self, slot: SlotIndex) -> bool {
        let extent = self.extent(slot);
        let (accessible, used) = (self.accessible(slot), extent.used.load(Relaxed));
        let restored = self.keep_resident_bytes.min(accessible).min(used);
        if restored > 0 {
            // SAFETY: Accessible, and the caller's, who has no reference.
            unsafe { self.restore(slot, restored) };
        }
        extent.cleared.store(restored, Relaxed);
        if restored == used {
            extent.used.store(0, Relaxed);
        }
        restored == used
    }

    /// Restores so many bytes at the beginning of a slot by writing.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and no reference into it; so much of it is accessible.
    unsafe fn restore(&self, slot: SlotIndex, bytes: usize) {
        // SAFETY: As the caller promises; the reference ends before the image changes.
        let image = unsafe { self.image(slot) };
        let Range { start, end } = image.map_or(bytes..bytes, Image::range);
        let (start, end) = (start.min(bytes), end.min(bytes));
        // SAFETY: As the caller promises.
        unsafe { self.reserved.clear(self.range(slot, 0..start)) };
        if let Some(image) = image {
            // SAFETY: As above.
            unsafe { self.reserved.copy(self.range(slot, start..end), image.bytes()) };
        }
        // SAFETY: As above.
        unsafe { self.reserved.clear(self.range(slot, end..bytes)) };
    }

    /// What is left to reset of a slot.
    fn rest(&self, slot: SlotIndex) -> Range<usize> {
        let extent = self.extent(slot);
        let (cleared, used) = (extent.cleared.load(Relaxed), extent.used.load(Relaxed));
        cleared..used.max(cleared)
    }

    /// Resets a slot now. Returns the image that had to be taken out of it, if there was one: where
    /// memory is locked, the slot is mapped anew.
    ///
    /// # Errors
    ///
    /// That of the operating system; the slot still has content then, or is lost.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and no reference into it or to its image.
    pub(crate) unsafe fn reset_one(&self, slot: SlotIndex) -> io::Result<Option<Image>> {
        if self.is_lost(slot) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let rest = self.rest(slot);
        // SAFETY: As the caller promises.
        if rest.is_empty() || unsafe { self.reserved.discard(self.range(slot, rest.clone())) } {
            self.extent(slot).used.store(0, Relaxed);
            return Ok(None);
        }
        // SAFETY: As above; the reference ends before the image changes.
        let image = unsafe { self.image(slot) }.map_or(rest.clone(), Image::range);
        let anew = rest.start.min(image.start)..rest.end.max(image.end);
        // SAFETY: As above.
        let mapped = unsafe { self.reserved.replace(self.range(slot, anew.clone()), false) };
        // SAFETY: As above.
        unsafe { self.note_anew(slot, anew.start, mapped) }
    }

    /// Notes that a slot was mapped anew from some place on, with all that was to be reset and all
    /// of its image, which is returned; or that this was refused.
    ///
    /// # Safety
    ///
    /// As for [`Content::reset_one`].
    unsafe fn note_anew(
        &self,
        slot: SlotIndex,
        start: usize,
        mapped: Result<(), NotMapped>,
    ) -> io::Result<Option<Image>> {
        // SAFETY: As the caller promises.
        mapped.map_err(|refused| unsafe { self.note_refusal(slot, start, refused) })?;
        self.note_accessible(slot, start.min(self.accessible(slot)));
        self.extent(slot).used.store(0, Relaxed);
        // SAFETY: As above.
        Ok(unsafe { self.note_image(slot, None) })
    }

    /// Resets a slot and makes it inaccessible, so that it takes no mapping of its own: protecting
    /// it would leave one, since the kernel does not join memory that was touched to what is beside
    /// it.
    ///
    /// # Errors
    ///
    /// As for [`Content::reset_one`].
    ///
    /// # Safety
    ///
    /// As for [`Content::reset_one`].
    unsafe fn close_one(&self, slot: SlotIndex) -> io::Result<()> {
        // SAFETY: As the caller promises; the reference ends before the image changes.
        let image_end = unsafe { self.image(slot) }.map_or(0, |image| image.range().end);
        let end = self.accessible(slot).max(self.rest(slot).end).max(image_end);
        self.extent(slot).cleared.store(0, Relaxed);
        // SAFETY: As above.
        let mapped = unsafe { self.reserved.close_anew(self.range(slot, 0..end)) };
        // SAFETY: As above.
        unsafe { self.note_anew(slot, 0, mapped) }.map(drop)
    }
}

#[cfg(test)]
mod tests;
