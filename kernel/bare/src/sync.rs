//! A value that one CPU at a time uses.

use core::cell::UnsafeCell;

use freehold::platform::RawLock;
use freehold::platform::native::SpinLock;

/// A value under a spin lock. A handler must not use what the code that it interrupts may hold.
pub(crate) struct Mutex<T> {
    lock: SpinLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one CPU at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex { lock: SpinLock::free(), value: UnsafeCell::new(value) }
    }

    /// Uses the value. The kernel ends at a panic, so the lock need not be released by one.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.lock.lock();
        // SAFETY: the lock is held, and it is not recursive.
        let result = f(unsafe { &mut *self.value.get() });
        self.lock.unlock();
        result
    }
}
