//! When memory runs short: allocation that reclaims, upkeep by watermark, and room in a group.

use super::group::{GroupId, Refused};
use super::{BATCH_MAX, Kind, Lru, Owner, Reclaimed, Scope};
use crate::Error;
use crate::allocator::PageAllocator;
use crate::designs::Design;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{FrameCount, Order, Pfn};

/// How often a request that fails after reclaim found something is tried again: others may take
/// what was reclaimed.
const ROUNDS: usize = 16;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// As [`Lru::add`], reclaiming within the group, or the one above it whose limit is in the way,
    /// until it may have the frame. The caller holds no lock that the owner takes.
    ///
    /// # Errors
    ///
    /// Those of [`Lru::add`]; [`Error::GroupLimit`] if nothing more can be reclaimed.
    pub fn add_reclaiming(&self, pfn: Pfn, group: GroupId, kind: Kind) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            match self.try_add(pfn, group, kind) {
                Err(Refused { error: Error::GroupLimit, slot }) => {
                    // As many as Linux takes, but from a small group no more than a part.
                    let limit = self.groups.limit(slot).map_or(0, FrameCount::get);
                    let wanted = (limit / 16).clamp(1, BATCH_MAX as u64);
                    if self.reclaim_below(slot, 0..self.vecs.nodes(), wanted).reclaimed == 0 {
                        break;
                    }
                }
                done => return done.map_err(|refused| refused.error),
            }
        }
        // What was reclaimed last may not have been tried for yet, or other CPUs have charged ahead
        // what is missing.
        self.add(pfn, group, kind)
    }

    /// Allocates a block, reclaiming frames if there are none, and compacting for blocks of more
    /// than one. Batches and per-CPU lists are drained, so that none hides the last free frame. The
    /// caller holds no lock that the owner takes.
    ///
    /// # Errors
    ///
    /// As [`PageAllocator::alloc`]; [`Error::OutOfMemory`] or [`Error::BelowWatermark`] if nothing
    /// more can be reclaimed.
    pub fn alloc_reclaiming<Q: Platform, D: Design<Q>>(
        &self,
        frames: &PageAllocator<Q, D>,
        request: Request,
    ) -> Result<Pfn, Error> {
        let attempt = || match request.order() {
            Order::ZERO => frames.alloc(request),
            _ => frames.alloc_compacting(request, self),
        };
        // Frames of other nodes are of no use to a request that is for one node only.
        let nodes = match request.node {
            Some(node) if request.only_node => node.index()..node.index() + 1,
            _ => 0..self.vecs.nodes(),
        };
        let mut outcome = frames.alloc(request);
        for _ in 0..ROUNDS {
            if !matches!(outcome, Err(Error::OutOfMemory | Error::BelowWatermark)) {
                break;
            }
            let wanted = request.order().frames().get().max(BATCH_MAX as u64);
            let reclaimed = self.reclaim_below(0, nodes.clone(), wanted).reclaimed;
            frames.drain_all();
            outcome = attempt();
            if reclaimed == 0 {
                break;
            }
        }
        outcome
    }

    /// Reclaims on each node that has a zone below its low watermark, until all its zones are at
    /// their high ones or nothing more can be had: what a kernel's `kswapd` does. To be called now
    /// and then, or when an allocation was refused.
    pub fn balance<Q: Platform, D: Design<Q>>(&self, frames: &PageAllocator<Q, D>) -> Reclaimed {
        let mut done = Reclaimed::default();
        for zone in frames.zones().filter(|zone| zone.free < zone.marks.low) {
            let short = |frames: &PageAllocator<Q, D>| {
                let same = |it: &crate::ZoneStats| (it.node, it.kind) == (zone.node, zone.kind);
                frames
                    .zones()
                    .find(same)
                    .map_or(0, |now| now.marks.high.get().saturating_sub(now.free.get()))
            };
            loop {
                let wanted = short(frames);
                if wanted == 0 {
                    break;
                }
                let scope = Scope::Node(zone.node);
                let round = self.reclaim(scope, FrameCount::new(wanted)).unwrap_or_default();
                frames.drain_all();
                done.add(&round);
                if round.reclaimed == 0 {
                    break;
                }
            }
        }
        done
    }
}
