//! Allocation: from the tree that the CPU has reserved, else from another one, which it reserves.

use crate::Llfree;
use crate::block::{child_of, frames_in};
use crate::local::{Count, Local, MOVED_SHIFT, Reserved};
use crate::lower::TREE_CHILDREN;
use crate::trees::{TREE_FRAMES, TreeIndex};
use freehold::designs::Context;
use freehold::designs::places::usable;
use freehold::designs::traits::Alloc;
use freehold::memmap::index::ZoneIndex;
use freehold::platform::Platform;
use freehold::stat::NumaExceptions;
use freehold::units::FrameCount;
use freehold::zone::watermark::Watermark;
use freehold::{Error, MigrateType, Pfn, Request};

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
        if !request.is_unsparing() || request.order() > crate::ORDER_MAX {
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

/// Whether its content cannot move.
pub(crate) const fn is_fixed(request: &Request) -> bool {
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
        let from = |class| {
            self.usable(zones, request).find_map(|zone| {
                let first = self.alloc_in(context, zone, request, class)?;
                self.note_numa(context, zones, request, zone, request.order().frames());
                Some(first)
            })
        };
        let found = from(first);
        if let Some(first) = found.or_else(|| if depth == first { None } else { from(depth) }) {
            return Ok(first);
        }
        if request.is_at_hand() {
            return Err(Error::OutOfMemory);
        }
        let mut changes = 0;
        loop {
            let before = self.sections();
            // Only what others move beside it counts.
            let drained: u64 = self.zone_indexes().map(|zone| self.drain_zone(zone)).sum();
            let before = before.wrapping_add(drained << MOVED_SHIFT);
            if let Some(first) = from(depth) {
                return Ok(first);
            }
            // Frames were, or are, in the hands of another call: waited for if it stays the same.
            let after = self.sections();
            changes += u32::from(before != after);
            if before == after && after as u32 == 0 || changes == CHANGES {
                break;
            }
            if !request.may_wait() {
                return Err(Error::WouldWait);
            }
            context.platform.relax();
        }
        let is_kept = |zone: ZoneIndex| {
            let enough = self.zone(zone).floor(request, depth) + request.order().frames().get();
            let has_block =
                || self.free_blocks(zone)[request.order().index()..].iter().any(|&many| many > 0);
            self.level_up_to(zone, enough) < enough && has_block()
        };
        match self.usable(zones, request).any(is_kept) {
            true => Err(Error::BelowWatermark),
            false => Err(Error::OutOfMemory),
        }
    }

    /// The sections of all CPUs: in the lower half how many are under way, in the upper one how
    /// many have moved frames.
    fn sections(&self) -> u64 {
        self.locals.iter().fold(0, |sum, local| sum.wrapping_add(local.sections()))
    }

    /// Whether no call has free frames in hand that it has not found a block for, or moves to
    /// another count: others may have to wait for such a call.
    pub fn is_quiet(&self) -> bool {
        self.sections() as u32 == 0
    }

    /// The zones of the list that the request, whose node is filled in, may use.
    pub(crate) fn usable<'a>(
        &'a self,
        zones: &'a [u16],
        request: &'a Request,
    ) -> impl Iterator<Item = ZoneIndex> + 'a {
        usable(zones, request, |zone| self.zone(zone).node)
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
        if self.zone(from).node == self.zone(preferred).node && !request.is_interleaved() {
            return;
        }
        let cpu = context.cpu_here();
        let place = |zone| (self.zone(zone).node, &self.local(cpu, zone).numa);
        NumaExceptions::note(request, place(preferred), place(from), frames);
    }

    /// The trees of a zone.
    pub(crate) fn trees_of(
        &self,
        zone: ZoneIndex,
    ) -> impl DoubleEndedIterator<Item = TreeIndex> + use<P> {
        let first = u32::from(zone.0) * self.trees.per_zone;
        self.zone(zone).trees().map(move |nth| TreeIndex(first + nth))
    }

    /// The sum of the counts of all trees of a zone, or of as many as it takes to be enough. From
    /// the top: lower ones are the first to be used up.
    pub(crate) fn level_up_to(&self, zone: ZoneIndex, enough: u64) -> u64 {
        let mut level = 0;
        for tree in self.trees_of(zone).rev() {
            if level >= enough {
                break;
            }
            level += u64::from(self.trees.count(tree));
        }
        level
    }

    /// Takes a block out of a zone, unless that would leave it below the watermark of a class.
    pub(crate) fn alloc_in(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        class: Watermark,
    ) -> Option<u32> {
        let (cpu, frames) = (context.cpu_here(), request.order().frames().get());
        let (of, low) = (self.zone(zone), self.zone(zone).low());
        // What is reserved lies above the low watermark.
        let may_take = request.is_unsparing() && of.floor(request, Watermark::Low) == low;
        if may_take && let Some(first) = self.take_reserved(cpu, zone, request) {
            return Some(first);
        }
        let floor = of.floor(request, class);
        let level = self.level_up_to(zone, floor.max(low) + frames + u64::from(TREE_FRAMES));
        if level < floor + frames {
            return None;
        }
        let spare = level.saturating_sub(low).min(u64::from(TREE_FRAMES));
        if spare < frames {
            if of.is_cached() {
                self.drain_zone(zone);
            }
            return self.take_directly(cpu, zone, request, true);
        }
        let found = self.take_reserved(cpu, zone, request);
        let found = found.or_else(|| self.refill(cpu, zone, request, spare as u32));
        let found = found.or_else(|| self.reserve(cpu, zone, request, spare as u32));
        let steal = || if request.is_at_hand() { None } else { self.steal(cpu, zone, request) };
        // At last what others have freed in trees that are reserved.
        found.or_else(steal).or_else(|| self.take_directly(cpu, zone, request, false))
    }

    /// Takes a block out of a tree, whose count the caller has lowered, beginning with the child of
    /// a frame. `Err`: how many frames of the count it has still.
    #[inline]
    fn take_in_tree(&self, tree: TreeIndex, hint: u32, request: &Request) -> Result<u32, u32> {
        let (order, is_fixed, (zone, nth)) =
            (request.order(), is_fixed(request), self.trees.place(tree));
        for child in 0..TREE_CHILDREN {
            let child = nth * TREE_CHILDREN + (child_of(hint) + child) % TREE_CHILDREN;
            if child < self.lower.children() {
                match self.lower.take_in_child(zone, child, hint, order, is_fixed) {
                    Err(left) if left == frames_in(order) => {}
                    taken => return taken,
                }
            }
        }
        Err(frames_in(order))
    }

    /// Takes a block out of the tree that a CPU has reserved.
    #[inline]
    fn take_reserved(&self, cpu: usize, zone: ZoneIndex, request: &Request) -> Option<u32> {
        let local = self.local(cpu, zone);
        let first = self.take_of(local, local.hint(), request)?;
        local.set_hint(first);
        local.note(Count::Allocated, frames_in(request.order()));
        Some(first)
    }

    /// Takes a block out of the tree of a reservation.
    #[inline]
    fn take_of(&self, local: &Local<P>, hint: u32, request: &Request) -> Option<u32> {
        let frames = frames_in(request.order());
        let tree = local.take(frames)?;
        let found = self.take_in_tree(tree, hint, request);
        if let Err(left) = found {
            // What is not left has gone with a child that was isolated.
            local.note_drain(frames - left);
            self.give_back(local, tree, left);
        }
        found.ok()
    }

    /// Gives frames of a tree to a CPU, unless it has another one by now.
    fn give_back(&self, local: &Local<P>, tree: TreeIndex, frames: u32) {
        if !local.give(tree, frames) {
            local.note_drain(frames);
            self.trees.give(tree, frames);
        }
    }

    /// Takes over what other CPUs have freed in the reserved tree, and then a block.
    fn refill(&self, cpu: usize, zone: ZoneIndex, request: &Request, most: u32) -> Option<u32> {
        let local = self.local(cpu, zone);
        let tree = local.reserved()?.tree;
        if self.trees.count(tree) == 0 {
            return None;
        }
        local.section(|| {
            let taken = self.trees.take(tree, 1, most)?;
            local.note_refill(taken);
            self.give_back(local, tree, taken);
            Some(())
        });
        self.take_reserved(cpu, zone, request)
    }

    /// Reserves another tree with a block for the request: a near one that is partly used, else one
    /// that is all free, else any.
    fn reserve(&self, cpu: usize, zone: ZoneIndex, request: &Request, most: u32) -> Option<u32> {
        let (local, frames) = (self.local(cpu, zone), frames_in(request.order()));
        let all = self.zone(zone).trees();
        let len = all.end.saturating_sub(all.start);
        // CPUs begin apart.
        let apart = || (len as usize * cpu / self.cpus()) as u32;
        let start =
            local.reserved().map_or_else(apart, |of| self.trees.place(of.tree).1 - all.start);
        let from = |first: u32, many: u32| {
            let base = u32::from(zone.0) * self.trees.per_zone + all.start;
            (0..many).map(move |nth| TreeIndex(base + (first + nth) % len))
        };
        let near = len.min(2 * NEAR);
        let partly = (TREE_FRAMES / PART).max(frames)..TREE_FRAMES;
        let try_one = |tree: TreeIndex, fit: &core::ops::Range<u32>| {
            if self.trees.is_reserved(tree) || !fit.contains(&self.trees.count(tree)) {
                return None;
            }
            self.zone(zone).note_cached(true);
            local.section(|| {
                let taken = self.trees.reserve(tree, frames, most)?;
                let found = self.take_in_tree(tree, local.hint(), request);
                let first = found.inspect_err(|left| {
                    self.trees.end_reservation(tree, taken - frames + left);
                });
                let first = first.ok()?;
                local.note_refill(taken);
                self.end_reservation(local, Some(Reserved { tree, count: taken - frames }));
                local.set_hint(first);
                local.note(Count::Allocated, frames);
                Some(first)
            })
        };
        let mut nearby = from(start + len - near / 2, near);
        nearby.find_map(|tree| try_one(tree, &partly)).or_else(|| {
            let mut sizes = [TREE_FRAMES..u32::MAX, frames..u32::MAX].into_iter();
            sizes.find_map(|fit| from(start, len).find_map(|tree| try_one(tree, &fit)))
        })
    }

    /// Ends a CPU's reservation, if it has one, and has it have another one, whose frames were just
    /// taken.
    pub(crate) fn end_reservation(&self, local: &Local<P>, next: Option<Reserved>) -> Option<()> {
        let Reserved { tree, count } = local.replace(next)?;
        local.note_drain(count);
        self.trees.end_reservation(tree, count);
        Some(())
    }

    /// Takes a block that another CPU has reserved.
    fn steal(&self, cpu: usize, zone: ZoneIndex, request: &Request) -> Option<u32> {
        let (here, frames) = (self.local(cpu, zone), frames_in(request.order()));
        let others = (1..self.cpus()).map(|nth| self.local((cpu + nth) % self.cpus(), zone));
        let has_them = |other: &&Local<P>| other.reserved().is_some_and(|of| of.count >= frames);
        others.filter(has_them).find_map(|other| {
            here.section(|| {
                let first = self.take_of(other, here.hint(), request)?;
                here.note(Count::Allocated, frames);
                Some(first)
            })
        })
    }

    /// Takes a block of the count of a tree that is reserved, or of `any`, without a reservation.
    fn take_directly(&self, cpu: usize, zone: ZoneIndex, of: &Request, any: bool) -> Option<u32> {
        let (local, frames) = (self.local(cpu, zone), frames_in(of.order()));
        let is_fit = |&tree: &TreeIndex| {
            self.trees.count(tree) >= frames && (any || self.trees.is_reserved(tree)) //
        };
        self.trees_of(zone).filter(is_fit).find_map(|tree| {
            local.section(|| {
                self.trees.take(tree, frames, frames)?;
                let found = self.take_in_tree(tree, local.hint(), of);
                let first = found.inspect_err(|&left| self.trees.give(tree, left)).ok()?;
                local.set_hint(first);
                local.note_direct_alloc(frames);
                Some(first)
            })
        })
    }

    /// Ends all reservations of a zone; returns how many.
    pub(crate) fn drain_zone(&self, zone: ZoneIndex) -> u64 {
        self.zone(zone).note_cached(false);
        self.locals_of(zone).map(|local| u64::from(self.drain_local(local))).sum()
    }

    /// Ends a reservation; returns whether there was one.
    pub(crate) fn drain_local(&self, local: &Local<P>) -> bool {
        let end = || local.section(|| self.end_reservation(local, None));
        local.reserved().and_then(|_| end()).is_some()
    }
}
