//! Migration: moves content out of isolated pageblocks until every frame of a span is free.
//!
//! After Linux 6.12 `alloc_contig_range`.

use super::isolate::Isolation;
use crate::Error;
use crate::compact::{Migrate, MigrateError};
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::run::{Run, Span, largest_block};
use crate::designs::freehold::pageblocks::state::Use;
use crate::designs::places::{Obstacle, evict};
use crate::designs::traits::Alloc;
use crate::memmap::index::{FrameIndex, ZoneIndex};
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{FrameCount, MigrateType, Order};

/// An allocated block to move content to. It is freed when dropped, unless content has been moved
/// there.
pub(crate) struct Target<'a, P: Platform> {
    design: &'a Freehold<P>,
    context: Context<'a, P>,
    frame: u32,
    order: Order,
    filled: bool,
}

impl<'a, P: Platform> Target<'a, P> {
    /// A target for the content of a block in `zone`, wherever there is room: only in zones up to
    /// the kind of `zone`, since the content may not be allowed to use others.
    pub(crate) fn near(
        design: &'a Freehold<P>,
        context: Context<'a, P>,
        zone: ZoneIndex,
        order: Order,
    ) -> Result<Self, Error> {
        let zone = design.zones.zone(zone);
        let request = Request::new(order).node(zone.node()).zone_limit(zone.kind());
        let zones = context.topology.zonelist(zone.node(), zone.kind())?;
        let pfn = design.alloc(context, zones, request)?;
        let frame = design.pageblocks().index_of(pfn).expect("it is a frame of ours");
        Ok(Target { design, context, frame, order, filled: false })
    }

    /// A target of less than a pageblock in this pageblock, if it has a free run for it. The caller
    /// holds the pageblock as a walker, in a section, and has checked the watermark.
    pub(crate) fn in_block(
        design: &'a Freehold<P>,
        context: Context<'a, P>,
        pageblock: PageblockIndex,
        order: Order,
    ) -> Option<Self> {
        let run = design.pageblocks().find_run(pageblock, order)?;
        let zone = design.pageblocks().zone(pageblock);
        design.pageblocks().take_run(run);
        design.zones.zone(zone).sub_free(order.frames().get() as u32);
        design.zones.note_direct_alloc(context, zone, order.frames());
        Some(Target { design, context, frame: run.frame(), order, filled: false })
    }

    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// Whether the owner that refused it has not freed it, which it may not.
    pub(crate) fn is_allocated(&self) -> bool {
        self.design.is_used(Run::at(self.frame, self.order))
    }

    pub(crate) fn pageblock(&self) -> PageblockIndex {
        PageblockIndex::of_frame(self.frame)
    }

    /// Makes the owner move the content of the block at `from` here, and frees that block, unless
    /// the owner does. Returns whether it was still allocated, as it must be; if the owner does not
    /// move it, the target.
    pub(crate) fn fill(
        mut self,
        owner: &dyn Migrate,
        from: u32,
    ) -> Result<bool, (MigrateError, Self)> {
        let Target { design, context, frame, order, .. } = self;
        let (from_pfn, to) = (design.pageblocks().pfn_of(from), design.pageblocks().pfn_of(frame));
        // Read now: once the content has left, the pageblock may be removed.
        let zone = design.zones.zone(design.pageblocks().zone(PageblockIndex::of_frame(from)));
        if let Err(error) = owner.migrate(from_pfn, to, order) {
            return Err((error, self));
        }
        self.filled = true;
        let had_it = owner.frees_source() || design.take_from_user(context, from, order);
        if had_it {
            zone.with_compaction(context.platform, |state| state.note_migrated(order.frames()));
        }
        Ok(had_it)
    }
}

impl<P: Platform> Drop for Target<'_, P> {
    fn drop(&mut self) {
        if !self.filled {
            // If it is free already, the owner has freed a block that it was not given; then
            // nothing is left to do.
            self.design.take_from_user(self.context, self.frame, self.order);
        }
    }
}

impl<P: Platform> Freehold<P> {
    /// Frees a block past all caches; returns whether its user had not freed it already.
    fn take_from_user(&self, context: Context<'_, P>, frame: u32, order: Order) -> bool {
        if order >= Order::PAGEBLOCK {
            return self.free_huge(context, frame, order).is_ok();
        }
        let (run, pageblock) = (Run::at(frame, order), PageblockIndex::of_frame(frame));
        if !self.is_used(run) || self.pageblocks().begin_free(run).is_err() {
            return false;
        }
        let freed = run.words().fold(0, |freed, word| {
            freed | self.pageblocks().put_remotely(word, run.mask()) & run.mask()
        });
        self.zones.ensure_collected(context.cpu_here(), pageblock);
        freed == 0
    }

    /// Whether all frames of a run are in use, in a pageblock that is split.
    fn is_used(&self, run: Run) -> bool {
        let pageblocks = self.pageblocks();
        pageblocks.state(PageblockIndex::of_frame(run.frame())).is_split()
            && run.words().all(|word| pageblocks.used(word) & run.mask() == run.mask())
    }
}

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
            let moved = match self.look(Span { first: at, ..span }, owner) {
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
            Ok(true) => Ok(Ok(())),
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
    fn look(&self, span: Span, owner: &dyn Migrate) -> Met {
        let (pageblocks, pageblock) =
            (&self.design.pageblocks(), PageblockIndex::of_frame(span.first));
        let part = Span { end: span.end.min(Span::of(pageblock, 1).end), ..span };
        let state = pageblocks.state(pageblock);
        match state.used_for() {
            Use::Split => {
                let Some(frame) = pageblocks.next_used(part) else {
                    // Of what other CPUs have freed by now, nothing is left to be collected later.
                    self.design.collect_isolated(pageblock);
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
