//! The LRU as owner of content for compaction: it isolates by the same protocol as any caller.

use core::cell::Cell;

use crate::error::LruError;
use crate::frames::state::State;
use crate::life::isolate::Isolated;
use crate::lru::Lru;
use crate::owner::claim::{Claim, Stage, Subject};
use crate::owner::protocol::Owner;
use crate::owner::shadow::Shadow;
use freehold::compact::{Migrate, MigrateError};
use freehold::memmap::index::FrameIndex;
use freehold::platform::Platform;
use freehold::units::{Order, Pfn};

/// Two frames or blocks between which content is being moved; those behind the first frame of each
/// are joined to it. Dropping this puts the one that holds the content on a list.
struct Move<'a, P: Platform, O: Owner> {
    lru: &'a Lru<P, O>,
    order: Order,
    from: FrameIndex,
    to: FrameIndex,
    stage: Cell<Stage>,
}

impl<P: Platform, O: Owner> Subject for Move<'_, P, O> {
    /// Copies the state of `from` to `to` as well, before the owner makes `to` visible.
    fn freeze(&self) -> bool {
        let frames = &self.lru.frames;
        let Ok((before, _)) = frames.change(self.from, State::freeze) else { return false };
        frames.set(self.to, before.moved_to(frames.state(self.to)));
        self.stage.set(Stage::Frozen);
        true
    }

    fn thaw(&self) {
        self.lru.frames.free(self.to);
        self.lru.frames.update(self.from, State::thaw);
        self.stage.set(Stage::Open);
    }

    fn commit(&self) -> Shadow {
        self.stage.set(Stage::Committed);
        Shadow::NONE
    }
}

impl<P: Platform, O: Owner> Drop for Move<'_, P, O> {
    fn drop(&mut self) {
        let holds_content = match self.stage.get() {
            Stage::Open => self.from,
            // The owner has leaked the claim, which does not last longer than the call.
            Stage::Frozen => {
                self.thaw();
                self.from
            }
            Stage::Committed => {
                let frames = &self.lru.frames;
                frames.free_block(self.from, frames.state(self.from));
                self.to
            }
        };
        if holds_content == self.from {
            self.lru.frames.free_tails(self.to, self.order);
        }
        drop(Isolated::adopt(self.lru, holds_content));
    }
}

/// Content moves with its references, marks, pins and group. Only frames and blocks that were added
/// to the LRU as such move, and only while the owner's index holds their only reference.
impl<P: Platform, O: Owner> Migrate for Lru<P, O> {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        let target = self.frames.index_of(to).map_err(|_| MigrateError::Failed)?;
        let isolated = self.isolate(from).map_err(|error| match error {
            // One just allocated is about to be added; one without references is about to be freed.
            LruError::FrameBusy | LruError::NotAdded => MigrateError::Busy,
            _ => MigrateError::Failed,
        })?;
        let is_whole = isolated.order() == order;
        if !is_whole || self.frames.state(target).is_used() {
            return Err(MigrateError::Failed);
        }
        self.frames.join_tails(target, order).map_err(|_| MigrateError::Failed)?;
        let (lru, from_index, stage) = (self, isolated.into_frame(), Cell::new(Stage::Open));
        let content = Move { lru, order, from: from_index, to: target, stage };
        let answer = self.owner.migrate(from, to, Claim::new(&content));
        match (content.stage.get(), answer) {
            // Whatever the owner says: the entry leads to `to`.
            (Stage::Committed, _) => Ok(()),
            (_, Err(error)) => Err(error),
            (_, Ok(())) => Err(MigrateError::Failed),
        }
    }
}
