//! Having content moved: where to, and what becomes of the block that it was in.

use super::Freehold;
use super::blocks::BlockIndex;
use super::runs::Run;
use crate::Error;
use crate::compact::{Migrate, MigrateError};
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::Order;

/// An allocated block to move content to, which is freed when dropped unless its owner keeps it.
pub(super) struct Target<'a, P: Platform> {
    design: &'a Freehold<P>,
    context: Context<'a, P>,
    frame: u32,
    order: Order,
    kept: bool,
}

impl<'a, P: Platform> Target<'a, P> {
    /// A block for the content of one of a zone, wherever there is room: in no zone that the
    /// content might not have been allowed to go to.
    pub(super) fn near(
        design: &'a Freehold<P>,
        context: Context<'a, P>,
        zone: ZoneIndex,
        order: Order,
    ) -> Result<Self, Error> {
        let zone = design.zone(zone);
        let request = Request::new(order).node(zone.node()).zone_limit(zone.kind());
        let zones = context.topology.zonelist(zone.node(), zone.kind())?;
        let frame = design.alloc_slowly(context, zones, &request)?;
        Ok(Target { design, context, frame, order, kept: false })
    }

    /// A block of less than a pageblock out of this one, unless that takes the zone below its
    /// minimum watermark. The caller holds it as a walker, in a section.
    pub(super) fn in_block(
        design: &'a Freehold<P>,
        context: Context<'a, P>,
        block: BlockIndex,
        order: Order,
    ) -> Option<Self> {
        let run = design.blocks.find_run(block, order)?;
        let zone = design.blocks.zone(block);
        design.blocks.take_run(run);
        design.zone(zone).sub_free(order.frames().get() as u32);
        design.note_direct_alloc(context, zone, order.frames());
        Some(Target { design, context, frame: run.frame(), order, kept: false })
    }

    /// Has an owner move the content of the block at `from` here, and takes that block back. Says
    /// whether he still had it, as he must.
    pub(super) fn fill(mut self, owner: &dyn Migrate, from: u32) -> Result<bool, MigrateError> {
        let Target { design, context, frame, order, .. } = self;
        let (from_pfn, to) = (design.blocks.pfn_of(from), design.blocks.pfn_of(frame));
        owner.migrate(from_pfn, to, order)?;
        self.kept = true;
        let had_it = design.take_from_user(context, from, order);
        if had_it {
            let zone = design.zone(design.blocks.zone(BlockIndex::of_frame(from)));
            zone.with_compaction(|state| state.note_migrated(order.frames()));
        }
        Ok(had_it)
    }
}

impl<P: Platform> Drop for Target<'_, P> {
    fn drop(&mut self) {
        if !self.kept {
            // If it is free already, the owner has freed what he was not given; then that is done.
            self.design.take_from_user(self.context, self.frame, self.order);
        }
    }
}

impl<P: Platform> Freehold<P> {
    /// Frees a block past all slots; says whether its user had not freed it already.
    fn take_from_user(&self, context: Context<'_, P>, frame: u32, order: Order) -> bool {
        if order >= Order::PAGEBLOCK {
            return self.free_huge(context, frame, order).is_ok();
        }
        let (run, block) = (Run::at(frame, order), BlockIndex::of_frame(frame));
        let is_used = |word| self.blocks.used(word) & run.mask() == run.mask();
        if !self.blocks.state(block).is_split()
            || !run.words().all(is_used)
            || self.blocks.claim(run).is_err()
            || !self.blocks.try_end_use_in(run.words(), run.mask())
        {
            return false;
        }
        let freed = run.words().fold(0, |freed, word| {
            freed | self.blocks.free_remotely(word, run.mask()) & run.mask()
        });
        self.notify(self.cpu_here(context), block);
        freed == 0
    }
}
