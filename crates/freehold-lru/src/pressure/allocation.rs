//! Allocation that reclaims.

use super::attempts::Attempts;
use super::watermarks::lacking;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::reclaim::hunt::Hunt;
use crate::settings::BATCH_MAX;
use freehold::PageAllocator;
use freehold::designs::Design;
use freehold::platform::Platform;
use freehold::request::Request;
use freehold::units::{NodeId, Order, Pfn};
use freehold::{Error, ZoneLevel};

/// The most frames that an allocation of one frame reclaims in a round.
const WANTED_MAX: u64 = 1 << 16;

/// The largest order that is worth rounds of reclaim after compaction had what it needs, and how
/// many: so many frames lie side by side by chance.
const SMALL_ORDER: Order = Order::new(3);
const SMALL_ROUNDS: usize = 4;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Allocates a block. Reclaims frames if there are none. For blocks of more than one frame it
    /// compacts first, and reclaims no more than compaction needs to work with: twice the block,
    /// beyond the low watermark (Linux's `compact_gap`). So a request that compaction cannot
    /// satisfy costs the content of few frames, and no more when it is repeated. Small blocks, up
    /// to order 3, are worth further rounds (Linux's `PAGE_ALLOC_COSTLY_ORDER`).
    ///
    /// Drains batches and per-CPU lists, so that none hides the last free frame. The caller holds
    /// no lock that the owner takes.
    ///
    /// # Errors
    ///
    /// As [`PageAllocator::alloc`]; [`Error::OutOfMemory`] or [`Error::BelowWatermark`] if nothing
    /// more can be reclaimed, if reclaim is of no use, or if
    /// [too many reclaims](crate::LruError::TooManyReclaims) are under way.
    pub fn alloc_reclaiming<Q: Platform, D: Design<Q>>(
        &self,
        frames: &PageAllocator<Q, D>,
        request: Request,
    ) -> Result<Pfn, Error> {
        // Frames of other nodes are useless to a request for one node only, and those of zones that
        // it may not use to any request.
        let all = self.vecs.nodes();
        let nodes = match request.preferred_node().map(NodeId::get) {
            Some(node) if request.is_only_node() => node.min(all)..node.saturating_add(1).min(all),
            _ => 0..all,
        };
        let hunt =
            Hunt { above: 0, nodes, zone: request.effective_limit(), wanted: 0, heeds_low: true };
        match frames.alloc(request) {
            outcome if !is_short(outcome) => outcome,
            _ if request.order() == Order::ZERO => self.alloc_frame(frames, request, hunt),
            _ => self.alloc_block(frames, request, hunt),
        }
    }

    fn alloc_frame<Q: Platform, D: Design<Q>>(
        &self,
        frames: &PageAllocator<Q, D>,
        request: Request,
        mut hunt: Hunt,
    ) -> Result<Pfn, Error> {
        hunt.wanted = BATCH_MAX as u64;
        let mut attempts = Attempts::default();
        loop {
            let done = self.hunt(&hunt);
            let mut outcome = frames.alloc(request);
            if is_short(outcome) {
                // As in Linux, only now: it takes from all other CPUs what they have at hand.
                self.drain_all();
                frames.drain_all();
                outcome = frames.alloc(request);
            }
            if !is_short(outcome) || !self.may_try_again(&hunt, done, &mut attempts) {
                return outcome;
            }
            if outcome == Err(Error::BelowWatermark) {
                // The level may be far below the mark.
                hunt.wanted = (hunt.wanted * 2).min(WANTED_MAX);
            }
        }
    }

    fn alloc_block<Q: Platform, D: Design<Q>>(
        &self,
        frames: &PageAllocator<Q, D>,
        request: Request,
        mut hunt: Hunt,
    ) -> Result<Pfn, Error> {
        let gap = 2 * request.order().frames().get();
        let mut more = if request.order() <= SMALL_ORDER { SMALL_ROUNDS } else { 0 };
        let attempt = || {
            self.drain_all();
            frames.drain_all();
            frames.alloc_compacting(request, self)
        };
        let mut attempts = Attempts::default();
        loop {
            let outcome = attempt();
            if !is_short(outcome) {
                return outcome;
            }
            let zones = frames.levels().filter(|zone| is_within(&hunt, zone));
            hunt.wanted = match lacking(zones, |zone| zone.marks.low.get() + gap) {
                Some(0) if more > 0 => {
                    more -= 1;
                    gap.max(BATCH_MAX as u64)
                }
                // No zone is that large, or compaction had what it needs.
                None | Some(0) => return outcome,
                Some(lacking) => lacking,
            };
            let done = self.hunt(&hunt);
            if !self.may_try_again(&hunt, done, &mut attempts) {
                return attempt();
            }
        }
    }
}

/// Whether frames of a zone are within the reach of a hunt.
fn is_within(hunt: &Hunt, zone: &ZoneLevel) -> bool {
    hunt.nodes.contains(&zone.node.get()) && zone.kind <= hunt.zone
}

/// Whether an allocation failed for want of memory.
fn is_short(outcome: Result<Pfn, Error>) -> bool {
    matches!(outcome, Err(Error::OutOfMemory | Error::BelowWatermark))
}
