//! Allocation: try the zones by their watermarks, per-CPU lists first.

use super::counters::CpuEvents;
use super::{Guard, LocalPages, Policy, Skeleton};
use crate::fallback::Step;
use crate::frame::FrameState;
use crate::kind::Kind;
use crate::pcp_tuning::PcpMode;
use freehold::Error;
use freehold::designs::Context;
use freehold::designs::places::usable;
use freehold::designs::traits::Alloc;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::platform::{Platform, SharedCell};
use freehold::request::Request;
use freehold::stat::NumaExceptions;
use freehold::units::{FrameCount, Pfn};
use freehold::zone::watermark::Watermark;

impl<P: Platform, Y: Policy<P>> Alloc<P> for Skeleton<P, Y> {
    /// The common case, without branches off: the best zone is not low, and this CPU has a block of
    /// it on a list.
    #[inline(always)]
    fn alloc_fast(&self, context: Context<'_, P>, request: Request) -> Option<Pfn> {
        let kind = Kind::of(&request);
        Y::list(&self.mode, kind)?;
        let cpu = context.cpu_here();
        let zone = context.topology.best_zone(cpu, request.effective_limit())?;
        if !self.may_take(zone, &request, request.depth().at_first()) {
            return None;
        }
        let pages = self.try_lock_here(context, zone)?;
        let frame = pages.take_listed(kind)?;
        Some(self.frames.pfn_of(frame))
    }

    /// First from any zone above its low watermark, then as deep as the request may dip, then again
    /// after merging what was left unmerged, and again after draining all CPUs.
    fn alloc(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
    ) -> Result<Pfn, Error> {
        let from = |class| self.alloc_from(context, zones, &request, class);
        let merging = || self.alloc_merging(context, zones, &request);
        let frame = from(request.depth().at_first()).or_else(|| from(request.depth()));
        let frame = frame.or_else(merging);
        if frame.is_none() && request.is_at_hand() {
            return Err(Error::OutOfMemory);
        }
        let mut drained = true;
        let frame = frame.or_else(|| {
            drained = self.drain_all_cpus_for(context, &request);
            from(request.depth()).or_else(merging)
        });
        match frame {
            Some(frame) => Ok(self.frames.pfn_of(frame)),
            None if !drained => Err(Error::WouldWait),
            None if self.could_ignore_watermarks(zones, &request) => Err(Error::BelowWatermark),
            None => Err(Error::OutOfMemory),
        }
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    fn could_ignore_watermarks(&self, zones: &[u16], request: &Request) -> bool {
        self.usable(zones, request).any(|zone| self.allows(zone, request, Watermark::Ignore))
    }

    /// The zones of the list that the request, whose node is filled in, may use.
    #[inline]
    pub(super) fn usable<'a>(
        &'a self,
        zones: &'a [u16],
        request: &'a Request,
    ) -> impl Iterator<Item = ZoneIndex> + 'a {
        usable(zones, request, |zone| self.zone(zone).node())
    }

    /// Counts where frames came from, if it was not the best zone for the request, whose node is
    /// filled in.
    #[inline]
    pub(super) fn note_numa(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
        from: ZoneIndex,
        frames: FrameCount,
    ) {
        let Some(preferred) = zones.first().map(|&zone| ZoneIndex(zone)) else { return };
        if self.zone(from).node() == self.zone(preferred).node() && !request.is_interleaved() {
            return;
        }
        let cpu = context.cpu_here();
        let place = |zone| (self.zone(zone).node(), &self.stat_of(cpu, zone).numa);
        NumaExceptions::note(request, place(preferred), place(from), frames);
    }

    fn alloc_from(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
        class: Watermark,
    ) -> Option<FrameIndex> {
        self.usable(zones, request).filter(|&zone| self.may_take(zone, request, class)).find_map(
            |zone| {
                let block = self.alloc_in(context, zone, Kind::of(request))?;
                self.note_numa(context, zones, request, zone, request.order().frames());
                Some(block)
            },
        )
    }

    /// As [`Skeleton::allows`]; notes it when the level is low.
    #[inline(always)]
    pub(super) fn may_take(&self, zone: ZoneIndex, request: &Request, class: Watermark) -> bool {
        let of = self.zone(zone);
        if matches!(self.mode, PcpMode::Auto { .. }) && !of.is_below_high() {
            if self.allows(zone, request, Watermark::High) {
                return true;
            }
            of.note_below_high();
        }
        self.allows(zone, request, class)
    }

    /// Whether a block for the request is free and the zone's level allows it.
    #[inline(always)]
    pub(super) fn allows(&self, zone: ZoneIndex, request: &Request, class: Watermark) -> bool {
        self.zone(zone).watermark_ok(request.order(), class, request.effective_limit())
    }

    fn alloc_in(&self, context: Context<'_, P>, zone: ZoneIndex, kind: Kind) -> Option<FrameIndex> {
        if Y::list(&self.mode, kind).is_some()
            && let Some(pages) = self.try_lock_here(context, zone)
            && let Some(frame) = pages.take_or_refill(kind)
        {
            return Some(frame);
        }
        self.alloc_directly(context, zone, kind)
    }

    /// Takes a block from the zone, bypassing the per-CPU lists: they do not hold its order, or
    /// their lock is taken, or the refill found nothing.
    #[cold]
    pub(super) fn alloc_directly(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        kind: Kind,
    ) -> Option<FrameIndex> {
        let guard = self.lock_zone(context.platform, zone);
        let block = self.take_for_user(&guard, kind, &mut Step::default())?;
        let count = |events: &CpuEvents<P>| events.note_direct_alloc(kind.order.frames());
        self.unlock_and_note(context, zone, guard, count);
        Some(block)
    }

    /// Takes a block from the zone for a user.
    pub(super) fn take_for_user(
        &self,
        guard: &Guard<'_, P, Y>,
        kind: Kind,
        step: &mut Step,
    ) -> Option<FrameIndex> {
        let block = guard.take(kind, step)?;
        self.frames.set_state(block, FrameState::allocated(kind));
        guard.sub_free(kind.order.frames());
        Some(block)
    }
}

impl<P: Platform, Y: Policy<P>> LocalPages<'_, P, Y> {
    /// Takes a block off the lists, refilling them first if they have none.
    fn take_or_refill(&self, kind: Kind) -> Option<FrameIndex> {
        self.take_listed(kind).or_else(|| {
            self.refill(kind);
            self.take_listed(kind)
        })
    }

    /// Takes a block off the lists, if there is one.
    #[inline(always)]
    fn take_listed(&self, kind: Kind) -> Option<FrameIndex> {
        let LocalPages { design, pcp, .. } = self;
        let frame = Y::take(self, kind)?;
        design.frames.set_state(frame, FrameState::allocated(kind));
        pcp.count.set(pcp.count.get() - kind.order.frames().get() as u32);
        design.mode.note_alloc(pcp, 1);
        Some(frame)
    }

    /// Moves blocks from the zone to the lists, which have none of this kind.
    #[cold]
    pub(super) fn refill(&self, kind: Kind) {
        let LocalPages { design, pcp, .. } = self;
        let wanted = design.mode.refill(pcp, kind.order, design.zone(self.zone).is_below_high());
        let taken = Y::refill(self, kind, wanted);
        if taken == FrameCount::ZERO {
            return;
        }
        pcp.count.set(pcp.count.get() + taken.get() as u32);
        pcp.expire.set(super::drain::EXPIRE_TICKS);
        design.books.note(pcp.platform(), || self.per_cpu.events.note_refill(taken));
    }
}
