//! Forks: every arena is frozen while its memory is copied.
//!
//! A child has one thread and a copy of the memory as of the fork. A lock that another thread held
//! stays locked there forever. So handlers of `pthread_atfork(3)` take all locks of all arenas
//! before the fork, and release them after, in the parent and in the child. The child also repairs
//! what other threads were doing without a lock
//! ([`PageAllocator::thaw_copy`](freehold::PageAllocator::thaw_copy)).
//!
//! This costs nothing unless a thread forks.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::thread::yield_now;

use freehold::platform::RawLock;
use freehold::platform::native::SpinLock;
use rustix::thread::gettid;

use crate::mapping::at_fork;
use crate::{HostError, SpinThenYield};

mod install;

use install::{Installed, Installer};

/// An object with locks that exists before and after a fork. The handlers call it on the thread
/// that forks.
pub trait Forks: Send {
    /// Takes all locks.
    fn freeze(&self);
    /// Releases them in the parent.
    fn thaw(&self);
    /// Releases them in the child.
    fn thaw_copy(&self);
}

/// A mutex that can be held across a fork: without a guard, and released in the child as well.
#[derive(Debug)]
pub struct ForkMutex<T> {
    /// Taken before the mutex and released after it. A fork holds only this one.
    gate: SpinLock<SpinThenYield>,
    value: Mutex<T>,
}

impl<T> ForkMutex<T> {
    /// A mutex that is free.
    pub const fn new(value: T) -> Self {
        ForkMutex { gate: SpinLock::free(), value: Mutex::new(value) }
    }

    /// Waits for the mutex. If a thread panicked while it held the mutex, the value is as it was
    /// before or after its change: all users ensure that.
    pub fn lock(&self) -> ForkGuard<'_, T> {
        self.gate.lock();
        self.guard()
    }

    /// Takes the mutex if it is free.
    pub(crate) fn try_lock(&self) -> Option<ForkGuard<'_, T>> {
        self.gate.try_lock().then(|| self.guard())
    }

    fn guard(&self) -> ForkGuard<'_, T> {
        ForkGuard { value: self.while_held(), _gate: Gate(&self.gate) }
    }

    /// Waits for the mutex and keeps it until [`ForkMutex::release`].
    pub fn hold(&self) {
        self.gate.lock();
    }

    /// Ends what [`ForkMutex::hold`] began.
    pub fn release(&self) {
        self.gate.unlock();
    }

    /// The value, for a caller that has the gate, and so need not wait.
    fn while_held(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The value of a [`ForkMutex`], locked.
pub struct ForkGuard<'a, T> {
    // Fields are dropped in this order.
    value: MutexGuard<'a, T>,
    _gate: Gate<'a>,
}

impl<T> Deref for ForkGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ForkGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

struct Gate<'a>(&'a SpinLock<SpinThenYield>);

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// All registered objects, by number.
static REGISTRY: ForkMutex<Vec<(u64, Box<dyn Forks>)>> = ForkMutex::new(Vec::new());

/// Keeps an object registered until this is dropped. Dropping waits for a fork that is under way.
#[derive(Debug)]
pub struct Registration(u64);

impl Registration {
    /// Registers an object.
    ///
    /// # Errors
    ///
    /// [`HostError::ForkHandlers`] if the process cannot register more fork handlers.
    pub fn new(what: Box<dyn Forks>) -> Result<Self, HostError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        install_fork_handlers()?;
        // Relaxed: the numbers only need to differ.
        let number = NEXT.fetch_add(1, Relaxed);
        REGISTRY.lock().push((number, what));
        Ok(Registration(number))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut registry = REGISTRY.lock();
        let place = registry.iter().position(|(number, _)| *number == self.0);
        let removed = place.map(|place| registry.remove(place));
        // Without the lock, under which no foreign code runs.
        drop(registry);
        drop(removed);
    }
}

/// Installs the handlers of forks now, instead of with the first arena: once for the process and
/// its children. Uses no heap.
///
/// Handlers of others that wait for locks under which an arena is called must be registered later:
/// those that prepare a fork run in the reverse order. So a malloc on an arena whose own handlers
/// are installed before its arena is built calls this first.
///
/// # Errors
///
/// [`HostError::ForkHandlers`] if the process cannot register more.
#[inline]
pub fn install_fork_handlers() -> Result<(), HostError> {
    if INSTALLED.is_done() { Ok(()) } else { install_now() }
}

#[cold]
fn install_now() -> Result<(), HostError> {
    let thread = gettid().as_raw_nonzero().get().unsigned_abs();
    let here = Installer { process: std::process::id(), thread };
    let installed = INSTALLED.ensure(here, || at_fork(prepare, thaw, thaw_copy), yield_now);
    installed.map_err(|source| HostError::ForkHandlers { source })
}

/// Whether the handlers are installed. Not a `OnceLock`: if another thread was initialising it at
/// the time of the fork, it would never be ready in the child.
static INSTALLED: Installed = Installed::new();

// They allocate no memory: the process's allocator may live in an arena.

//
// What was registered later may call what was there before it while it holds its locks: so it is
// frozen first, and thawed last.

extern "C" fn prepare() {
    INSTALLED.note();
    REGISTRY.hold();
    REGISTRY.while_held().iter().rev().for_each(|(_, what)| what.freeze());
}

extern "C" fn thaw() {
    REGISTRY.while_held().iter().for_each(|(_, what)| what.thaw());
    REGISTRY.release();
}

extern "C" fn thaw_copy() {
    REGISTRY.while_held().iter().for_each(|(_, what)| what.thaw_copy());
    REGISTRY.release();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_mutex_refuses_others_until_it_is_released() {
        let mutex = ForkMutex::new(1);
        *mutex.lock() += 1;
        mutex.hold();
        assert!(mutex.try_lock().is_none());
        mutex.release();
        assert_eq!(mutex.try_lock().map(|value| *value), Some(2));
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    fn a_mutex_outlives_a_panic_under_it() {
        let mutex = ForkMutex::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut value = mutex.lock();
            *value = 2;
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*mutex.lock(), 2);
    }
}
