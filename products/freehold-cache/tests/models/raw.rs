//! The locks beneath those of `sync`: they hold back whom parking_lot's would hold back. In
//! particular, a writer that waits holds back readers, but for recursive ones of a lock that has
//! readers.
#![expect(unsafe_code, reason = "locks promise to exclude")]

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use parking_lot::lock_api::{
    GuardSend, RawMutex, RawRwLock, RawRwLockDowngrade, RawRwLockRecursive,
    RawRwLockRecursiveTimed, RawRwLockTimed,
};

use crate::explore::{Planted, is_planted, step};
use crate::sync::{Instant, thread};

/// A writer has the lock, or waits for the readers to leave. The other bits count readers.
const WRITER: usize = 1 << (usize::BITS - 1);

/// How often a call with a time limit looks again.
const LOOKS: u32 = 3;

/// A reader-writer lock.
pub(crate) struct Latch(AtomicUsize);

impl Latch {
    fn try_shared(&self, is_recursive: bool) -> bool {
        step();
        let enter = |state: usize| {
            let is_open = state & WRITER == 0 || is_recursive && state != WRITER;
            is_open.then_some(state + 1)
        };
        self.0.fetch_update(SeqCst, SeqCst, enter).is_ok()
    }

    fn shared(&self, is_recursive: bool, mut looks: impl FnMut() -> bool) -> bool {
        while !self.try_shared(is_recursive) {
            if !looks() {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    /// First keeps others out, then waits for the readers.
    fn exclusive(&self, mut looks: impl FnMut() -> bool) -> bool {
        let mut is_ours = false;
        loop {
            step();
            is_ours = is_ours || self.0.fetch_or(WRITER, SeqCst) & WRITER == 0;
            if is_ours && self.0.load(SeqCst) == WRITER {
                return true;
            }
            if !looks() {
                if is_ours {
                    self.0.fetch_and(!WRITER, SeqCst);
                }
                return false;
            }
            thread::yield_now();
        }
    }
}

/// Looks that end, in place of a time limit.
fn few() -> impl FnMut() -> bool {
    let mut left = LOOKS;
    move || {
        left = left.saturating_sub(1);
        left > 0
    }
}

// SAFETY: A writer has the lock only while the state is `WRITER`, which lets no other one in; a
// planted defect makes an exception, in a test that must fail.
unsafe impl RawRwLock for Latch {
    const INIT: Self = Latch(AtomicUsize::new(0));
    type GuardMarker = GuardSend;

    fn lock_shared(&self) {
        self.shared(false, || true);
    }

    fn try_lock_shared(&self) -> bool {
        self.try_shared(false)
    }

    unsafe fn unlock_shared(&self) {
        step();
        self.0.fetch_sub(1, SeqCst);
    }

    fn lock_exclusive(&self) {
        self.exclusive(|| true);
    }

    fn try_lock_exclusive(&self) -> bool {
        step();
        if is_planted(Planted::LatchInTwoSteps) {
            let is_free = self.0.load(SeqCst) == 0;
            step();
            if is_free {
                self.0.fetch_or(WRITER, SeqCst);
            }
            return is_free;
        }
        self.0.compare_exchange(0, WRITER, SeqCst, SeqCst).is_ok()
    }

    unsafe fn unlock_exclusive(&self) {
        step();
        self.0.fetch_and(!WRITER, SeqCst);
    }
}

// SAFETY: As above; the count of readers goes from none to one in the same step.
unsafe impl RawRwLockDowngrade for Latch {
    unsafe fn downgrade(&self) {
        step();
        self.0.store(1, SeqCst);
    }
}

// SAFETY: As above.
unsafe impl RawRwLockRecursive for Latch {
    fn lock_shared_recursive(&self) {
        self.shared(true, || true);
    }

    fn try_lock_shared_recursive(&self) -> bool {
        self.try_shared(true)
    }
}

// SAFETY: As above.
unsafe impl RawRwLockTimed for Latch {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, _most: Duration) -> bool {
        self.shared(false, few())
    }

    fn try_lock_shared_until(&self, _until: Instant) -> bool {
        self.shared(false, few())
    }

    fn try_lock_exclusive_for(&self, _most: Duration) -> bool {
        self.exclusive(few())
    }

    fn try_lock_exclusive_until(&self, _until: Instant) -> bool {
        self.exclusive(few())
    }
}

// SAFETY: As above.
unsafe impl RawRwLockRecursiveTimed for Latch {
    fn try_lock_shared_recursive_for(&self, _most: Duration) -> bool {
        self.shared(true, few())
    }

    fn try_lock_shared_recursive_until(&self, _until: Instant) -> bool {
        self.shared(true, few())
    }
}

/// A lock of one owner.
pub(crate) struct Exclusive(Latch);

// SAFETY: As above.
unsafe impl RawMutex for Exclusive {
    const INIT: Self = Exclusive(<Latch as RawRwLock>::INIT);
    type GuardMarker = GuardSend;

    fn lock(&self) {
        self.0.lock_exclusive();
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock_exclusive()
    }

    unsafe fn unlock(&self) {
        // SAFETY: The caller has the lock.
        unsafe { self.0.unlock_exclusive() }
    }
}
