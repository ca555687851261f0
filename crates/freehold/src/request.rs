//! What a caller asks for.

use core::fmt;

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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request(u64);

// A request is one word, so that it is passed in a register, and one comparison tells whether it is
// ordinary. From the lowest bit: 6 bits of migratetype, the flags `AT_HAND` and `NOWAIT`, which
// make no difference to cached frames, 8 bits of the highest kind of zone that it may effectively
// use, 8 of order, 8 of flags, 16 of node, 8 of the zone limit asked for, 8 of watermark.
const LIMIT_SHIFT: u32 = 8;
const ORDER_SHIFT: u32 = 16;
const NODE_SHIFT: u32 = 32;
const ASKED_LIMIT_SHIFT: u32 = 48;
const WATERMARK_SHIFT: u32 = 56;

/// A node is given.
const GIVEN: u64 = 1 << 24;
/// Other nodes are refused.
const ONLY: u64 = 1 << 25;
/// The node was chosen by interleaving.
const INTERLEAVED: u64 = 1 << 26;
/// The request must not dip below the low watermark.
const SPARING: u64 = 1 << 27;

/// The request takes only what is at hand.
const AT_HAND: u64 = 1 << 6;
/// The request does not wait for other calls.
const NOWAIT: u64 = 1 << 7;

/// What an ordinary request has none of: an order, and flags.
const EXTRAORDINARY: u64 = 0xffff << ORDER_SHIFT;

impl Default for Request {
    fn default() -> Self {
        Request::new(Order::ZERO)
    }
}

impl Request {
    /// A block of `order` for movable content, near the CPU that asks, from any zone, down to the
    /// minimum watermark.
    pub const fn new(order: Order) -> Self {
        Request(0)
            .with_order(order)
            .migratetype(MigrateType::Movable)
            .zone_limit(ZoneKind::Movable)
            .watermark(Watermark::Min)
    }

    /// The same request for a block of another order.
    #[must_use]
    pub const fn with_order(self, order: Order) -> Self {
        self.with(ORDER_SHIFT, 8, order.get() as u64)
    }

    /// Replaces one of the fields.
    const fn with(self, shift: u32, bits: u32, value: u64) -> Self {
        Request(self.0 & !(((1 << bits) - 1) << shift) | value << shift)
    }

    /// The mobility of the content. Only movable content is given frames of a movable zone.
    #[must_use]
    pub const fn migratetype(self, migratetype: MigrateType) -> Self {
        self.with(0, 6, migratetype as u64).limited()
    }

    /// Prefers this node to the one of the CPU that asks; others follow by distance.
    #[must_use]
    pub const fn node(self, node: NodeId) -> Self {
        Request(self.0 | GIVEN).with(NODE_SHIFT, 16, node.index() as u64)
    }

    /// As [`Request::node`], for a node that interleaving has chosen: counted in
    /// [`NumaEvents::interleave_hit`](crate::NumaEvents::interleave_hit) if the block comes from
    /// there.
    #[must_use]
    pub const fn interleaved(self, node: NodeId) -> Self {
        Request(self.0 | INTERLEAVED).node(node)
    }

    /// Refuses frames of other nodes.
    #[must_use]
    pub const fn only_node(self) -> Self {
        Request(self.0 | ONLY)
    }

    /// The highest kind of zone that will do: `Dma32` for a 32-bit device.
    #[must_use]
    pub const fn zone_limit(self, zone_limit: ZoneKind) -> Self {
        self.with(ASKED_LIMIT_SHIFT, 8, zone_limit as u64).limited()
    }

    /// How deep the request may dip into the reserves.
    #[must_use]
    pub const fn watermark(self, watermark: Watermark) -> Self {
        let sparing = matches!(watermark, Watermark::High | Watermark::Low);
        let rest = Request(if sparing { self.0 | SPARING } else { self.0 & !SPARING });
        rest.with(WATERMARK_SHIFT, 8, watermark as u64)
    }

    /// Never waits for another call that is under way. An interrupt or signal handler needs this:
    /// the call that it interrupted might be the one to wait for. If frames may be free, but
    /// another call has them in hand, the request fails with
    /// [`Error::WouldWait`](crate::Error::WouldWait). After Linux's `GFP_NOWAIT`;
    /// `docs/progress.md` lists which calls a handler may make.
    #[must_use]
    pub const fn nowait(self) -> Self {
        Request(self.0 | NOWAIT)
    }

    /// Takes only what is at hand: what the running CPU caches, and what no CPU caches; with
    /// `freehold`, for content of this type. Otherwise it fails with
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), where without this it would collect what
    /// other CPUs cache, and fall back on memory for other content. For callers that can get memory
    /// from elsewhere first, such as by reclaim: Linux, too, drains other CPUs only after that
    /// (`__alloc_pages_direct_reclaim`).
    #[must_use]
    pub const fn at_hand(self) -> Self {
        Request(self.0 | AT_HAND)
    }

    /// Derives the effective zone limit from the content and the limit asked for.
    const fn limited(self) -> Self {
        const NORMAL: u64 = ZoneKind::Normal as u64;
        let asked = self.0 >> ASKED_LIMIT_SHIFT & 0xff;
        let is_movable = self.0 & 0x3f == MigrateType::Movable as u64;
        let limit = if is_movable || asked < NORMAL { asked } else { NORMAL };
        self.with(LIMIT_SHIFT, 8, limit)
    }

    /// The order asked for.
    #[inline]
    pub const fn order(&self) -> Order {
        Order::new((self.0 >> ORDER_SHIFT) as u8)
    }

    /// The mobility of the content.
    #[inline]
    #[doc(hidden)]
    pub const fn content(&self) -> MigrateType {
        // Four entries, so that two bits are always in range.
        const TYPES: [MigrateType; 4] = {
            let [first, second, third] = MigrateType::ALL;
            [first, second, third, MigrateType::Movable]
        };
        TYPES[self.content_index()]
    }

    /// The index of the content's type in tables that have room for four.
    #[inline]
    #[doc(hidden)]
    pub const fn content_index(&self) -> usize {
        self.0 as usize & 3
    }

    /// How deep it may dip.
    #[inline]
    #[doc(hidden)]
    pub const fn depth(&self) -> Watermark {
        Watermark::ALL[(self.0 >> WATERMARK_SHIFT) as usize % Watermark::ALL.len()]
    }

    /// Whether it may wait for other calls.
    #[inline]
    #[doc(hidden)]
    pub const fn may_wait(&self) -> bool {
        self.0 & NOWAIT == 0
    }

    /// Whether it takes only what is at hand.
    #[inline]
    #[doc(hidden)]
    pub const fn is_at_hand(&self) -> bool {
        self.0 & AT_HAND != 0
    }

    /// The highest kind of zone that the request may effectively use.
    #[inline]
    #[doc(hidden)]
    pub const fn effective_limit(&self) -> ZoneKind {
        ZoneKind::ALL[self.limit_index()]
    }

    /// The index of that kind in tables by kind.
    #[inline]
    #[doc(hidden)]
    pub const fn limit_index(&self) -> usize {
        (self.0 >> LIMIT_SHIFT & 0xff) as usize % ZoneKind::COUNT
    }

    /// Whether it is for a single frame, prefers no node, and may dip below the low watermark.
    #[inline]
    #[doc(hidden)]
    pub const fn is_ordinary(&self) -> bool {
        self.0 & EXTRAORDINARY == 0
    }

    /// Whether it may dip below the low watermark.
    #[inline]
    #[doc(hidden)]
    pub const fn is_unsparing(&self) -> bool {
        self.0 & SPARING == 0
    }

    /// Whether it names no node: the running CPU's is preferred.
    #[inline]
    #[doc(hidden)]
    pub const fn is_anywhere(&self) -> bool {
        self.0 & (GIVEN | ONLY) == 0
    }

    /// The node that is preferred, if one is given.
    #[inline]
    #[doc(hidden)]
    pub const fn preferred_node(&self) -> Option<NodeId> {
        if self.0 & GIVEN == 0 {
            return None;
        }
        Some(NodeId::new((self.0 >> NODE_SHIFT) as u16))
    }

    /// Whether other nodes than the preferred one are refused.
    #[inline]
    #[doc(hidden)]
    pub const fn is_only_node(&self) -> bool {
        self.0 & ONLY != 0
    }

    /// Whether the preferred node was chosen by interleaving.
    #[inline]
    #[doc(hidden)]
    pub const fn is_interleaved(&self) -> bool {
        self.0 & INTERLEAVED != 0
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("order", &self.order())
            .field("migratetype", &self.content())
            .field("node", &self.preferred_node())
            .field("only_node", &self.is_only_node())
            .field("interleaved", &self.is_interleaved())
            .field("zone_limit", &self.effective_limit())
            .field("watermark", &self.depth())
            .field("at_hand", &self.is_at_hand())
            .field("nowait", &!self.may_wait())
            .finish()
    }
}

/// A request for any number of contiguous frames, up to gigabytes and more.
///
/// ```
/// use freehold::{FrameCount, RangeRequest};
///
/// let gib = FrameCount::new(1 << 18);
/// let huge = RangeRequest::new(gib).align(gib);
/// # assert_eq!(huge.frames(), gib);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RangeRequest {
    #[doc(hidden)]
    pub frames: FrameCount,
    pub(crate) align: FrameCount,
    pub(crate) at: Option<Pfn>,
    pub(crate) is_soonest: bool,
    #[doc(hidden)]
    pub near: Request,
}

impl RangeRequest {
    /// So many frames, anywhere near the calling CPU, from any zone but the movable ones.
    pub const fn new(frames: FrameCount) -> Self {
        let near = Request::new(Order::ZERO).migratetype(MigrateType::Unmovable);
        RangeRequest { frames, align: FrameCount::new(1), at: None, is_soonest: false, near }
    }

    /// The first frame's number is to be a multiple of this, a power of two.
    pub const fn align(self, align: FrameCount) -> Self {
        RangeRequest { align, ..self }
    }

    /// Exactly these frames.
    pub const fn at(self, first: Pfn) -> Self {
        RangeRequest { at: Some(first), ..self }
    }

    /// At the place that is found soonest, and not at the lowest one: `freehold` takes whole
    /// pageblocks that are free, without a search, as long as it has enough of them in a row.
    pub const fn soonest(self) -> Self {
        RangeRequest { is_soonest: true, ..self }
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

    /// How deep the request may dip into reserves. Default: [`Watermark::Min`].
    pub const fn watermark(self, watermark: Watermark) -> Self {
        RangeRequest { near: self.near.watermark(watermark), ..self }
    }

    /// These frames, whatever their zone and however few are left.
    #[doc(hidden)]
    pub const fn exactly(first: Pfn, frames: FrameCount) -> Self {
        let near = Request::new(Order::ZERO).watermark(Watermark::Ignore);
        RangeRequest { near, ..RangeRequest::new(frames).at(first) }
    }

    /// How many frames are asked for.
    pub const fn frames(&self) -> FrameCount {
        self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_as_it_was_set_last() {
        let plain = Request::default();
        assert!(plain.is_ordinary() && plain.is_anywhere() && plain.is_unsparing());
        assert_eq!((plain.content(), plain.depth()), (MigrateType::Movable, Watermark::Min));
        let request = Request::new(Order::new(9))
            .node(NodeId::new(7))
            .node(NodeId::new(u16::MAX))
            .only_node()
            .watermark(Watermark::Low)
            .migratetype(MigrateType::Reclaimable);
        assert_eq!((request.order(), request.content()), (Order::new(9), MigrateType::Reclaimable));
        assert_eq!(request.preferred_node(), Some(NodeId::new(u16::MAX)));
        assert!(request.is_only_node() && !request.is_interleaved() && !request.is_unsparing());
        assert_eq!(request.watermark(Watermark::Ignore).depth(), Watermark::Ignore);
        assert!(request.watermark(Watermark::Min).is_unsparing() && !request.is_ordinary());
        assert!(Request::default().interleaved(NodeId::new(1)).is_interleaved());
        let nowait = Request::default().nowait().watermark(Watermark::High);
        assert!(!nowait.may_wait() && nowait.depth() == Watermark::High && plain.may_wait());
        let nowait = nowait.migratetype(MigrateType::Unmovable);
        assert!(!nowait.may_wait() && nowait.content() == MigrateType::Unmovable);
    }

    #[test]
    fn only_movable_content_may_use_a_movable_zone() {
        let limits = |limit| {
            MigrateType::ALL.map(|of| {
                let (one, other) = (Request::default().migratetype(of), Request::default());
                let limit_first = other.zone_limit(limit).migratetype(of).effective_limit();
                assert_eq!(one.zone_limit(limit).effective_limit(), limit_first);
                limit_first
            })
        };
        use ZoneKind::{Dma, Movable, Normal};
        assert_eq!(limits(Movable), [Normal, Movable, Normal]);
        assert_eq!((limits(Normal), limits(Dma)), ([Normal; 3], [Dma; 3]));
    }

    #[test]
    fn what_is_extraordinary_is_not_ordinary() {
        let plain = Request::default();
        let others = [
            Request::new(Order::new(1)),
            plain.node(NodeId::new(0)),
            plain.only_node(),
            plain.watermark(Watermark::High),
        ];
        assert!(others.iter().all(|request| !request.is_ordinary()));
        assert!(plain.migratetype(MigrateType::Unmovable).zone_limit(ZoneKind::Dma).is_ordinary());
        assert!(plain.nowait().is_ordinary(), "or handlers would go the slow way");
    }
}
