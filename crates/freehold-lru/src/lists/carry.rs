//! Fractions of frames: what is left over of the part of a list to scan is carried to the next.

use crate::kind::{List, PerList};

/// The highest priority: reclaim scans one frame in 2 to the power of it.
pub(crate) const PRIORITY_MAX: u32 = 12;

/// What is left over where the part of a list to scan is no whole number of frames: 16 bits for
/// each list that can be reclaimed from, in units of a frame divided by 2 to the power of
/// [`PRIORITY_MAX`]. So each list bears in proportion to its size, however small that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carry(pub(super) u64);

impl Carry {
    /// Of each list, one frame in 2 to the power of `priority`, with what was left over.
    pub(crate) fn divide<N: Copy + Into<u64>>(
        &mut self,
        frames: &PerList<N>,
        priority: u32,
    ) -> PerList<u64> {
        let mut parts = [0; List::COUNT];
        for list in List::EVICTABLE {
            parts[list as usize] = self.part(list, frames[list as usize].into(), priority);
        }
        parts
    }

    fn part(&mut self, list: List, frames: u64, priority: u32) -> u64 {
        let shift = list as u32 * 16;
        let sum = (frames << (PRIORITY_MAX - priority)) + (self.0 >> shift & 0xffff);
        let left = sum & ((1 << PRIORITY_MAX) - 1);
        self.0 = self.0 & !(0xffff << shift) | left << shift;
        sum >> PRIORITY_MAX
    }
}

const _: () = assert!(PRIORITY_MAX <= 16 && List::EVICTABLE.len() <= 4, "four lists in one word");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_over_counts_later() {
        let mut carry = Carry::default();
        let mut sum = |list, frames, priority| -> u64 {
            (0..4096).map(|_| carry.part(list, frames, priority)).sum()
        };
        assert_eq!(sum(List::InactiveAnon, 1, 12), 1);
        assert_eq!(sum(List::ActiveFile, 4097, 12), 4097);
        assert_eq!(sum(List::InactiveAnon, 3, 10), 12);
        assert_eq!(sum(List::ActiveFile, u64::from(u32::MAX), 0), 4096 * u64::from(u32::MAX));
        let mut carry = Carry(0);
        carry.part(List::InactiveFile, 1, 1);
        assert_eq!(
            (carry.part(List::ActiveFile, 1, 1), carry.part(List::InactiveFile, 1, 1)),
            (0, 1)
        );
    }
}
