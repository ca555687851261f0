//! Memory pressure: allocation that reclaims, balancing by watermark, and room in a group.

use super::error::LruError;
use super::group::{GroupId, Refused};
use super::reclaim::Hunt;
use super::{BATCH_MAX, Kind, Lru, Owner, Reclaimed};
use crate::allocator::PageAllocator;
use crate::designs::Design;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{FrameCount, NodeId, Order, Pfn, ZoneKind};
use crate::{Error, Marks, ZoneStats};

/// How often a request is retried that fails although reclaim freed something: other CPUs may take
/// what was reclaimed.
const ROUNDS: usize = 16;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// As [`Lru::add`], but reclaims within the group, or the one above it whose limit was hit,
    /// until it may have the frame. The caller holds no lock that the owner takes.
    ///
    /// # Errors
    ///
    /// Those of [`Lru::add`]; [`LruError::GroupLimit`] if nothing more can be reclaimed;
    /// [`LruError::TooManyReclaims`], as [`Lru::reclaim`].
    pub fn add_reclaiming(&self, pfn: Pfn, group: GroupId, kind: Kind) -> Result<(), LruError> {
        for _ in 0..ROUNDS {
            match self.try_add(pfn, group, kind) {
                Err(Refused { error: LruError::GroupLimit, slot }) => {
                    // As many as Linux takes, but from a small group only a part; plus the excess
                    // over a limit that was lowered.
                    let limit = self.groups.limit(slot).map_or(0, FrameCount::get);
                    let excess = (self.groups.charged(slot).get() + 1).saturating_sub(limit);
                    let wanted = (limit / 16).clamp(1, BATCH_MAX as u64).max(excess);
                    let (nodes, zone) = (0..self.vecs.nodes(), ZoneKind::Movable);
                    let hunt = Hunt { above: slot, nodes, zone, wanted };
                    if self.hunt(&hunt)?.reclaimed == 0 {
                        break;
                    }
                }
                done => return done.map_err(|refused| refused.error),
            }
        }
        // The last reclaim may not have been followed by an attempt, or other CPUs may have charged
        // ahead what is missing.
        self.add(pfn, group, kind)
    }

    /// Allocates a block. Reclaims frames if there are none, and compacts for blocks of more than
    /// one frame. Drains batches and per-CPU lists, so that none hides the last free frame. The
    /// caller holds no lock that the owner takes.
    ///
    /// # Errors
    ///
    /// As [`PageAllocator::alloc`]; [`Error::OutOfMemory`] or [`Error::BelowWatermark`] if nothing
    /// more can be reclaimed, or [too many reclaims](LruError::TooManyReclaims) are under way.
    pub fn alloc_reclaiming<Q: Platform, D: Design<Q>>(
        &self,
        frames: &PageAllocator<Q, D>,
        request: Request,
    ) -> Result<Pfn, Error> {
        let attempt = || match request.order() {
            Order::ZERO => frames.alloc(request),
            _ => frames.alloc_compacting(request, self),
        };
        // Frames of other nodes are useless to a request for one node only, and those of zones that
        // it may not use to any request.
        let (nodes, zone) = (self.vecs.nodes(), request.effective_limit());
        let nodes = match request.preferred_node().map(NodeId::index) {
            Some(node) if request.is_only_node() => node.min(nodes)..(node + 1).min(nodes),
            _ => 0..nodes,
        };
        let wanted = request.order().frames().get().max(BATCH_MAX as u64);
        let mut hunt = Hunt { above: 0, nodes, zone, wanted };
        let mut outcome = frames.alloc(request);
        for _ in 0..ROUNDS {
            if !matches!(outcome, Err(Error::OutOfMemory | Error::BelowWatermark)) {
                break;
            }
            let Ok(Reclaimed { reclaimed, .. }) = self.hunt(&hunt) else { break };
            self.drain_all();
            frames.drain_all();
            outcome = attempt();
            if outcome == Err(Error::BelowWatermark) {
                // The level may be far below the mark.
                hunt.wanted *= 2;
            }
            if reclaimed == 0 {
                break;
            }
        }
        outcome
    }

    /// Reclaims on each node that is short of memory, until it no longer is or nothing more can be
    /// reclaimed, like a kernel's `kswapd`. The embedder calls it now and then, or when an
    /// allocation was refused. It stops if [too many reclaims](LruError::TooManyReclaims) are under
    /// way.
    ///
    /// A node is short if all zones that serve ordinary requests are below their low watermarks,
    /// and stays short until one of them is at its high one. So a device zone full of unreclaimable
    /// content causes no reclaim. Frames in movable memory are not reclaimed, unless the node has
    /// no other memory.
    pub fn balance<Q: Platform, D: Design<Q>>(&self, frames: &PageAllocator<Q, D>) -> Reclaimed {
        let mut done = Reclaimed::default();
        for node in (0..self.vecs.nodes()).map(|node| NodeId::new(node as u16)) {
            let zone = highest_ordinary(frames, node);
            let missing = |mark: fn(&Marks) -> FrameCount| missing(frames, node, zone, mark);
            let mut wanted = match missing(|marks| marks.low) {
                0 => 0,
                _ => missing(|marks| marks.high),
            };
            while wanted > 0 {
                let nodes = node.index()..node.index() + 1;
                let hunt = Hunt { above: 0, nodes, zone, wanted };
                let Ok(round) = self.hunt(&hunt) else { return done };
                frames.drain_all();
                done.add(&round);
                let left = missing(|marks| marks.high);
                // What is reclaimed elsewhere on the node does not help.
                wanted = if round.reclaimed > 0 && left < wanted { left } else { 0 };
            }
        }
        done
    }
}

/// The zones of a node that have memory.
fn zones_of<Q: Platform, D: Design<Q>>(
    frames: &PageAllocator<Q, D>,
    node: NodeId,
) -> impl Iterator<Item = ZoneStats> {
    frames.zones().filter(move |zone| zone.node == node && zone.managed.get() > 0)
}

/// The highest kind of zone of a node that serves ordinary requests. Movable memory counts only if
/// there is no other.
fn highest_ordinary<Q: Platform, D: Design<Q>>(
    frames: &PageAllocator<Q, D>,
    node: NodeId,
) -> ZoneKind {
    let has_ordinary = zones_of(frames, node).any(|zone| zone.kind <= ZoneKind::Normal);
    if has_ordinary { ZoneKind::Normal } else { ZoneKind::Movable }
}

/// How many free frames a node lacks until one of the zones up to this kind is at this mark.
fn missing<Q: Platform, D: Design<Q>>(
    frames: &PageAllocator<Q, D>,
    node: NodeId,
    highest: ZoneKind,
    mark: fn(&Marks) -> FrameCount,
) -> u64 {
    let zones = zones_of(frames, node).filter(|zone| zone.kind <= highest);
    let lacks = zones.map(|zone| mark(&zone.marks).get().saturating_sub(zone.free.get()));
    lacks.min().unwrap_or(0)
}
