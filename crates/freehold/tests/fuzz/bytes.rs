//! Choices from bytes.

/// Bytes that are taken one after the other; behind the last one come zeroes.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Bytes<'_> {
    /// Whether there are more.
    pub(crate) fn has_more(&self) -> bool {
        !self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first
    }

    /// A number of so many bytes, at most eight.
    pub(crate) fn number(&mut self, bytes: u32) -> u64 {
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// A number below `bound`, of two bytes if one does not do.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.number(if bound > 256 { 2 } else { 1 }) % bound
    }

    /// One of these.
    pub(crate) fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}
