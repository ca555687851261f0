//! How many frames are in use, counted where no two CPUs meet.

use core::sync::atomic::Ordering::Relaxed;

use freehold::platform::Word;
use freehold::{CpuId, Order};

/// What one CPU may have counted alone, so that blocks that come and go there stay there.
const SHARE_MAX: u64 = Order::PAGEBLOCK.frames().get();

/// A sum, and what CPUs have not added to it yet: less than a pageblock each. All relaxed: nothing
/// depends on it.
#[derive(Debug)]
pub(super) struct Used<W> {
    frames: W,
    shares: Box<[Share<W>]>,
}

/// Two cache lines, which processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
struct Share<W>(W);

impl<W: Word<u64>> Used<W> {
    /// Nothing is in use, for so many CPUs.
    pub(super) fn new(cpus: usize) -> Self {
        let shares = (0..cpus.max(1)).map(|_| Share(W::new(0))).collect();
        Used { frames: W::new(0), shares }
    }

    /// Adds frames, or takes them off if negative. Returns the sum if it has changed.
    pub(super) fn add(&self, cpu: CpuId, frames: i64) -> Option<u64> {
        // A thread may have left that CPU by now, so two may meet here after all.
        let share = &self.shares[cpu.get() as usize % self.shares.len()].0;
        let counted = share.fetch_add(frames as u64, Relaxed).wrapping_add(frames as u64);
        if (counted as i64).unsigned_abs() < SHARE_MAX {
            return None;
        }
        let counted = share.swap(0, Relaxed);
        let sum = self.frames.fetch_add(counted, Relaxed).wrapping_add(counted);
        // Below 0, where one CPU has freed what another has not added yet.
        Some((sum as i64).max(0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn cpus_count_alone_up_to_a_pageblock() {
        let used: Used<AtomicU64> = Used::new(2);
        let [one, other, beyond] = [0, 1, 2].map(CpuId::new);
        for _ in 0..1000 {
            assert_eq!((used.add(one, 257), used.add(one, -257)), (None, None));
        }
        assert_eq!(used.add(one, 511), None);
        assert_eq!(used.add(other, -512), Some(0), "freed before the other CPU has counted it");
        assert_eq!(used.add(beyond, 2), Some(1), "no more than there are");
        assert_eq!(used.add(other, 1000), Some(1001));
    }
}
