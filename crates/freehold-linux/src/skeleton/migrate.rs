//! The free scanner of compaction, and the blocks that a compaction holds: free ones to move
//! content to, and those whose content has moved away.

use super::walk::{WINDOW_FRAMES, Walk};
use super::{Guard, Policy, Skeleton};
use crate::frame::{FrameState, FrameTable, Tag};
use crate::kind::Kind;
use crate::pageblock::BlockType;
use crate::stack::Stack;
use freehold::compact::state::Scanners;
use freehold::compact::{Compaction, Migrate, MigrateError};
use freehold::designs::Context;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::platform::Platform;
use freehold::request::Request;
use freehold::units::{FrameCount, ORDERS, Order};

/// The free scanner isolates about so many frames at a time (Linux's `COMPACT_CLUSTER_MAX`), and so
/// many blocks are returned under one hold of the zone lock.
const BATCH: u32 = 32;

/// No more is isolated while the compaction holds so many frames, none of them in a block large
/// enough.
const HAND_FRAMES_MAX: u64 = 256;

/// Claimed blocks to move content to, by order.
struct Targets {
    by_order: [Stack; ORDERS],
    frames: u64,
}

impl Targets {
    fn put<P: Platform>(&mut self, frames: &FrameTable<P>, block: FrameIndex, order: Order) {
        frames.set_state(block, FrameState::head(Tag::Claimed, order, BlockType::Movable));
        self.by_order[order.index()].push(frames, block);
        self.frames += order.frames().get();
    }

    /// Takes a block of this order, splitting the smallest one that is large enough.
    fn take<P: Platform>(&mut self, frames: &FrameTable<P>, order: Order) -> Option<FrameIndex> {
        let (block, from) = order.to(Order::BUDDY_MAX).find_map(|from| {
            let block = self.by_order[from.index()].pop(frames)?;
            Some((block, from))
        })?;
        self.frames -= from.frames().get();
        for half in (order.get()..from.get()).rev().map(Order::new) {
            self.put(frames, block.after(half), half);
        }
        Some(block)
    }

    /// Takes any block.
    fn take_any<P: Platform>(&mut self, frames: &FrameTable<P>) -> Option<(FrameIndex, Order)> {
        let largest = Order::ZERO.to(Order::BUDDY_MAX).rev();
        let mut nonempty = largest.filter_map(|order| {
            let block = self.by_order[order.index()].pop(frames)?;
            Some((block, order))
        });
        let taken = nonempty.next()?;
        self.frames -= taken.1.frames().get();
        Some(taken)
    }
}

/// A compaction of one zone under way. Returns the blocks that it holds when dropped, so that a
/// callback that panics loses nothing.
pub(super) struct Compactor<'a, P: Platform, Y: Policy<P>> {
    pub(super) design: &'a Skeleton<P, Y>,
    pub(super) context: Context<'a, P>,
    pub(super) zone: ZoneIndex,
    pub(super) owner: &'a dyn Migrate,
    /// The order to make: only smaller blocks move, and only to smaller ones.
    pub(super) order: Order,
    /// The request that needs the block.
    pub(super) request: Option<&'a Request>,
    /// The block that was made, and taken before any other caller could.
    pub(super) captured: Option<FrameIndex>,
    pub(super) at: Scanners,
    /// Where in its pageblock the free scanner continues.
    free_at: FrameIndex,
    /// Whether the scanners started at the ends of memory.
    whole: bool,
    pub(super) report: Compaction,
    targets: Targets,
    /// The target that its owner is being asked to move to.
    in_flight: Option<(FrameIndex, Order)>,
    /// Blocks whose content has moved away.
    left: Stack,
    left_blocks: u32,
    /// Frames that owners hold as targets, not yet counted as events.
    handed_out: FrameCount,
    /// Frames in `left`.
    taken_back: FrameCount,
    _walk: Walk<'a, P, Y>,
}

impl<'a, P: Platform, Y: Policy<P>> Compactor<'a, P, Y> {
    /// A compaction from where the scanners stopped: for a request, or of the whole zone.
    pub(super) fn new(
        design: &'a Skeleton<P, Y>,
        context: Context<'a, P>,
        zone: ZoneIndex,
        owner: &'a dyn Migrate,
        request: Option<&'a Request>,
    ) -> Self {
        let guard = design.lock_zone(context.platform, zone);
        guard.compaction().note_compaction();
        let at = request.map_or(Scanners::APART, |_| guard.compaction().scanners());
        drop(guard);
        let mut compactor = Compactor {
            design,
            context,
            zone,
            owner,
            order: request.map_or(Order::PAGEBLOCK, |request| request.order()),
            request,
            captured: None,
            free_at: at.free,
            whole: false,
            at,
            report: Compaction::default(),
            targets: Targets { by_order: [Stack::EMPTY; ORDERS], frames: 0 },
            in_flight: None,
            left: Stack::EMPTY,
            left_blocks: 0,
            handed_out: FrameCount::ZERO,
            taken_back: FrameCount::ZERO,
            _walk: Walk::new(design, context.platform, zone),
        };
        compactor.begin_at(at);
        compactor
    }

    /// Positions the scanners. The rest of a pageblock is skipped.
    fn begin_at(&mut self, at: Scanners) {
        self.whole = at == Scanners::APART;
        self.at = at;
        self.at.free = at.free.min(FrameIndex(self.design.frames.len().get() as u32));
        self.free_at = self.at.free.after(Order::PAGEBLOCK);
    }

    /// Moves the scanners to the ends of memory if they started elsewhere; returns whether they
    /// did.
    pub(super) fn begin_again(&mut self) -> bool {
        let again = !self.whole;
        if again {
            self.begin_at(Scanners::APART);
        }
        again
    }

    /// Migrates the content of an allocated block to a free one further up, if its owner agrees.
    pub(super) fn migrate(&mut self, from: FrameIndex, order: Order) {
        let to = self.target(order).or_else(|| {
            // Blocks that content has left so far may do, or lift the level above the watermark.
            self.settle();
            self.target(order)
        });
        let frames = &self.design.frames;
        let Some(to) = to else {
            self.report.without_target += 1;
            return;
        };
        self.in_flight = Some((to, order));
        frames.set_state(to, FrameState::allocated(Kind::movable(order)));
        let from_pfn = frames.pfn_of(from);
        match self.owner.migrate(from_pfn, frames.pfn_of(to), order) {
            Ok(()) => {
                self.in_flight = None;
                self.handed_out += order.frames();
                if self.owner.frees_source() {
                    self.report.migrated += order.frames();
                // The owner may have moved another block than the one that was found.
                } else if self.design.claim(self.context.platform, from_pfn, order).is_ok() {
                    self.left.push(frames, from);
                    self.left_blocks += 1;
                    self.taken_back += order.frames();
                    self.report.migrated += order.frames();
                } else {
                    self.report.failed += 1;
                }
            }
            Err(error) => {
                self.recall();
                match error {
                    MigrateError::Busy => self.report.busy += 1,
                    MigrateError::Failed => self.report.failed += 1,
                }
            }
        }
        if self.left_blocks >= BATCH {
            self.settle();
        }
    }

    /// Takes back the target of a migration that did not happen.
    fn recall(&mut self) {
        let frames = &self.design.frames;
        let Some((to, order)) = self.in_flight.take() else { return };
        let state = FrameState::allocated(Kind::movable(order));
        if frames.claim(to, state, state.retag(Tag::Claimed)) {
            self.targets.put(frames, to, order);
        } else {
            // The owner has freed what it was not given.
            self.handed_out += order.frames();
        }
    }

    fn target(&mut self, order: Order) -> Option<FrameIndex> {
        let frames = &self.design.frames;
        self.targets.take(frames, order).or_else(|| {
            if self.targets.frames < HAND_FRAMES_MAX {
                self.isolate_targets();
            }
            self.targets.take(frames, order)
        })
    }

    /// Takes free blocks from the top of the zone down, until a batch is held or the scanners meet.
    fn isolate_targets(&mut self) {
        let enough = self.targets.frames + u64::from(BATCH);
        while self.targets.frames < enough {
            if self.free_at >= self.at.free.after(Order::PAGEBLOCK) && !self.step_down() {
                return;
            }
            self.free_at = self.first_target(self.free_at);
            if self.free_at < self.at.free.after(Order::PAGEBLOCK) && !self.isolate_window() {
                return;
            }
        }
    }

    /// Moves the free scanner to the next pageblock suitable for targets; returns whether there is
    /// one above the migrate scanner.
    fn step_down(&mut self) -> bool {
        let Skeleton { frames, blocks, .. } = self.design;
        while self.at.free > self.at.migrate {
            self.at.free = FrameIndex(self.at.free.0 - (1 << Order::PAGEBLOCK.get()));
            self.free_at = self.at.free;
            let fit = blocks.zone(self.at.free) == Some(self.zone)
                && blocks.block_type(self.at.free) == BlockType::Movable
                && !self.is_goal(frames.state(self.at.free));
            if fit {
                return true;
            }
        }
        self.free_at = self.at.free.after(Order::PAGEBLOCK);
        false
    }

    /// Whether a block is free and as large as the order to make.
    pub(super) fn is_goal(&self, state: FrameState) -> bool {
        state.tag() == Tag::Buddy && state.order() >= Some(self.order)
    }

    fn is_target(&self, state: FrameState) -> bool {
        state.tag() == Tag::Buddy
            && state.block_type() == BlockType::Movable
            && state.order() < Some(self.order)
    }

    /// The first target at or after `from` in the free scanner's pageblock, or its end. Searches
    /// without the lock.
    fn first_target(&self, from: FrameIndex) -> FrameIndex {
        let mut at = from;
        while at < self.at.free.after(Order::PAGEBLOCK) {
            let state = self.design.frames.state(at);
            if self.is_target(state) {
                break;
            }
            at = at.after(state.order().unwrap_or(Order::ZERO));
        }
        at
    }

    /// Takes the free blocks of the next few frames; returns whether the watermark allowed it.
    fn isolate_window(&mut self) -> bool {
        let Skeleton { frames, .. } = self.design;
        let zone = self.design.zone(self.zone);
        let min = zone.watermarks().get().min;
        let guard = self.design.lock_zone(self.context.platform, self.zone);
        let end = FrameIndex(self.free_at.0 + WINDOW_FRAMES);
        let end = end.min(self.at.free.after(Order::PAGEBLOCK));
        while self.free_at < end {
            let state = frames.state(self.free_at);
            let order = state.order().unwrap_or(Order::ZERO);
            if self.is_target(state) {
                // As in Linux: one such block stays above the mark.
                let enough = min + order.frames();
                if self.design.zone(self.zone).free() <= enough {
                    return false;
                }
                guard.buddy.remove_any(self.free_at);
                guard.sub_free(order.frames());
                self.targets.put(frames, self.free_at, order);
            }
            self.free_at = self.free_at.after(order);
        }
        true
    }

    /// Frees the blocks whose content has moved away, and captures what they merge to.
    pub(super) fn settle(&mut self) {
        let guard = self.design.lock_zone(self.context.platform, self.zone);
        while let Some(block) = self.left.pop(&self.design.frames) {
            let order = self.design.frames.state(block).order().unwrap_or(Order::ZERO);
            guard.add_free(guard.put(block, order, None));
            if self.captured.is_none() {
                self.captured = self.capture(&guard, block);
            }
        }
        self.left_blocks = 0;
        let taken_back = core::mem::take(&mut self.taken_back);
        guard.compaction().note_migrated(taken_back);
        let handed_out = core::mem::take(&mut self.handed_out);
        self.design.unlock_and_note(self.context, self.zone, guard, |events| {
            events.note_direct_alloc(handed_out);
            events.note_direct_free(taken_back);
        });
    }

    /// Takes the free block that `part` has become a part of, if it serves the request.
    fn capture(&mut self, guard: &Guard<'_, P, Y>, part: FrameIndex) -> Option<FrameIndex> {
        let request = self.request?;
        let (kind, order) = (Kind::of(request), request.order());
        let frames = &self.design.frames;
        let mut larger = order.to(Order::BUDDY_MAX);
        let from = larger.find(|&from| frames.state(part.head(from)).is(Tag::Buddy, from))?;
        let allowed = self.design.allows(self.zone, request, request.depth());
        let block = part.head(from);
        if !allowed || !guard.capture(block, from, kind) {
            return None;
        }
        frames.set_state(block, FrameState::allocated(kind));
        guard.sub_free(order.frames());
        self.handed_out += order.frames();
        Some(block)
    }

    /// Returns all targets, a batch at a time.
    fn return_targets(&mut self) {
        let frames = &self.design.frames;
        while self.targets.frames > 0 {
            let guard = self.design.lock_zone(self.context.platform, self.zone);
            for _ in 0..BATCH {
                let Some((block, order)) = self.targets.take_any(frames) else { break };
                guard.add_free(guard.put(block, order, None));
            }
        }
    }
}

impl<P: Platform, Y: Policy<P>> Drop for Compactor<'_, P, Y> {
    fn drop(&mut self) {
        self.recall();
        // A block captured now would be leaked.
        self.request = None;
        self.settle();
        self.return_targets();
    }
}
