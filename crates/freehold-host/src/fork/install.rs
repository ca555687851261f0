//! What a process installs once, and its children inherit.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use freehold::platform::Word;

/// Whether something is installed, and by which thread it is being. `tests/models` runs it under
/// loom.
pub(super) struct Installed<W: Word<u64> = AtomicU64>(W);

/// A thread of a process, by the machine's numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Installer {
    pub(super) process: u32,
    pub(super) thread: u32,
}

impl Installer {
    fn to_word(self) -> u64 {
        u64::from(self.process) << 32 | u64::from(self.thread)
    }

    /// Whether another thread of the same process is meant by a word.
    fn is_beside(self, word: u64) -> bool {
        word >> 32 == self.process.into() && word != self.to_word()
    }
}

const NOT: u64 = 0;
const DONE: u64 = u64::MAX;

impl Installed {
    pub(super) const fn new() -> Self {
        Installed::of(AtomicU64::new(NOT))
    }
}

impl<W: Word<u64>> Installed<W> {
    /// For a word that holds zero.
    pub(super) const fn of(word: W) -> Self {
        Installed(word)
    }

    /// Whether it is installed.
    pub(super) fn is_done(&self) -> bool {
        // Acquire: pairs with the release when it was.
        self.0.load(Acquire) == DONE
    }

    /// Notes that it is installed: it has just run.
    pub(super) fn note(&self) {
        self.0.store(DONE, Release);
    }

    /// Installs it, unless it is. Calls `wait` again and again while another thread is at it. A
    /// call from within `install` finds it done.
    ///
    /// A child may begin while a thread that it does not have was at it. Then nothing has been
    /// installed there, or it has run since, and was noted.
    ///
    /// # Errors
    ///
    /// That of this thread's `install`.
    pub(super) fn ensure<E>(
        &self,
        here: Installer,
        install: impl FnOnce() -> Result<(), E>,
        wait: impl Fn(),
    ) -> Result<(), E> {
        let own = here.to_word();
        loop {
            let word = self.0.load(Acquire);
            if word == DONE || word == own {
                return Ok(());
            }
            if here.is_beside(word) {
                wait();
            } else if self.0.compare_exchange(word, own, Relaxed, Relaxed).is_ok() {
                let installed = install();
                // Release: a call that finds it done comes after.
                self.0.store(if installed.is_ok() { DONE } else { NOT }, Release);
                return installed;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    fn installer(process: u32, thread: u32) -> Installer {
        Installer { process, thread }
    }

    #[test]
    fn a_call_that_fails_leaves_it_to_the_next_one() {
        let (installed, here) = (Installed::new(), installer(1, 2));
        assert_eq!(installed.ensure(here, || Err("full"), || panic!("alone")), Err("full"));
        assert!(!installed.is_done());
        assert_eq!(installed.ensure(here, || Ok::<(), ()>(()), || panic!("alone")), Ok(()));
        assert!(installed.is_done());
        assert_eq!(installed.ensure(here, || Err("again"), || panic!("alone")), Ok(()));
    }

    #[test]
    fn a_call_from_within_finds_it_done() {
        let (installed, here) = (Installed::new(), installer(1, 2));
        let again = || installed.ensure(here, || Err("again"), || panic!("it is this thread"));
        assert_eq!(installed.ensure(here, again, || panic!("alone")), Ok(()));
    }

    /// The copy of a process in whose parent another thread is at it.
    #[test]
    fn a_child_does_not_wait_for_a_thread_of_its_parent() {
        let installed = Installed::new();
        let calls = Cell::new(0);
        let in_child = || {
            let count = || {
                calls.set(calls.get() + 1);
                Ok::<(), ()>(())
            };
            installed.ensure(installer(7, 7), count, || panic!("it is alone"))
        };
        assert_eq!(installed.ensure(installer(1, 2), in_child, || panic!("alone")), Ok(()));
        assert_eq!(calls.get(), 1);
    }
}
