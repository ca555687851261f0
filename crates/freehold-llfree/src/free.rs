//! Free, one block at a time and in bulk.

use crate::block::{Block, child_of, frames_in};
use crate::local::{Count, Reserved};
use crate::trees::{TREE_FRAMES, TreeIndex};
use crate::{Llfree, ORDER_MAX};
use freehold::designs::Context;
use freehold::designs::traits::{Bulk, Free};
use freehold::memmap::index::ZoneIndex;
use freehold::platform::Platform;
use freehold::{BulkFreeError, Error, Order, Pfn, Request};

impl<P: Platform> Free<P> for Llfree<P> {
    #[inline]
    fn free(&self, context: Context<'_, P>, pfn: Pfn, order: Order) -> Result<(), Error> {
        let first = self.lower.stretches.index_of(pfn).ok_or(Error::ForeignFrame)?;
        self.free_at(context, Block { first: first.0, order })
    }
}

impl<P: Platform> Llfree<P> {
    /// Frees a block, or a part of one.
    #[inline]
    pub(crate) fn free_at(&self, context: Context<'_, P>, block: Block) -> Result<(), Error> {
        let Block { first, order } = block;
        if order > ORDER_MAX {
            return Err(Error::OrderTooLarge);
        }
        // As its number is.
        if !first.is_multiple_of(frames_in(order)) {
            return Err(Error::Misaligned);
        }
        let child = child_of(first);
        let zone = self.lower.zone_of(child).ok_or(Error::ForeignFrame)?;
        let frames = self.lower.release(context.platform, block)?;
        let (cpu, tree) = (context.cpu_here(), self.trees.of(zone, child));
        let local = self.local(cpu, zone);
        local.note(Count::Freed, frames_in(order));
        if frames > 0 && !local.give(tree, frames) {
            self.trees.give(tree, frames);
            if local.note_free(tree) {
                self.reserve_for_frees(cpu, zone, tree);
            }
        }
        Ok(())
    }

    /// Reserves a tree that this CPU frees in, unless another one has it or memory is low.
    fn reserve_for_frees(&self, cpu: usize, zone: ZoneIndex, tree: TreeIndex) {
        if self.trees.is_reserved(tree) {
            return;
        }
        let low = self.zone(zone).low();
        let level = self.level_up_to(zone, low + u64::from(TREE_FRAMES));
        let Some(spare) = level.checked_sub(low).filter(|&spare| spare > 0) else { return };
        self.zone(zone).note_cached(true);
        let most = spare.min(u64::from(TREE_FRAMES)) as u32;
        let local = self.local(cpu, zone);
        local.section(|| {
            let count = self.trees.reserve(tree, 0, most)?;
            local.note_refill(count);
            self.end_reservation(local, Some(Reserved { tree, count }));
            Some(())
        });
    }
}

impl<P: Platform> Bulk<P> for Llfree<P> {
    fn alloc_bulk(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        out: &mut [Pfn],
    ) -> usize {
        self.fill(out, || self.alloc_any(context, zones, &request).ok())
    }

    fn alloc_quickly(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        spare: usize,
        out: &mut [Pfn],
    ) -> usize {
        let class = request.depth().at_first();
        let spare = (spare as u64).saturating_mul(request.order().frames().get());
        let is_near = |&zone: &_| Some(self.zone(zone).node) == request.preferred_node();
        let mut near = self.usable(zones, &request).take_while(is_near);
        let cpu = context.cpu_here();
        let has_to_spare = |&zone: &ZoneIndex| {
            let enough = self.zone(zone).floor(&request, class).saturating_add(spare);
            let own = self.local(cpu, zone).reserved().map_or(0, |of| u64::from(of.count));
            own + self.level_up_to(zone, enough.saturating_add(1)) > enough
        };
        let Some(zone) = near.find(has_to_spare) else { return 0 };
        // As the calls for one block do, but for what other CPUs have.
        let request = request.at_hand();
        self.fill(out, || {
            let first = self.alloc_in(context, zone, &request, class)?;
            self.note_numa(context, zones, &request, zone, request.order().frames());
            Some(first)
        })
    }

    fn free_bulk(
        &self,
        context: Context<'_, P>,
        blocks: &[Pfn],
        order: Order,
    ) -> Result<(), BulkFreeError> {
        blocks.iter().enumerate().try_for_each(|(freed, &pfn)| {
            self.free(context, pfn, order).map_err(|error| BulkFreeError { freed, error })
        })
    }
}

impl<P: Platform> Llfree<P> {
    /// Fills `out` with blocks until there are no more; returns how many.
    fn fill(&self, out: &mut [Pfn], next: impl Fn() -> Option<u32>) -> usize {
        for (filled, slot) in out.iter_mut().enumerate() {
            let Some(first) = next() else { return filled };
            *slot = self.lower.pfn_of(first);
        }
        out.len()
    }
}
