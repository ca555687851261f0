//! Emptying isolated pageblocks: content is moved elsewhere until every frame of a span is free.
//!
//! After Linux 6.12 `alloc_contig_range`.

use super::blocks::BlockIndex;
use super::isolate::Isolation;
use super::migrate::Target;
use super::runs::Run;
use super::span::{Span, largest_block};
use super::state::Use;
use crate::Error;
use crate::compact::{Migrate, MigrateError};
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::units::{FrameCount, MigrateType, Order};

/// How often a block that is on its way from one place to another, or whose owner is busy, is
/// looked at again.
const RETRIES: u32 = 8;

/// Why a range could not be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// Where the obstacle lies.
    pub(super) at: u32,
    /// What the caller is told if no other place will do.
    pub(super) error: Error,
}

/// What a look at an isolated pageblock came upon.
enum Met {
    /// Frames that are free, up to this one.
    Free(u32),
    /// A block whose content can move: its first frame and its order.
    Movable(u32, Order),
    /// Content that cannot move, at this frame.
    Fixed(u32),
    /// A block on its way.
    Elsewhere,
}

impl<P: Platform> Isolation<'_, P> {
    /// Makes all frames of a span free, all of whose pageblocks are isolated here.
    pub(super) fn empty(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        span: Span,
        owner: &dyn Migrate,
    ) -> Result<(), Obstacle> {
        let (mut at, mut retries) = (span.first, 0);
        // What was free once stays so: nobody is served from an isolated pageblock.
        while at < span.end {
            let moved = match self.look(Span { first: at, ..span }) {
                Met::Free(behind) => {
                    (at, retries) = (behind, 0);
                    Ok(())
                }
                Met::Movable(from, order) => {
                    let target = Target::near(self.design, context, zone, order);
                    let target = target.map_err(|error| Obstacle { at, error })?;
                    match target.fill(owner, from) {
                        Ok(true) => {
                            retries = 0;
                            Ok(())
                        }
                        // Moved, as the owner says, but not given up: whoever freed it meanwhile
                        // had no right.
                        Ok(false) => Err(MigrateError::Busy),
                        Err(error) => Err(error),
                    }
                }
                Met::Fixed(frame) => return Err(Obstacle { at: frame, error: Error::RangeBusy }),
                Met::Elsewhere => Err(MigrateError::Busy),
            };
            match moved {
                Ok(()) => {}
                Err(MigrateError::Busy) if retries < RETRIES => {
                    retries += 1;
                    context.platform.relax();
                }
                Err(_) => return Err(Obstacle { at, error: Error::RangeBusy }),
            }
        }
        Ok(())
    }

    /// Looks at the first pageblock of a span.
    fn look(&self, span: Span) -> Met {
        let (blocks, block) = (&self.design.blocks, BlockIndex::of_frame(span.first));
        let part = Span { end: span.end.min(Span::of(block, 1).end), ..span };
        let state = blocks.state(block);
        match state.used_for() {
            Use::Split => {
                let Some(frame) = blocks.next_used(part) else {
                    // Of what others have freed by now, nothing is left to be harvested later.
                    self.design.collect(block);
                    return Met::Free(part.end);
                };
                let run = blocks.part_of(frame);
                match blocks.is_fixed(run) {
                    true => Met::Fixed(frame),
                    false => Met::Movable(run.frame(), run.order),
                }
            }
            Use::Huge | Use::HugeTail => match self.design.head_of(block) {
                None => Met::Elsewhere,
                Some((head, of)) if of.migratetype() == MigrateType::Movable => {
                    Met::Movable(head.frame(), of.order())
                }
                Some(_) => Met::Fixed(span.first),
            },
            Use::Absent | Use::Whole => Met::Elsewhere,
        }
    }

    /// Hands out the frames of a span, all of which are free, in the largest blocks that fit.
    pub(super) fn take(mut self, context: Context<'_, P>, span: Span, migratetype: MigrateType) {
        let mut at = span.first;
        while at < span.end {
            let order = largest_block::<P>(self.design.blocks.pfn_of(at), span.end - at);
            if order >= Order::PAGEBLOCK {
                self.hand_out(BlockIndex::of_frame(at), order, migratetype);
            } else {
                let run = Run::at(at, order);
                self.design.blocks.fix(run);
                self.design.blocks.take_run(run);
            }
            at += order.frames().get() as u32;
        }
        let zone = self.design.blocks.zone(BlockIndex::of_frame(span.first));
        let frames = FrameCount::new(u64::from(span.end - span.first));
        self.design.note_direct_alloc(context, zone, frames);
    }
}
