//! One bit for each frame, changed by their owners.
#![expect(unsafe_code, reason = "takes zeroed numbers for zeroed words")]

use core::alloc::Layout;
use core::sync::atomic::Ordering::Relaxed;

use freehold::platform::{Scalar, Word};
use freehold::{FrameCount, Pfn};

const WORD_BITS: u64 = u64::BITS as u64;

/// A bit for each frame of an arena.
///
/// Only the owner of a frame reads or changes its bit: its user from the allocation on, until it is
/// freed. Neighbours in a word belong to others, so changes are atomic. All accesses are relaxed:
/// the allocator orders what one owner did before it freed a frame before what the next one does.
#[derive(Debug)]
pub(crate) struct FrameBits<W>(Box<[W]>);

impl<W: Word<u64>> FrameBits<W> {
    pub(crate) fn new(frames: FrameCount, are_set: bool) -> Self {
        let words = frames.get().div_ceil(WORD_BITS) as usize;
        FrameBits(match are_set {
            true => (0..words).map(|_| W::new(u64::MAX)).collect(),
            false => zeroed(words),
        })
    }

    /// Sets the bits of frames.
    pub(crate) fn set(&self, first: Pfn, frames: FrameCount) {
        for (word, mask) in words(first, frames) {
            let bits = &self.0[word];
            // Most are set already, and a load leaves the cache line with other CPUs.
            if bits.load(Relaxed) & mask != mask {
                bits.fetch_or(mask, Relaxed);
            }
        }
    }

    /// Clears the bits of frames.
    pub(crate) fn clear(&self, first: Pfn, frames: FrameCount) {
        for (word, mask) in words(first, frames) {
            self.0[word].fetch_and(!mask, Relaxed);
        }
    }

    /// Whether the bit of any of these frames is set.
    pub(crate) fn any(&self, first: Pfn, frames: FrameCount) -> bool {
        words(first, frames).any(|(word, mask)| self.0[word].load(Relaxed) & mask != 0)
    }
}

/// So many words that hold zero. Those of the standard library as numbers, since zeroed ones come
/// untouched from the machine: a heap may have far more capacity than it ever uses.
pub(super) fn zeroed<T: Scalar + Default, W: Word<T>>(words: usize) -> Box<[W]> {
    if W::ZERO_BYTES.is_none() || Layout::new::<W>() != Layout::new::<T>() {
        return (0..words).map(|_| W::new(T::default())).collect();
    }
    let numbers: *mut [T] = Box::into_raw(vec![T::default(); words].into_boxed_slice());
    // SAFETY: the box is ours. The numbers are zero, and that is a word of zero bytes, whose layout
    // is that of the number.
    unsafe { Box::from_raw(numbers as *mut [W]) }
}

/// The words in which the bits of frames lie, and which bits of each.
fn words(first: Pfn, frames: FrameCount) -> impl Iterator<Item = (usize, u64)> {
    let end = first.get() + frames.get();
    let mut at = first.get();
    std::iter::from_fn(move || {
        let (word, from) = (at / WORD_BITS, at % WORD_BITS);
        let count = (end - at).min(WORD_BITS - from);
        at += count;
        (count > 0).then(|| (word as usize, (u64::MAX >> (WORD_BITS - count)) << from))
    })
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use super::*;

    type Bits = FrameBits<AtomicU64>;

    #[test]
    fn bits_are_those_of_the_frames_named() {
        let bits = Bits::new(FrameCount::new(300), false);
        for (first, frames) in [(0, 1), (5, 59), (64, 64), (63, 2), (70, 200), (299, 1)] {
            let (first, frames) = (Pfn::new(first), FrameCount::new(frames));
            bits.set(first, frames);
            let is_set = |nth| bits.any(Pfn::new(nth), FrameCount::new(1));
            let end = first + frames;
            assert!(
                (0..300).all(|nth| is_set(nth) == (first <= Pfn::new(nth) && Pfn::new(nth) < end))
            );
            assert!(bits.any(Pfn::new(0), FrameCount::new(300)));
            bits.clear(first, frames);
            assert!(!bits.any(Pfn::new(0), FrameCount::new(300)));
        }
        assert!(Bits::new(FrameCount::new(3), true).any(Pfn::new(2), FrameCount::new(1)));
    }
}
