//! New frames: charged to a group, and put into a batch.

use crate::cpu::Batch;
use crate::error::LruError;
use crate::id::GroupId;
use crate::kind::Kind;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use freehold::platform::Platform;
use freehold::units::{Order, Pfn};

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Adds an unused frame: charges it to a group, and later, by batch, puts it at the front of an
    /// inactive list. The caller holds the one reference to it.
    ///
    /// # Errors
    ///
    /// [`LruError::GroupLimit`] if the group, or one above it, is at its limit:
    /// [`Lru::add_reclaiming`] makes room. Near the limit, concurrent charges of other CPUs, up to
    /// 32 frames or a block each, may count as well, even if they are undone.
    /// [`LruError::UnknownGroup`], [`LruError::AlreadyAdded`] or [`LruError::ForeignFrame`].
    pub fn add(&self, pfn: Pfn, group: GroupId, kind: Kind) -> Result<(), LruError> {
        self.add_block(pfn, Order::ZERO, group, kind)
    }

    /// As [`Lru::add`], for a block of up to order 14, which is one piece of content: named by its
    /// first frame, charged and counted with all of its frames, reclaimed, moved and released as a
    /// whole. None of its frames can be added meanwhile.
    ///
    /// Cost: besides that of [`Lru::add`], a locked step for each frame, and a write for each when
    /// the block is released.
    ///
    /// # Errors
    ///
    /// Those of [`Lru::add`], also if they concern another frame of the block;
    /// [`LruError::OrderTooLarge`] or [`LruError::Misaligned`].
    pub fn add_block(
        &self,
        pfn: Pfn,
        order: Order,
        group: GroupId,
        kind: Kind,
    ) -> Result<(), LruError> {
        match self.try_add(pfn, order, group, kind) {
            Err(LruError::GroupLimit(full)) => {
                // What other CPUs have charged ahead is not used yet.
                self.drain_stocks(full.slot());
                self.try_add(pfn, order, group, kind)
            }
            added => added,
        }
    }

    /// As [`Lru::add_block`], but counts what other CPUs have charged ahead as used.
    pub(crate) fn try_add(
        &self,
        pfn: Pfn,
        order: Order,
        group: GroupId,
        kind: Kind,
    ) -> Result<(), LruError> {
        let frame = self.frames.index_of(pfn)?;
        if self.frames.state(frame).is_used() {
            return Err(LruError::AlreadyAdded);
        }
        self.frames.join_tails(frame, order)?;
        let free_tails = || self.frames.free_tails(frame, order);
        let frames = order.frames().get() as u32;
        // The lock of the CPU's batches is taken once for the charge and the batch.
        let cpu = self.charge(group, frames).inspect_err(|_| free_tails())?;
        // The reference of the caller, and that of the batch.
        let added = self.frames.change(frame, |state| match (state.is_hole(), state.is_used()) {
            (true, _) => Err(LruError::ForeignFrame),
            (_, true) => Err(LruError::AlreadyAdded),
            _ => Ok(state.added(order, group.slot(), kind, 2)),
        });
        if let Err(error) = added {
            drop(cpu);
            free_tails();
            self.uncharge(group.slot(), frames);
            return Err(error);
        }
        let full = cpu.push(Batch::Add, frame);
        drop(cpu);
        if let Some(few) = full {
            self.settle(Batch::Add, &few);
        }
        Ok(())
    }
}
