//! Freeing frames that lie side by side, in whatever blocks they were allocated: all or none.

use super::Freehold;
use super::blocks::BlockIndex;
use super::span::{Span, largest_block};
use super::state::Use;
use crate::Error;
use crate::designs::Context;
use crate::platform::Platform;
use crate::units::{FrameCount, Pfn};

impl<P: Platform> Freehold<P> {
    /// Frees all frames of a range. Of blocks that reach beyond it, the rest stays allocated.
    ///
    /// That none of them is free is looked at before the first one is freed. If somebody else frees
    /// some of the same frames at the same time, the one who comes to them second stops there; of
    /// two who free the same range, it is the one who has freed nothing.
    pub(super) fn free_contiguous(
        &self,
        context: Context<'_, P>,
        first: Pfn,
        frames: FrameCount,
    ) -> Result<(), Error> {
        let first = self.blocks.index_of(first).ok_or(Error::ForeignFrame)?;
        if frames.get() > self.blocks.frames() - u64::from(first) {
            return Err(Error::ForeignFrame);
        }
        let mut span = Span { first, end: first + frames.get() as u32 };
        self.check_used(span)?;
        while span.first < span.end {
            span.first = self.free_first(context, span)?;
        }
        Ok(())
    }

    /// Refuses a span that is not all of one zone and in the hands of users.
    fn check_used(&self, span: Span) -> Result<(), Error> {
        let first = BlockIndex::of_frame(span.first);
        let zone = self.blocks.zone_if_any(first).ok_or(Error::ForeignFrame)?;
        for (block, part) in span.blocks() {
            match self.blocks.zone_if_any(block) {
                None => return Err(Error::ForeignFrame),
                Some(of) if of != zone => return Err(Error::BadRange),
                Some(_) => {}
            }
            match self.blocks.state(block).used_for() {
                Use::Absent => return Err(Error::ForeignFrame),
                Use::Whole => return Err(Error::DoubleFree),
                Use::Huge | Use::HugeTail => {}
                Use::Split => {
                    for (word, mask) in part.words() {
                        if self.blocks.holes(word) & mask != 0 {
                            return Err(Error::ForeignFrame);
                        }
                        if self.blocks.used(word) & mask != mask {
                            return Err(Error::DoubleFree);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Frees the first frames of a span, as many as are easily freed at once; returns what follows
    /// them.
    fn free_first(&self, context: Context<'_, P>, span: Span) -> Result<u32, Error> {
        let block = BlockIndex::of_frame(span.first);
        let state = self.blocks.state(block);
        match state.used_for() {
            Use::Huge | Use::HugeTail => {
                let (_, of) = self.head_of(block).ok_or(Error::DoubleFree)?;
                let pfn = self.blocks.pfn_of(span.first);
                let order = largest_block::<P>(pfn, span.end - span.first).min(of.order());
                self.free_huge(context, span.first, order)?;
                Ok(span.first + order.frames().get() as u32)
            }
            Use::Split => {
                let end = span.end.min(Span::of(block, 1).end);
                for (word, mask) in (Span { end, ..span }).words() {
                    self.blocks.cut(word, mask);
                    self.blocks.unfix(word, mask);
                    self.free_in_words(context, state, word..word + 1, mask)?;
                }
                Ok(end)
            }
            Use::Absent | Use::Whole => Err(Error::DoubleFree),
        }
    }
}
