//! How frames get onto the lists: charged to a group, in per-CPU batches.

use super::charge::Refused;
use super::cpu::{Batch, CpuGuard, Few};
use super::error::LruError;
use super::group::GroupId;
use super::policy::LruPolicy;
use super::state::{Motion, State};
use super::vec::VecGuard;
use super::{Kind, Lru, Owner};
use freehold::memmap::index::FrameIndex;
use freehold::platform::Platform;
use freehold::units::{CpuId, Order, Pfn};

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
        let added = match self.try_add(pfn, order, group, kind) {
            Err(Refused { error: LruError::GroupLimit, slot }) => {
                // What other CPUs have charged ahead is not used yet.
                self.drain_stocks(slot);
                self.try_add(pfn, order, group, kind)
            }
            added => added,
        };
        added.map_err(|refused| refused.error)
    }

    /// As [`Lru::add_block`], but counts what other CPUs have charged ahead as used.
    pub(super) fn try_add(
        &self,
        pfn: Pfn,
        order: Order,
        group: GroupId,
        kind: Kind,
    ) -> Result<(), Refused> {
        let refuse = |error| Refused { error, slot: group.slot() };
        let frame = self.frames.index_of(pfn).map_err(refuse)?;
        if self.frames.state(frame).is_used() {
            return Err(refuse(LruError::AlreadyAdded));
        }
        self.frames.join_tails(frame, order).map_err(refuse)?;
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
            return Err(refuse(error));
        }
        let full = cpu.push(Batch::Add, frame);
        drop(cpu);
        if let Some(few) = full {
            self.settle(Batch::Add, &few);
        }
        Ok(())
    }

    /// Notes that a frame was used. The second use moves it to the active list, so that content
    /// used once does not evict content used again and again: at once, or with
    /// [`LruPolicy::ScanResistant`] when reclaim comes to it.
    ///
    /// # Errors
    ///
    /// [`LruError::NotAdded`] if the frame has no references; the caller should hold one.
    /// [`LruError::ForeignFrame`], or [`LruError::TooManyReferences`] if none is left for the
    /// batch.
    pub fn mark_accessed(&self, pfn: Pfn) -> Result<(), LruError> {
        let frame = self.frames.index_of(pfn)?;
        let policy = self.policy;
        let used = |state: State| match (state.refs(), policy) {
            (0, _) => Err(LruError::NotAdded),
            (_, LruPolicy::TwoLists) => Ok(state.accessed()),
            (_, LruPolicy::ScanResistant) => Ok(state.more_marked()),
        };
        let (before, _) = self.frames.change(frame, used)?;
        match policy == LruPolicy::TwoLists && before.awaits_activation() {
            true => self.activate(pfn),
            false => Ok(()),
        }
    }

    /// Moves a frame to the front of the active list later, by batch. A frame that is on no list
    /// when its batch is processed, since it is isolated or still waits to be added, stays as it
    /// is; the same holds for [`Lru::deactivate`] and [`Lru::rotate`].
    ///
    /// # Errors
    ///
    /// As [`Lru::mark_accessed`].
    pub fn activate(&self, pfn: Pfn) -> Result<(), LruError> {
        self.push_held(Batch::Activate, pfn)
    }

    /// Moves a frame to the front of the inactive list later, by batch.
    ///
    /// # Errors
    ///
    /// As [`Lru::mark_accessed`].
    pub fn deactivate(&self, pfn: Pfn) -> Result<(), LruError> {
        self.push_held(Batch::Deactivate, pfn)
    }

    /// Moves a frame to the back of the inactive list later, by batch, to be reclaimed next: its
    /// content has just been written back, for example.
    ///
    /// # Errors
    ///
    /// As [`Lru::mark_accessed`].
    pub fn rotate(&self, pfn: Pfn) -> Result<(), LruError> {
        self.push_held(Batch::Rotate, pfn)
    }

    /// Pins a frame in memory: it moves to the unevictable list later, by batch, and from now on no
    /// reclaim takes it. A frame may be pinned several times.
    ///
    /// # Errors
    ///
    /// As [`Lru::mark_accessed`], or [`LruError::TooManyReferences`] if it was done too often.
    pub fn pin(&self, pfn: Pfn) -> Result<(), LruError> {
        let frame = self.frames.index_of(pfn)?;
        // The first pin needs a reference for the batch; without one it fails.
        let pin = |state: State| match state.pin()? {
            pinned if pinned.pins() == 1 => pinned.get(),
            pinned => Ok(pinned),
        };
        let (_, after) = self.frames.change(frame, pin)?;
        if after.pins() == 1 {
            self.groups.pin(after.slot(), after.frames());
            self.push(Batch::Pin, frame);
        }
        Ok(())
    }

    /// Undoes one [`Lru::pin`]. After the last one the frame can be reclaimed again.
    ///
    /// # Errors
    ///
    /// As [`Lru::mark_accessed`], or [`LruError::NotPinned`].
    pub fn unpin(&self, pfn: Pfn) -> Result<(), LruError> {
        let frame = self.frames.index_of(pfn)?;
        // The last unpin needs a reference for the batch; without one it fails.
        let unpin = |state: State| match state.unpin()? {
            unpinned if unpinned.pins() == 0 => unpinned.get(),
            unpinned => Ok(unpinned),
        };
        let (_, after) = self.frames.change(frame, unpin)?;
        if after.pins() == 0 {
            self.groups.unpin(after.slot(), after.frames());
            self.push(Batch::Pin, frame);
        }
        Ok(())
    }

    /// Puts all frames that wait in a CPU's batches on their lists, and returns what the CPU has
    /// charged ahead.
    ///
    /// # Errors
    ///
    /// [`LruError::UnknownCpu`].
    pub fn drain(&self, cpu: CpuId) -> Result<(), LruError> {
        if cpu.index() >= self.cpus.len() {
            return Err(LruError::UnknownCpu);
        }
        self.drain_cpu(cpu.index());
        Ok(())
    }

    /// As [`Lru::drain`], for all CPUs.
    pub fn drain_all(&self) {
        (0..self.cpus.len()).for_each(|cpu| self.drain_cpu(cpu));
    }

    /// Puts all frames that wait in the running CPU's batches on their lists.
    pub(super) fn settle_here(&self) {
        for batch in Batch::ALL {
            let few = self.cpus.here(&self.platform).take(batch);
            self.settle(batch, &few);
        }
    }

    fn drain_cpu(&self, cpu: usize) {
        for batch in Batch::ALL {
            let few = self.cpus.of(&self.platform, cpu).take(batch);
            self.settle(batch, &few);
        }
        self.drain_stock(self.cpus.of(&self.platform, cpu));
    }

    /// Uncharges what CPUs have charged ahead for a group and for those below.
    pub(super) fn drain_stocks(&self, slot: u16) {
        for cpu in 0..self.cpus.len() {
            let guard = self.cpus.of(&self.platform, cpu);
            if guard.stock().is_some_and(|(stocked, _)| self.groups.is_below(stocked, slot)) {
                self.drain_stock(guard);
            }
        }
    }

    /// Uncharges what a CPU has charged ahead.
    fn drain_stock(&self, guard: CpuGuard<'_, P>) {
        if let Some((slot, stock)) = guard.drain_stock() {
            // Under the CPU's lock: until then, the group is not removed, and its slot keeps its
            // place.
            self.groups.remove_stock(slot);
            self.groups.uncharge(slot, stock);
        }
    }

    /// Charges frames to a group, from the CPU's stock if possible; returns the lock of the CPU,
    /// which was taken for that.
    pub(super) fn charge(&self, group: GroupId, frames: u32) -> Result<CpuGuard<'_, P>, Refused> {
        let cpu = self.cpus.here(&self.platform);
        if cpu.take_stock(group, frames) {
            return Ok(cpu);
        }
        let slot = group.slot();
        let most = self.groups.slot_of(group).map_or(0, |slot| self.groups.stock_max(slot));
        // Under the CPU's lock, so that removing the group finds a stock that would outlive it.
        if frames == 1 && most > 1 && self.groups.charge(group, most).is_ok() {
            let before = cpu.set_stock(group, most - 1, 2 * most);
            if before.map(|(slot, _)| slot) != Some(slot) {
                self.groups.add_stock(slot);
                if let Some((before, stock)) = before {
                    self.groups.remove_stock(before);
                    self.groups.uncharge(before, stock);
                }
            }
            return Ok(cpu);
        }
        self.groups.charge(group, frames)?;
        Ok(cpu)
    }

    /// Uncharges frames from a slot.
    pub(super) fn uncharge(&self, slot: u16, frames: u32) {
        let over = self.cpus.here(&self.platform).restock(slot, frames);
        if over > 0 {
            self.groups.uncharge(slot, over);
        }
    }

    /// Puts a frame that has a reference into a batch, with a reference of its own.
    fn push_held(&self, batch: Batch, pfn: Pfn) -> Result<(), LruError> {
        let frame = self.frames.index_of(pfn)?;
        self.frames.change(frame, State::get)?;
        self.push(batch, frame);
        Ok(())
    }

    /// Puts a frame into a batch, which takes over one of the caller's references.
    fn push(&self, batch: Batch, frame: FrameIndex) {
        let full = self.cpus.here(&self.platform).push(batch, frame);
        if let Some(few) = full {
            self.settle(batch, &few);
        }
    }

    /// Puts the frames of a batch on their lists, and drops its references.
    fn settle(&self, batch: Batch, few: &Few) {
        let (mut lock, mut gone, mut left) = (None, Few::new(), Few::new());
        for frame in few.iter() {
            if batch == Batch::Add {
                // On no list and without a mark: no other call moves the frame.
                let guard = self.relock(lock.take(), self.frames.state(frame));
                self.put_back(&guard, frame, Motion::Keep, &mut gone);
                lock = Some(guard);
                continue;
            }
            match self.frames.change(frame, State::isolate_held) {
                Ok((before, _)) => {
                    let guard = self.relock(lock.take(), before);
                    guard.unlink(&self.frames, frame, before);
                    self.put_back(&guard, frame, batch.motion(), &mut gone);
                    lock = Some(guard);
                }
                // Another call has it isolated, and will put it back as its marks say.
                Err(_) => left.push(frame),
            }
        }
        drop(lock);
        self.finish_few(&gone, &left);
    }

    /// Puts frames that the caller has isolated on lists, and drops its references; takes each lock
    /// once for consecutive frames under it. Frames whose last reference that was are added to
    /// `gone`, to be released without a lock.
    pub(super) fn put_back_all(
        &self,
        frames: impl Iterator<Item = (FrameIndex, Motion)>,
        gone: &mut Few,
    ) {
        let mut lock = None;
        for (frame, motion) in frames {
            let guard = self.relock(lock.take(), self.frames.state(frame));
            self.put_back(&guard, frame, motion, gone);
            lock = Some(guard);
        }
    }

    /// Puts a frame that the caller has isolated on a list, and drops the caller's reference. If
    /// that was the last one, the frame is added to `gone` instead, to be released without the
    /// lock. A frame of a removed group becomes one of the group that inherited it.
    pub(super) fn put_back(
        &self,
        lock: &VecGuard<'_, P>,
        frame: FrameIndex,
        motion: Motion,
        gone: &mut Few,
    ) {
        // One step sets the mark and drops the reference. If the reference were dropped first, a
        // racing last put would see no mark and release a frame that is about to be listed.
        let (before, after) = self.frames.update(frame, |state| match state.put_back(motion) {
            last if last.refs() == 0 => last,
            listed => listed.in_slot(lock.slot()),
        });
        if after.refs() == 0 {
            return gone.push(frame);
        }
        lock.link(&self.frames, frame, after, motion);
        if after.is_active() && !before.is_active() {
            lock.history(after.kind()).note_activation(after.frames());
        }
        if before.slot() != after.slot() {
            self.groups.inherit(before.slot(), after);
        }
    }
}
