//! The LRU as owner of content for compaction: it isolates by the same protocol as any caller.

use super::error::LruError;
use core::cell::Cell;

use super::isolate::Isolated;
use super::owner::Claim;
use super::state::State;
use super::{Lru, Owner};
use crate::compact::{Migrate, MigrateError};
use crate::memmap::index::FrameIndex;
use crate::platform::Platform;
use crate::units::{Order, Pfn};

/// Two frames between which content is being moved. Dropping this puts the one that holds the
/// content on a list.
struct Move<'a, P: Platform, O: Owner> {
    lru: &'a Lru<P, O>,
    from: FrameIndex,
    to: FrameIndex,
    /// The state of `from` before it was frozen, if the owner was granted the claim.
    frozen: Cell<Option<State>>,
    moved: bool,
}

impl<P: Platform, O: Owner> Move<'_, P, O> {
    /// Freezes `from`, and copies its state to `to`, before the owner makes `to` visible.
    fn freeze(&self) -> bool {
        let frames = &self.lru.frames;
        let Ok((before, _)) = frames.change(self.from, State::freeze) else { return false };
        frames.set(self.to, before.moved_to(frames.state(self.to)));
        self.frozen.set(Some(before));
        true
    }
}

impl<P: Platform, O: Owner> Drop for Move<'_, P, O> {
    fn drop(&mut self) {
        let frames = &self.lru.frames;
        let release = |frame| frames.set(frame, frames.state(frame).released());
        let holds_content = match self.frozen.get() {
            None => self.from,
            Some(_) if self.moved => {
                release(self.from);
                self.to
            }
            Some(before) => {
                release(self.to);
                frames.set(self.from, before);
                self.from
            }
        };
        drop(Isolated::adopt(self.lru, holds_content));
    }
}

/// Content moves with its references, marks, pins and group. Only single frames that were added to
/// the LRU move, and only while the owner's index holds their only reference.
impl<P: Platform, O: Owner> Migrate for Lru<P, O> {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        if order != Order::ZERO {
            return Err(MigrateError::Failed);
        }
        let target = self.frames.index_of(to).map_err(|_| MigrateError::Failed)?;
        let isolated = self.isolate(from).map_err(|error| match error {
            // One just allocated is about to be added; one without references is about to be freed.
            LruError::FrameBusy | LruError::NotAdded => MigrateError::Busy,
            _ => MigrateError::Failed,
        })?;
        if self.frames.state(target).is_used() {
            return Err(MigrateError::Failed);
        }
        let (lru, source) = (self, isolated.into_frame());
        let frozen = Cell::new(None);
        let mut content = Move { lru, from: source, to: target, frozen, moved: false };
        self.owner.migrate(from, to, Claim(&mut || content.freeze()))?;
        // Without the claim, the content cannot have moved.
        content.moved = content.frozen.get().is_some();
        if content.moved { Ok(()) } else { Err(MigrateError::Failed) }
    }
}
