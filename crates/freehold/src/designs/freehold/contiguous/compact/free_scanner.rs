//! The free scanner: where content moves to.
//!
//! A target is taken when it is needed, out of a pageblock that is held only for that; of single
//! frames, some more at once. Each size of block has a free scanner of its own, so that frames
//! which are too scattered for large blocks are left for small ones.

use super::super::target::{Target, Targets};
use super::Compactor;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::run::Run;
use crate::designs::freehold::pageblocks::state::Use;
use crate::platform::Platform;
use crate::units::{MigrateType, Order};
use crate::zone::fallback::FALLBACKS;

/// So many targets for single frames are taken at once (Linux's `COMPACT_CLUSTER_MAX`).
const SINGLES: u64 = 32;

impl<'a, P: Platform> Compactor<'a, P> {
    /// A target for the content of a block: above its pageblock, from the top down, and as long as
    /// the zone stays above its minimum watermark.
    #[inline(never)]
    pub(super) fn target(&mut self, from: Run) -> Option<Target<'a, P>> {
        let (order, source) = (from.order, PageblockIndex::of_frame(from.frame()));
        let Compactor { design, context, .. } = *self;
        while self.free[order.index()].0 > source.0 + 1 {
            let room = self.room(order);
            if room == 0 {
                return None;
            }
            let pageblock = PageblockIndex(self.free[order.index()].0 - 1);
            if self.is_fit(pageblock, order) {
                let section = design.zones.section(context.cpu_here(), self.zone);
                if design.acquire_any(context, pageblock) {
                    let is_ours = self.is_ours(pageblock);
                    let target = is_ours.then(|| self.target_in(pageblock, from, room)).flatten();
                    design.zones.release(pageblock, &section);
                    if target.is_some() {
                        return target;
                    }
                }
            }
            self.free[order.index()] = pageblock;
        }
        let room = self.room(order);
        if self.request.is_some() && room > 0 { self.target_elsewhere(from, room) } else { None }
    }

    /// A target in a pageblock that the caller holds. If it is for a single frame, takes some more,
    /// as many as there is room for.
    fn target_in(
        &mut self,
        pageblock: PageblockIndex,
        from: Run,
        room: u64,
    ) -> Option<Target<'a, P>> {
        let Compactor { design, context, .. } = *self;
        // Within the pageblock that is being emptied, those would be taken for content.
        if from.order > Order::ZERO || pageblock == PageblockIndex::of_frame(from.frame()) {
            return Target::in_block(design, context, pageblock, from.order);
        }
        let most = room.min(SINGLES).min(self.order.frames().get()) as u32;
        self.singles.insert(Targets::in_block(design, context, pageblock, most)).pop()
    }

    /// How many frames can be taken before the zone is at its minimum watermark. As in Linux, with
    /// one block of the order to spare.
    fn room(&self, order: Order) -> u64 {
        let zone = self.design.zones.zone(self.zone);
        zone.level().saturating_sub((zone.watermarks().get().min + order.frames()).get())
    }

    /// A target in a pageblock for content that cannot move, where movable content goes as well if
    /// there is no other room.
    fn target_elsewhere(&mut self, from: Run, room: u64) -> Option<Target<'a, P>> {
        let Compactor { design, context, zone, .. } = *self;
        FALLBACKS[MigrateType::Movable.index()].into_iter().find_map(|of| {
            let mut fit = design.zones.orphans_with_run(zone, of, from.order, 0);
            fit.find_map(|pageblock| {
                design.zones.with_acquired(context.cpu_here(), zone, pageblock, || {
                    self.target_in(pageblock, from, room)
                })
            })
        })
    }

    /// Whether a pageblock seems fit for targets of an order.
    fn is_fit(&self, pageblock: PageblockIndex, order: Order) -> bool {
        let pageblocks = &self.design.pageblocks();
        let state = pageblocks.state(pageblock);
        // Movable content stays out of pageblocks for content that cannot move, unless compaction
        // only has to make room there for small blocks.
        let may_mix = self.order < Order::PAGEBLOCK && !pageblocks.is_all_unmovable(pageblock);
        self.is_ours(pageblock)
            && state.used_for() == Use::Split
            && (state.migratetype() == MigrateType::Movable || may_mix)
            && !state.is_isolated()
            && pageblocks.find_run(pageblock, order).is_some()
    }
}
