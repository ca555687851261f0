//! Migration: moves content out of isolated pageblocks until every frame of a span is free.
//!
//! After Linux 6.12 `alloc_contig_range`.

use super::isolate::Isolation;
use super::target::Target;
use crate::Error;
use crate::compact::{Migrate, MigrateError};
use crate::designs::Context;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::run::{Run, Span, largest_block};
use crate::designs::freehold::pageblocks::state::Use;
use crate::designs::places::{Obstacle, evict};
use crate::memmap::index::{FrameIndex, ZoneIndex};
use crate::platform::Platform;
use crate::units::{FrameCount, MigrateType, Order};

/// How often a block that is on its way from one place to another, or whose owner is busy, is
/// re-checked.
const RETRIES: u32 = 8;

/// The result of a look at an isolated pageblock.
enum Met {
    /// Frames that are free, up to this one.
    Free(u32),
    /// A block whose content can move: its first frame and its order.
    Movable(u32, Order),
    /// Content that cannot move, at this frame.
    Fixed(u32),
    /// A block on its way from one place to another.
    Elsewhere,
}

impl<P: Platform> Isolation<'_, P> {
    /// Makes all frames of a span free. All its pageblocks are isolated here.
    pub(crate) fn empty(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        span: Span,
        owner: &dyn Migrate,
    ) -> Result<(), Obstacle> {
        let (mut at, mut retries) = (span.first, 0);
        // What was free once stays so: no call allocates from an isolated pageblock.
        while at < span.end {
            let moved = match self.look(context, Span { first: at, ..span }, owner) {
                Met::Free(behind) => {
                    (at, retries) = (behind, 0);
                    Ok(())
                }
                Met::Movable(from, order) => {
                    let moved = self.move_away(context, zone, (from, order), owner);
                    let moved = moved.map_err(|error| Obstacle { at: FrameIndex(at), error })?;
                    moved.inspect(|()| retries = 0)
                }
                Met::Fixed(frame) => {
                    return Err(Obstacle { at: FrameIndex(frame), error: Error::RangeBusy });
                }
                Met::Elsewhere => Err(MigrateError::Busy),
            };
            match moved {
                Ok(()) => {}
                Err(MigrateError::Busy) if retries < RETRIES => {
                    retries += 1;
                    context.platform.relax();
                }
                Err(_) => return Err(Obstacle { at: FrameIndex(at), error: Error::RangeBusy }),
            }
        }
        Ok(())
    }

    /// Has the content of a block moved to a free one outside, or evicted, unless neither can be.
    fn move_away(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        (from, order): (u32, Order),
        owner: &dyn Migrate,
    ) -> Result<Result<(), MigrateError>, Error> {
        let pfn = self.design.pageblocks().pfn_of(from);
        let target = match Target::near(self.design, context, zone, order) {
            Ok(target) => target,
            Err(error) => return evict(owner, pfn, order, error),
        };
        match target.fill(owner, from) {
            Ok(true) => {
                let zone = self.design.zones.zone(zone);
                zone.with_compaction(context.platform, |state| state.note_migrated(order.frames()));
                Ok(Ok(()))
            }
            // The owner says that it has moved the content, but the block was freed meanwhile,
            // which only the owner may do.
            Ok(false) => Ok(Err(MigrateError::Busy)),
            Err((MigrateError::Busy, _)) => Ok(Err(MigrateError::Busy)),
            Err((MigrateError::Failed, target)) => {
                drop(target);
                evict(owner, pfn, order, Error::RangeBusy)
            }
        }
    }

    /// Looks at the first pageblock of a span.
    #[inline(never)]
    fn look(&self, context: Context<'_, P>, span: Span, owner: &dyn Migrate) -> Met {
        let (pageblocks, pageblock) =
            (&self.design.pageblocks(), PageblockIndex::of_frame(span.first));
        let part = Span { end: span.end.min(Span::of(pageblock, 1).end), ..span };
        let state = pageblocks.state(pageblock);
        match state.used_for() {
            Use::Split => {
                let Some(frame) = pageblocks.next_used(part) else {
                    // Of what other CPUs have freed by now, nothing is left to be collected later.
                    self.design.collect_isolated(context, pageblock);
                    return Met::Free(part.end);
                };
                let run = pageblocks.part_of(frame);
                match pageblocks.may_move(run, owner) {
                    true => Met::Movable(run.frame(), run.order),
                    false => Met::Fixed(frame),
                }
            }
            Use::Huge | Use::HugeTail => match self.design.pageblocks().head_of(pageblock) {
                None => Met::Elsewhere,
                Some((head, of)) if pageblocks.may_move_huge(head, of, owner) => {
                    Met::Movable(head.frame(), of.order())
                }
                Some(_) => Met::Fixed(span.first),
            },
            Use::Absent | Use::Whole => Met::Elsewhere,
        }
    }

    /// Hands out the frames of a span, all of which are free, in the largest blocks that fit.
    pub(crate) fn alloc(mut self, context: Context<'_, P>, span: Span, migratetype: MigrateType) {
        let mut at = span.first;
        while at < span.end {
            let order = largest_block(self.design.pageblocks().pfn_of(at), span.end - at);
            if order >= Order::PAGEBLOCK {
                self.hand_out(PageblockIndex::of_frame(at), order, migratetype);
            } else {
                let run = Run::at(at, order);
                self.design.pageblocks().mark_unmovable(run);
                self.design.pageblocks().take_run(run);
            }
            at += order.frames().get() as u32;
        }
        let zone = self.design.pageblocks().zone(PageblockIndex::of_frame(span.first));
        let frames = FrameCount::new(u64::from(span.end - span.first));
        self.design.zones.note_direct_alloc(context, zone, frames);
    }
}
