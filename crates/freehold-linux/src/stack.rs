//! Stacks of claimed blocks, linked through the records of their heads.

use crate::frame::FrameTable;
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::{NIL, decode};
use freehold::platform::{Platform, SharedCell};

/// A stack of claimed blocks. Its top is a plain value, since it is never shared: only the caller
/// that claimed a block accesses its links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    top: u32,
}

impl Stack {
    pub(crate) const EMPTY: Self = Stack { top: NIL };

    #[inline]
    pub(crate) fn push<P: Platform>(&mut self, frames: &FrameTable<P>, block: FrameIndex) {
        frames.record(block).next.set(self.top);
        self.top = block.0;
    }

    #[inline]
    pub(crate) fn pop<P: Platform>(&mut self, frames: &FrameTable<P>) -> Option<FrameIndex> {
        let block = decode(self.top)?;
        self.top = frames.record(block).next.get();
        Some(block)
    }
}
