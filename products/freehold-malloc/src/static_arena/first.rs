//! A value that is built on first use, by a thread that may come back for it meanwhile.

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::OnceLock;

use freehold::platform::Word;

/// A place for a value that the first call puts there, while others wait.
pub(super) trait Once<T> {
    /// The value, if it is there.
    fn get(&self) -> Option<&T>;
    /// The value, which this call or another one makes.
    fn get_or_init(&self, init: impl FnOnce() -> T) -> &T;
}

impl<T> Once<T> for OnceLock<T> {
    #[inline(always)]
    fn get(&self) -> Option<&T> {
        OnceLock::get(self)
    }

    fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        OnceLock::get_or_init(self, init)
    }
}

/// The value, and which thread builds it. `tests/models` runs it under loom.
#[derive(Debug)]
pub(super) struct First<P, W: Word<u32> = AtomicU32> {
    place: P,
    /// The thread that builds the value, by the machine's number; 0 if none does.
    builder: W,
}

impl<T> First<OnceLock<T>> {
    pub(super) const fn new() -> Self {
        First::of(OnceLock::new(), AtomicU32::new(0))
    }
}

impl<P, W: Word<u32>> First<P, W> {
    /// A value for an empty place, and a word that holds zero.
    pub(super) const fn of(place: P, builder: W) -> Self {
        First { place, builder }
    }

    /// The value, if it has been built.
    #[inline]
    pub(super) fn get<T>(&self) -> Option<&T>
    where
        P: Once<T>,
    {
        self.place.get()
    }

    /// The value, built by the first call, for which others wait. `None` on the thread that builds
    /// it, while it does. `here` is the number of the calling thread.
    pub(super) fn build<T>(&self, here: NonZeroU32, build: impl FnOnce() -> T) -> Option<&T>
    where
        P: Once<T>,
    {
        // Relaxed: a thread reads its own number only if it wrote that itself.
        if self.builder.load(Relaxed) == here.get() {
            return None;
        }
        let build = || {
            self.builder.store(here.get(), Relaxed);
            // Dropped when the thread panics, too: it may try again, as others may.
            let _building = Building(&self.builder);
            build()
        };
        Some(self.place.get_or_init(build))
    }
}

/// As long as the calling thread builds the value.
struct Building<'a, W: Word<u32>>(&'a W);

impl<W: Word<u32>> Drop for Building<'_, W> {
    fn drop(&mut self) {
        self.0.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_thread_whose_build_panics_may_build_again() {
        let (first, here) = (First::<OnceLock<u8>>::new(), NonZeroU32::MIN);
        let build = || first.build(here, || panic!("as a wish may")).copied();
        assert!(catch_unwind(AssertUnwindSafe(build)).is_err());
        let from_within = || u8::from(first.build(here, || 7).is_none());
        assert_eq!(first.build(here, from_within), Some(&1));
    }
}
