//! How the thread in the background is woken.

use std::sync::atomic::Ordering::Relaxed;

use crate::sync::{AtomicBool, Condvar, Instant, Mutex};

/// How others wake the thread in the background.
#[derive(Default)]
pub(crate) struct Signal {
    is_wanted: AtomicBool,
    state: Mutex<Wanted>,
    changed: Condvar,
}

/// What the thread is woken for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub(crate) write_back: bool,
    stop: bool,
}

impl Signal {
    /// Much is dirty.
    pub(crate) fn wake(&self) {
        // Relaxed: spares the lock once it was told. It is told again at the next write, should
        // this one be missed.
        if !self.is_wanted.load(Relaxed) && !self.is_wanted.swap(true, Relaxed) {
            self.state.lock().write_back = true;
            self.changed.notify_one();
        }
    }

    /// The cache is gone.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    /// Waits until it is woken, or until the time; `None` once the cache is gone.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Option<Wanted> {
        let mut state = self.state.lock();
        while !state.stop && !state.write_back {
            match until {
                Some(until) if self.changed.wait_until(&mut state, until).timed_out() => break,
                Some(_) => {}
                None => self.changed.wait(&mut state),
            }
        }
        let wanted = *state;
        state.write_back = false;
        // Relaxed: as in `wake`.
        self.is_wanted.store(false, Relaxed);
        (!wanted.stop).then_some(wanted)
    }
}
