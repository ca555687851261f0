//! The LRU as the one who moves content for compaction: it isolates by the same protocol as
//! everybody else.

use core::cell::Cell;

use super::frame::State;
use super::isolate::Isolated;
use super::owner::Claim;
use super::{Lru, Owner};
use crate::Error;
use crate::compact::{Migrate, MigrateError};
use crate::memmap::index::FrameIndex;
use crate::platform::Platform;
use crate::units::{Order, Pfn};

/// Two frames between which content is being moved. Dropping this puts that one of them on a list
/// which the content is in.
struct Move<'a, P: Platform, O: Owner> {
    lru: &'a Lru<P, O>,
    from: FrameIndex,
    to: FrameIndex,
    /// What `from` was before it was frozen, if the owner was given the claim.
    frozen: Cell<Option<State>>,
    moved: bool,
}

impl<P: Platform, O: Owner> Move<'_, P, O> {
    /// Freezes `from`, and makes `to` what it was, before the owner lets anybody see `to`.
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
/// the LRU move, and only while nobody but the owner's index refers to them.
impl<P: Platform, O: Owner> Migrate for Lru<P, O> {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        if order != Order::ZERO {
            return Err(MigrateError::Failed);
        }
        let target = self.frames.index_of(to).map_err(|_| MigrateError::Failed)?;
        let isolated = self.isolate(from).map_err(|error| match error {
            // One that was just allocated is about to be added, one without references to be freed.
            Error::FrameBusy | Error::NotAdded => MigrateError::Busy,
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
