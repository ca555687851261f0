//! The pool, and the slots that are taken from it.
#![expect(unsafe_code, reason = "lends out the memory of slots")]

use core::mem;
use core::ptr::NonNull;
use std::ops::Deref;
use std::sync::Arc;
use std::{fmt, io};

use freehold_host::Host;

use crate::content::{Closing, Content};
use crate::home::Home;
use crate::slots::{Left, Slots, Taken};
use crate::{Image, ModuleKey, PoolBuilder, PoolError, PoolStats, SlotIndex};

/// A pool of equal slots of memory. All calls take `&self`, on any thread.
pub struct Pool {
    pub(crate) slots: Slots<Host, Home>,
    pub(crate) content: Content,
    pub(crate) slot_bytes: usize,
    pub(crate) stride_bytes: usize,
}

impl Pool {
    /// A builder with the default settings.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::new()
    }

    /// Takes a slot for a user with this key, or with none. It goes back to the pool when it is
    /// dropped.
    ///
    /// A warm slot of the same key is preferred: the newest on this CPU, or one on another CPU. Its
    /// content is zero, unless its last user [kept](Slot::keep) it; how much is accessible is what
    /// that user left, or nothing ([`PoolBuilder::max_accessible_slots`]). Any other slot is zero,
    /// and how much of it is accessible may be anything.
    ///
    /// Cost: no system call, unless the slot had an [`Image`] last, which takes one, or slots are
    /// scarce: see [`PoolStats::scarce`].
    ///
    /// # Errors
    ///
    /// [`PoolError::Exhausted`]: at some moment of the call all slots were in use, or on their way
    /// back in a call that had not returned.
    pub fn take(&self, key: impl Into<Option<ModuleKey>>) -> Result<Slot<&Pool>, PoolError> {
        Slot::take(self, key.into(), None)
    }

    /// As [`Pool::take`], for a slot that contains an image at first, and again after each reset.
    /// Beyond the image it is zero. At least the image is accessible, unless the slot is kept.
    ///
    /// A slot that had this image last, as warm ones of a module do, needs no system call. Any
    /// other is mapped anew, which takes up to three. A [kept](Slot::keep) slot of the same key
    /// comes as it is if it has this image; otherwise it is reset first.
    ///
    /// # Errors
    ///
    /// As for [`Pool::take`]; [`PoolError::TooLarge`] if a slot cannot have the image;
    /// [`PoolError::Image`], [`PoolError::Reset`]: the slot has gone back, or is
    /// [lost](PoolStats::lost_slots).
    pub fn take_with(
        &self,
        key: impl Into<Option<ModuleKey>>,
        image: &Image,
    ) -> Result<Slot<&Pool>, PoolError> {
        Slot::take(self, key.into(), Some(image))
    }

    /// As [`Pool::take`], for a slot that outlives a borrow of the pool.
    ///
    /// Cost: the count of the `Arc` changes twice, which threads on many CPUs do one at a time.
    ///
    /// # Errors
    ///
    /// As for [`Pool::take`].
    pub fn take_owned(
        self: &Arc<Self>,
        key: impl Into<Option<ModuleKey>>,
    ) -> Result<Slot<Arc<Pool>>, PoolError> {
        Slot::take(Arc::clone(self), key.into(), None)
    }

    /// As [`Pool::take_with`], for a slot that outlives a borrow of the pool.
    ///
    /// # Errors
    ///
    /// As for [`Pool::take_with`].
    pub fn take_owned_with(
        self: &Arc<Self>,
        key: impl Into<Option<ModuleKey>>,
        image: &Image,
    ) -> Result<Slot<Arc<Pool>>, PoolError> {
        Slot::take(Arc::clone(self), key.into(), Some(image))
    }

    /// Resets all slots that wait for it, and returns when they are reset. For quiet times: calls
    /// do so by themselves.
    pub fn reset_all(&self) {
        self.slots.reset_all(&self.content);
    }

    /// After a call that the kernel has refused: if that was for memory or mappings, makes slots
    /// inaccessible that wait, but for warm ones, and says that the call is worth another try.
    #[cold]
    fn frees_mappings(&self, error: &io::Error) -> bool {
        let is_full = error.kind() == io::ErrorKind::OutOfMemory;
        if is_full {
            self.slots.reset_clean(&Closing(&self.content));
        }
        is_full
    }

    /// What has happened so far. Takes the lock of each CPU's lists, one after the other.
    pub fn stats(&self) -> PoolStats {
        let mut stats = self.slots.stats();
        self.content.add_to(&mut stats);
        stats
    }

    /// How many slots are free, warm or dirty. Exact while no call is under way. Drains the caches
    /// of all CPUs, so it is for tests and reports.
    pub fn unused_slots(&self) -> u64 {
        self.slots.unused_slots()
    }

    /// The most bytes that can be accessible in a slot.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The distance from a slot to the next: its bytes and its guard.
    pub fn stride_bytes(&self) -> usize {
        self.stride_bytes
    }

    /// Where slot 0 begins. Whether an address belongs to a slot, and to which, follows from it and
    /// [`Pool::stride_bytes`].
    pub fn base(&self) -> NonNull<u8> {
        self.content.reserved.at(0)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("slot_bytes", &self.slot_bytes)
            .field("stride_bytes", &self.stride_bytes)
            .field("slots", &self.slots)
            .finish()
    }
}

/// What a slot has of its pool: `&Pool` or `Arc<Pool>`.
pub trait PoolRef: Deref<Target = Pool> + private::Sealed {}

impl PoolRef for &Pool {}
impl PoolRef for Arc<Pool> {}

mod private {
    /// Restricts [`super::PoolRef`] to references that are always to the same pool.
    pub trait Sealed {}
    impl Sealed for &super::Pool {}
    impl Sealed for std::sync::Arc<super::Pool> {}
}

/// A slot that was taken. It belongs to its holder alone, until it is dropped or
/// [kept](Slot::keep).
///
/// Dropped, it is reset before its next use: see [`Pool`]. Forgotten
/// ([`mem::forget`]), it stays in use.
pub struct Slot<R: PoolRef> {
    pool: R,
    key: Option<ModuleKey>,
    taken: Taken,
    /// Whether it goes back as it is.
    keeps: bool,
}

impl<R: PoolRef> Slot<R> {
    fn take(pool: R, key: Option<ModuleKey>, image: Option<&Image>) -> Result<Self, PoolError> {
        let (bytes, slot_bytes) = (image.map_or(0, |image| image.range().end), pool.slot_bytes);
        if bytes > slot_bytes {
            return Err(PoolError::TooLarge { bytes, slot_bytes });
        }
        let taken = pool.slots.take(key, &pool.content);
        let slots = pool.slots.settings().slots;
        let taken = taken.map_err(|_exhausted| PoolError::Exhausted { slots })?;
        // SAFETY: The slot is ours.
        let fits = unsafe { pool.content.fits(taken.slot, image) };
        let taken = if fits { taken } else { Slot::fit(&pool, key, taken, image)? };
        pool.content.begin_use(taken.slot);
        Ok(Slot { pool, key, taken, keeps: false })
    }

    /// The number of the slot.
    pub fn index(&self) -> SlotIndex {
        self.taken.slot
    }

    /// The key that the slot was taken for.
    pub fn key(&self) -> Option<ModuleKey> {
        self.key
    }

    /// Whether the last user had the same key, as it was when the slot was taken.
    pub fn is_warm(&self) -> bool {
        self.taken.warm
    }

    /// Whether the slot has the content with which the last user, who had the same key,
    /// [kept](Slot::keep) it. Otherwise it was zero when it was taken, or its image.
    pub fn is_kept(&self) -> bool {
        self.taken.kept
    }

    /// Where the slot begins. The first [`Slot::accessible_bytes`] from there may be read and
    /// written as long as this value lives; the rest faults.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.pool.content.reserved.at(self.pool.content.range(self.index(), 0..0).start)
    }

    /// How many bytes are accessible.
    pub fn accessible_bytes(&self) -> usize {
        self.pool.content.accessible(self.index())
    }

    /// Changes how much is accessible, rounded up to pages. One system call, or none if it is that
    /// already. Bytes that were never accessible to this holder are zero, or the image. What
    /// becomes inaccessible keeps its content, which is there again if it becomes accessible later.
    ///
    /// # Errors
    ///
    /// [`PoolError::TooLarge`], [`PoolError::Protect`]: as much is accessible then as before, or no
    /// more than was asked for. Some pages beyond may not fault.
    pub fn set_accessible(&mut self, bytes: usize) -> Result<(), PoolError> {
        let (slot, slot_bytes) = (self.index(), self.pool.slot_bytes);
        if bytes > slot_bytes {
            return Err(PoolError::TooLarge { bytes, slot_bytes });
        }
        let bytes = bytes.next_multiple_of(crate::reserved::page_bytes());
        // SAFETY: The slot is ours, and references into it borrow `self`. Those who use the pointer
        // are told how far it reaches.
        let change = || unsafe { self.pool.content.set_accessible(slot, bytes) };
        let changed = match change() {
            Err(error) if self.pool.frees_mappings(&error) => change(),
            done => done,
        };
        changed.map_err(|source| PoolError::Protect { slot, source })
    }

    /// Makes at least so many bytes accessible, rounded up to pages: a memory that grows.
    ///
    /// # Errors
    ///
    /// As for [`Slot::set_accessible`].
    pub fn grow(&mut self, bytes: usize) -> Result<(), PoolError> {
        if bytes > self.accessible_bytes() { self.set_accessible(bytes) } else { Ok(()) }
    }

    /// What is accessible.
    pub fn bytes(&self) -> &[u8] {
        let all = self.pool.content.range(self.index(), 0..self.accessible_bytes());
        // SAFETY: The slot is ours and accessible so far; who writes to it or shrinks it borrows
        // `self` mutably.
        unsafe { self.pool.content.reserved.bytes(all) }
    }

    /// What is accessible.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let all = self.pool.content.range(self.index(), 0..self.accessible_bytes());
        // SAFETY: As in `bytes`, and `self` is borrowed mutably.
        unsafe { self.pool.content.reserved.bytes_mut(all) }
    }

    /// Resets the slot now: it contains its image then, or zero. What is to stay resident is
    /// restored by writing, the rest by one system call, if there is any. How much is accessible
    /// stays as it is, unless the memory is locked (`mlockall(2)`): then, what was discarded is
    /// inaccessible, but for the image.
    ///
    /// # Errors
    ///
    /// [`PoolError::Reset`]: the slot still has its content, but for what is to stay resident,
    /// which was restored; or nothing of it is accessible any more. [`PoolError::Image`]: it is
    /// zero, and has its image no more (which is possible only if the memory is locked).
    pub fn reset(&mut self) -> Result<(), PoolError> {
        let done = self.reset_now();
        // Whatever came of it: what is written from now on must go with the next reset.
        self.pool.content.begin_use(self.index());
        done
    }

    fn reset_now(&mut self) -> Result<(), PoolError> {
        let (slot, content) = (self.index(), &self.pool.content);
        // SAFETY: The slot is ours, and `self` is borrowed mutably.
        if !unsafe { content.restore_resident(slot) } {
            // SAFETY: As above.
            let reset = unsafe { content.reset_one(slot) };
            let taken_out = reset.map_err(|source| PoolError::Reset { slot, source })?;
            if let Some(image) = taken_out {
                // SAFETY: As above.
                let set = unsafe { content.set_image(slot, Some(&image)) };
                set.map_err(|source| PoolError::Image { slot, source })?;
            }
        }
        Ok(())
    }

    /// Gives the slot back as it is, for the next user of the same key to find its content: what
    /// was written, and how much is accessible. Nothing is reset, and no system call is made. If
    /// that user asks for another image, or for none, the slot is reset first.
    ///
    /// The caller answers for what the next user of the key sees. Users with other keys, or with
    /// none, never see it: the slot is reset before. That also happens if there is no room for it
    /// ([`PoolBuilder::max_unused_warm_slots`]), or if slots are scarce. Without a key, this is the
    /// same as dropping the slot.
    pub fn keep(mut self) {
        self.keeps = true;
    }
}

impl<'p> Slot<&'p Pool> {
    /// Has a slot that was just taken fit this image, or none. Returns no slot: moving one in
    /// memory would cost calls that have nothing to do here a third of their time.
    #[cold]
    #[inline(never)]
    fn fit(
        pool: &'p Pool,
        key: Option<ModuleKey>,
        taken: Taken,
        image: Option<&Image>,
    ) -> Result<Taken, PoolError> {
        // Goes back if it cannot have the image.
        let mut slot = Slot { pool, key, taken, keeps: false };
        // SAFETY: The slot is ours.
        if !unsafe { pool.content.has(taken.slot, image) } {
            slot.change_image(image)?;
        } else if let Some(image) = image.filter(|_| !taken.kept) {
            slot.set_accessible(image.range().end)?;
        }
        let taken = slot.taken;
        mem::forget(slot);
        Ok(taken)
    }

    /// Gives the slot, which was just taken, another image, or none.
    fn change_image(&mut self, image: Option<&Image>) -> Result<(), PoolError> {
        let (slot, content) = (self.index(), &self.pool.content);
        if self.taken.kept {
            // SAFETY: The slot is ours, and `self` is borrowed mutably.
            let reset = unsafe { content.reset_one(slot) };
            reset.map_err(|source| PoolError::Reset { slot, source })?;
            self.taken.kept = false;
        }
        // SAFETY: As above.
        let set = || unsafe { content.set_image(slot, image) };
        let done = match set() {
            Err(error) if !content.is_lost(slot) && self.pool.frees_mappings(&error) => set(),
            done => done,
        };
        done.map_err(|source| PoolError::Image { slot, source })
    }
}

impl<R: PoolRef> Drop for Slot<R> {
    fn drop(&mut self) {
        let (slot, content) = (self.index(), &self.pool.content);
        if content.is_lost(slot) {
            return self.pool.slots.lose();
        }
        let left = match self.keeps && self.key.is_some() {
            true => Left::Kept,
            // SAFETY: The slot is ours, and there is no reference into it.
            false => match unsafe { content.restore_resident(slot) } {
                // Its reset makes it inaccessible.
                true if content.is_crowded() && content.accessible(slot) > 0 => Left::Dirty,
                true => Left::Clean,
                false => Left::Dirty,
            },
        };
        self.pool.slots.put(slot, self.key, left, content);
    }
}

impl<R: PoolRef> fmt::Debug for Slot<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("index", &self.index())
            .field("key", &self.key)
            .field("is_warm", &self.is_warm())
            .field("is_kept", &self.is_kept())
            .field("accessible_bytes", &self.accessible_bytes())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reserved::{Left, NotMapped};

    #[test]
    fn a_slot_of_which_others_have_a_part_never_comes_back() {
        let pool = Pool::builder().slots(2).slot_bytes(1 << 16).cpus(1).build().unwrap();
        let mut slot = pool.take(None).unwrap();
        slot.grow(1).unwrap();
        let index = slot.index();
        let refused =
            NotMapped { source: std::io::ErrorKind::OutOfMemory.into(), left: Left::Lost };
        // SAFETY: The slot is ours, and there is no reference into it.
        unsafe { pool.content.note_refusal(index, 0, refused) };
        assert!(slot.bytes().is_empty());
        assert!(matches!(slot.reset(), Err(PoolError::Reset { .. })));
        drop(slot);
        pool.reset_all();
        let other = pool.take(None).unwrap();
        assert_ne!(other.index(), index);
        assert!(matches!(pool.take(None), Err(PoolError::Exhausted { .. })));
        assert_eq!(pool.stats().lost_slots, 1);
    }
}
