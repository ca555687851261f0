//! Memory that comes where no records are: the last stretch grows to it, or it begins one.

use core::ops::Range;

use super::plan::index_behind;
use super::{ALIGNED_FRAMES, Stretch, Stretches};
use crate::memmap::index::FrameRange;
use crate::platform::Platform;
use crate::units::{FrameCount, Order, Pfn};

/// A stretch that is added is rounded outwards to so many frames, so that memory beside it needs no
/// other: a memory block of Linux.
const BLOCK_FRAMES: u64 = 1 << 15;

const BUDDY_FRAMES: u64 = Order::BUDDY_MAX.frames().get();

const _: () = assert!(BLOCK_FRAMES.is_multiple_of(BUDDY_FRAMES));

/// How many indexes a stretch that is added takes beside those of its memory, at most: they are
/// rounded, aligned, and lie apart from those before.
pub(super) const SLOT_FRAMES: u64 = 2 * BLOCK_FRAMES + ALIGNED_FRAMES + BUDDY_FRAMES;

impl<P: Platform> Stretches<P> {
    /// The indexes of so many frames from one on, which get some if they have none yet. `None` if
    /// there is no room, they lie outside of the span, or those that have indexes are not of the
    /// last stretch alone. The caller holds the lock under which memory is added.
    pub fn cover(&self, first: Pfn, frames: FrameCount) -> Option<FrameRange> {
        self.locate(first, frames).or_else(|| {
            self.grow(first.get()..first.offset(frames).get())?;
            self.locate(first, frames)
        })
    }

    fn grow(&self, wanted: Range<u64>) -> Option<()> {
        if wanted.start < self.bounds.start || wanted.end > self.bounds.end {
            return None;
        }
        let last = self.far().enumerate().last();
        let new = self.around(&wanted, last.map(|(_, stretch)| stretch))?;
        let beside = last.filter(|(_, stretch)| stretch.number_end() == new.start);
        let (nth, first, index) = match beside {
            Some((nth, stretch)) => (nth, stretch.first.get(), stretch.index),
            None => {
                let behind = |(nth, stretch): (usize, Stretch)| (nth + 1, stretch.end());
                let (nth, taken) = last.map_or((0, self.near_frames), behind);
                (nth, new.start, index_behind(taken, new.start, self.near))
            }
        };
        let record = self.far.try_get(nth)?;
        let most = self.frames.checked_sub(index)?;
        let frames = (new.end - first).min(most / BUDDY_FRAMES * BUDDY_FRAMES);
        if first + frames < wanted.end {
            return None;
        }
        record.set(Stretch { first: Pfn::new(first), frames, index });
        Some(())
    }

    /// Frames rounded outwards, as far as no others have indexes, and without those that the last
    /// stretch has. `None` if another one has some of them.
    fn around(&self, wanted: &Range<u64>, last: Option<Stretch>) -> Option<Range<u64>> {
        let mut start = wanted.start / BLOCK_FRAMES * BLOCK_FRAMES;
        let mut end = wanted.end.checked_next_multiple_of(BLOCK_FRAMES)?;
        for stretch in self.iter().filter(|stretch| stretch.frames > 0) {
            let (of, behind) = (stretch.first.get(), stretch.number_end());
            let is_last = last == Some(stretch);
            match (behind <= wanted.start || is_last && of <= wanted.start, of >= wanted.end) {
                (true, _) => start = start.max(behind),
                (_, true) => end = end.min(of),
                _ => return None,
            }
        }
        Some(start..end)
    }
}
