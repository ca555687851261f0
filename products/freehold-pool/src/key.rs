//! Numbers of slots, and of who uses them.

use std::fmt;
use std::num::NonZeroU64;

/// The number of a slot in its pool, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(u32);

impl SlotIndex {
    /// The slot of this number.
    pub const fn new(number: u32) -> Self {
        SlotIndex(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number, as an index of tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SlotIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.0)
    }
}

/// Whose slots are alike: in a WebAssembly runtime, a compiled module.
///
/// Users with the same key may see what one of them left in a slot that it
/// [kept](crate::Slot::keep); those with other keys never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModuleKey(NonZeroU64);

impl ModuleKey {
    /// The key of this number: a counter, or the address of what does not move.
    ///
    /// # Panics
    ///
    /// If the number is `u64::MAX`.
    pub const fn new(number: u64) -> Self {
        match NonZeroU64::new(number.wrapping_add(1)) {
            Some(word) => ModuleKey(word),
            None => panic!("u64::MAX is no key"),
        }
    }

    /// The key as a word that is not 0.
    pub(crate) const fn get(self) -> u64 {
        self.0.get()
    }

    /// What [`ModuleKey::get`] returned, or 0 for no key.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        NonZeroU64::new(word).map(ModuleKey)
    }

    /// A number in which all bits of the key have a part, by Fibonacci hashing.
    pub(crate) const fn hash(self) -> usize {
        (self.0.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
    }
}
