//! What `src/sync.rs` has, so that each step of it is one before which another thread may run.

use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::lock_api;

use crate::explore::step;
use crate::raw::{Exclusive, Latch};

/// Of one seed, so that a schedule can be run again.
pub(crate) type RandomState = BuildHasherDefault<DefaultHasher>;

pub(crate) type Mutex<T> = lock_api::Mutex<Exclusive, T>;
pub(crate) type RwLock<T> = lock_api::RwLock<Latch, T>;
pub(crate) type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, Latch, T>;
pub(crate) type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, Latch, T>;
pub(crate) type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, Latch, T>;
pub(crate) type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, Latch, T>;
type MutexGuard<'a, T> = lock_api::MutexGuard<'a, Exclusive, T>;

macro_rules! atomics {
    ($($name:ident: $int:ty),*) => {$(
        /// An atomic, sequentially consistent whatever ordering is named.
        #[derive(Debug, Default)]
        pub(crate) struct $name(std::sync::atomic::$name);

        impl $name {
            pub(crate) const fn new(value: $int) -> Self {
                $name(std::sync::atomic::$name::new(value))
            }

            pub(crate) fn load(&self, _order: Ordering) -> $int {
                step();
                self.0.load(Ordering::SeqCst)
            }

            pub(crate) fn store(&self, value: $int, _order: Ordering) {
                step();
                self.0.store(value, Ordering::SeqCst);
            }
        }
    )*};
}
atomics!(AtomicBool: bool, AtomicU32: u32, AtomicU64: u64);

impl AtomicBool {
    pub(crate) fn swap(&self, value: bool, _order: Ordering) -> bool {
        step();
        self.0.swap(value, Ordering::SeqCst)
    }
}

impl AtomicU32 {
    pub(crate) fn fetch_or(&self, bits: u32, _order: Ordering) -> u32 {
        step();
        self.0.fetch_or(bits, Ordering::SeqCst)
    }

    pub(crate) fn fetch_and(&self, bits: u32, _order: Ordering) -> u32 {
        step();
        self.0.fetch_and(bits, Ordering::SeqCst)
    }
}

impl AtomicU64 {
    pub(crate) fn fetch_add(&self, by: u64, _order: Ordering) -> u64 {
        step();
        self.0.fetch_add(by, Ordering::SeqCst)
    }

    pub(crate) fn fetch_sub(&self, by: u64, _order: Ordering) -> u64 {
        step();
        self.0.fetch_sub(by, Ordering::SeqCst)
    }

    pub(crate) fn fetch_update(
        &self,
        _set: Ordering,
        _fetch: Ordering,
        change: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        step();
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change)
    }
}

/// Wakes those that wait when it is told: a wake that comes too early is lost, as with the real
/// one.
#[derive(Default)]
pub(crate) struct Condvar {
    told: AtomicU64,
}

/// What became of a wait.
pub(crate) struct Waited {
    timed_out: bool,
}

impl Waited {
    pub(crate) fn timed_out(&self) -> bool {
        self.timed_out
    }
}

impl Condvar {
    pub(crate) fn notify_one(&self) {
        self.told.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let before = self.told.load(Ordering::SeqCst);
        MutexGuard::unlocked(guard, || {
            while self.told.load(Ordering::SeqCst) == before {
                thread::yield_now();
            }
        });
    }

    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> Waited {
        let before = self.told.load(Ordering::SeqCst);
        let timed_out = MutexGuard::unlocked(guard, || {
            while self.told.load(Ordering::SeqCst) == before {
                if Instant::now() >= until {
                    return true;
                }
                thread::yield_now();
            }
            false
        });
        Waited { timed_out }
    }
}

thread_local! {
    static LOOKS_AT_THE_CLOCK: Cell<u64> = const { Cell::new(0) };
}

/// A clock that goes on by a millisecond whenever it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        let looks = LOOKS_AT_THE_CLOCK.get() + 1;
        LOOKS_AT_THE_CLOCK.set(looks);
        Instant(Duration::from_millis(looks))
    }

    pub(crate) fn checked_add(self, time: Duration) -> Option<Self> {
        self.0.checked_add(time).map(Instant)
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Instant(self.0 + time)
    }
}

/// Threads of shuttle's, while it runs a program; otherwise, for unit tests in the sources, those
/// of the machine.
pub(crate) mod thread {
    use std::io;
    use std::time::Duration;

    pub(crate) use std::thread::{available_parallelism, panicking};

    use crate::explore::is_explored;

    pub(crate) fn yield_now() {
        match is_explored() {
            true => shuttle::thread::yield_now(),
            false => std::thread::yield_now(),
        }
    }

    pub(crate) fn sleep(_time: Duration) {
        yield_now();
    }

    #[derive(Default)]
    pub(crate) struct Builder;

    impl Builder {
        pub(crate) fn new() -> Self {
            Builder
        }

        pub(crate) fn name(self, _name: String) -> Self {
            self
        }

        pub(crate) fn spawn(self, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
            match is_explored() {
                true => drop(shuttle::thread::spawn(run)),
                false => drop(std::thread::spawn(run)),
            }
            Ok(())
        }
    }
}
