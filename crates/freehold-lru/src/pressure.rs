//! Memory pressure: allocation that reclaims, balancing by watermark, and room in a group.

use super::attempts::Attempts;
use super::charge::Refused;
use super::error::LruError;
use super::group::GroupId;
use super::reclaim::Hunt;
use super::{BATCH_MAX, Kind, Lru, Owner, Reclaimed};
use freehold::PageAllocator;
use freehold::designs::Design;
use freehold::platform::Platform;
use freehold::request::Request;
use freehold::units::{FrameCount, NodeId, Order, Pfn, ZoneKind};
use freehold::{Error, Marks, ZoneLevel};

/// The most frames that an allocation of one frame reclaims in a round.
const WANTED_MAX: u64 = 1 << 16;

/// The largest order that is worth rounds of reclaim after compaction had what it needs, and how
/// many: so many frames lie side by side by chance.
const SMALL_ORDER: Order = Order::new(3);
const SMALL_ROUNDS: usize = 4;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// As [`Lru::add`], but reclaims within the group, or the one above it whose limit was hit,
    /// until it may have the frame. If then one of them has more than its
    /// [`high`](Lru::set_high), reclaims a batch from it. The caller holds no lock that the owner
    /// takes.
    ///
    /// # Errors
    ///
    /// Those of [`Lru::add`]; [`LruError::GroupLimit`] if nothing more can be reclaimed;
    /// [`LruError::TooManyReclaims`], as [`Lru::reclaim`].
    pub fn add_reclaiming(&self, pfn: Pfn, group: GroupId, kind: Kind) -> Result<(), LruError> {
        self.add_block_reclaiming(pfn, Order::ZERO, group, kind)
    }

    /// As [`Lru::add_reclaiming`], for a [block](Lru::add_block). A block that is larger than a
    /// limit is refused at once.
    ///
    /// # Errors
    ///
    /// Those of [`Lru::add_block`] and [`Lru::add_reclaiming`].
    pub fn add_block_reclaiming(
        &self,
        pfn: Pfn,
        order: Order,
        group: GroupId,
        kind: Kind,
    ) -> Result<(), LruError> {
        let (frames, mut attempts) = (order.frames(), Attempts::default());
        // A single frame is worth the excess over a limit that was lowered, a block is not.
        let can_fit = || order == Order::ZERO || self.groups.least_limit(group.slot()) >= frames;
        loop {
            match self.try_add(pfn, order, group, kind) {
                // What other CPUs have charged ahead is not used yet. A group at its limit has none
                // of it, so that a look is all that this costs.
                Err(Refused { error: LruError::GroupLimit, slot })
                    if self.groups.has_stocks(slot) =>
                {
                    self.drain_stocks(slot);
                    if !attempts.again() {
                        break;
                    }
                }
                Err(Refused { error: LruError::GroupLimit, slot }) if can_fit() => {
                    // As many as Linux takes, but from a small group only a part; plus the excess
                    // over a limit that was lowered.
                    let limit = self.groups.limit(slot).map_or(0, FrameCount::get);
                    let excess = (self.groups.charged(slot) + frames.get()).saturating_sub(limit);
                    let part = limit / self.policy.reclaim_part();
                    let wanted = part.clamp(1, BATCH_MAX as u64).max(excess);
                    let hunt = self.hunt_within(slot, wanted);
                    let done = self.hunt(&hunt)?;
                    if !self.may_try_again(&hunt, Ok(done), &mut attempts) {
                        break;
                    }
                }
                done => {
                    if done.is_ok() {
                        self.reclaim_high(group);
                    }
                    return done.map_err(|refused| refused.error);
                }
            }
        }
        // The last reclaim may not have been followed by an attempt, or other CPUs may have charged
        // ahead what is missing.
        self.add_block(pfn, order, group, kind)
    }

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
    /// [too many reclaims](LruError::TooManyReclaims) are under way.
    pub fn alloc_reclaiming<Q: Platform, D: Design<Q>>(
        &self,
        frames: &PageAllocator<Q, D>,
        request: Request,
    ) -> Result<Pfn, Error> {
        // Frames of other nodes are useless to a request for one node only, and those of zones that
        // it may not use to any request.
        let nodes = match request.preferred_node().map(NodeId::index) {
            Some(node) if request.is_only_node() => node..node + 1,
            _ => 0..usize::MAX,
        };
        let nodes = nodes.start.min(self.vecs.nodes())..nodes.end.min(self.vecs.nodes());
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
            let zones = frames.levels().filter(|zone| hunt.may_use(zone));
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

/// Whether an allocation failed for want of memory.
fn is_short(outcome: Result<Pfn, Error>) -> bool {
    matches!(outcome, Err(Error::OutOfMemory | Error::BelowWatermark))
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
fn lacking(
    zones: impl Iterator<Item = ZoneLevel>,
    level: impl Fn(&ZoneLevel) -> u64,
) -> Option<u64> {
    let large = zones.filter(|zone| zone.managed.get() >= level(zone));
    large.map(|zone| level(&zone).saturating_sub(zone.free.get())).min()
}
