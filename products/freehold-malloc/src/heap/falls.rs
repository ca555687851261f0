//! When use has fallen by much: what came free then may stay with a program that is done.

use core::sync::atomic::Ordering::Relaxed;

use freehold::CpuId;
use freehold::platform::Word;

use super::now_ms;
use super::used::Used;

/// The bytes by which use falls before it is much: few enough to stay with an idle program, and
/// enough to be worth the calls.
const BYTES_MIN: u64 = 32 << 20;

/// The same as a share of what was in use, for large heaps.
const SHARE: u64 = 16;

/// Bytes in use, and the most of them from which a fall counts. All relaxed: nothing depends on
/// them.
#[derive(Debug)]
pub(super) struct Falls<W> {
    used: Used<W>,
    peak: W,
    /// Until when that does not rise after a fall: what comes and goes counts once an interval.
    fallen_until_ms: W,
    interval_ms: u64,
}

impl<W: Word<u64>> Falls<W> {
    /// Nothing is in use, on so many CPUs.
    pub(super) fn new(cpus: usize, interval_ms: u64) -> Self {
        Falls { used: Used::new(cpus), peak: W::new(0), fallen_until_ms: W::new(0), interval_ms }
    }

    /// Notes bytes that came into use, or went out of it if negative. Returns whether use has
    /// fallen by much, to one of the threads that notice it.
    pub(super) fn note(&self, cpu: CpuId, bytes: i64) -> bool {
        let Some(used) = self.used.add(cpu, bytes) else { return false };
        let peak = self.peak.load(Relaxed);
        if used > peak {
            if now_ms() >= self.fallen_until_ms.load(Relaxed) {
                self.peak.store(used, Relaxed);
            }
            return false;
        }
        let is_much = peak - used >= BYTES_MIN.max(peak / SHARE);
        let has_fallen =
            is_much && self.peak.compare_exchange(peak, used, Relaxed, Relaxed).is_ok();
        if has_fallen {
            self.fallen_until_ms.store(now_ms() + self.interval_ms, Relaxed);
        }
        has_fallen
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn a_fall_is_much_by_bytes_and_by_share_and_once_an_interval() {
        const MIB: i64 = 1 << 20;
        let cpu = CpuId::new(0);
        let falls: Falls<AtomicU64> = Falls::new(1, 0);
        assert!(!falls.note(cpu, 100 * MIB));
        assert!(!falls.note(cpu, -31 * MIB) && falls.note(cpu, -MIB - MIB));
        // From there on, and no more than a sixteenth.
        assert!(!falls.note(cpu, -31 * MIB) && !falls.note(cpu, 1600 * MIB));
        assert!(!falls.note(cpu, -99 * MIB) && falls.note(cpu, -4 * MIB));

        let falls: Falls<AtomicU64> = Falls::new(1, 3_600_000);
        assert!(!falls.note(cpu, 100 * MIB) && falls.note(cpu, -50 * MIB));
        assert!(!falls.note(cpu, 50 * MIB) && !falls.note(cpu, -50 * MIB), "it came and went");
        assert!(falls.note(cpu, -40 * MIB));
    }
}
