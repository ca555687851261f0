//! Names of blocks and of frames, each in one word.

use std::fmt;

use freehold_host::Pfn;

/// The number of a block within its file: block 0 begins at offset 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

/// How many bits of a [`Key`] are the number of the block. The others are the file's.
const BLOCK_BITS: u32 = 40;

/// The most files that are open at a time. The number behind the last one is no file's.
pub(crate) const FILES_MAX: usize = (1 << (u64::BITS - BLOCK_BITS)) - 1;

/// A block of an open file, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64);

impl Key {
    /// No block.
    pub(crate) const NONE: Self = Key(u64::MAX);

    /// `None` if the file cannot have so many blocks.
    pub(crate) fn new(file: usize, block: Block) -> Option<Self> {
        let is_in_range = block.0 >> BLOCK_BITS == 0;
        is_in_range.then_some(Key((file as u64) << BLOCK_BITS | block.0))
    }

    pub(crate) fn block(self) -> Block {
        Block(self.0 & ((1 << BLOCK_BITS) - 1))
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0 >> BLOCK_BITS, self.block().0)
    }
}

/// The number of a slot, which is that of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotIndex(u32);

impl SlotIndex {
    pub(crate) fn of(frame: Pfn) -> Self {
        // The builder refuses memory of more frames.
        SlotIndex(frame.get() as u32)
    }

    pub(crate) fn new(index: u32) -> Self {
        SlotIndex(index)
    }

    pub(crate) fn frame(self) -> Pfn {
        Pfn::new(self.0.into())
    }

    pub(crate) fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_file_and_block() {
        let most = (1 << BLOCK_BITS) - 1;
        let key = Key::new(FILES_MAX - 1, Block(most)).unwrap();
        assert_eq!(key.block(), Block(most));
        assert_ne!(key, Key::NONE);
        assert_eq!(Key::new(0, Block(most + 1)), None);
        assert_ne!(Key::new(1, Block(0)), Key::new(0, Block(0)));
    }
}
