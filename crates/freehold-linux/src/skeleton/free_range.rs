//! Freeing contiguous frames, whatever blocks they were allocated in: all or none.

use super::{Policy, Skeleton};
use crate::frame::{FrameState, Tag};
use freehold::Error;
use freehold::designs::Context;
use freehold::memmap::index::{FrameIndex, FrameRange, ZoneIndex};
use freehold::platform::Platform;
use freehold::units::{FrameCount, Order};

/// So many blocks are freed under one hold of the zone lock.
const CHUNK_BLOCKS: usize = 32;

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// Claims all frames of a range, or changes nothing.
    pub(super) fn claim_span(
        &self,
        platform: &P,
        zone: ZoneIndex,
        span: FrameRange,
    ) -> Result<(), Error> {
        // First what lies wholly within the range, then what reaches beyond its ends: only that has
        // to be split, and a split cannot be undone.
        let inner = self.inner(platform, zone, span)?;
        let mut at = inner.first;
        while at < inner.end {
            match self.claim_within(zone, at, inner.end) {
                Ok(order) => at = at.after(order),
                Err(error) => {
                    self.unclaim(FrameRange { first: inner.first, end: at });
                    return Err(error);
                }
            }
        }
        let ends = self.claim_ends(platform, zone, span, inner);
        ends.inspect_err(|_| self.unclaim(inner))
    }

    /// The part of a range between the blocks that extend beyond its ends.
    fn inner(&self, platform: &P, zone: ZoneIndex, span: FrameRange) -> Result<FrameRange, Error> {
        let _guard = self.lock_zone(platform, zone);
        let bounds = |frame| {
            let (head, state) = self.head_of(frame)?;
            let order = state.order().filter(|_| state.tag() == Tag::Allocated);
            Ok((head, head.after(order.ok_or(Error::DoubleFree)?)))
        };
        let (head, after) = bounds(span.first)?;
        let first = if head < span.first { after.min(span.end) } else { span.first };
        let (head, after) = bounds(FrameIndex(span.end.0 - 1))?;
        let end = if after > span.end { head.max(first) } else { span.end };
        Ok(FrameRange { first, end })
    }

    fn claim_within(
        &self,
        zone: ZoneIndex,
        block: FrameIndex,
        end: FrameIndex,
    ) -> Result<Order, Error> {
        let state = self.frames.state(block);
        if state == FrameState::HOLE {
            return Err(Error::ForeignFrame);
        }
        if self.blocks.zone(block) != Some(zone) {
            return Err(Error::BadRange);
        }
        let order = state.order().filter(|_| state.tag() == Tag::Allocated);
        let order = order.ok_or(Error::DoubleFree)?;
        let claimed =
            block.after(order) <= end && self.frames.claim(block, state, state.retag(Tag::Claimed));
        if claimed { Ok(order) } else { Err(Error::DoubleFree) }
    }

    /// Claims the parts of a range outside `inner`, splitting the blocks that they are parts of.
    fn claim_ends(
        &self,
        platform: &P,
        zone: ZoneIndex,
        span: FrameRange,
        inner: FrameRange,
    ) -> Result<(), Error> {
        // One split at a time, as in a free of a part.
        let _guard = self.lock_zone(platform, zone);
        let claim = |frame| {
            let (head, state) = self.head_of(frame)?;
            if self.blocks.zone(head) != Some(zone) {
                return Err(Error::BadRange);
            }
            let order = state.order().filter(|_| state.tag() == Tag::Allocated);
            let order = order.ok_or(Error::DoubleFree)?;
            let claimed = self.frames.claim(head, state, state.retag(Tag::Claimed));
            if claimed { Ok((head, state, order)) } else { Err(Error::DoubleFree) }
        };
        let low = if span.first < inner.first { Some(claim(span.first)?) } else { None };
        // A single block may extend beyond both ends.
        let high = if inner.end < span.end
            && low.is_none_or(|(head, _, order)| head.after(order) < span.end)
        {
            let high = claim(inner.end);
            if let (Err(_), Some((head, state, _))) = (&high, low) {
                self.frames.set_state(head, state);
            }
            Some(high?)
        } else {
            None
        };
        for (head, state, order) in low.into_iter().chain(high) {
            self.split_claimed(head, state, order, span);
        }
        Ok(())
    }

    /// Splits a claimed block into what lies within a range, which stays claimed, and the rest,
    /// which is allocated again.
    fn split_claimed(&self, block: FrameIndex, state: FrameState, order: Order, span: FrameRange) {
        let mark = |tag| FrameState::head(tag, order, state.block_type());
        if span.has_all_of(block, order) {
            self.frames.set_state(block, mark(Tag::Claimed));
        } else if span.has_none_of(block, order) {
            self.frames.set_state(block, mark(Tag::Allocated));
        } else {
            let half = Order::new(order.get() - 1);
            // From above, so that a concurrent reader finds a block for every frame.
            self.split_claimed(block.after(half), state, half, span);
            self.split_claimed(block, state, half, span);
        }
    }

    /// Returns claimed blocks to their user.
    fn unclaim(&self, span: FrameRange) {
        let mut at = span.first;
        while at < span.end {
            let state = self.frames.state(at);
            self.frames.set_state(at, state.retag(Tag::Allocated));
            at = at.after(state.order().unwrap_or(Order::ZERO));
        }
    }

    /// Frees a range of claimed blocks, with the lock dropped in between.
    pub(super) fn put_span(&self, context: Context<'_, P>, zone: ZoneIndex, span: FrameRange) {
        let mut at = span.first;
        while at < span.end {
            let mut freed = FrameCount::ZERO;
            let guard = self.lock_zone(context.platform, zone);
            for _ in 0..CHUNK_BLOCKS {
                if at >= span.end {
                    break;
                }
                let order = self.frames.state(at).order().unwrap_or(Order::ZERO);
                guard.add_free(self.put_in_zone(&guard, at, order, zone));
                freed += order.frames();
                at = at.after(order);
            }
            self.unlock_and_note(context, zone, guard, |events| events.note_direct_free(freed));
        }
    }
}
