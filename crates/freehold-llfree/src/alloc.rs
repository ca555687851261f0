//! Allocation: from the tree that the CPU has reserved, else from another one, which it reserves.

use crate::Llfree;
use crate::block::frames_in;
use crate::local::{Local, Reserved, Sections};
use crate::trees::{TREE_FRAMES, TreeIndex};
use freehold::designs::Context;
use freehold::designs::places::usable;
use freehold::designs::traits::Alloc;
use freehold::memmap::index::ZoneIndex;
use freehold::platform::Platform;
use freehold::stat::NumaExceptions;
use freehold::units::FrameCount;
use freehold::zone::watermark::Watermark;
use freehold::{Error, MigrateType, Order, Pfn, Request};

/// How often a call looks again that found nothing while others moved frames: forever, others could
/// keep it at that.
const CHANGES: u32 = 16;

/// How far around it a CPU looks for a tree that is partly used: their entries fill two lines.
const NEAR: u32 = 16;

/// A tree with less of its frames free than one of so many is no good reservation.
const PART: u32 = 16;

impl<P: Platform> Alloc<P> for Llfree<P> {
    #[inline]
    fn alloc_fast(&self, context: Context<'_, P>, request: Request) -> Option<Pfn> {
        if !request.is_unsparing() {
            return None;
        }
        let cpu = context.cpu_here();
        // Of the zones of its node the highest, in which nothing is kept for other requests.
        let zone = context.topology.best_zone(cpu, request.effective_limit())?;
        Some(self.lower.pfn_of(self.take_reserved(cpu, zone, &request)?))
    }

    fn alloc(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
    ) -> Result<Pfn, Error> {
        self.alloc_any(context, zones, &request).map(|first| self.lower.pfn_of(first))
    }
}

const fn is_fixed(request: &Request) -> bool {
    !matches!(request.content(), MigrateType::Movable)
}

impl<P: Platform> Llfree<P> {
    /// First from any zone above its low watermark, then as deep as the request may dip, then again
    /// after all reservations have ended.
    pub(crate) fn alloc_any(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
    ) -> Result<u32, Error> {
        let (first, depth) = (request.depth().at_first(), request.depth());
        let from = |class, tried| {
            self.usable(zones, request).find_map(|zone| {
                let first = self.alloc_in(context, zone, request, class, tried)?;
                self.note_numa(context, zones, request, zone, request.order().frames());
                Some(first)
            })
        };
        let found = from(first, None);
        let found = found.or_else(|| if depth == first { None } else { from(depth, Some(first)) });
        if found.is_none() && request.is_at_hand() {
            return Err(Error::OutOfMemory);
        }
        if let Some(first) = found {
            return Ok(first);
        }
        let mut changes = 0;
        loop {
            let mut before = self.sections();
            // Only what others move beside it counts.
            before.moved += self.zone_indexes().map(|zone| self.drain_zone(zone)).sum::<u64>();
            if let Some(first) = from(depth, None) {
                return Ok(first);
            }
            // Frames were, or are, in the hands of another call: waited for if it stays the same.
            let after = self.sections();
            changes += u32::from(before != after);
            if before == after && after.now == 0 || changes == CHANGES {
                break;
            }
            if !request.may_wait() {
                return Err(Error::WouldWait);
            }
            context.platform.relax();
        }
        let is_kept = |zone: ZoneIndex| {
            !self.allows(zone, request, depth) && self.has_block_in(zone, request.order())
        };
        match self.usable(zones, request).any(is_kept) {
            true => Err(Error::BelowWatermark),
            false => Err(Error::OutOfMemory),
        }
    }

    /// The sections of all CPUs.
    pub(crate) fn sections(&self) -> Sections {
        let none = Sections::default();
        self.locals.iter().fold(none, |of, local| local.add_sections(of))
    }

    /// Whether no call has free frames in hand that it has not found a block for, or moves to
    /// another count: others may have to wait for such a call.
    pub fn is_quiet(&self) -> bool {
        self.sections().now == 0
    }

    /// The zones of the list that the request, whose node is filled in, may use.
    pub(crate) fn usable<'a>(
        &'a self,
        zones: &'a [u16],
        request: &'a Request,
    ) -> impl Iterator<Item = ZoneIndex> + 'a {
        usable(zones, request, |zone| self.zone(zone).node())
    }

    /// Counts where frames came from.
    pub(crate) fn note_numa(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
        from: ZoneIndex,
        frames: FrameCount,
    ) {
        let Some(preferred) = zones.first().map(|&zone| ZoneIndex(zone)) else { return };
        if self.zone(from).node() == self.zone(preferred).node() && !request.is_interleaved() {
            return;
        }
        let cpu = context.cpu_here();
        let numa = |zone: ZoneIndex| &self.numa.get(cpu * self.zones.len() + zone.index()).0;
        let place = |zone| (self.zone(zone).node(), numa(zone));
        NumaExceptions::note(request, place(preferred), place(from), frames);
    }

    /// The sum of the counts of all trees of a zone, or of as many as it takes to be enough.
    pub(crate) fn level_up_to(&self, zone: ZoneIndex, enough: u64) -> u64 {
        self.level_from(zone, 0, enough)
    }

    /// The same, beginning with the tree of a frame: lower ones are the first to be used up.
    fn level_from(&self, zone: ZoneIndex, frame: u32, enough: u64) -> u64 {
        let (mut level, all) = (0, self.zone(zone).trees());
        let from = (frame / TREE_FRAMES).clamp(all.start, all.end.max(all.start));
        for nth in (from..all.end).chain(all.start..from) {
            let tree = TreeIndex(u32::from(zone.0) * self.trees.per_zone + nth);
            if level >= enough {
                break;
            }
            level += u64::from(self.trees.count(tree));
        }
        level
    }

    /// The trees of a zone.
    pub(crate) fn trees_of(&self, zone: ZoneIndex) -> impl Iterator<Item = TreeIndex> + use<P> {
        let first = u32::from(zone.0) * self.trees.per_zone;
        self.zone(zone).trees().map(move |nth| TreeIndex(first + nth))
    }

    /// Whether a zone has enough free frames for a request that goes no deeper than `class`.
    pub(crate) fn allows(&self, zone: ZoneIndex, request: &Request, class: Watermark) -> bool {
        let enough = self.zone(zone).floor(request, class) + request.order().frames().get();
        self.level_up_to(zone, enough) >= enough
    }

    /// Takes a block out of a zone, unless that would leave it below the watermark of a class; or
    /// nothing, if it was tried with another class.
    pub(crate) fn alloc_in(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        class: Watermark,
        tried: Option<Watermark>,
    ) -> Option<u32> {
        let (cpu, frames) = (context.cpu_here(), request.order().frames().get());
        let (of, low) = (self.zone(zone), self.low(zone));
        // What is reserved lies above the low watermark.
        let may_take = request.is_unsparing() && of.floor(request, Watermark::Low) == low;
        if may_take && let Some(first) = self.take_reserved(cpu, zone, request) {
            return Some(first);
        }
        let floor = of.floor(request, class);
        let enough = floor.max(low) + frames + u64::from(TREE_FRAMES);
        let level = self.level_from(zone, self.local(cpu, zone).hint(), enough);
        let is_tried = |class| level >= of.floor(request, class) + frames;
        if level < floor + frames || tried.is_some_and(is_tried) {
            return None;
        }
        let spare = level.saturating_sub(low).min(u64::from(TREE_FRAMES));
        if spare < frames {
            if of.is_cached() {
                self.drain_zone(zone);
            }
            return self.take_directly(cpu, zone, request, |_| true);
        }
        let found = self.take_reserved(cpu, zone, request);
        let found = found.or_else(|| self.refill(cpu, zone, request, spare as u32));
        let found = found.or_else(|| self.reserve(context, cpu, zone, request, spare as u32));
        let steal = || if request.is_at_hand() { None } else { self.steal(cpu, zone, request) };
        found.or_else(steal).or_else(|| {
            // What others have freed in trees that are reserved.
            self.take_directly(cpu, zone, request, |tree| self.trees.is_reserved(tree))
        })
    }

    /// Takes a block out of the tree that a CPU has reserved.
    #[inline]
    fn take_reserved(&self, cpu: usize, zone: ZoneIndex, request: &Request) -> Option<u32> {
        let local = self.local(cpu, zone);
        let first = self.take_of(local, zone, local.hint(), request)?;
        local.set_hint(first);
        local.note_allocated(frames_in(request.order()));
        Some(first)
    }

    /// Takes a block out of the tree of a reservation.
    #[inline]
    fn take_of(
        &self,
        local: &Local<P>,
        zone: ZoneIndex,
        hint: u32,
        request: &Request,
    ) -> Option<u32> {
        let order = request.order();
        if order > crate::ORDER_MAX {
            return None;
        }
        let tree = local.take(frames_in(order))?;
        let nth = self.trees.nth(tree);
        let found = self.lower.take_in_tree(zone, nth, hint, order, is_fixed(request));
        if let Err(left) = found {
            // What is not left has gone with a child that was isolated.
            local.rare.note_drain(frames_in(order) - left);
            if !local.give(tree, left) {
                // The CPU has another one by now.
                local.rare.note_drain(left);
                self.trees.give(tree, left);
            }
        }
        found.ok()
    }

    /// Takes over what other CPUs have freed in the reserved tree, and then a block.
    fn refill(&self, cpu: usize, zone: ZoneIndex, request: &Request, most: u32) -> Option<u32> {
        let local = self.local(cpu, zone);
        let tree = local.reserved()?.tree;
        if self.trees.count(tree) == 0 {
            return None;
        }
        local.enter();
        let taken = self.trees.take(tree, 1, most);
        if let Some(taken) = taken {
            local.rare.note_refill(taken);
            if !local.give(tree, taken) {
                local.rare.note_drain(taken);
                self.trees.give(tree, taken);
            }
        }
        local.leave(taken.is_some());
        self.take_reserved(cpu, zone, request)
    }

    /// Reserves another tree with a block for the request: a near one that is partly used, else one
    /// that is all free, else any.
    fn reserve(
        &self,
        context: Context<'_, P>,
        cpu: usize,
        zone: ZoneIndex,
        request: &Request,
        most: u32,
    ) -> Option<u32> {
        let (local, order) = (self.local(cpu, zone), request.order());
        let frames = frames_in(order);
        let all = self.zone(zone).trees();
        let len = all.end.saturating_sub(all.start);
        // CPUs begin apart.
        let apart = || (len as usize * cpu / context.topology.cpus()) as u32;
        let start = local.reserved().map_or_else(apart, |of| self.trees.nth(of.tree) - all.start);
        let from = |first: u32, many: u32| {
            let base = u32::from(zone.0) * self.trees.per_zone + all.start;
            (0..many).map(move |nth| TreeIndex(base + (first + nth) % len))
        };
        let near = len.min(2 * NEAR);
        let partly = (TREE_FRAMES / PART).max(frames)..TREE_FRAMES;
        let try_one = |tree: TreeIndex, fit: core::ops::Range<u32>| {
            self.trees.unreserved(tree).filter(|count| fit.contains(count))?;
            self.zone(zone).note_cached(true);
            local.enter();
            let found = self.trees.reserve(tree, frames, most).and_then(|taken| {
                let nth = self.trees.nth(tree);
                let is_fixed = is_fixed(request);
                let found = self.lower.take_in_tree(zone, nth, local.hint(), order, is_fixed);
                let first = found.inspect_err(|left| {
                    self.trees.end_reservation(tree, taken - frames + left);
                });
                let first = first.ok()?;
                self.replace_reservation(cpu, zone, Reserved { tree, count: taken - frames });
                local.rare.note_refill(frames);
                local.set_hint(first);
                local.note_allocated(frames);
                Some(first)
            });
            local.leave(found.is_some());
            found
        };
        let mut nearby = from(start + len - near / 2, near);
        let found = nearby.find_map(|tree| try_one(tree, partly.clone()));
        let all_free = || from(start, len).find_map(|tree| try_one(tree, TREE_FRAMES..u32::MAX));
        let any = || from(start, len).find_map(|tree| try_one(tree, frames..u32::MAX));
        found.or_else(all_free).or_else(any)
    }

    /// Ends a CPU's reservation, and has it have another one, whose frames were just taken.
    pub(crate) fn replace_reservation(&self, cpu: usize, zone: ZoneIndex, with: Reserved) {
        let local = self.local(cpu, zone);
        local.rare.note_refill(with.count);
        self.end_reservation(local, local.replace(Some(with)));
    }

    /// Ends what was a CPU's reservation.
    fn end_reservation(&self, local: &Local<P>, of: Option<Reserved>) {
        if let Some(Reserved { tree, count }) = of {
            local.rare.note_drain(count);
            self.trees.end_reservation(tree, count);
        }
    }

    /// Takes a block that another CPU has reserved.
    fn steal(&self, cpu: usize, zone: ZoneIndex, request: &Request) -> Option<u32> {
        let (here, zones) = (self.local(cpu, zone), self.zones.len());
        let cpus = self.locals.len() / zones;
        let mut others = (1..cpus).map(|nth| self.local((cpu + nth) % cpus, zone));
        let frames = frames_in(request.order());
        others.find_map(|other| {
            if other.reserved().is_none_or(|of| of.count < frames) {
                return None;
            }
            here.enter();
            let found = self.take_of(other, zone, here.hint(), request);
            if found.is_some() {
                here.note_allocated(frames);
            }
            here.leave(found.is_some());
            found
        })
    }

    /// Takes a block of the count of a tree, without a reservation.
    fn take_directly(
        &self,
        cpu: usize,
        zone: ZoneIndex,
        request: &Request,
        is_fit: impl Fn(TreeIndex) -> bool,
    ) -> Option<u32> {
        let (local, order) = (self.local(cpu, zone), request.order());
        let frames = frames_in(order);
        let is_fit = |&tree: &TreeIndex| self.trees.count(tree) >= frames && is_fit(tree);
        self.trees_of(zone).filter(is_fit).find_map(|tree| {
            local.enter();
            let found = self.trees.take(tree, frames, frames).and_then(|_| {
                let (nth, is_fixed) = (self.trees.nth(tree), is_fixed(request));
                let found = self.lower.take_in_tree(zone, nth, local.hint(), order, is_fixed);
                match found {
                    Ok(first) => {
                        local.set_hint(first);
                        local.note_direct_alloc(frames);
                    }
                    Err(left) => self.trees.give(tree, left),
                }
                found.ok()
            });
            local.leave(found.is_some());
            found
        })
    }

    /// Ends all reservations of a zone; returns how many.
    pub(crate) fn drain_zone(&self, zone: ZoneIndex) -> u64 {
        self.zone(zone).note_cached(false);
        self.locals_of(zone).map(|local| u64::from(self.drain_local(local))).sum()
    }

    /// Ends a reservation; returns whether there was one.
    pub(crate) fn drain_local(&self, local: &Local<P>) -> bool {
        let is_one = local.reserved().is_some();
        if is_one {
            local.enter();
            self.end_reservation(local, local.replace(None));
            local.leave(true);
        }
        is_one
    }

    /// Whether a zone has a free block of an order or more.
    pub(crate) fn has_block_in(&self, zone: ZoneIndex, order: Order) -> bool {
        let mut children = self.children_of(zone);
        children.any(|child| self.lower.has_block(zone, child, order))
    }
}
