//! Taking frames past the slots: out of pageblocks that nobody holds. This is how memory is handed
//! out when there is too little for slots to keep any, and how types fall back on each other.

use super::Freehold;
use super::blocks::BlockIndex;
use super::runs::Run;
use super::state::Holder;
use super::tree::Tree;
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order};
use crate::zone::fallback::FALLBACKS;

/// Of so many pageblocks for movable content, the emptiest is claimed for content that cannot move.
const CLAIM_LOOKS: usize = 64;

/// So often a pageblock for content that cannot move is looked for before another one is begun.
const LOOKS: usize = 16;

impl<P: Platform> Freehold<P> {
    /// The pageblock at a bit of the trees of a zone.
    pub(super) fn block_at(&self, zone: ZoneIndex, bit: usize) -> BlockIndex {
        BlockIndex(self.zone(zone).first_block().wrapping_add(bit as u32))
    }

    /// Takes a block of up to half a pageblock: of the type's own partial pageblocks, a whole one,
    /// or, at last, those of other types.
    pub(super) fn take_direct(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
    ) -> Option<u32> {
        let migratetype = request.content();
        let cpu = self.cpu_here(context);
        let own = self.zone(zone).partial(migratetype);
        // What cannot move should not spread to another pageblock because somebody else has just
        // this one in hand.
        let is_shared = migratetype != MigrateType::Movable && request.order() == Order::ZERO;
        let looks = if is_shared && request.may_wait() { LOOKS } else { 1 };
        let run = (0..looks).find_map(|look| {
            if look > 0 {
                self.forest.next(own, 0)?;
                context.platform.relax();
            }
            self.take_partial(zone, cpu, own, request)
        });
        let run = run.or_else(|| {
            let _section = self.section(cpu, zone);
            let block = self.take_whole(zone, cpu, migratetype)?;
            self.split(block, Holder::Walker, migratetype);
            let run = self.take_run_directly(block, request);
            self.release(block);
            run
        });
        let run = run.or_else(|| {
            FALLBACKS[migratetype.index()].into_iter().find_map(|other| {
                let tree = self.zone(zone).partial(other);
                match migratetype {
                    MigrateType::Movable => self.take_partial(zone, cpu, tree, request),
                    _ => self.take_emptiest(zone, cpu, tree, request),
                }
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
        tree: &Tree,
        request: &Request,
    ) -> Option<Run> {
        let mut partial = self.forest.around(tree, self.start(tree, cpu, request.content()));
        partial.find_map(|bit| self.take_in(cpu, self.block_at(zone, bit), request))
    }

    /// As `take_partial`, for content that cannot move: of the first few, the pageblock with most
    /// free frames, so that more such content finds room in it.
    fn take_emptiest(
        &self,
        zone: ZoneIndex,
        cpu: usize,
        tree: &Tree,
        request: &Request,
    ) -> Option<Run> {
        let blocks = self.forest.around(tree, 0).map(|bit| self.block_at(zone, bit));
        let fit = blocks.filter(|&block| self.blocks.find_run(block, request.order()).is_some());
        let emptiest = fit.take(CLAIM_LOOKS).max_by_key(|&block| self.blocks.count_free(block))?;
        let run = self.take_in(cpu, emptiest, request);
        // Others may have been faster.
        run.or_else(|| self.take_partial(zone, cpu, tree, request))
    }

    /// Takes a block out of a pageblock, if nobody holds that.
    fn take_in(&self, cpu: usize, block: BlockIndex, request: &Request) -> Option<Run> {
        self.while_held(cpu, block, || self.take_run_directly(block, request))
    }

    /// Takes a block out of a pageblock that the caller holds as a walker. If that is of another
    /// type, it is stolen; but a pageblock for movable content is claimed for what cannot move,
    /// however full it is: one such frame spoils it for larger blocks anyway, and so the next ones
    /// come here as well. Movable content claims nothing; it would take the place of the others.
    fn take_run_directly(&self, block: BlockIndex, request: &Request) -> Option<Run> {
        let run = self.blocks.find_run(block, request.order())?;
        let may_claim = self.blocks.state(block).migratetype() == MigrateType::Movable;
        self.take_found(run, request, may_claim);
        Some(run)
    }

    /// Takes a free run out of a pageblock that the caller holds as a walker. If that is of another
    /// type, it may be claimed for this one, or else it is stolen from.
    pub(super) fn take_found(&self, run: Run, request: &Request, may_claim: bool) {
        let migratetype = request.content();
        let block = BlockIndex::of_frame(run.frame());
        let zone = self.zone(self.blocks.zone(block));
        let of = self.blocks.state(block).migratetype();
        if of != migratetype && may_claim {
            self.forest.remove(zone.partial(of), self.bit(block));
            self.blocks.update(block, |state| state.of_type(migratetype));
            self.blocks.review_fixed(block);
            zone.note_claim();
        } else if of != migratetype {
            zone.note_steal();
        }
        if migratetype != MigrateType::Movable {
            self.blocks.fix(run);
        }
        self.blocks.take_run(run);
        zone.sub_free(run.order.frames().get() as u32);
    }

    /// Whether a zone has a free block of an order in a pageblock that no slot holds.
    pub(super) fn has_run(&self, zone: ZoneIndex, order: Order) -> bool {
        if order >= Order::PAGEBLOCK {
            return self.find_whole(zone, order).is_some();
        }
        let of = self.zone(zone);
        self.forest.next(of.pool(), 0).is_some()
            || MigrateType::ALL.into_iter().any(|migratetype| {
                self.forest
                    .around(of.partial(migratetype), 0)
                    .any(|bit| self.blocks.has_run(self.block_at(zone, bit), order))
            })
    }
}
