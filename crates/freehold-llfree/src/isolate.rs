//! Children out of circulation, until content has moved away.

use crate::Llfree;
use crate::block::{Block, child_of, frames_in, largest};
use crate::entry::{CHILD_FRAMES, Entry};
use crate::local::Local;
use crate::lower::Lower;
use crate::upkeep::{Part, parts};
use freehold::compact::{Migrate, MigrateError};
use freehold::designs::Context;
use freehold::designs::places::Obstacle;
use freehold::memmap::index::{FrameIndex, FrameRange, ZoneIndex};
use freehold::platform::Platform;
use freehold::{Error, Order};

/// How often something that another call is doing is looked at again.
const LOOKS: u32 = 8;

/// What lies at a frame.
pub(crate) enum Met {
    /// No frame is in use up to this one.
    Free(u32),
    /// No memory, at this frame.
    Hole(u32),
    /// A block, and whether its content can move.
    Used(u32, Order, bool),
    /// A block that a call is changing.
    Elsewhere,
}

/// Children of a zone that are out of circulation until this is dropped.
pub(crate) struct Isolation<'a, P: Platform> {
    design: &'a Llfree<P>,
    first: u32,
    end: u32,
}

impl<P: Platform> Llfree<P> {
    /// Takes so many frames of the count of a child's tree, whoever has reserved that.
    pub(crate) fn take_count(&self, zone: ZoneIndex, child: u32, frames: u32) -> bool {
        let tree = self.trees.of(zone, child);
        for _ in 0..LOOKS {
            if self.trees.take(tree, frames, frames).is_some() {
                return true;
            }
            let all = self.locals_of(zone);
            let has_it = |local: &&Local<P>| local.reserved().is_some_and(|of| of.tree == tree);
            for local in all.filter(has_it) {
                self.drain_local(local);
            }
        }
        false
    }

    fn isolate(&self, zone: ZoneIndex, child: u32) -> bool {
        let entries = &self.lower.entries;
        for _ in 0..LOOKS {
            let now = entries.get(child);
            if now.is_isolated() || self.lower.zone_of(child) != Some(zone) {
                return false;
            }
            // First what its tree has of it, so that no call has the count of frames that it
            // cannot take.
            if !self.take_count(zone, child, now.count()) {
                continue;
            }
            let same = |entry: Entry| (entry == now).then(|| entry.isolated(true));
            if entries.update(child, same).is_ok() {
                return true;
            }
            self.trees.give(self.trees.of(zone, child), now.count());
        }
        false
    }

    /// What lies at a frame, up to another one.
    pub(crate) fn look(&self, at: u32, end: u32, owner: &dyn Migrate) -> Met {
        let (lower, child) = (&self.lower, child_of(at));
        let part = Part { first: at, end: end.min((child + 1) * CHILD_FRAMES) };
        let can_move = |is_fixed: bool, first, order| {
            !is_fixed || owner.can_move(lower.pfn_of(first), order) //
        };
        let entry = lower.entries.get(child);
        if entry.is_huge() {
            let Some(order) = entry.huge_order() else { return Met::Elsewhere };
            let Block { first, order } = Block::huge(child, order);
            return Met::Used(first, order, can_move(entry.is_fixed(), first, order));
        }
        let used = part.words().find_map(|(word, mask)| {
            let used = lower.taken(word) & mask;
            (used != 0).then(|| word as u32 * 64 + used.trailing_zeros())
        });
        let Some(frame) = used else { return Met::Free(part.end) };
        let word = frame as usize / 64;
        if lower.holes(word) & Block::frame(frame).bit() != 0 {
            return Met::Hole(frame);
        }
        let Some(Block { first, order }) = lower.block_of(frame) else { return Met::Elsewhere };
        Met::Used(first, order, can_move(lower.is_fixed(first), first, order))
    }
}

impl<'a, P: Platform> Isolation<'a, P> {
    /// Isolates all children of a zone that frames are of, or none.
    pub(crate) fn new(
        design: &'a Llfree<P>,
        zone: ZoneIndex,
        first: u32,
        end: u32,
    ) -> Result<Self, Obstacle> {
        let mut isolation = Isolation { design, first: child_of(first), end: child_of(first) };
        for part in parts(first, end) {
            if !design.isolate(zone, part.child()) {
                return Err(Obstacle { at: FrameIndex(part.first), error: Error::RangeBusy });
            }
            isolation.end = part.child() + 1;
        }
        // What is left may be less than the low watermark.
        design.drain_zone(zone);
        Ok(isolation)
    }

    /// Makes all frames from one to another free.
    pub(crate) fn empty(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        range: FrameRange,
        owner: &dyn Migrate,
    ) -> Result<(), Obstacle> {
        let (mut at, end, mut looks) = (range.first.0, range.end.0, 0);
        while at < end {
            let busy = Obstacle { at: FrameIndex(at), error: Error::RangeBusy };
            let moved = match self.design.look(at, end, owner) {
                Met::Free(behind) => {
                    (at, looks) = (behind, 0);
                    Ok(())
                }
                Met::Used(first, order, true) => {
                    let moved = self.design.move_away(context, zone, first, order, owner);
                    let moved = moved.map_err(|error| Obstacle { error, ..busy })?;
                    moved.inspect(|()| looks = 0)
                }
                Met::Used(_, _, false) | Met::Hole(_) => return Err(busy),
                Met::Elsewhere => Err(MigrateError::Busy),
            };
            match moved {
                Ok(()) => {}
                Err(MigrateError::Busy) if looks < LOOKS => {
                    looks += 1;
                    context.platform.relax();
                }
                Err(_) => return Err(busy),
            }
        }
        Ok(())
    }

    /// Hands out all frames from one to another, in the largest blocks that fit, up to an order; or
    /// none: not if a call that had the count of some before they were isolated takes one of them.
    pub(crate) fn take(
        &self,
        context: Context<'_, P>,
        range: FrameRange,
        most: Order,
        is_fixed: bool,
    ) -> Result<(), Obstacle> {
        let (lower, first, end) = (&self.design.lower, range.first.0, range.end.0);
        let mut at = first;
        while at < end {
            let block = Block { first: at, order: largest(at, end, most) };
            if !lower.take_isolated(block, is_fixed) {
                let mut taken = first;
                while taken < at {
                    let order = largest(taken, end, most);
                    // An error means that a user freed what it was not given.
                    let _ = lower.release(context.platform, taken, order);
                    taken += frames_in(order);
                }
                return Err(Obstacle { at: FrameIndex(at), error: Error::RangeBusy });
            }
            at = block.end();
        }
        Ok(())
    }
}

impl<P: Platform> Lower<P> {
    /// Takes a block out of children that are isolated, if all of it is free.
    pub(crate) fn take_isolated(&self, block: Block, is_fixed: bool) -> bool {
        let Block { first, order } = block;
        let child = child_of(first);
        let huge = Entry::huge(order > Order::PAGEBLOCK, is_fixed);
        let whole = |now: Entry| (now.isolated(false) == Entry::WHOLE).then(|| now.becomes(huge));
        if order > Order::PAGEBLOCK {
            let both = |[low, high]: [Entry; 2]| Some([whole(low)?, whole(high)?]);
            return self.entries.update_pair(child, both).is_ok();
        }
        if order == Order::PAGEBLOCK {
            return self.entries.update(child, whole).is_ok();
        }
        if self.entries.update(child, |entry| entry.take_any(block.frames())).is_err() {
            return false;
        }
        let is_taken = self.take_exactly(block);
        match is_taken {
            true => self.mark(block, is_fixed),
            false => {
                self.entries.add(child, block.frames());
            }
        }
        is_taken
    }
}

impl<P: Platform> Drop for Isolation<'_, P> {
    fn drop(&mut self) {
        for child in self.first..self.end {
            let again = |entry: Entry| Some(entry.isolated(false));
            // `Ok`: nothing is refused.
            let was = self.design.lower.entries.update(child, again).unwrap_or_default();
            if let Some(zone) = self.design.lower.zone_of(child) {
                self.design.trees.give(self.design.trees.of(zone, child), was.count());
            }
        }
    }
}
