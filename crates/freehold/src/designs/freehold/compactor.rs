//! The two scanners of a compaction.
//!
//! Where a whole pageblock is to be made, the one that is being emptied is out of circulation
//! meanwhile, so that nobody fills it again, and it is taken for whoever asked as soon as it is
//! empty. Where less will do, it is held for no longer than it takes to find the next block to
//! move.
//!
//! A target is taken when it is needed, out of a pageblock that is held only for that. Each size of
//! block has a free scanner of its own, so that frames which are too scattered for large blocks are
//! left for small ones.

use super::Freehold;
use super::blocks::BlockIndex;
use super::isolate::Isolation;
use super::migrate::Target;
use super::range::Place;
use super::runs::Run;
use super::span::Span;
use super::state::Use;
use crate::compact::state::Scanners;
use crate::compact::{Compaction, Migrate, MigrateError};
use crate::designs::Context;
use crate::memmap::index::{FrameIndex, ZoneIndex};
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order};
use crate::zone::fallback::FALLBACKS;
use crate::zone::watermark::Watermark;

/// Sizes of blocks that move.
const SIZES: usize = Order::PAGEBLOCK.index();

/// A compaction of one zone under way.
pub(super) struct Compactor<'a, P: Platform> {
    design: &'a Freehold<P>,
    context: Context<'a, P>,
    zone: ZoneIndex,
    owner: &'a dyn Migrate,
    /// What is to be made: only smaller blocks move.
    order: Order,
    /// Whom the block is for that is to be made.
    request: Option<&'a Request>,
    /// The block that was made and taken, before anybody else could.
    pub(super) captured: Option<u32>,
    /// The pageblock that the migrate scanner looks at next, going up.
    next: BlockIndex,
    /// The lowest pageblocks that the free scanners have done with, going down, by order.
    free: [BlockIndex; SIZES],
    /// Whether the scanners began at the ends of memory.
    whole: bool,
    pub(super) report: Compaction,
}

impl<'a, P: Platform> Compactor<'a, P> {
    /// A compaction from where the scanners stand: for a request for at most a pageblock, or of the
    /// whole zone.
    pub(super) fn new(
        design: &'a Freehold<P>,
        context: Context<'a, P>,
        zone: ZoneIndex,
        owner: &'a dyn Migrate,
        request: Option<&'a Request>,
    ) -> Self {
        let at = request.map_or(Scanners::APART, |_| {
            design.zone(zone).with_compaction(|state| state.scanners()) //
        });
        let mut compactor = Compactor {
            design,
            context,
            zone,
            owner,
            order: request.map_or(Order::PAGEBLOCK, |request| request.order()),
            request,
            captured: None,
            next: BlockIndex(0),
            free: [BlockIndex(0); SIZES],
            whole: false,
            report: Compaction::default(),
        };
        compactor.begin_at(at);
        compactor
    }

    /// Puts the scanners in their places.
    fn begin_at(&mut self, at: Scanners) {
        self.whole = at == Scanners::APART;
        self.next = BlockIndex::of_frame(at.migrate.0);
        let behind = BlockIndex(self.design.blocks.len() as u32);
        self.free = [BlockIndex::of_frame(at.free.0).min(behind); SIZES];
    }

    /// Puts the scanners at the ends of memory if they had begun elsewhere; says whether they had.
    pub(super) fn begin_again(&mut self) -> bool {
        let again = !self.whole;
        if again {
            self.begin_at(Scanners::APART);
        }
        again
    }

    /// Where the scanners stand; of the free scanners, the one that came least far.
    pub(super) fn scanners(&self) -> Scanners {
        let free = self.free.into_iter().max().unwrap_or(self.next);
        Scanners { migrate: FrameIndex(self.next.frame()), free: FrameIndex(free.frame()) }
    }

    /// Has the movable content of the next pageblock moved away; says whether there was one below
    /// the free scanners.
    pub(super) fn empty_next_pageblock(&mut self) -> bool {
        let Some(block) = self.next_source() else { return false };
        self.report.pageblocks += 1;
        match self.order < Order::PAGEBLOCK {
            true => self.make_room(block),
            false => self.empty(block),
        }
        true
    }

    /// The next pageblock below the free scanners with something to move.
    fn next_source(&mut self) -> Option<BlockIndex> {
        let blocks = &self.design.blocks;
        while self.free.iter().any(|&free| self.next < free) {
            let block = self.next;
            self.next = BlockIndex(block.0 + 1);
            let state = blocks.state(block);
            // For a request, only blocks that can be emptied for good are worth the effort.
            let worthwhile = || match self.request {
                None => true,
                Some(_) if blocks.is_all_fixed(block) => false,
                Some(request) if request.order() < Order::PAGEBLOCK => true,
                Some(_) => {
                    let place = self.design.survey(self.zone, Span::of(block, 1), Some(self.order));
                    matches!(place, Place::Promising)
                }
            };
            let is_ours = blocks.zone_if_any(block) == Some(self.zone);
            if is_ours && state.is_split() && !state.is_isolated() && worthwhile() {
                return Some(block);
            }
        }
        None
    }

    /// Empties a pageblock, as far as that goes. If all of it is free then, takes it for the
    /// request.
    fn empty(&mut self, block: BlockIndex) {
        let (design, zone) = (self.design, self.design.zone(self.zone));
        let free = u64::from(design.blocks.count_free(block));
        if !zone.may_take(free, Watermark::Min, zone.kind()) {
            return;
        }
        let isolated = Isolation::new(design, self.context, Span::of(block, 1));
        let Ok(mut isolation) = isolated else { return };
        if !design.blocks.state(block).is_split() {
            return;
        }
        let mut at = block.frame();
        while let Some(part) = design.blocks.next_movable(block, at, self.order) {
            at = part.end();
            if !self.migrate(part) && self.request.is_some() {
                // What stays spoils it.
                return;
            }
        }
        design.collect(block);
        if let Some(request) = self.request
            && design.blocks.is_whole(block)
            && zone.may_take(0, request.depth(), request.effective_limit())
        {
            isolation.hand_out(block, Order::PAGEBLOCK, request.content());
            design.note_direct_alloc(self.context, self.zone, Order::PAGEBLOCK.frames());
            self.captured = Some(block.frame());
        }
    }

    /// Has content of a pageblock moved away until there is a block for the request in it.
    fn make_room(&mut self, block: BlockIndex) {
        let design = self.design;
        let mut at = block.frame();
        loop {
            let section = design.section(design.cpu_here(self.context), self.zone);
            if !design.seize(self.context, block) {
                return;
            }
            self.captured = self.capture_in(block);
            let part = match self.captured {
                None => design.blocks.next_movable(block, at, self.order),
                Some(_) => None,
            };
            design.release(block);
            drop(section);
            let Some(part) = part else { return };
            at = part.end();
            self.migrate(part);
        }
    }

    /// Takes a block for the request out of a pageblock that we hold, if there is one.
    fn capture_in(&self, block: BlockIndex) -> Option<u32> {
        let request = self.request?;
        let (frames, limit) = (request.order().frames().get(), request.effective_limit());
        let zone = self.design.zone(self.zone);
        let allowed = zone.may_take(frames, request.depth(), limit);
        let blocks = &self.design.blocks;
        let run = blocks.find_run(block, request.order()).filter(|_| allowed)?;
        // What is left in it shall remain movable.
        let may_claim = blocks.next_used(Span::of(block, 1)).is_none();
        self.design.take_found(run, request, may_claim);
        self.design.note_direct_alloc(self.context, self.zone, request.order().frames());
        Some(run.frame())
    }

    /// Has the content of a block moved to a free one further up, if its owner will; says whether
    /// it has moved.
    fn migrate(&mut self, from: Run) -> bool {
        let Some(target) = self.target(from) else {
            self.report.without_target += 1;
            return false;
        };
        match target.fill(self.owner, from.frame()) {
            Ok(true) => {
                self.report.migrated += from.order.frames();
                return true;
            }
            Ok(false) | Err(MigrateError::Failed) => self.report.failed += 1,
            Err(MigrateError::Busy) => self.report.busy += 1,
        }
        false
    }

    /// A target for the content of a block: above its pageblock, from the top down, and as long as
    /// the zone stays above its minimum watermark.
    fn target(&mut self, from: Run) -> Option<Target<'a, P>> {
        let (order, source) = (from.order, BlockIndex::of_frame(from.frame()));
        let Compactor { design, context, .. } = *self;
        while self.free[order.index()].0 > source.0 + 1 {
            if !self.has_room(order) {
                return None;
            }
            let block = BlockIndex(self.free[order.index()].0 - 1);
            if self.is_fit(block, order) {
                let _section = design.section(design.cpu_here(context), self.zone);
                if design.seize(context, block) {
                    let target = Target::in_block(design, context, block, order);
                    design.release(block);
                    if target.is_some() {
                        return target;
                    }
                }
            }
            self.free[order.index()] = block;
        }
        let may_mix = self.request.is_some() && self.has_room(order);
        if may_mix { self.target_elsewhere(order) } else { None }
    }

    /// Whether the zone stays above its minimum watermark. As Linux counts it: one block of the
    /// order stays above the mark.
    fn has_room(&self, order: Order) -> bool {
        let zone = self.design.zone(self.zone);
        zone.level() > (zone.watermarks().get().min + order.frames()).get()
    }

    /// A target in a pageblock for content that cannot move, where movable content goes as well
    /// when there is no other room.
    fn target_elsewhere(&self, order: Order) -> Option<Target<'a, P>> {
        let Compactor { design, context, .. } = *self;
        FALLBACKS[MigrateType::Movable.index()].into_iter().find_map(|of| {
            let tree = design.zone(self.zone).partial(of);
            let partial = design.forest.around(tree, 0).map(|bit| design.block_at(self.zone, bit));
            let mut fit = partial.filter(|&block| design.blocks.find_run(block, order).is_some());
            fit.find_map(|block| {
                let cpu = design.cpu_here(context);
                design.while_held(cpu, block, || Target::in_block(design, context, block, order))
            })
        })
    }

    /// Whether a pageblock seems fit for targets of an order.
    fn is_fit(&self, block: BlockIndex, order: Order) -> bool {
        let blocks = &self.design.blocks;
        let state = blocks.state(block);
        // Movable content stays out of pageblocks for what cannot move, unless it only has to make
        // room for small blocks in such.
        let may_mix = self.order < Order::PAGEBLOCK && !blocks.is_all_fixed(block);
        blocks.zone_if_any(block) == Some(self.zone)
            && state.used_for() == Use::Split
            && (state.migratetype() == MigrateType::Movable || may_mix)
            && !state.is_isolated()
            && blocks.find_run(block, order).is_some()
    }
}
