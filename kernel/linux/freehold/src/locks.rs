//! With the feature `lock-stats`, a machine whose locks count how often they were taken, how often
//! a call waited for one, and how often a call that does not wait found it taken.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use freehold::CpuId;
use freehold::platform::native::{NativeCell, SpinLock};
use freehold::platform::{LockClass, Machine, Pinned, Platform, RawLock, Scalar};

use crate::platform::Cpu;
use crate::report::Sink;

/// As `Native<Cpu>`, but for its locks.
pub(crate) struct Counting(pub(crate) Cpu);

/// What happened to the locks of a class: taken, waited for, found taken. Relaxed, each of them:
/// they order nothing.
struct Counts {
    class: LockClass,
    names: [&'static str; 3],
    counts: [AtomicU64; 3],
}

const TAKEN: usize = 0;
const WAITED: usize = 1;
const MISSED: usize = 2;

macro_rules! counts {
    ($class:ident, $name:literal) => {
        Counts {
            class: LockClass::$class,
            names: [concat!($name, "_taken"), concat!($name, "_waited"), concat!($name, "_missed")],
            counts: [const { AtomicU64::new(0) }; 3],
        }
    };
}

/// The locks of allocators; those that are rare count together.
static COUNTS: [Counts; 4] = [
    counts!(Zone, "zone_lock"),
    counts!(Pcp, "pcp_lock"),
    counts!(CpuCache, "cpu_cache_lock"),
    counts!(Hotplug, "other_locks"),
];

/// Prints the counts, one `fh_emit` a figure.
pub(crate) fn report(sink: &Sink) {
    for of in COUNTS.iter().filter(|of| of.counts[TAKEN].load(Relaxed) > 0) {
        let counts = of.names.iter().zip(&of.counts);
        counts.for_each(|(name, count)| sink.emit(name, count.load(Relaxed)));
    }
}

/// A lock that counts.
pub(crate) struct CountingLock {
    lock: SpinLock,
    class: u8,
}

impl CountingLock {
    fn count(&self, what: usize) {
        COUNTS[usize::from(self.class)].counts[what].fetch_add(1, Relaxed);
    }
}

impl RawLock for CountingLock {
    fn new(class: LockClass) -> Self {
        let at = COUNTS.iter().position(|of| of.class == class).unwrap_or(COUNTS.len() - 1);
        CountingLock { lock: SpinLock::free(), class: at as u8 }
    }

    fn lock(&self) {
        if !self.lock.try_lock() {
            self.count(WAITED);
            self.lock.lock();
        }
        self.count(TAKEN);
    }

    fn try_lock(&self) -> bool {
        let taken = self.lock.try_lock();
        self.count(if taken { TAKEN } else { MISSED });
        taken
    }

    fn unlock(&self) {
        self.lock.unlock();
    }
}

impl Platform for Counting {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Cell<T: Scalar> = NativeCell<T>;
    type LocalCell<T: Scalar> = NativeCell<T>;
    type Lock = CountingLock;
    type PinState = usize;
    type IrqState = usize;

    fn cpu(&self) -> CpuId {
        self.0.cpu()
    }

    fn pin(&self) -> Pinned<usize> {
        self.0.pin()
    }

    fn unpin(&self, state: usize) {
        self.0.unpin(state);
    }

    fn irq_save(&self) -> usize {
        self.0.irq_save()
    }

    fn irq_restore(&self, state: usize) {
        self.0.irq_restore(state);
    }
}
