//! The content of frames, by atomic bytes and words: safe whatever other threads do with them.
#![expect(unsafe_code, reason = "reads and writes bytes of frames")]

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use freehold::{Design, FrameCount, Order, Pfn};

use crate::{FrameArena, Host};

/// The first word of a frame is accessed by bytes, all others as a whole.
const WORD_BYTES: usize = size_of::<u64>();

impl<D: Design<Host>> FrameArena<D> {
    /// Writes the first byte of a frame, which makes the machine back it with memory. Relaxed.
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity.
    #[inline]
    pub fn store_byte(&self, pfn: Pfn, value: u8) {
        self.first_byte(pfn).store(value, Relaxed);
    }

    /// Reads the first byte of a frame: 0 in a frame never written. Relaxed.
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity.
    #[inline]
    pub fn load_byte(&self, pfn: Pfn) -> u8 {
        self.first_byte(pfn).load(Relaxed)
    }

    /// Writes a word of a frame other than its first, whose bytes are accessed one by one. Relaxed.
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity, or it has no such word but the first.
    #[inline]
    pub fn store_word(&self, pfn: Pfn, index: usize, value: u64) {
        self.word(pfn, index).store(value, Relaxed);
    }

    /// Reads a word of a frame other than its first: 0 in a frame never written. Relaxed.
    ///
    /// # Panics
    ///
    /// As [`FrameArena::store_word`].
    #[inline]
    pub fn load_word(&self, pfn: Pfn, index: usize) -> u64 {
        self.word(pfn, index).load(Relaxed)
    }

    /// Copies the content of one block into another, for an owner whose block moves. Relaxed: a
    /// tenth of a microsecond or more a frame. Blocks that overlap are copied frame by frame.
    ///
    /// # Panics
    ///
    /// If a block lies beyond the arena's capacity.
    pub fn copy_block(&self, from: Pfn, to: Pfn, order: Order) {
        for frame in 0..order.frames().get() {
            let [from, to] = [from, to].map(|pfn| pfn.offset(FrameCount::new(frame)));
            // Bytes that `store_byte` writes are bytes here, too, and all others are words in every
            // access: atomic accesses of one size never race.
            for byte in 0..WORD_BYTES {
                self.byte(to, byte).store(self.byte(from, byte).load(Relaxed), Relaxed);
            }
            for word in 1..self.frame_size.bytes() / WORD_BYTES {
                self.word(to, word).store(self.word(from, word).load(Relaxed), Relaxed);
            }
        }
    }

    /// Fills a frame. Relaxed, as [`FrameArena::copy_block`].
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity, or the content is not as long as a frame.
    pub fn write_frame(&self, pfn: Pfn, content: &[u8]) {
        assert_eq!(content.len(), self.frame_size.bytes(), "the content of one frame");
        for (index, bytes) in content.as_chunks::<WORD_BYTES>().0.iter().enumerate() {
            if index == 0 {
                // The bytes of the first word are bytes in every access.
                for (index, &byte) in bytes.iter().enumerate() {
                    self.byte(pfn, index).store(byte, Relaxed);
                }
            } else {
                self.word(pfn, index).store(u64::from_ne_bytes(*bytes), Relaxed);
            }
        }
    }

    /// Copies what is in a frame. Relaxed, as [`FrameArena::copy_block`].
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity, or there is not room for just one.
    pub fn read_frame(&self, pfn: Pfn, content: &mut [u8]) {
        assert_eq!(content.len(), self.frame_size.bytes(), "room for one frame");
        for (index, bytes) in content.as_chunks_mut::<WORD_BYTES>().0.iter_mut().enumerate() {
            *bytes = match index {
                0 => core::array::from_fn(|index| self.byte(pfn, index).load(Relaxed)),
                _ => self.word(pfn, index).load(Relaxed).to_ne_bytes(),
            };
        }
    }

    /// Zeroes frames by writing. Relaxed, as [`FrameArena::copy_block`].
    pub(super) fn zero(&self, first: Pfn, frames: FrameCount) {
        for frame in 0..frames.get() {
            let pfn = first + FrameCount::new(frame);
            (0..WORD_BYTES).for_each(|byte| self.byte(pfn, byte).store(0, Relaxed));
            let words = 1..self.frame_size.bytes() / WORD_BYTES;
            words.for_each(|word| self.word(pfn, word).store(0, Relaxed));
        }
    }

    #[inline]
    fn first_byte(&self, pfn: Pfn) -> &AtomicU8 {
        self.byte(pfn, 0)
    }

    /// One of the first bytes of a frame: those of its first word.
    #[inline]
    fn byte(&self, pfn: Pfn, index: usize) -> &AtomicU8 {
        assert!(index < WORD_BYTES);
        let address = self.address_of(pfn).as_ptr().wrapping_add(index);
        self.check_mapped(pfn);
        // SAFETY: The frame is mapped, and stays so as long as `self` lives. All safe accesses to
        // frames of a `FrameArena` are atomic; its documentation asks unsafe ones to keep others
        // away.
        unsafe { AtomicU8::from_ptr(address) }
    }

    /// Panics if there is no memory behind a frame of the capacity.
    #[inline]
    fn check_mapped(&self, pfn: Pfn) {
        let offset = self.frame_size.bytes_of(pfn - Pfn::new(0));
        assert!(self.memory.has(offset, self.frame_size.bytes()), "{pfn} is not mapped yet");
    }

    /// One of the words of a frame, but not the first.
    #[inline]
    fn word(&self, pfn: Pfn, index: usize) -> &AtomicU64 {
        let words = self.frame_size.bytes() / WORD_BYTES;
        assert!((1..words).contains(&index), "word {index} of a frame is none, or its first");
        let address = self.address_of(pfn).as_ptr().wrapping_add(index * WORD_BYTES);
        self.check_mapped(pfn);
        // SAFETY: As in `byte`. A frame begins at a multiple of its size, so its words are aligned.
        unsafe { AtomicU64::from_ptr(address.cast()) }
    }
}
