//! A list of a few things, before there is memory for more.

use core::ops::Deref;

/// At most `ENTRIES_MAX` entries.
#[derive(Clone, Debug)]
pub(crate) struct List<T, const ENTRIES_MAX: usize> {
    entries: [T; ENTRIES_MAX],
    len: usize,
}

impl<T: Clone, const ENTRIES_MAX: usize> List<T, ENTRIES_MAX> {
    /// An empty list. `filler` is never seen.
    pub(crate) fn new(filler: T) -> Self {
        List { entries: core::array::from_fn(|_| filler.clone()), len: 0 }
    }

    /// Appends an entry; returns whether there was room.
    #[must_use]
    pub(crate) fn push(&mut self, entry: T) -> bool {
        let place = self.entries.get_mut(self.len);
        self.len += usize::from(place.is_some());
        place.map(|place| *place = entry).is_some()
    }
}

impl<T, const ENTRIES_MAX: usize> Deref for List<T, ENTRIES_MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.entries[..self.len]
    }
}
