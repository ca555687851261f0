//! Compaction: the migrate scanner goes up through a zone and has movable content moved to free
//! frames that the free scanner finds from the top down, until they meet.
//!
//! Who asks and when is as in Linux 6.12 `mm/compaction.c`, in its synchronous mode. What the
//! scanners do is not: see [`Compactor`].

use super::Freehold;
use super::compactor::Compactor;
use crate::Error;
use crate::compact::state::{CompactionState, Scanners};
use crate::compact::{Compaction, Migrate};
use crate::designs::Context;
use crate::designs::linux::pcp::COSTLY_ORDER;
use crate::fragmentation::is_to_blame;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{Order, Pfn};
use crate::zone::watermark::Watermark;

/// How the compaction of a zone for a request ended.
enum Outcome {
    /// A block was made and taken.
    Captured(u32),
    /// A block is free that will do.
    Success,
    /// The scanners met first.
    Complete,
    /// There is too little free memory, or it is not the fragmentation that is to blame.
    Unsuitable,
}

impl<P: Platform> Freehold<P> {
    /// Allocates a block; if that fails, compacts one zone after the other for it.
    pub(super) fn alloc_or_compact(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
        owner: &dyn Migrate,
    ) -> Result<Pfn, Error> {
        let error = match self.alloc_slowly(context, zones, request) {
            Ok(frame) => return Ok(self.blocks.pfn_of(frame)),
            Err(error) => error,
        };
        let order = request.order();
        if order == Order::ZERO {
            return Err(error);
        }
        for index in self.usable(zones, request) {
            let zone = self.zone(index);
            if zone.with_compaction(|state| state.is_deferred(order)) {
                continue;
            }
            let outcome = self.compact_for(context, index, request, owner);
            zone.with_compaction(|state| match outcome {
                Outcome::Captured(_) => state.note_allocation(order),
                Outcome::Success => state.note_success(order),
                Outcome::Complete => state.note_failure(order),
                Outcome::Unsuitable => {}
            });
            match outcome {
                Outcome::Captured(frame) => {
                    let cpu = self.cpu_here(context);
                    self.note_numa(cpu, zones, request, index, order.frames());
                    return Ok(self.blocks.pfn_of(frame));
                }
                Outcome::Success => break,
                Outcome::Complete | Outcome::Unsuitable => {}
            }
        }
        let frame = self.alloc_slowly(context, zones, request)?;
        let zone = self.zone(self.blocks.zone(super::blocks::BlockIndex::of_frame(frame)));
        zone.with_compaction(|state| state.note_allocation(order));
        Ok(self.blocks.pfn_of(frame))
    }

    fn compact_for(
        &self,
        context: Context<'_, P>,
        index: ZoneIndex,
        request: &Request,
        owner: &dyn Migrate,
    ) -> Outcome {
        let (zone, order) = (self.zone(index), request.order());
        let limit = request.effective_limit();
        let serves = |order: Order| {
            zone.may_take(request.order().frames().get(), request.depth(), limit)
                && self.has_run(index, order)
        };
        if serves(order) {
            return Outcome::Success;
        }
        if !self.is_suitable(index, request) {
            return Outcome::Unsuitable;
        }
        zone.with_compaction(CompactionState::note_compaction);
        if order > Order::PAGEBLOCK {
            let made = self.make_aligned(context, index, request, owner);
            return made.map_or(Outcome::Complete, Outcome::Captured);
        }
        let mut compactor = Compactor::new(self, context, index, owner, Some(request));
        let outcome = loop {
            if !compactor.empty_next_pageblock() && !compactor.begin_again() {
                break Outcome::Complete;
            }
            if let Some(frame) = compactor.captured {
                break Outcome::Captured(frame);
            }
            // To look for smaller blocks each time would cost too much.
            if serves(Order::PAGEBLOCK) {
                break Outcome::Success;
            }
        };
        let at = match outcome {
            Outcome::Complete => Scanners::APART,
            _ => compactor.scanners(),
        };
        zone.with_compaction(|state| state.set_scanners(at));
        outcome
    }

    /// Whether compaction can help: there is memory to work with, and fragmentation is to blame.
    fn is_suitable(&self, index: ZoneIndex, request: &Request) -> bool {
        let order = request.order();
        let costly = order > COSTLY_ORDER;
        let class = if costly { Watermark::Low } else { Watermark::Min };
        let zone = self.zone(index);
        let floor = zone.watermarks().floor(class, request.effective_limit()).unwrap_or(0);
        if zone.level() <= floor + 2 * order.frames().get() {
            return false;
        }
        !costly || is_to_blame(&self.free_blocks(index), order)
    }

    /// Compacts all zones as far as it goes.
    pub(super) fn compact_all(&self, context: Context<'_, P>, owner: &dyn Migrate) -> Compaction {
        self.drain_everything(context);
        let mut total = Compaction::default();
        for index in self.zone_indexes() {
            let zone = self.zone(index);
            zone.with_compaction(CompactionState::note_compaction);
            let mut compactor = Compactor::new(self, context, index, owner, None);
            while compactor.empty_next_pageblock() {}
            total.add(&compactor.report);
            zone.with_compaction(|state| state.set_scanners(Scanners::APART));
        }
        total
    }

    /// Has all slots of all zones give up their free frames.
    pub(super) fn drain_everything(&self, context: Context<'_, P>) {
        for zone in self.zone_indexes() {
            for cpu in 0..self.cpus() {
                self.drain_slot(context, cpu, zone);
            }
        }
    }
}
