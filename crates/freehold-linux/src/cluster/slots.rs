//! Which slots of clusters are in use: a bit for each. The slots of all zones are one table, of
//! which a zone has some whole words. It looks for an unused slot from where the first may be.

use freehold::memmap::region::Table;
use freehold::platform::{Platform, SharedCell};
use freehold::units::FrameCount;

/// The index of a cluster's slot among those of all zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClusterIndex(pub(super) u32);

pub(super) const WORD_BITS: u32 = u64::BITS;

/// How many slots a zone gets that starts with so many frames: one for each batch, as in the
/// source, in whole words. Batches of a single frame would gain nothing.
pub(super) fn slots_for(managed: FrameCount, batch: u32) -> u32 {
    if batch <= 1 {
        return 0;
    }
    let slots = managed.get().div_ceil(u64::from(batch));
    (slots as u32).next_multiple_of(WORD_BITS)
}

/// The slots of one zone. Guarded by the zone lock.
pub(super) struct ZoneSlots<P: Platform> {
    first: u32,
    pub(super) len: u32,
    /// No unused slot lies before this one, counted from the first.
    unused_from: P::Cell<u32>,
}

impl<P: Platform> ZoneSlots<P> {
    /// `len` unused slots from `first` on.
    pub(super) fn new(first: u32, len: u32) -> Self {
        ZoneSlots { first, len, unused_from: P::Cell::new(0) }
    }

    /// Takes an unused slot. `used` has the bits of all zones.
    pub(super) fn take(&self, used: &Table<P::Cell<u64>>) -> Option<ClusterIndex> {
        for word in self.unused_from.get() / WORD_BITS..self.len / WORD_BITS {
            let in_use = used.get((self.first / WORD_BITS + word) as usize);
            let bits = in_use.get();
            if bits != u64::MAX {
                let bit = bits.trailing_ones();
                in_use.set(bits | 1 << bit);
                let slot = word * WORD_BITS + bit;
                self.unused_from.set(slot);
                return Some(ClusterIndex(self.first + slot));
            }
        }
        self.unused_from.set(self.len);
        None
    }

    /// Puts a slot back.
    pub(super) fn put(&self, used: &Table<P::Cell<u64>>, slot: ClusterIndex) {
        let in_use = used.get((slot.0 / WORD_BITS) as usize);
        in_use.set(in_use.get() & !(1 << (slot.0 % WORD_BITS)));
        self.unused_from.set(self.unused_from.get().min(slot.0 - self.first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_one_frame_have_no_clusters() {
        assert_eq!(slots_for(FrameCount::new(1 << 20), 1), 0);
        assert_eq!(slots_for(FrameCount::new(1 << 20), 64), 1 << 14);
        assert_eq!(slots_for(FrameCount::new(65 * 4), 4), 2 * WORD_BITS);
    }
}
