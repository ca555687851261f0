//! Free, one block at a time and in bulk.

use crate::Llfree;
use crate::block::frames_in;
use crate::local::Reserved;
use crate::release::Released;
use crate::trees::{TREE_FRAMES, TreeIndex};
use freehold::designs::Context;
use freehold::designs::traits::{Bulk, Free};
use freehold::memmap::index::ZoneIndex;
use freehold::platform::Platform;
use freehold::zone::watermark::Watermark;
use freehold::{BulkFreeError, Error, Order, Pfn, Request};

impl<P: Platform> Free<P> for Llfree<P> {
    #[inline]
    fn free(&self, context: Context<'_, P>, pfn: Pfn, order: Order) -> Result<(), Error> {
        let first = self.lower.stretches.index_of(pfn).ok_or(Error::ForeignFrame)?;
        self.free_at(context, first.0, order)
    }
}

impl<P: Platform> Llfree<P> {
    #[inline]
    pub(crate) fn free_at(
        &self,
        context: Context<'_, P>,
        first: u32,
        order: Order,
    ) -> Result<(), Error> {
        let (cpu, zone, tree, frames) = self.release(context, first, order)?;
        let local = self.local(cpu, zone);
        if frames > 0 && !local.give(tree, frames) {
            self.trees.give(tree, frames);
            if local.note_free(tree) {
                self.reserve_for_frees(cpu, zone, tree);
            }
        }
        Ok(())
    }

    /// Frees a block to its tree, whoever has reserved that.
    pub(crate) fn put_back(
        &self,
        context: Context<'_, P>,
        first: u32,
        order: Order,
    ) -> Result<(), Error> {
        let (_, _, tree, frames) = self.release(context, first, order)?;
        self.trees.give(tree, frames);
        Ok(())
    }

    /// Frees a block; returns the CPU that does, and of which tree how many frames are to be
    /// counted.
    #[inline]
    fn release(
        &self,
        context: Context<'_, P>,
        first: u32,
        order: Order,
    ) -> Result<(usize, ZoneIndex, TreeIndex, u32), Error> {
        let Released { zone, child, frames } =
            self.lower.release(context.platform, first, order)?;
        let cpu = context.cpu_here();
        self.local(cpu, zone).note_freed(frames_in(order));
        Ok((cpu, zone, self.trees.of(zone, child), frames))
    }

    /// Reserves a tree that this CPU frees in, unless another one has it or memory is low.
    fn reserve_for_frees(&self, cpu: usize, zone: ZoneIndex, tree: TreeIndex) {
        if self.trees.is_reserved(tree) {
            return;
        }
        let low = self.low(zone);
        let level = self.level_up_to(zone, low + u64::from(TREE_FRAMES));
        let Some(spare) = level.checked_sub(low).filter(|&spare| spare > 0) else { return };
        self.zone(zone).note_cached(true);
        let most = spare.min(u64::from(TREE_FRAMES)) as u32;
        let local = self.local(cpu, zone);
        local.enter();
        let taken = self.trees.reserve(tree, 0, most);
        if let Some(count) = taken {
            self.replace_reservation(cpu, zone, Reserved { tree, count });
        }
        local.leave(taken.is_some());
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
        let mut near = self.usable(zones, &request).take_while(|&zone| {
            Some(self.zone(zone).node()) == request.preferred_node() //
        });
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
            let first = self.alloc_in(context, zone, &request, class, None)?;
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
        for (freed, &pfn) in blocks.iter().enumerate() {
            self.free(context, pfn, order).map_err(|error| BulkFreeError { freed, error })?;
        }
        Ok(())
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

    /// The low watermark of a zone: nothing is reserved that would leave less.
    pub(crate) fn low(&self, zone: ZoneIndex) -> u64 {
        let zone = self.zone(zone);
        zone.watermarks().floor(Watermark::Low, zone.kind()).unwrap_or(0)
    }
}
