//! Compaction: the migrate scanner goes up through a zone and moves movable content to free blocks
//! that the free scanner finds from the top down, until they meet.
//!
//! Source: Linux 6.12 `mm/compaction.c`, in its synchronous mode. Deviations: `docs/designs.md`.

use super::late::{For, Merged};
use super::migrate::Compactor;
use super::{Policy, Skeleton};
use crate::frame::{FrameState, Tag};
use crate::pageblock::BlockType;
use freehold::Error;
use freehold::compact::state::{Scanners, is_suitable};
use freehold::compact::{Compaction, Migrate};
use freehold::designs::Context;
use freehold::designs::traits::{Alloc, Compact};
use freehold::fragmentation::blocks_of;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::platform::Platform;
use freehold::request::Request;
use freehold::units::{MigrateType, Order, Pfn};

/// How the compaction of a zone for a request ended.
enum Outcome {
    /// A block was made and taken.
    Captured(FrameIndex),
    /// A sufficient block is free.
    Success,
    /// The scanners met first.
    Complete,
    /// There is too little free memory, or fragmentation is not the cause.
    Unsuitable,
}

impl<P: Platform, Y: Policy<P>> Compact<P> for Skeleton<P, Y> {
    /// Allocates a block; if that fails, compacts one zone after the other for it.
    fn alloc_compacting(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        owner: &dyn Migrate,
        defers: bool,
    ) -> Result<Pfn, Error> {
        let error = match self.alloc(context, zones, request) {
            Ok(pfn) => return Ok(pfn),
            Err(error) => error,
        };
        if request.order() == Order::ZERO {
            return Err(error);
        }
        for zone in self.usable(zones, &request) {
            let order = request.order();
            if defers && self.lock_zone(context.platform, zone).compaction().is_deferred(order) {
                continue;
            }
            let outcome = self.compact_for(context, zone, &request, owner);
            let guard = self.lock_zone(context.platform, zone);
            let state = guard.compaction();
            match outcome {
                Outcome::Captured(block) => {
                    state.note_allocation(order);
                    drop(guard);
                    self.note_numa(context, zones, &request, zone, order.frames());
                    return Ok(self.frames.pfn_of(block));
                }
                Outcome::Success => {
                    state.note_success(order);
                    break;
                }
                Outcome::Complete => state.note_failure(order),
                Outcome::Unsuitable => {}
            }
        }
        let pfn = self.alloc(context, zones, request)?;
        if let Some(zone) = self.frames.index_of(pfn).and_then(|block| self.blocks.zone(block)) {
            let guard = self.lock_zone(context.platform, zone);
            guard.compaction().note_allocation(request.order());
        }
        Ok(pfn)
    }

    fn compact_zone(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        owner: &dyn Migrate,
        wanted: Option<u64>,
    ) -> Compaction {
        self.drain_zone(context, zone);
        let mut compactor = Compactor::new(self, context, zone, owner, None);
        let whole = || blocks_of(&self.zone(zone).free_blocks(), Order::PAGEBLOCK);
        let enough = wanted.map(|wanted| whole() + wanted);
        while enough.is_none_or(|enough| whole() < enough) && compactor.empty_next_pageblock() {}
        let report = compactor.report;
        drop(compactor);
        self.lock_zone(context.platform, zone).compaction().set_scanners(Scanners::APART);
        report
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    fn compact_for(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        owner: &dyn Migrate,
    ) -> Outcome {
        if self.allows(zone, request, request.depth()) {
            return Outcome::Success;
        }
        let of = self.zone(zone);
        if !is_suitable(request, of.watermarks(), of.free().get(), || of.free_blocks()) {
            return Outcome::Unsuitable;
        }
        let mut compactor = Compactor::new(self, context, zone, owner, Some(request));
        let outcome = loop {
            if let Some(block) = compactor.captured {
                break Outcome::Captured(block);
            }
            if self.allows(zone, request, request.depth()) {
                break Outcome::Success;
            }
            if !compactor.empty_next_pageblock() && !compactor.begin_again() {
                break Outcome::Complete;
            }
        };
        let at = match outcome {
            Outcome::Complete => Scanners::APART,
            _ => compactor.at,
        };
        drop(compactor);
        self.lock_zone(context.platform, zone).compaction().set_scanners(at);
        outcome
    }
}

impl<P: Platform, Y: Policy<P>> Compactor<'_, P, Y> {
    /// Migrates the movable content of the next pageblock away; returns whether there was one below
    /// the free scanner.
    fn empty_next_pageblock(&mut self) -> bool {
        let Some(pageblock) = self.next_source() else { return false };
        self.report.pageblocks += 1;
        if Y::MERGES_LATE {
            let (design, context) = (self.design, self.context);
            let request = self.request.filter(|_| self.captured.is_none());
            let merged = design.merge_late(context, self.zone, pageblock, request, For::Compaction);
            let Merged { frames, taken, .. } = merged.unwrap_or_default();
            self.report.merged_late += frames;
            self.captured = self.captured.or(taken);
        }
        let mut at = pageblock;
        while at < pageblock.after(Order::PAGEBLOCK) && self.captured.is_none() {
            let state = self.design.frames.state(at);
            let order = state.order().unwrap_or(Order::ZERO);
            if order < self.order && self.design.may_move(at, state, self.owner) {
                self.migrate(at, order);
            }
            at = at.after(order);
        }
        self.settle();
        true
    }

    /// The next pageblock below the free scanner with content to move.
    fn next_source(&mut self) -> Option<FrameIndex> {
        let Skeleton { frames, blocks, .. } = self.design;
        while self.at.migrate < self.at.free {
            let pageblock = self.at.migrate;
            self.at.migrate = pageblock.after(Order::PAGEBLOCK);
            let of = blocks.block_type(pageblock);
            // For a request, only blocks that can be emptied permanently are worth the effort.
            let any = self.request.is_none() || self.owner.knows_content();
            let worthwhile = of == BlockType::Movable || (any && of != BlockType::Isolated);
            if blocks.zone(pageblock) == Some(self.zone)
                && worthwhile
                && !self.is_goal(frames.state(pageblock))
            {
                return Some(pageblock);
            }
        }
        None
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// Whether a user holds the block that begins here, and its content may move.
    pub(super) fn may_move(
        &self,
        head: FrameIndex,
        state: FrameState,
        owner: &dyn Migrate,
    ) -> bool {
        let order = state.order().unwrap_or(Order::ZERO);
        state.tag() == Tag::Allocated
            && (state.block_type() == BlockType::of(MigrateType::Movable)
                || owner.can_move(self.frames.pfn_of(head), order))
    }
}
