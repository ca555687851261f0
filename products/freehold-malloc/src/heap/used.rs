//! How many bytes are in use, counted where no two CPUs meet.

use core::sync::atomic::Ordering::Relaxed;

use freehold::CpuId;
use freehold::platform::Word;

/// What one CPU may have counted alone, so that blocks that come and go there stay there.
const SHARE_MAX: u64 = 2 << 20;

/// A sum, and what CPUs have not added to it yet: less than [`SHARE_MAX`] each. All relaxed:
/// nothing depends on it.
#[derive(Debug)]
pub(super) struct Used<W> {
    bytes: W,
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
        Used { bytes: W::new(0), shares }
    }

    /// Adds bytes, or takes them off if negative. Returns the sum if it has changed.
    pub(super) fn add(&self, cpu: CpuId, bytes: i64) -> Option<u64> {
        // A thread may have left that CPU by now, so two may meet here after all.
        let share = &self.shares.get(cpu.get() as usize).unwrap_or(&self.shares[0]).0;
        let before = share.fetch_add(bytes.cast_unsigned(), Relaxed);
        if before.wrapping_add_signed(bytes).cast_signed().unsigned_abs() < SHARE_MAX {
            return None;
        }
        // All that is there goes, once: of two threads that meet, the second finds less.
        let counted = share.swap(0, Relaxed);
        let sum = self.bytes.fetch_add(counted, Relaxed).wrapping_add(counted);
        // Below 0, where one CPU has freed what another has not added yet.
        Some(sum.cast_signed().max(0).cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn cpus_count_alone_up_to_their_share() {
        let used: Used<AtomicU64> = Used::new(2);
        let [one, other, beyond] = [0, 1, 2].map(CpuId::new);
        let share = SHARE_MAX.cast_signed();
        for _ in 0..1000 {
            assert_eq!((used.add(one, share / 2), used.add(one, -share / 2)), (None, None));
        }
        assert_eq!(used.add(one, share - 1), None);
        assert_eq!(used.add(other, -share), Some(0), "freed before the other CPU has counted it");
        assert_eq!(used.add(beyond, 2), Some(1), "no more than there are");
        assert_eq!(used.add(other, 2 * share), Some(SHARE_MAX * 2 + 1));
    }
}
