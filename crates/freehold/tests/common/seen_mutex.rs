//! A mutex of the standard library whose waiting ThreadSanitizer sees: that of its own is in code
//! that is not instrumented, so what is done under a lock that was waited for would look unordered.

use std::sync::{LockResult, MutexGuard, TryLockError};
use std::thread::yield_now;

#[derive(Debug, Default)]
pub(crate) struct SeenMutex<T>(std::sync::Mutex<T>);

impl<T> SeenMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        SeenMutex(std::sync::Mutex::new(value))
    }

    /// As `std::sync::Mutex::lock`, and fails if a thread panicked under it.
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        loop {
            match self.0.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => yield_now(),
            }
        }
    }
}

// Not every binary has a value to begin with.
const _: fn(u32) -> SeenMutex<u32> = SeenMutex::new;
