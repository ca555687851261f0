//! Storage and a lock for any machine that Rust has atomics for: the parts from which an embedder
//! builds its [`Platform`](super::Platform).

use core::marker::PhantomData;
use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release},
};

use super::{LockClass, RawLock, Scalar, SharedCell, Word, ZeroBytes};

macro_rules! forward_word {
    ($($atomic:ident: $int:ty),*) => {$(
        impl Word<$int> for $atomic {
            const ZERO_BYTES: Option<ZeroBytes<Self>> = Some(ZeroBytes::of_atomic());
            #[inline(always)]
            fn new(value: $int) -> Self { <$atomic>::new(value) }
            #[inline(always)]
            fn load(&self, order: Ordering) -> $int { <$atomic>::load(self, order) }
            #[inline(always)]
            fn store(&self, value: $int, order: Ordering) { <$atomic>::store(self, value, order) }
            #[inline(always)]
            fn swap(&self, value: $int, order: Ordering) -> $int {
                <$atomic>::swap(self, value, order)
            }
            #[inline(always)]
            fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                <$atomic>::fetch_add(self, value, order)
            }
            #[inline(always)]
            fn fetch_or(&self, bits: $int, order: Ordering) -> $int {
                <$atomic>::fetch_or(self, bits, order)
            }
            #[inline(always)]
            fn fetch_and(&self, bits: $int, order: Ordering) -> $int {
                <$atomic>::fetch_and(self, bits, order)
            }
            #[inline(always)]
            fn compare_exchange(
                &self, current: $int, new: $int, success: Ordering, failure: Ordering,
            ) -> Result<$int, $int> {
                <$atomic>::compare_exchange(self, current, new, success, failure)
            }
        }
    )*};
}
forward_word!(AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64);

/// A cell as a relaxed atomic: a plain move in machine code, and no undefined behaviour even if the
/// locking discipline is violated.
#[derive(Debug)]
#[repr(transparent)]
pub struct NativeCell<T: Scalar>(T::Atomic);

impl<T: Scalar> SharedCell<T> for NativeCell<T> {
    const ZERO_BYTES: Option<ZeroBytes<Self>> = Some(ZeroBytes::of_atomic());

    #[inline(always)]
    fn new(value: T) -> Self {
        NativeCell(T::Atomic::new(value))
    }

    #[inline(always)]
    fn get(&self) -> T {
        // Relaxed: the lock that guards the cell orders the accesses of its holders.
        self.0.load(Relaxed)
    }

    #[inline(always)]
    fn set(&self, value: T) {
        // Relaxed: as in `get`.
        self.0.store(value, Relaxed)
    }
}

/// What a waiter does between two reads of a lock.
pub trait Relax {
    /// Waits briefly. `round` counts the reads so far, so that long waits can yield to a scheduler.
    fn relax(round: u32);
}

/// Waits with the processor's spin hint only: for kernels, which do not preempt a lock holder.
#[derive(Debug)]
pub struct SpinHint;

impl Relax for SpinHint {
    #[inline]
    fn relax(_round: u32) {
        core::hint::spin_loop();
    }
}

/// A test-and-test-and-set spin lock of one byte.
#[derive(Debug)]
pub struct SpinLock<R: Relax = SpinHint> {
    held: AtomicBool,
    relax: PhantomData<fn() -> R>,
}

impl<R: Relax> SpinLock<R> {
    /// A free lock, for statics.
    pub const fn free() -> Self {
        SpinLock { held: AtomicBool::new(false), relax: PhantomData }
    }

    #[cold]
    fn wait(&self) {
        let mut round = 0;
        // Relaxed: only a hint; the swap that follows acquires.
        while self.held.load(Relaxed) {
            R::relax(round);
            round = round.saturating_add(1);
        }
    }
}

impl<R: Relax> RawLock for SpinLock<R> {
    #[inline]
    fn new(_class: LockClass) -> Self {
        SpinLock::free()
    }

    #[inline]
    fn lock(&self) {
        // Acquire: pairs with the release in `unlock`, so that this holder sees the previous
        // holder's writes.
        while self.held.swap(true, Acquire) {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire: as in `lock`.
        !self.held.swap(true, Acquire)
    }

    #[inline]
    fn unlock(&self) {
        // Release: publishes the holder's writes to the next one.
        self.held.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_refuses_a_second_holder() {
        let lock: SpinLock = RawLock::new(LockClass::Zone);
        assert!(lock.try_lock());
        assert!(!lock.try_lock());
        lock.unlock();
        lock.lock();
        assert!(!lock.try_lock());
    }

    #[test]
    fn storage_is_as_small_as_the_integer() {
        assert_eq!(size_of::<NativeCell<u8>>(), 1);
        assert_eq!(size_of::<NativeCell<u32>>(), 4);
        assert_eq!(size_of::<SpinLock>(), 1);
    }
}
