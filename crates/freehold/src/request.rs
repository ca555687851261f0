//! What a user asks for.

use crate::units::{FrameCount, MigrateType, NodeId, Order, Pfn, ZoneKind};
use crate::zone::watermark::Watermark;

/// A request for one block of frames, or for many of the same kind.
///
/// ```
/// use freehold::{MigrateType, NodeId, Order, Request};
///
/// let frame = Request::default();
/// let kind = MigrateType::Unmovable;
/// let huge = Request::new(Order::PAGEBLOCK).node(NodeId::new(1)).migratetype(kind);
/// # assert_eq!(frame.order(), Order::ZERO);
/// # assert_eq!(huge.order(), Order::new(9));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub(crate) order: Order,
    pub(crate) migratetype: MigrateType,
    pub(crate) node: Option<NodeId>,
    pub(crate) only_node: bool,
    pub(crate) interleaved: bool,
    pub(crate) zone_limit: ZoneKind,
    pub(crate) watermark: Watermark,
}

impl Default for Request {
    fn default() -> Self {
        Request::new(Order::ZERO)
    }
}

impl Request {
    /// A block of `order` for movable content, near the CPU that asks, from any zone, down to the
    /// minimum watermark.
    pub const fn new(order: Order) -> Self {
        Request {
            order,
            migratetype: MigrateType::Movable,
            node: None,
            only_node: false,
            interleaved: false,
            zone_limit: ZoneKind::Movable,
            watermark: Watermark::Min,
        }
    }

    /// What the content can do. Only movable content is given frames of a movable zone.
    pub const fn migratetype(self, migratetype: MigrateType) -> Self {
        Request { migratetype, ..self }
    }

    /// Prefers this node to the one of the CPU that asks; others follow by distance.
    pub const fn node(self, node: NodeId) -> Self {
        Request { node: Some(node), ..self }
    }

    /// As [`Request::node`], for a node that interleaving has chosen: counted in
    /// [`NumaEvents::interleave_hit`](crate::NumaEvents::interleave_hit) if it comes from there.
    pub const fn interleaved(self, node: NodeId) -> Self {
        Request { node: Some(node), interleaved: true, ..self }
    }

    /// Refuses frames of other nodes.
    pub const fn only_node(self) -> Self {
        Request { only_node: true, ..self }
    }

    /// The highest kind of zone that will do: `Dma32` for a 32-bit device.
    pub const fn zone_limit(self, zone_limit: ZoneKind) -> Self {
        Request { zone_limit, ..self }
    }

    /// How deep the request may dip into the reserves.
    pub const fn watermark(self, watermark: Watermark) -> Self {
        Request { watermark, ..self }
    }

    /// The order asked for.
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The highest kind of zone that the request may really use.
    #[inline]
    pub(crate) fn effective_limit(&self) -> ZoneKind {
        match self.migratetype {
            MigrateType::Movable => self.zone_limit,
            _ => self.zone_limit.min(ZoneKind::Normal),
        }
    }
}

/// A request for frames that lie side by side, as many as wanted: gigabytes, or any other number.
///
/// ```
/// use freehold::{FrameCount, RangeRequest};
///
/// let gib = FrameCount::new(1 << 18);
/// let huge = RangeRequest::new(gib).align(gib);
/// # assert_eq!(huge.frames(), gib);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    pub(crate) frames: FrameCount,
    pub(crate) align: FrameCount,
    pub(crate) at: Option<Pfn>,
    pub(crate) near: Request,
}

impl RangeRequest {
    /// So many frames anywhere near the CPU that asks, from any zone but the movable ones.
    pub const fn new(frames: FrameCount) -> Self {
        let near = Request::new(Order::ZERO).migratetype(MigrateType::Unmovable);
        RangeRequest { frames, align: FrameCount::new(1), at: None, near }
    }

    /// The first frame's number is to be a multiple of this, a power of two.
    pub const fn align(self, align: FrameCount) -> Self {
        RangeRequest { align, ..self }
    }

    /// These very frames and no others.
    pub const fn at(self, first: Pfn) -> Self {
        RangeRequest { at: Some(first), ..self }
    }

    /// Prefers this node to the one of the CPU that asks; others follow by distance.
    pub const fn node(self, node: NodeId) -> Self {
        RangeRequest { near: self.near.node(node), ..self }
    }

    /// Refuses frames of other nodes.
    pub const fn only_node(self) -> Self {
        RangeRequest { near: self.near.only_node(), ..self }
    }

    /// The highest kind of zone that will do.
    pub const fn zone_limit(self, zone_limit: ZoneKind) -> Self {
        RangeRequest { near: self.near.zone_limit(zone_limit), ..self }
    }

    /// How many frames are asked for.
    pub const fn frames(&self) -> FrameCount {
        self.frames
    }
}
