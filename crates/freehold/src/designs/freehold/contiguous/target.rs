//! Blocks to move content to.

use crate::Error;
use crate::compact::{Migrate, MigrateError};
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::run::{Run, WORD_FRAMES, lowest};
use crate::designs::freehold::pageblocks::{PageblockIndex, WORDS};
use crate::designs::traits::Alloc;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{FrameCount, Order};

/// An allocated block to move content to. It is freed when dropped, unless content has been moved
/// there.
pub(crate) struct Target<'a, P: Platform> {
    design: &'a Freehold<P>,
    context: Context<'a, P>,
    frame: u32,
    order: Order,
    filled: bool,
}

impl<'a, P: Platform> Target<'a, P> {
    /// A target for the content of a block in `zone`, wherever there is room: only in zones up to
    /// the kind of `zone`, since the content may not be allowed to use others.
    pub(crate) fn near(
        design: &'a Freehold<P>,
        context: Context<'a, P>,
        zone: ZoneIndex,
        order: Order,
    ) -> Result<Self, Error> {
        let zone = design.zones.zone(zone);
        let request = Request::new(order).node(zone.node()).zone_limit(zone.kind());
        let zones = context.topology.zonelist(zone.node(), zone.kind())?;
        let pfn = design.alloc(context, zones, request)?;
        let frame = design.pageblocks().index_of(pfn).expect("it is a frame of ours");
        Ok(Target { design, context, frame, order, filled: false })
    }

    /// A target of less than a pageblock in this pageblock, if it has a free run for it. The caller
    /// holds the pageblock as a walker, in a section, and has checked the watermark.
    pub(crate) fn in_block(
        design: &'a Freehold<P>,
        context: Context<'a, P>,
        pageblock: PageblockIndex,
        order: Order,
    ) -> Option<Self> {
        let run = design.pageblocks().find_run(pageblock, order)?;
        let zone = design.pageblocks().zone(pageblock);
        design.pageblocks().take_run(run);
        design.zones.zone(zone).sub_free(order.frames().get() as u32);
        design.zones.note_direct_alloc(context, zone, order.frames());
        Some(Target { design, context, frame: run.frame(), order, filled: false })
    }

    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// Whether the owner that refused it has not freed it, which it may not.
    pub(crate) fn is_allocated(&self) -> bool {
        self.design.is_used(Run::at(self.frame, self.order))
    }

    pub(crate) fn pageblock(&self) -> PageblockIndex {
        PageblockIndex::of_frame(self.frame)
    }

    /// Makes the owner move the content of the block at `from` here, and frees that block, unless
    /// the owner does. Returns whether it was still allocated, as it must be; if the owner does not
    /// move it, the target.
    pub(crate) fn fill(
        mut self,
        owner: &dyn Migrate,
        from: u32,
    ) -> Result<bool, (MigrateError, Self)> {
        let Target { design, context, frame, order, .. } = self;
        let (from_pfn, to) = (design.pageblocks().pfn_of(from), design.pageblocks().pfn_of(frame));
        if let Err(error) = owner.migrate(from_pfn, to, order) {
            return Err((error, self));
        }
        self.filled = true;
        Ok(owner.frees_source() || design.take_from_user(context, from, order))
    }
}

impl<P: Platform> Drop for Target<'_, P> {
    fn drop(&mut self) {
        if !self.filled {
            // If it is free already, the owner has freed a block that it was not given; then
            // nothing is left to do.
            self.design.take_from_user(self.context, self.frame, self.order);
        }
    }
}

/// Targets for single frames, of one pageblock. They are taken at once, since each time costs steps
/// on lines that all CPUs write to. Those that are left are freed when it is dropped.
pub(crate) struct Targets<'a, P: Platform> {
    design: &'a Freehold<P>,
    context: Context<'a, P>,
    pageblock: PageblockIndex,
    /// The frames that are left, by the words of the pageblock.
    left: [u64; WORDS],
}

impl<'a, P: Platform> Targets<'a, P> {
    /// At most so many, as for [`Target::in_block`].
    pub(crate) fn in_block(
        design: &'a Freehold<P>,
        context: Context<'a, P>,
        pageblock: PageblockIndex,
        most: u32,
    ) -> Self {
        let (mut left, mut taken) = ([0; WORDS], 0);
        for (word, frames) in pageblock.words().zip(&mut left) {
            let free = design.pageblocks().free(word);
            *frames = lowest(free, most - taken);
            if *frames != 0 {
                taken += frames.count_ones();
                design.pageblocks().set_free(word, free & !*frames);
                design.pageblocks().begin_use(word, *frames);
            }
        }
        let zone = design.pageblocks().zone(pageblock);
        design.zones.zone(zone).sub_free(taken);
        design.zones.note_direct_alloc(context, zone, FrameCount::new(u64::from(taken)));
        Targets { design, context, pageblock, left }
    }

    pub(crate) fn pageblock(&self) -> PageblockIndex {
        self.pageblock
    }

    /// One of them.
    pub(crate) fn pop(&mut self) -> Option<Target<'a, P>> {
        let (nth, frames) = self.left.iter_mut().enumerate().find(|(_, frames)| **frames != 0)?;
        let bit = frames.trailing_zeros();
        *frames &= *frames - 1;
        let frame = self.pageblock.frame() + nth as u32 * WORD_FRAMES + bit;
        let Targets { design, context, .. } = *self;
        Some(Target { design, context, frame, order: Order::ZERO, filled: false })
    }
}

impl<P: Platform> Drop for Targets<'_, P> {
    fn drop(&mut self) {
        while let Some(target) = self.pop() {
            drop(target);
        }
    }
}

impl<P: Platform> Freehold<P> {
    /// Frees a block past all caches; returns whether its user had not freed it already.
    fn take_from_user(&self, context: Context<'_, P>, frame: u32, order: Order) -> bool {
        if order >= Order::PAGEBLOCK {
            return self.free_huge(context, frame, order).is_ok();
        }
        let (run, pageblock) = (Run::at(frame, order), PageblockIndex::of_frame(frame));
        if !self.is_used(run) || self.pageblocks().begin_free(run).is_err() {
            return false;
        }
        let freed = run.words().fold(0, |freed, word| {
            freed | self.pageblocks().put_remotely(word, run.mask()) & run.mask()
        });
        self.zones.ensure_collected(context.cpu_here(), pageblock);
        freed == 0
    }

    /// Whether all frames of a run are in use, in a pageblock that is split.
    fn is_used(&self, run: Run) -> bool {
        let pageblocks = self.pageblocks();
        pageblocks.state(PageblockIndex::of_frame(run.frame())).is_split()
            && run.words().all(|word| pageblocks.used(word) & run.mask() == run.mask())
    }
}
