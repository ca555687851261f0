//! How frames get onto the lists, by per-CPU batches: under the lock of the lists, each frame gets
//! its mark and loses the reference of the batch.

use crate::cpu::Batch;
use crate::error::LruError;
use crate::frames::few::Few;
use crate::frames::state::{Motion, State};
use crate::lists::lock::ShardGuard;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::settings::BATCH_MAX;
use freehold::memmap::index::FrameIndex;
use freehold::platform::Platform;
use freehold::units::CpuId;

impl<P: Platform, O: Owner> Lru<P, O> {
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
    pub(crate) fn settle_here(&self) {
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

    /// Puts a frame into a batch, which takes over one of the caller's references.
    pub(crate) fn push(&self, batch: Batch, frame: FrameIndex) {
        let full = self.cpus.here(&self.platform).push(batch, frame);
        if let Some(few) = full {
            self.settle(batch, &few);
        }
    }

    /// Puts the frames of a batch on their lists, and drops its references.
    pub(crate) fn settle(&self, batch: Batch, few: &Few) {
        if few.is_empty() {
            return;
        }
        let (mut lock, mut gone, mut left) = (None, Few::new(), Few::new());
        if batch == Batch::Add {
            // On no list and without a mark: no other call moves them.
            self.put_back_all(few.iter().map(|frame| (frame, Motion::Keep)), &mut gone);
            return self.release_few(&gone);
        }
        // First all marks, without a lock: none is held while records come from elsewhere.
        let (mut isolated, mut len) = ([(FrameIndex(0), State::HOLE); BATCH_MAX], 0);
        for frame in few.iter() {
            match self.frames.change(frame, State::isolate_held) {
                Ok((before, _)) => {
                    isolated[len] = (frame, before);
                    len += 1;
                }
                // Another call has it isolated, and will put it back as its marks say.
                Err(_) => left.push(frame),
            }
        }
        for &(frame, before) in &isolated[..len] {
            let guard = self.lock_listed(&mut lock, frame, before);
            guard.unlink(&self.frames, frame, before);
            self.put_back(guard, frame, batch.motion(), &mut gone);
        }
        drop(lock);
        self.finish_few(&gone, &left);
    }

    /// Puts frames that the caller has isolated on lists, and drops its references; takes each lock
    /// once for consecutive frames under it. Frames whose last reference that was are added to
    /// `gone`, to be released without a lock.
    pub(crate) fn put_back_all(
        &self,
        frames: impl Iterator<Item = (FrameIndex, Motion)>,
        gone: &mut Few,
    ) {
        let (mut lock, near) = (None, self.near());
        for (frame, motion) in frames {
            let guard = self.lock_near(&mut lock, frame, near);
            self.put_back(guard, frame, motion, gone);
        }
    }

    /// Puts a frame that the caller has isolated on a list, and drops the caller's reference. If
    /// that was the last one, the frame is added to `gone` instead, to be released without the
    /// lock. A frame of a removed group becomes one of the group that inherited it. From now on it
    /// names the shard that is locked.
    pub(crate) fn put_back(
        &self,
        lock: &ShardGuard<'_, P>,
        frame: FrameIndex,
        motion: Motion,
        gone: &mut Few,
    ) {
        // One step sets the mark and drops the reference. If the reference were dropped first, a
        // racing last put would see no mark and release a frame that is about to be listed.
        let (before, after) = self.frames.update(frame, |state| match state.put_back(motion) {
            last if last.refs() == 0 => last,
            listed => self.frames.sharding.in_shard(listed, lock.id()),
        });
        if after.refs() == 0 {
            return gone.push(frame);
        }
        lock.link(&self.frames, frame, after, motion);
        if after.is_active() && !before.is_active() {
            lock.note_activation(after.kind(), after.frames());
        }
        if before.slot() != after.slot() {
            self.groups.inherit(before.slot(), after);
        }
    }
}
