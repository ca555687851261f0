//! Balancing by watermark: reclaim on nodes that are short of memory.

use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::reclaim::hunt::{Hunt, Reclaimed};
use freehold::PageAllocator;
use freehold::designs::Design;
use freehold::platform::Platform;
use freehold::units::{FrameCount, NodeId, ZoneKind};
use freehold::{Marks, ZoneLevel};

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Reclaims on each node that is short of memory, until it no longer is or nothing more can be
    /// reclaimed, like a kernel's `kswapd`. The embedder calls it now and then, or when an
    /// allocation was refused. It stops if [too many reclaims][many] are under way.
    ///
    /// [many]: crate::LruError::TooManyReclaims
    ///
    /// A node is short if all zones that serve ordinary requests are below their low watermarks,
    /// and stays short until one of them is at its high one. So a device zone full of unreclaimable
    /// content causes no reclaim. Frames in movable memory are not reclaimed, unless the node has
    /// no other memory.
    pub fn balance<Q: Platform, D: Design<Q>>(&self, frames: &PageAllocator<Q, D>) -> Reclaimed {
        let mut done = Reclaimed::default();
        for node in (0..self.vecs.nodes()).map(NodeId::new) {
            let zone = highest_ordinary(frames, node);
            let missing = |mark: fn(&Marks) -> FrameCount| missing(frames, node, zone, mark);
            let mut wanted = match missing(|marks| marks.low) {
                0 => 0,
                _ => missing(|marks| marks.high),
            };
            while wanted > 0 {
                let nodes = node.get()..node.get() + 1;
                let hunt = Hunt { above: 0, nodes, zone, wanted, heeds_low: true };
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
) -> impl Iterator<Item = ZoneLevel> {
    frames.levels().filter(move |zone| zone.node == node && zone.managed.get() > 0)
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
    lacking(zones, |zone| mark(&zone.marks).get()).unwrap_or(0)
}

/// How many free frames are lacking until one of these zones has as many as `level` says; `None` if
/// all of them are smaller than that.
pub(crate) fn lacking(
    zones: impl Iterator<Item = ZoneLevel>,
    level: impl Fn(&ZoneLevel) -> u64,
) -> Option<u64> {
    let large = zones.filter(|zone| zone.managed.get() >= level(zone));
    large.map(|zone| level(&zone).saturating_sub(zone.free.get())).min()
}
