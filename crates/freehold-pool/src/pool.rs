//! The pool, and the slots that are taken from it.
#![expect(unsafe_code, reason = "lends out the memory of slots")]

use core::ptr::NonNull;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use freehold_host::Host;

use crate::content::Content;
use crate::home::Home;
use crate::slots::{Left, Slots, Taken};
use crate::{ModuleKey, PoolBuilder, PoolError, PoolStats, SlotIndex};

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
    /// that user left. Any other slot is zero, and how much of it is accessible may be anything.
    ///
    /// Cost: no system call, unless slots are scarce. See [`PoolStats::scarce`].
    ///
    /// # Errors
    ///
    /// [`PoolError::Exhausted`]: at some moment of the call all slots were in use, or on their way
    /// back in a call that had not returned.
    pub fn take(&self, key: impl Into<Option<ModuleKey>>) -> Result<Slot<&Pool>, PoolError> {
        Slot::take(self, key.into())
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
        Slot::take(Arc::clone(self), key.into())
    }

    /// Resets all slots that wait for it, and returns when they are reset. For quiet times: calls
    /// do so by themselves.
    pub fn reset_all(&self) {
        self.slots.reset_all(&self.content);
    }

    /// What has happened so far. Takes the lock of each CPU's lists, one after the other.
    pub fn stats(&self) -> PoolStats {
        self.slots.stats()
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
/// ([`mem::forget`](std::mem::forget)), it stays in use.
pub struct Slot<R: PoolRef> {
    pool: R,
    key: Option<ModuleKey>,
    taken: Taken,
    /// Whether it goes back as it is.
    keeps: bool,
}

impl<R: PoolRef> Slot<R> {
    fn take(pool: R, key: Option<ModuleKey>) -> Result<Self, PoolError> {
        let taken = pool.slots.take(key, &pool.content);
        let slots = pool.slots.settings().slots;
        let taken = taken.map_err(|_exhausted| PoolError::Exhausted { slots })?;
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

    /// Whether the last user had the same key, as it was when the slot was taken. Then as much is
    /// accessible as that user had.
    pub fn is_warm(&self) -> bool {
        self.taken.warm
    }

    /// Whether the slot has the content with which the last user, who had the same key,
    /// [kept](Slot::keep) it. Otherwise it was zero when it was taken.
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
    /// already. Bytes that were never accessible to this holder are zero. What becomes
    /// inaccessible keeps its content, which is there again if it becomes accessible later.
    ///
    /// # Errors
    ///
    /// [`PoolError::TooLarge`], [`PoolError::Protect`].
    pub fn set_accessible(&mut self, bytes: usize) -> Result<(), PoolError> {
        let (slot, slot_bytes) = (self.index(), self.pool.slot_bytes);
        if bytes > slot_bytes {
            return Err(PoolError::TooLarge { bytes, slot_bytes });
        }
        let bytes = bytes.next_multiple_of(crate::reserved::page_bytes());
        // SAFETY: The slot is ours, and references into it borrow `self`. Those who use the pointer
        // are told how far it reaches.
        let changed = unsafe { self.pool.content.set_accessible(slot, bytes) };
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

    /// Resets the slot now: all of it is zero then. What is to stay resident is cleared by writing,
    /// the rest by one system call, if there is any. How much is accessible stays as it is, unless
    /// the memory is locked (`mlockall(2)`): then, what was discarded is inaccessible.
    ///
    /// # Errors
    ///
    /// [`PoolError::Reset`]: the slot still has its content.
    pub fn reset(&mut self) -> Result<(), PoolError> {
        let (slot, content) = (self.index(), &self.pool.content);
        // SAFETY: The slot is ours, and `self` is borrowed mutably.
        if !unsafe { content.clear_resident(slot) } {
            // SAFETY: As above.
            let reset = unsafe { content.reset_one(slot) };
            reset.map_err(|source| PoolError::Reset { slot, source })?;
        }
        content.begin_use(slot);
        Ok(())
    }

    /// Gives the slot back as it is, for the next user of the same key to find its content: what
    /// was written, and how much is accessible. Nothing is reset, and no system call is made.
    ///
    /// The caller answers for what the next user of the key sees. Users with other keys, or with
    /// none, never see it: the slot is reset before. That also happens if there is no room for it
    /// ([`PoolBuilder::max_unused_warm_slots`]), or if slots are scarce. Without a key, this is the
    /// same as dropping the slot.
    pub fn keep(mut self) {
        self.keeps = true;
    }
}

impl<R: PoolRef> Drop for Slot<R> {
    fn drop(&mut self) {
        let (slot, content) = (self.index(), &self.pool.content);
        let left = match self.keeps && self.key.is_some() {
            true => Left::Kept,
            // SAFETY: The slot is ours, and there is no reference into it.
            false if unsafe { content.clear_resident(slot) } => Left::Clean,
            false => Left::Dirty,
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
