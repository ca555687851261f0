//! Orphans: partial pageblocks without a holder. How they come into being, and how they serve
//! requests past all caches.
//!
//! In this way memory is allocated when there is too little for caches to hold any, and
//! migratetypes fall back on each other.

use super::Zones;
use super::sections::Section;
use crate::designs::Context;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::bitmaps::Fullness;
use crate::designs::freehold::pageblocks::run::Run;
use crate::designs::freehold::pageblocks::state::Holder;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order};
use crate::zone::fallback::FALLBACKS;

/// Of how many pageblocks for movable content the emptiest is claimed for content that cannot move.
const CLAIM_LOOKS: usize = 64;

/// How often a pageblock for content that cannot move is looked for before another one is begun.
const LOOKS: usize = 16;

impl<P: Platform> Zones<P> {
    /// Releases a pageblock that the caller holds as a walker, and whose free frames are in the
    /// level of the zone.
    pub(crate) fn release(&self, pageblock: PageblockIndex, section: &Section<'_, P>) {
        let zone = self.zone_of(pageblock);
        loop {
            let found = self.pageblocks.collect_remote(pageblock);
            section.note_freed(found.frames);
            zone.add_free(found.frames);
            zone.note_doubles(found.doubles);
            let fullness = self.pageblocks.fullness(pageblock);
            let order = self.enter_orphans(pageblock, fullness);
            if fullness == Fullness::Whole {
                return self.put_in_pool(pageblock);
            }
            if self.pageblocks.try_release(pageblock, order) {
                return;
            }
        }
    }

    /// Acquires a pageblock of a zone that has no holder, acts on it as a walker, and releases it.
    /// The call runs on `cpu`.
    pub(crate) fn with_acquired<R>(
        &self,
        cpu: usize,
        zone: ZoneIndex,
        pageblock: PageblockIndex,
        act: impl FnOnce() -> Option<R>,
    ) -> Option<R> {
        let section = self.section_of_part(cpu, zone);
        if !self.pageblocks.acquire(pageblock) {
            return None;
        }
        // It may have come to another zone since the caller found it.
        let is_here = self.pageblocks.zone(pageblock) == zone;
        let result = if is_here { act() } else { None };
        self.release(pageblock, &section);
        result
    }
}

impl<P: Platform> Zones<P> {
    /// Takes a block of up to half a pageblock: out of the orphans of the type, a whole pageblock,
    /// or, at last, orphans of other types.
    pub(crate) fn alloc_direct(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
    ) -> Option<u32> {
        let migratetype = request.content();
        let cpu = context.cpu_here();
        let own = self.zone(zone).orphans(migratetype);
        // Content that cannot move should not spread to another pageblock just because another call
        // has this one in hand.
        let is_shared = migratetype != MigrateType::Movable && request.order() == Order::ZERO;
        let looks = if is_shared && request.may_wait() { LOOKS } else { 1 };
        let run = (0..looks).find_map(|look| {
            if look > 0 {
                self.forest.next(own, 0)?;
                context.platform.relax();
            }
            self.take_partial(zone, cpu, migratetype, request)
        });
        let run = run.or_else(|| {
            self.forest.next(self.zone(zone).pool(), 0)?;
            let section = self.section(cpu, zone);
            let pageblock = self.acquire_whole(zone, cpu, migratetype)?;
            self.split(pageblock, Holder::Walker, migratetype);
            let run = self.take_run_directly(pageblock, request);
            self.release(pageblock, &section);
            run
        });
        let run = run.or_else(|| {
            let others = FALLBACKS[migratetype.index()].into_iter();
            let mut others = others.take_while(|_| !request.is_at_hand());
            others.find_map(|other| {
                let emptiest = match migratetype {
                    MigrateType::Movable => None,
                    _ => self.take_emptiest(zone, cpu, other, request),
                };
                // Another CPU may have been faster.
                emptiest.or_else(|| self.take_partial(zone, cpu, other, request))
            })
        });
        run.map(|run| {
            self.note_direct_alloc(context, zone, run.order.frames());
            run.frame()
        })
    }

    fn take_partial(
        &self,
        zone: ZoneIndex,
        cpu: usize,
        of: MigrateType,
        request: &Request,
    ) -> Option<Run> {
        let start = self.start(self.zone(zone).orphans(of), cpu, request.content());
        let mut partial = self.orphans_with_run(zone, of, request.order(), start);
        partial.find_map(|pageblock| self.take_in(zone, cpu, pageblock, request))
    }

    /// As `take_partial`, for content that cannot move: out of that pageblock of the first few that
    /// has the most free frames, so that more such content finds room in it.
    #[inline(never)]
    fn take_emptiest(
        &self,
        zone: ZoneIndex,
        cpu: usize,
        of: MigrateType,
        request: &Request,
    ) -> Option<Run> {
        let (mut emptiest, mut most, mut looks) = (None, 0, 0);
        for pageblock in self.orphans_with_run(zone, of, request.order(), 0) {
            if self.pageblocks.find_run(pageblock, request.order()).is_none() {
                continue;
            }
            let free = self.pageblocks.count_free(pageblock);
            if free >= most {
                (emptiest, most) = (Some(pageblock), free);
            }
            looks += 1;
            if looks == CLAIM_LOOKS {
                break;
            }
        }
        self.take_in(zone, cpu, emptiest?, request)
    }

    /// Takes a block out of an orphan, if it has no holder yet.
    fn take_in(
        &self,
        zone: ZoneIndex,
        cpu: usize,
        pageblock: PageblockIndex,
        request: &Request,
    ) -> Option<Run> {
        self.with_acquired(cpu, zone, pageblock, || self.take_run_directly(pageblock, request))
    }

    /// Takes a block out of a pageblock that the caller holds as a walker. If the pageblock is of
    /// another type, the block is stolen. But content that cannot move claims a pageblock for
    /// movable content, however full that is: one such frame spoils it for larger blocks anyway,
    /// and so the next ones go there as well. Movable content claims nothing; it would take the
    /// room of the other types.
    fn take_run_directly(&self, pageblock: PageblockIndex, request: &Request) -> Option<Run> {
        let run = self.pageblocks.find_run(pageblock, request.order())?;
        let may_claim = self.pageblocks.state(pageblock).migratetype() == MigrateType::Movable;
        self.take_found(run, request, may_claim);
        Some(run)
    }

    /// Takes a free run out of a pageblock that the caller holds as a walker. If the pageblock is
    /// of another type, it is claimed for this one, if it may be, or else the run is stolen.
    pub(crate) fn take_found(&self, run: Run, request: &Request, may_claim: bool) {
        let migratetype = request.content();
        let pageblock = PageblockIndex::of_frame(run.frame());
        let zone = self.zone_of(pageblock);
        let state = self.pageblocks.state(pageblock);
        let of = state.migratetype();
        if of != migratetype && may_claim {
            self.leave_orphans(pageblock, state);
            self.pageblocks.update(pageblock, |state| state.claim(migratetype));
            self.pageblocks.refresh_unmovable(pageblock);
            zone.note_claim();
        } else if of != migratetype {
            zone.note_steal();
        }
        if migratetype != MigrateType::Movable {
            self.pageblocks.mark_unmovable(run);
        }
        self.pageblocks.take_run(run);
        zone.sub_free(run.order.frames().get() as u32);
    }

    /// Whether a zone has a free block of an order in the pool or an orphan.
    pub(crate) fn has_run(&self, zone: ZoneIndex, order: Order) -> bool {
        if order >= Order::PAGEBLOCK {
            return self.find_whole(zone, order).is_some();
        }
        let mut orphans = MigrateType::ALL
            .into_iter()
            .flat_map(|migratetype| self.orphans_with_run(zone, migratetype, order, 0));
        self.forest.next(self.zone(zone).pool(), 0).is_some()
            || orphans.any(|pageblock| self.pageblocks.has_run(pageblock, order))
    }
}
