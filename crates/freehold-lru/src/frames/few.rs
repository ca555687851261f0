//! A few frames, as many as fit a batch.

use crate::settings::BATCH_MAX;
use freehold::memmap::index::FrameIndex;

/// Frames that were taken out of a batch, or off a list.
#[derive(Clone, Copy)]
pub(crate) struct Few {
    frames: [u32; BATCH_MAX],
    len: usize,
}

impl Default for Few {
    fn default() -> Self {
        Self::new()
    }
}

impl Few {
    pub(crate) const fn new() -> Self {
        Few { frames: [0; BATCH_MAX], len: 0 }
    }

    pub(crate) fn push(&mut self, frame: FrameIndex) {
        self.frames[self.len] = frame.0;
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<FrameIndex> {
        self.len = self.len.checked_sub(1)?;
        Some(FrameIndex(self.frames[self.len]))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = FrameIndex> + '_ {
        self.frames[..self.len].iter().map(|&frame| FrameIndex(frame))
    }
}
