//! When memory runs short: allocation that reclaims, upkeep by watermark, and room in a group.

use core::ops::RangeInclusive;

use super::group::{GroupId, Refused};
use super::{BATCH_MAX, Kind, Lru, Owner, Reclaimed, Scope};
use crate::allocator::PageAllocator;
use crate::designs::Design;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{FrameCount, NodeId, Order, Pfn, ZoneKind};
use crate::{Error, Marks};

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

    /// Reclaims on each node that is short of memory, until it is not or nothing more can be had:
    /// what a kernel's `kswapd` does. To be called now and then, or when an allocation was refused.
    ///
    /// A node is short if all zones that serve ordinary requests are below their low watermarks,
    /// until one of them is at its high one. So nobody's frames are given up for a zone of devices
    /// that is full of what no reclaim can move.
    pub fn balance<Q: Platform, D: Design<Q>>(&self, frames: &PageAllocator<Q, D>) -> Reclaimed {
        let mut done = Reclaimed::default();
        for node in (0..self.vecs.nodes()).map(|node| NodeId::new(node as u16)) {
            let missing = |mark: fn(&Marks) -> FrameCount| missing(frames, node, mark);
            let mut wanted = match missing(|marks| marks.low) {
                0 => 0,
                _ => missing(|marks| marks.high),
            };
            while wanted > 0 {
                let scope = Scope::Node(node);
                let round = self.reclaim(scope, FrameCount::new(wanted)).unwrap_or_default();
                frames.drain_all();
                done.add(&round);
                let left = missing(|marks| marks.high);
                // What is reclaimed elsewhere on the node is of no use.
                wanted = if round.reclaimed > 0 && left < wanted { left } else { 0 };
            }
        }
        done
    }
}

/// How many free frames a node lacks until one of the zones that serve ordinary requests is at this
/// mark. Movable memory counts where there is no other.
fn missing<Q: Platform, D: Design<Q>>(
    frames: &PageAllocator<Q, D>,
    node: NodeId,
    mark: fn(&Marks) -> FrameCount,
) -> u64 {
    let lacks = |kinds: RangeInclusive<ZoneKind>| {
        let zones = frames.zones().filter(|zone| zone.node == node && zone.managed.get() > 0);
        let zones = zones.filter(|zone| kinds.contains(&zone.kind));
        zones.map(|zone| mark(&zone.marks).get().saturating_sub(zone.free.get())).min()
    };
    let ordinary = lacks(ZoneKind::Dma..=ZoneKind::Normal);
    ordinary.or_else(|| lacks(ZoneKind::Movable..=ZoneKind::Movable)).unwrap_or(0)
}
