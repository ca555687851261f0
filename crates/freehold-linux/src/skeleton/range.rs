//! Ranges of any size: what [`Places`] asks of a place, and how a range is freed.

use super::isolate::Isolation;
use super::{Policy, Skeleton};
use crate::frame::{FrameState, Tag};
use crate::pageblock::BlockType;
use freehold::Error;
use freehold::designs::Context;
use freehold::designs::places::{Obstacle, Place, Places, Site};
use freehold::designs::traits::Ranges;
use freehold::memmap::index::{FrameIndex, FrameRange, ZoneIndex};
use freehold::memmap::stretches::Stretches;
use freehold::platform::Platform;
use freehold::request::{RangeRequest, Request};
use freehold::units::{FrameCount, NodeId, Order, Pfn};

impl<P: Platform, Y: Policy<P>> Ranges<P> for Skeleton<P, Y> {
    fn free_range(
        &self,
        context: Context<'_, P>,
        first: Pfn,
        frames: FrameCount,
    ) -> Result<(), Error> {
        let span = self.frames.stretches().locate(first, frames).ok_or(Error::ForeignFrame)?;
        let zone = self.blocks.zone(span.first).ok_or(Error::ForeignFrame)?;
        self.claim_span(context.platform, zone, span)?;
        self.put_span(context, zone, span);
        Ok(())
    }
}

impl<P: Platform, Y: Policy<P>> Places<P> for Skeleton<P, Y> {
    fn stretches(&self) -> &Stretches<P> {
        self.frames.stretches()
    }

    fn has_hole(&self, range: FrameRange) -> bool {
        let mut frames = (range.first.0..range.end.0).map(FrameIndex);
        frames.any(|frame| self.frames.state(frame) == FrameState::HOLE)
    }

    fn node(&self, zone: ZoneIndex) -> NodeId {
        self.zone(zone).node()
    }

    fn level_and_floor(&self, zone: ZoneIndex, request: &Request) -> (u64, u64) {
        let zone = self.zone(zone);
        (
            zone.free().get(),
            zone.watermarks().floor(request.depth(), request.effective_limit()).unwrap_or(0),
        )
    }

    fn drain_all(&self, context: Context<'_, P>) {
        self.drain_all_cpus(context);
    }

    fn survey(&self, site: Site<'_>, is_memory: bool) -> Place {
        let Site { zone, range, owner } = site;
        let mut immovable = None;
        let mut at = range.first;
        while at < range.end {
            if self.blocks.zone(at) != Some(zone) {
                return Place::Interrupted(at.head(Order::PAGEBLOCK).after(Order::PAGEBLOCK));
            }
            if self.frames.state(at) == FrameState::HOLE {
                return Place::Interrupted(at.after(Order::ZERO));
            }
            let isolated = self.blocks.block_type(at) == BlockType::Isolated;
            let (next, fixed) = match self.head_of(at) {
                _ if isolated => (at.head(Order::PAGEBLOCK).after(Order::PAGEBLOCK), true),
                Ok((head, state)) => {
                    let next = head.after(state.order().unwrap_or(Order::ZERO));
                    let fixed = state.tag() == Tag::Allocated;
                    (next, fixed && !self.may_move(head, state, owner))
                }
                Err(_) => (at.after(Order::ZERO), false),
            };
            if fixed && is_memory {
                return Place::Immovable(next);
            }
            if fixed {
                immovable.get_or_insert(next);
            }
            at = next.max(at.after(Order::ZERO));
        }
        immovable.map_or(Place::Promising, Place::Immovable)
    }

    fn take(&self, context: Context<'_, P>, site: Site<'_>) -> Result<(), Obstacle> {
        let Site { zone, range, owner } = site;
        let isolation = Isolation::new(self, context, zone, range)?;
        isolation.empty(range, owner)?;
        isolation.take(range);
        Ok(())
    }

    fn retire(&self, context: Context<'_, P>, site: Site<'_>) -> Result<(), Obstacle> {
        let Site { zone, range, owner } = site;
        let isolation = Isolation::new(self, context, zone, range)?;
        isolation.empty(range, owner)?;
        // Only now: the owner of the content may add memory.
        let hotplug = self.hotplug.get(0).begin(context.platform);
        isolation.retire(range);
        drop(isolation);
        self.resize(context, &hotplug);
        Ok(())
    }

    fn zone_at(&self, frame: FrameIndex) -> Option<ZoneIndex> {
        self.blocks.zone(frame)
    }

    fn note_range(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &RangeRequest,
        zone: ZoneIndex,
    ) {
        self.note_numa(context, zones, &request.near, zone, request.frames);
    }
}
