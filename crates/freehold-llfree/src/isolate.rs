//! Children out of circulation, until content has moved away.

use crate::Llfree;
use crate::alloc::is_fixed;
use crate::block::{Block, blocks, child_of};
use crate::entry::{CHILD_FRAMES, Entry};
use crate::local::Local;
use freehold::compact::{Migrate, MigrateError};
use freehold::designs::Context;
use freehold::designs::places::{Obstacle, evict};
use freehold::memmap::bits::Span;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::platform::Platform;
use freehold::{Error, FrameCount, Order, Request};

/// How often something that another call is doing is looked at again.
const LOOKS: u32 = 8;

/// What lies at a frame.
pub(crate) enum Met {
    /// No frame is in use up to this one.
    Free(u32),
    /// No memory, at this frame.
    Hole(u32),
    /// A block, and whether its content can move.
    Used(Block, bool),
    /// A block that a call is changing.
    Elsewhere,
}

impl<P: Platform> Llfree<P> {
    /// Takes so many frames of the count of a child's tree, whoever has reserved that.
    pub(crate) fn take_count(&self, zone: ZoneIndex, child: u32, frames: u32) -> bool {
        let tree = self.trees.of(zone, child);
        let has_it = |local: &&Local<P>| local.reserved().is_some_and(|of| of.tree == tree);
        (0..LOOKS).any(|_| {
            self.trees.take(tree, frames, frames).is_some() || {
                self.locals_of(zone).filter(has_it).for_each(|local| _ = self.drain_local(local));
                false
            }
        })
    }

    fn isolate(&self, zone: ZoneIndex, child: u32) -> bool {
        let entries = &self.lower.entries;
        for _ in 0..LOOKS {
            let now = entries.get(child);
            if now.is_isolated() || self.lower.zone_of(child) != Some(zone) {
                return false;
            }
            // First what its tree has of it, so that no call has the count of frames that it
            // cannot take.
            if !self.take_count(zone, child, now.count()) {
                continue;
            }
            let same = |entry: Entry| (entry == now).then(|| entry.isolated(true));
            if entries.update(child, same).is_some() {
                return true;
            }
            self.trees.give(self.trees.of(zone, child), now.count());
        }
        false
    }

    /// What lies at a frame, up to another one.
    pub(crate) fn look(&self, at: u32, end: u32, owner: &dyn Migrate) -> Met {
        let (lower, child) = (&self.lower, child_of(at));
        let used = |block: Block, is_fixed: bool| {
            let can_move = || owner.can_move(lower.pfn_of(block.first), block.order);
            Met::Used(block, !is_fixed || can_move())
        };
        let entry = lower.entries.get(child);
        if entry.is_huge() {
            let Some(order) = entry.huge_order() else { return Met::Elsewhere };
            return used(Block::huge(child, order), entry.is_fixed());
        }
        let end = end.min((child + 1) * CHILD_FRAMES);
        let taken = Span { first: at, end }.words().find_map(|(word, mask)| {
            let taken = lower.taken(word) & mask;
            (taken != 0).then(|| word as u32 * u64::BITS + taken.trailing_zeros())
        });
        let Some(frame) = taken else { return Met::Free(end) };
        if lower.is_hole(Block::frame(frame)) {
            return Met::Hole(frame);
        }
        let Some(block) = lower.block_of(frame) else { return Met::Elsewhere };
        used(block, lower.is_fixed(block.first))
    }
}

/// Children of a zone that are out of circulation until this is dropped.
pub(crate) struct Isolation<'a, P: Platform> {
    pub(crate) design: &'a Llfree<P>,
    pub(crate) context: Context<'a, P>,
    pub(crate) zone: ZoneIndex,
    pub(crate) owner: &'a dyn Migrate,
    first: u32,
    end: u32,
}

impl<'a, P: Platform> Isolation<'a, P> {
    /// Isolates all children that frames are of, or none.
    pub(crate) fn new(
        design: &'a Llfree<P>,
        context: Context<'a, P>,
        zone: ZoneIndex,
        span: Span,
        owner: &'a dyn Migrate,
    ) -> Result<Self, Obstacle> {
        let first = child_of(span.first);
        let mut isolation = Isolation { design, context, zone, owner, first, end: first };
        for (child, part) in span.by_pageblock() {
            if !design.isolate(zone, child) {
                return Err(busy(part.first));
            }
            isolation.end = child + 1;
        }
        // What is left may be less than the low watermark.
        design.drain_zone(zone);
        Ok(isolation)
    }

    /// Makes all of these frames free. What cannot move its owner may discard, if it `evicts`.
    pub(crate) fn empty(&self, span: Span, evicts: bool) -> Result<(), Obstacle> {
        let (mut at, mut looks) = (span.first, 0);
        while at < span.end {
            let moved = match self.design.look(at, span.end, self.owner) {
                Met::Free(behind) => {
                    at = behind;
                    Ok(())
                }
                Met::Used(block, true) => {
                    self.move_away(block, evicts).map_err(|error| Obstacle { error, ..busy(at) })?
                }
                Met::Used(..) | Met::Hole(_) => return Err(busy(at)),
                Met::Elsewhere => Err(MigrateError::Busy),
            };
            looks = match moved {
                Ok(()) => 0,
                Err(MigrateError::Busy) if looks < LOOKS => looks + 1,
                Err(_) => return Err(busy(at)),
            };
            if looks > 0 {
                self.context.platform.relax();
            }
        }
        Ok(())
    }

    /// Has the content of a block moved elsewhere, or evicted.
    fn move_away(&self, from: Block, evicts: bool) -> Result<Result<(), MigrateError>, Error> {
        let Isolation { design, context, zone, owner, .. } = *self;
        let of = design.zone(zone);
        // In no zone that the content might not have been allowed to use.
        let request = Request::new(from.order).node(of.node).zone_limit(of.kind);
        let zones = context.topology.zonelist(of.node, of.kind)?;
        let moved = design
            .alloc_any(context, zones, &request)
            .map(|first| Target { isolation: self, to: Block { first, ..from } }.fill(from));
        let error = match moved {
            Ok(Ok(true)) => return Ok(Ok(())),
            // The owner says that it has moved the content, but the block was free.
            Ok(Ok(false) | Err(MigrateError::Busy)) => return Ok(Err(MigrateError::Busy)),
            Ok(Err(MigrateError::Failed)) => Error::RangeBusy,
            Err(error) => error,
        };
        match evicts {
            true => evict(owner, design.lower.pfn_of(from.first), from.order, error),
            false => Err(error),
        }
    }

    /// Hands out all of these frames, in the largest blocks that fit, up to an order; or none: not
    /// if a call that had the count of some before they were isolated takes one of them.
    pub(crate) fn take(&self, span: Span, most: Order, is_fixed: bool) -> Result<(), Obstacle> {
        let lower = &self.design.lower;
        let refused = blocks(span, most).find(|&block| !lower.take_isolated(block, is_fixed));
        let Some(Block { first, .. }) = refused else { return Ok(()) };
        for block in blocks(Span { end: first, ..span }, most) {
            // An error means that a user freed what it was not given.
            let _ = lower.release(self.context.platform, block);
        }
        Err(busy(first))
    }

    /// Takes a block for a request, if there is one, and enough is left beside it.
    pub(crate) fn capture(&self, request: &Request) -> Option<u32> {
        let Isolation { design, zone, first, end, .. } = *self;
        // Its own frames are not in the level.
        if !design.has(zone, design.zone(zone).floor(request, request.depth())) {
            return None;
        }
        let span = Span { first: first * CHILD_FRAMES, end: end * CHILD_FRAMES };
        let mut all = blocks(span, request.order());
        let block = all.find(|&block| design.lower.take_isolated(block, is_fixed(request)))?;
        design.local(self.context.cpu_here(), zone).note_direct_alloc(block.frames());
        Some(block.first)
    }
}

/// Something is in the way.
fn busy(at: u32) -> Obstacle {
    Obstacle { at: FrameIndex(at), error: Error::RangeBusy }
}

impl<P: Platform> Drop for Isolation<'_, P> {
    fn drop(&mut self) {
        let Llfree { lower, trees, .. } = self.design;
        for child in self.first..self.end {
            let again = |entry: Entry| Some(entry.isolated(false));
            // `Some`: nothing is refused.
            let was = lower.entries.update(child, again).unwrap_or_default();
            if let Some(zone) = lower.zone_of(child) {
                trees.give(trees.of(zone, child), was.count());
            }
        }
    }
}

/// A block to move content of what is isolated to. Freed when dropped, unless that has been moved.
pub(crate) struct Target<'a, P: Platform> {
    pub(crate) isolation: &'a Isolation<'a, P>,
    pub(crate) to: Block,
}

impl<P: Platform> Target<'_, P> {
    /// Has the owner move the content of a block here, and frees that, unless the owner does.
    /// Returns whether the block was still allocated, as it must be.
    pub(crate) fn fill(self, from: Block) -> Result<bool, MigrateError> {
        let (to, &Isolation { design, context, zone, owner, .. }) = (self.to, self.isolation);
        let pfn_of = |block: Block| design.lower.pfn_of(block.first);
        owner.migrate(pfn_of(from), pfn_of(to), to.order)?;
        core::mem::forget(self);
        let had_it = owner.frees_source() || design.free_at(context, from).is_ok();
        let frames = if had_it { to.order.frames() } else { FrameCount::ZERO };
        design.zone(zone).with_compaction(context.platform, |state| state.note_migrated(frames));
        Ok(had_it)
    }
}

impl<P: Platform> Drop for Target<'_, P> {
    fn drop(&mut self) {
        // An error means that the owner has freed what it was not given.
        let _ = self.isolation.design.free_at(self.isolation.context, self.to);
    }
}
