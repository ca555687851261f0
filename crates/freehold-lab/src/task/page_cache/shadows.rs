//! The shadows of evicted blocks, of which each file keeps the latest.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The blocks of each file that have a shadow, and the words of these, in the order of eviction.
pub(super) struct Shadows {
    files: Vec<Mutex<VecDeque<(u64, u64)>>>,
    most: usize,
}

impl Shadows {
    /// None yet; each file keeps so many.
    pub(super) fn new(files: usize, most: usize) -> Self {
        Shadows { files: (0..files).map(|_| Mutex::default()).collect(), most }
    }

    /// Notes that a block of a file now has this shadow. Returns the block that has to lose its
    /// own, if it still has it. A block that came back since counts as well, so that a file never
    /// has more than it may keep.
    pub(super) fn push(&self, file: usize, block: u64, word: u64) -> Option<(u64, u64)> {
        let mut kept = self.files[file].lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((block, word));
        if kept.len() > self.most { kept.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_the_latest() {
        let shadows = Shadows::new(2, 2);
        assert_eq!(shadows.push(0, 7, 70), None);
        assert_eq!(shadows.push(1, 9, 90), None);
        assert_eq!(shadows.push(0, 8, 80), None);
        assert_eq!(shadows.push(0, 7, 71), Some((7, 70)));
        assert_eq!(shadows.push(0, 6, 60), Some((8, 80)));
        assert_eq!(shadows.push(1, 5, 50), None);
    }
}
