//! Memory whose lines the machine knows: the metadata of an allocator, or a workload's shared data.

#![expect(unsafe_code, reason = "zeroed memory is lent out as words")]

use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

use freehold::NodeId;

use crate::platform::{SimLocalCell, SimWord};

/// A kind of data, by which cache misses are reported. Made by [`crate::Machine::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind(pub(crate) u8);

impl Kind {
    /// Unlabelled data.
    pub const OTHER: Kind = Kind(0);
}

/// The node whose memory holds lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// This node's.
    Node(NodeId),
    /// That of the first CPU to touch a line. This is the default.
    FirstTouch,
    /// All nodes' in turn, a frame each.
    Interleave,
}

/// Zeroed memory that belongs to the caller, with a line of the machine's directory for every 64
/// bytes. Clones are the same memory, which is freed with the last of them.
///
/// Costs are keyed by the offset from the start, so they do not depend on where the host put it.
#[derive(Clone, Debug)]
pub struct Region {
    /// Keeps the memory alive. Nothing reads or writes it through the vector.
    _memory: Rc<Vec<u8>>,
    start: NonNull<u8>,
    bytes: usize,
    pub(crate) first_line: usize,
}

impl Region {
    /// Allocates `bytes`, rounded up to whole lines, at a multiple of `align`.
    pub(crate) fn allocate(bytes: usize, align: usize) -> Self {
        assert!(align.is_power_of_two(), "the alignment {align} is not a power of two");
        let align = align.max(64);
        let bytes = bytes.next_multiple_of(64);
        // The host supplies zeroed memory untouched, so unused parts cost nothing.
        let mut memory = vec![0; bytes + align];
        let base = memory.as_mut_ptr();
        let start = base.wrapping_add(base.align_offset(align));
        let start = NonNull::new(start).expect("a vector's memory is not at address 0");
        Region { _memory: Rc::new(memory), start, bytes, first_line: 0 }
    }

    /// Where the memory starts. It may be read and written through this pointer as long as the
    /// region or a clone of it lives.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// The region as words, eight a line, for data that CPUs of a workload share. There must be no
    /// mutable reference into the region, made through [`Region::as_ptr`].
    pub fn words(&self) -> &[SimWord<u64>] {
        let words = self.start.cast();
        // SAFETY: The region is `bytes` of initialised memory, aligned to a line, that live as long
        // as `self`. A word is one integer in a cell, for which all bits are valid, and cells may
        // be shared by everything on this thread, which the region never leaves.
        unsafe { std::slice::from_raw_parts(words.as_ptr(), self.bytes / 8) }
    }

    /// As [`Region::words`], for data private to each CPU.
    pub fn local_words(&self) -> &[SimLocalCell<u64>] {
        let words = self.start.cast();
        // SAFETY: As in `words`: a local cell is one integer in a cell, too.
        unsafe { std::slice::from_raw_parts(words.as_ptr(), self.bytes / 8) }
    }

    /// Bytes in the region: a multiple of 64.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The lines that a range of offsets touches.
    ///
    /// # Panics
    ///
    /// If the range ends past the region.
    pub(crate) fn lines(&self, offsets: Range<usize>) -> Range<usize> {
        assert!(
            offsets.start <= offsets.end && offsets.end <= self.bytes,
            "offsets {offsets:?} are not inside a region of {} bytes",
            self.bytes
        );
        self.first_line + offsets.start / 64..self.first_line + offsets.end.div_ceil(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_aligned_and_whole_lines() {
        for align in [1, 64, 4096, 2 << 20] {
            let region = Region::allocate(100, align);
            assert_eq!(region.len(), 128);
            assert_eq!(region.as_ptr().as_ptr() as usize % align.max(64), 0);
            assert!(!region.is_empty());
        }
        let region = Region::allocate(256, 64);
        assert_eq!(region.lines(10..129), 0..3);
        assert_eq!((region.words().len(), region.local_words().len()), (32, 32));
    }

    #[test]
    #[should_panic(expected = "not inside a region of 128 bytes")]
    fn a_range_behind_the_region_is_refused() {
        Region::allocate(128, 64).lines(0..129);
    }
}
