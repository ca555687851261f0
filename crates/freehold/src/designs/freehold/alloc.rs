//! Allocation of what is not at hand: from the slot of the running CPU, or of another, or past all
//! slots.

use super::Freehold;
use super::blocks::BlockIndex;
use super::guard::SlotGuard;
use super::slot::For;
use crate::Error;
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order};
use crate::zone::watermark::Watermark;

/// So often an allocation that found nothing looks again before it helps those who have frames in
/// hand.
const LOOKS: u32 = 64;

impl<P: Platform> Freehold<P> {
    /// First from what the running CPU holds of the best zone, and from any zone above its low
    /// watermark; then from what other CPUs hold of zones that are just there; and at last, after
    /// all CPUs have given back what they keep, as deep as the request may dip.
    pub(super) fn alloc_slowly(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
    ) -> Result<u32, Error> {
        let (all, zones) = (zones, || self.usable(zones, request));
        let class = request.depth().at_first();
        let frame = zones().enumerate().find_map(|(nth, zone)| {
            // What a slot holds is there to be used up first. In zones that the request would
            // rather not use, it may be reserved for those who have no other.
            let may_use_own = class == Watermark::Low
                && request.depth() != Watermark::Low
                && (nth == 0 || self.zone(zone).may_keep(0, request));
            let fetched = self.alloc_near(context, zone, request, class);
            let own = || self.alloc_own(context, zone, request);
            fetched.or_else(|| may_use_own.then(own).flatten())
        });
        let frame = frame.or_else(|| {
            zones().find_map(|zone| self.alloc_from_others(context, zone, request, class))
        });
        let frame = match frame {
            Some(frame) => frame,
            None => self.alloc_at_last(context, zones, request)?,
        };
        let from = self.blocks.zone(BlockIndex::of_frame(frame));
        self.note_numa(self.cpu_here(context), all, request, from, request.order().frames());
        Ok(frame)
    }

    /// Takes a block of a zone unless that takes it below the mark of `class`, without asking other
    /// CPUs for anything.
    pub(super) fn alloc_near(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        class: Watermark,
    ) -> Option<u32> {
        self.allows(zone, request, class).then(|| self.alloc_in(context, zone, request)).flatten()
    }

    /// Takes a block after all CPUs have given back what they keep. Others may have in hand just
    /// then what is free, and so it looks again until it has one, or knows that there is none: see
    /// [`sections`](super::sections).
    fn alloc_at_last<Z: Iterator<Item = ZoneIndex>>(
        &self,
        context: Context<'_, P>,
        zones: impl Fn() -> Z,
        request: &Request,
    ) -> Result<u32, Error> {
        let may_wait = request.may_wait();
        let serving = || zones().filter(|&zone| self.serves(zone, request));
        let take = || serving().find_map(|zone| self.alloc_in(context, zone, request));
        // What is there to be had without waiting is.
        zones().for_each(|zone| self.drain_unused(context, zone));
        if let Some(frame) = take() {
            return Ok(frame);
        }
        for look in 1_u32.. {
            let helps = look.is_multiple_of(if may_wait { LOOKS } else { 2 });
            // A drain that others have begun may never end.
            let is_draining = |zone| self.zone(zone).drains().is_none();
            let drains_anew = helps && (!may_wait || zones().any(is_draining));
            let drained = if drains_anew {
                let drains = zones().map(|zone| self.drain_anew(context, zone, may_wait));
                Some(drains.fold(0, u64::wrapping_add))
            } else {
                zones().for_each(|zone| self.drain_if_kept(context, zone, may_wait));
                None
            };
            if helps {
                zones().for_each(|zone| self.take_marked_pending(context, zone));
            }
            // Not without a look first: of many that fail at the same time, none may move anything,
            // or else they would keep each other from seeing that there is nothing.
            if let Some(frame) = take() {
                return Ok(frame);
            }
            if self.is_short(&zones, request, drained) {
                break;
            }
            if helps && !may_wait {
                return Err(Error::WouldWait);
            }
            context.platform.relax();
        }
        match zones().any(|zone| self.has_run(zone, request.order())) {
            true => Err(Error::BelowWatermark),
            false => Err(Error::OutOfMemory),
        }
    }

    /// Whether a zone has a block in a pageblock that no slot holds, and may give it.
    pub(super) fn serves(&self, zone: ZoneIndex, request: &Request) -> bool {
        self.allows(zone, request, request.depth()) && self.has_run(zone, request.order())
    }

    /// Takes a block out of what the running CPU's slot holds already.
    fn alloc_own(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
    ) -> Option<u32> {
        let cpu = context.pin();
        let guard = self.try_lock_pinned(context.platform, cpu, zone)?;
        self.alloc_held(&guard, request)
            .inspect(|_| self.note_taken(context, &guard, request.order()))
    }

    /// Takes a block out of what a slot holds already.
    fn alloc_held(&self, guard: &SlotGuard<'_, P>, request: &Request) -> Option<u32> {
        let (order, migratetype) = (request.order(), request.content());
        match order {
            Order::ZERO => self.take_current(guard, migratetype).or_else(|| {
                if !self.refill_from_own(guard, migratetype) {
                    return None;
                }
                self.take_current(guard, migratetype)
            }),
            Order::PAGEBLOCK => self.take_spare(&guard.slot, request),
            _ if order > Order::PAGEBLOCK => None,
            _ => {
                let own = self.take_run_of_own(guard, request);
                own.or_else(|| self.take_run_of_singles(guard, request))
            }
        }
    }

    /// The zones of the list that the request, whose node is filled in, may use.
    pub(super) fn usable<'a>(
        &'a self,
        zones: &'a [u16],
        request: &'a Request,
    ) -> impl Iterator<Item = ZoneIndex> + 'a {
        zones.iter().map(|&zone| ZoneIndex(zone)).filter(|&zone| {
            let node = self.zone(zone).node();
            !request.is_only_node() || request.preferred_node() == Some(node)
        })
    }

    /// Whether the level of a zone lets a request go as deep as `class`.
    pub(super) fn allows(&self, zone: ZoneIndex, request: &Request, class: Watermark) -> bool {
        let frames = request.order().frames().get();
        self.zone(zone).may_take(frames, class, request.effective_limit())
    }

    /// Takes a block of a zone whose level allows it.
    fn alloc_in(&self, context: Context<'_, P>, zone: ZoneIndex, request: &Request) -> Option<u32> {
        let held = self.lock_some(context, zone).and_then(|guard| {
            self.alloc_with(&guard, request)
                .inspect(|_| self.note_taken(context, &guard, request.order()))
        });
        held.or_else(|| self.alloc_past_slots(context, zone, request))
    }

    /// Takes a block out of what a slot holds, which may fetch a pageblock for it.
    pub(super) fn alloc_with(&self, guard: &SlotGuard<'_, P>, request: &Request) -> Option<u32> {
        let (order, migratetype) = (request.order(), request.content());
        match order {
            Order::ZERO => self.take_current(guard, migratetype).or_else(|| {
                if !self.refill(guard, request) {
                    return None;
                }
                self.take_current(guard, migratetype)
            }),
            Order::PAGEBLOCK => self.take_spare(&guard.slot, request).or_else(|| {
                self.fetch_spares(guard, request);
                self.take_spare(&guard.slot, request)
            }),
            _ if order > Order::PAGEBLOCK => None,
            _ => {
                let own = self.take_run_of_own(guard, request);
                let own = own.or_else(|| self.take_fresh_run(guard, request));
                own.or_else(|| self.take_run_of_singles(guard, request))
            }
        }
    }

    /// Takes a block that no slot holds.
    fn alloc_past_slots(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
    ) -> Option<u32> {
        match request.order() < Order::PAGEBLOCK {
            true => self.take_direct(context, zone, request),
            false => self.take_huge(context, zone, request),
        }
    }

    /// Has slots give up pageblocks one by one until one of them serves the request, in a zone that
    /// is not below what slots may keep. The one that a slot takes such frames from at the moment
    /// is shared, if it may be, or else CPUs would take it from each other where there are fewer.
    fn alloc_from_others(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        class: Watermark,
    ) -> Option<u32> {
        if !self.zone(zone).may_keep(0, request) {
            return None;
        }
        // As for what the running CPU's slot holds.
        let may_share = class == Watermark::Low && request.depth() != Watermark::Low;
        let (here, cpus) = (context.topology.fold(context.platform.cpu()), self.cpus());
        (here..here + cpus).find_map(|cpu| {
            loop {
                let guard = self.try_lock(context, cpu % cpus, zone)?;
                if !self.give_one(&guard, request.content(), !may_share) {
                    let shared = may_share.then(|| self.alloc_held(&guard, request)).flatten();
                    return shared.inspect(|_| self.note_taken(context, &guard, request.order()));
                }
                drop(guard);
                if self.allows(zone, request, class)
                    && let Some(frame) = self.alloc_past_slots(context, zone, request)
                {
                    return Some(frame);
                }
            }
        })
    }

    /// Has a slot give up one pageblock, best one of a type, the current one of that at last if at
    /// all; says whether it had one.
    fn give_one(
        &self,
        guard: &SlotGuard<'_, P>,
        migratetype: MigrateType,
        with_current: bool,
    ) -> bool {
        self.take_pending(guard);
        if let Some(block) = guard.slot.pop_spare() {
            self.part_with_whole(guard, block);
            return true;
        }
        let current =
            || with_current.then(|| guard.slot.current_block(For::Singles, migratetype)).flatten();
        let block = guard.slot.any_but_current(migratetype).or_else(current);
        let Some(block) = block else { return false };
        guard.slot.unlist(&self.blocks, block);
        self.let_go(guard, block);
        true
    }
}
