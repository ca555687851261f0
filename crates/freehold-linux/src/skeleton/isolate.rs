//! Emptying a range of frames: its pageblocks are isolated, per-CPU caches are drained, and content
//! is moved elsewhere until every frame is free.
//!
//! Source: Linux 6.12 `alloc_contig_range` and `mm/page_isolation.c`.

use super::walk::Walk;
use super::{Policy, Skeleton};
use crate::frame::{FrameState, Tag};
use crate::kind::Kind;
use crate::pageblock::BlockType;
use freehold::Error;
use freehold::compact::{Migrate, MigrateError};
use freehold::designs::Context;
use freehold::designs::places::{Obstacle, evict};
use freehold::designs::traits::Alloc;
use freehold::memmap::index::{FrameIndex, FrameRange, ZoneIndex};
use freehold::platform::Platform;
use freehold::request::Request;
use freehold::units::{MigrateType, Order};

/// So many blocks are examined under one hold of the zone lock.
const WINDOW_BLOCKS: usize = 32;

/// How often a block is re-checked that is in transit, or whose owner is busy.
const RETRIES: u32 = 8;

/// Pageblocks of a zone that are out of circulation. Released when dropped.
pub(super) struct Isolation<'a, P: Platform, Y: Policy<P>> {
    design: &'a Skeleton<P, Y>,
    context: Context<'a, P>,
    zone: ZoneIndex,
    /// The pageblocks from the first one to just past the last one.
    first: FrameIndex,
    end: FrameIndex,
    _walk: Walk<'a, P, Y>,
}

/// What a look at a range found.
enum Met {
    /// All frames examined are free.
    Free,
    /// A block that a user holds.
    Allocated(FrameIndex, FrameState),
    /// A block in transit, or on a list of a CPU.
    Elsewhere,
}

impl<'a, P: Platform, Y: Policy<P>> Isolation<'a, P, Y> {
    /// Isolates all pageblocks that a range touches, or none if one of them is isolated already.
    pub(super) fn new(
        design: &'a Skeleton<P, Y>,
        context: Context<'a, P>,
        zone: ZoneIndex,
        range: FrameRange,
    ) -> Result<Self, Obstacle> {
        let _walk = Walk::new(design, context.platform, zone);
        let first = range.first.head(Order::PAGEBLOCK);
        let mut isolation = Isolation { design, context, zone, first, end: first, _walk };
        while isolation.end < range.end {
            let at = isolation.end;
            let guard = design.lock_zone(context.platform, zone);
            // Until now, its memory may have been removed.
            if design.blocks.zone(at) != Some(zone) || !guard.isolate(at) {
                return Err(Obstacle { at, error: Error::RangeBusy });
            }
            isolation.end = at.after(Order::PAGEBLOCK);
        }
        Ok(isolation)
    }

    /// Makes all frames of a range free.
    pub(super) fn empty(&self, range: FrameRange, owner: &dyn Migrate) -> Result<(), Obstacle> {
        self.design.drain_all_cpus(self.context);
        let (mut at, mut retries) = (range.first, 0);
        // Frames found free once stay free: no request is served from an isolated pageblock.
        while at < range.end {
            let (next, met) = self.look(at, range.end);
            if next != at {
                (at, retries) = (next, 0);
            }
            let moved = match met {
                Met::Free => Ok(()),
                Met::Elsewhere => Err(MigrateError::Busy),
                Met::Allocated(head, state) if self.design.may_move(head, state, owner) => {
                    let moved = self.move_away(head, state, owner);
                    moved.map_err(|error| Obstacle { at, error })?
                }
                Met::Allocated(..) => Err(MigrateError::Failed),
            };
            match moved {
                Ok(()) => {}
                Err(MigrateError::Busy) if retries < RETRIES => {
                    retries += 1;
                    self.design.drain_all_cpus(self.context);
                }
                Err(_) => return Err(Obstacle { at, error: Error::RangeBusy }),
            }
        }
        Ok(())
    }

    /// Examines a few blocks from `at` on; returns how far they are free, and what follows.
    fn look(&self, at: FrameIndex, end: FrameIndex) -> (FrameIndex, Met) {
        let _guard = self.design.lock_zone(self.context.platform, self.zone);
        let mut at = at;
        for _ in 0..WINDOW_BLOCKS {
            if at >= end {
                break;
            }
            let Ok((head, state)) = self.design.head_of(at) else {
                return (at, Met::Elsewhere);
            };
            match (state.tag(), state.block_type()) {
                (Tag::Buddy, BlockType::Isolated) => {
                    at = head.after(state.order().unwrap_or(Order::ZERO));
                }
                (Tag::Allocated, _) => return (at, Met::Allocated(head, state)),
                _ => return (at, Met::Elsewhere),
            }
        }
        (at, Met::Free)
    }

    /// Migrates the content of the block at `from` to a block outside the range.
    fn move_away(
        &self,
        from: FrameIndex,
        state: FrameState,
        owner: &dyn Migrate,
    ) -> Result<Result<(), MigrateError>, Error> {
        let (design, context) = (self.design, self.context);
        let order = state.order().unwrap_or(Order::ZERO);
        let from_pfn = design.frames.pfn_of(from);
        let target = match Target::new(self, from, order) {
            Ok(target) => target,
            Err(error) => return evict(owner, from_pfn, order, error),
        };
        let to = design.frames.pfn_of(target.block);
        match owner.migrate(from_pfn, to, order) {
            Ok(()) => target.keep(),
            Err(MigrateError::Busy) => return Ok(Err(MigrateError::Busy)),
            Err(MigrateError::Failed) => {
                drop(target);
                return evict(owner, from_pfn, order, Error::RangeBusy);
            }
        }
        if owner.frees_source() {
            return Ok(Ok(()));
        }
        if design.claim(context.platform, from_pfn, order).is_err() {
            // The owner reports it moved, but the block is not freed: a concurrent free of it was
            // erroneous.
            return Ok(Err(MigrateError::Busy));
        }
        design.free_directly(context, self.zone, &[from], order);
        let guard = design.lock_zone(context.platform, self.zone);
        guard.compaction().note_migrated(order.frames());
        Ok(Ok(()))
    }

    /// Allocates a range, all of which is free, in the largest blocks that fit. One block at a
    /// time, with the lock dropped in between.
    pub(super) fn take(&self, FrameRange { first: mut at, end }: FrameRange) {
        while at < end {
            let order = at.largest_before(end);
            let guard = self.design.lock_zone(self.context.platform, self.zone);
            guard.buddy.take_frames(at, order);
            let state = FrameState::allocated(Kind { order, migratetype: MigrateType::Unmovable });
            self.design.frames.set_state(at, state);
            guard.add_isolated(-(order.frames().get() as i64));
            at = at.after(order);
            if at == end {
                guard.compaction().note_range();
            }
            self.design.unlock_and_note(self.context, self.zone, guard, |events| {
                events.note_direct_alloc(order.frames());
            });
        }
    }

    /// Takes a range, all of which is free, out of use. Pageblocks that are left without memory
    /// leave the zone. The caller holds the hotplug lock.
    pub(super) fn retire(&self, FrameRange { first: mut at, end }: FrameRange) {
        while at < end {
            let (order, guard) =
                (at.largest_before(end), self.design.lock_zone(self.context.platform, self.zone));
            guard.buddy.take_frames(at, order);
            for frame in (at.0..at.after(order).0).map(FrameIndex) {
                self.design.frames.set_state(frame, FrameState::HOLE);
            }
            guard.remove_isolated(order.frames());
            at = at.after(order);
        }
        let mut pageblock = self.first;
        while pageblock < self.end {
            let _guard = self.design.lock_zone(self.context.platform, self.zone);
            let next = pageblock.after(Order::PAGEBLOCK);
            let mut frames = (pageblock.0..next.0).map(FrameIndex);
            if frames.all(|frame| self.design.frames.state(frame) == FrameState::HOLE) {
                self.design.blocks.leave_zone(pageblock);
            }
            pageblock = next;
        }
    }
}

impl<P: Platform, Y: Policy<P>> Drop for Isolation<'_, P, Y> {
    fn drop(&mut self) {
        while self.first < self.end {
            self.design.lock_zone(self.context.platform, self.zone).release(self.first);
            self.first = self.first.after(Order::PAGEBLOCK);
        }
    }
}

/// A migration target, freed when dropped unless the owner of the content keeps it.
struct Target<'a, P: Platform, Y: Policy<P>> {
    design: &'a Skeleton<P, Y>,
    context: Context<'a, P>,
    block: FrameIndex,
    order: Order,
    kept: bool,
}

impl<'a, P: Platform, Y: Policy<P>> Target<'a, P, Y> {
    /// Allocates a target for the content of the block at `from`: near it, and in no zone that the
    /// content might not have been allowed to use.
    fn new(isolation: &Isolation<'a, P, Y>, from: FrameIndex, order: Order) -> Result<Self, Error> {
        let Isolation { design, context, .. } = *isolation;
        let zone = design.zone(design.blocks.zone(from).unwrap_or(isolation.zone));
        let request = Request::new(order).node(zone.node()).zone_limit(zone.kind());
        let zones = context.topology.zonelist(zone.node(), zone.kind())?;
        loop {
            let pfn = design.alloc(context, zones, request)?;
            let block = design.frames.index_of(pfn).ok_or(Error::ForeignFrame)?;
            let target = Target { design, context, block, order, kept: false };
            if design.blocks.block_type(block) != BlockType::Isolated {
                return Ok(target);
            }
            // It had been left on a list of a CPU. It joins the isolated ones now.
            drop(target);
        }
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl<P: Platform, Y: Policy<P>> Drop for Target<'_, P, Y> {
    fn drop(&mut self) {
        if !self.kept {
            let (platform, pfn) = (self.context.platform, self.design.frames.pfn_of(self.block));
            // An error means that the owner has freed what it was not given; then nothing is left
            // to do.
            if let Ok(block) = self.design.claim(platform, pfn, self.order) {
                let (zone, _) = self.design.blocks.of_used(block);
                self.design.free_directly(self.context, zone, &[block], self.order);
            }
        }
    }
}
