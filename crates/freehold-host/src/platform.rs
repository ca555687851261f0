//! The machine that this process runs on, as a platform of the allocator.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use freehold::CpuId;
use freehold::platform::native::{NativeCell, Relax, SpinLock};
use freehold::platform::{Pinned, Platform};
use rustix::thread::{MembarrierCommand, Timespec, membarrier, nanosleep};

use crate::rseq::CpuSource;

/// Waits with the processor's spin hint at first, then yields the CPU, and in the end sleeps.
///
/// In user space a lock's holder can be preempted, and with more threads than CPUs it often is.
/// Spinning until the waiter's time slice ends would then cost milliseconds a lock. A waiter of a
/// real-time class yields to none of a lower one, so a holder of such could not run on its CPU.
#[derive(Debug)]
pub struct SpinThenYield;

/// How often a waiter reads the lock before it yields: a few microseconds, longer than any section
/// under one of the allocator's locks takes while its holder runs.
const SPIN_ROUNDS: u32 = 100;

/// After so many rounds it sleeps each time, for [`PAUSE`].
const YIELD_ROUNDS: u32 = 2 * SPIN_ROUNDS;

/// As long as the kernel may let a timer slip anyway, by default.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

impl Relax for SpinThenYield {
    #[inline]
    fn relax(round: u32) {
        if round < SPIN_ROUNDS {
            core::hint::spin_loop();
        } else if round < YIELD_ROUNDS {
            std::thread::yield_now();
        } else {
            pause();
        }
    }
}

/// Sleeps for [`PAUSE`], or until a signal comes.
fn pause() {
    // Not libc's, in which the thread might be cancelled.
    let _slept = nanosleep(&PAUSE);
}

/// The real machine, from user space: plain atomics, spin locks that yield, CPU numbers by rseq.
///
/// User space can neither disable interrupts nor stay on a CPU, so [`Platform::pin`] and
/// [`Platform::irq_save`] do nothing; a CPU number is a hint that may be stale at once.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    cpu_source: CpuSource,
}

impl Host {
    /// This machine. Looks for the fastest source of CPU numbers: two symbol look-ups.
    pub fn new() -> Self {
        Host { cpu_source: CpuSource::discover() }
    }

    /// Where CPU numbers come from, for reports: `rseq` (0.7 ns on a 2026 x86-64 virtual machine)
    /// or `sched_getcpu` (2.5 ns there, and far more if the vDSO does not serve it).
    pub fn cpu_source_name(&self) -> &'static str {
        if self.cpu_source.is_rseq() { "rseq" } else { "sched_getcpu" }
    }
}

impl Default for Host {
    fn default() -> Self {
        Host::new()
    }
}

impl Platform for Host {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Cell<T: freehold::platform::Scalar> = NativeCell<T>;
    type LocalCell<T: freehold::platform::Scalar> = NativeCell<T>;
    type Lock = SpinLock<SpinThenYield>;
    type PinState = ();
    type IrqState = ();

    #[inline]
    fn cpu(&self) -> CpuId {
        self.cpu_source.current()
    }

    #[inline(always)]
    fn pin(&self) -> Pinned<()> {
        Pinned::new(self.cpu_source.quick(), ())
    }

    #[inline(always)]
    fn pin_anywhere(&self) {}

    #[inline]
    fn unpin(&self, (): ()) {}

    /// Yields the CPU: in user space, the thread to wait for may have been preempted. Now and then
    /// it sleeps, as [`SpinThenYield`] does.
    fn relax(&self) {
        static TURN: AtomicU32 = AtomicU32::new(0);
        // Relaxed: it says nothing of anything else.
        match TURN.fetch_add(1, Relaxed).is_multiple_of(SPIN_ROUNDS) {
            true => pause(),
            false => std::thread::yield_now(),
        }
    }

    /// Only a compiler fence: the heavy half makes the CPU execute a fence.
    #[inline(always)]
    fn light_barrier(&self) {
        compiler_fence(SeqCst);
    }

    /// `membarrier(2)`: interrupts the CPUs that run threads of this process, about a microsecond
    /// for each.
    fn heavy_barrier(&self) -> bool {
        let order = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        // A process must register before its first one. If that is unknown, for instance after a
        // fork, the call tells.
        order() || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() && order()
    }

    #[inline]
    fn irq_save(&self) -> Self::IrqState {}

    #[inline]
    fn irq_restore(&self, _state: Self::IrqState) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use freehold::platform::{LockClass, RawLock};

    use super::*;

    #[test]
    fn more_threads_than_cpus_share_a_lock() {
        const ROUNDS: u64 = 20_000;
        let threads = 4 * std::thread::available_parallelism().unwrap().get() as u64;
        let lock = Arc::new(<Host as Platform>::Lock::new(LockClass::Zone));
        let counter = Arc::new(AtomicU64::new(0));
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let (lock, counter) = (Arc::clone(&lock), Arc::clone(&counter));
                std::thread::spawn(move || {
                    for _ in 0..ROUNDS {
                        lock.lock();
                        // Two steps on purpose: only the lock makes them atomic.
                        let seen = counter.load(Relaxed);
                        counter.store(seen + 1, Relaxed);
                        lock.unlock();
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(counter.load(Relaxed), threads * ROUNDS);
    }

    #[test]
    fn the_platform_is_small_and_shared() {
        fn is_shared<T: Send + Sync + 'static>() {}
        is_shared::<Host>();
        assert_eq!(size_of::<Host>(), 2 * size_of::<usize>());
    }
}
