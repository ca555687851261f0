//! The owner of the cached blocks, and the ledger: which block is in which frame.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

use freehold::platform::{LockClass, RawLock};
use freehold::{FrameCount, MigrateError, Order, Pfn};
use freehold_lru::{Claim, Owner, Shadow, Verdict};
use freehold_sim::{SimLock, SimLru};

use super::super::tally::LruTally;
use crate::frames::Frames;

/// The LRU under check.
pub(in crate::check) type Cache = SimLru<Shelf>;

/// The largest blocks of frames.
pub(super) const ORDER_MAX: Order = Order::new(4);

/// How many frames a block needs: most of them one.
pub(super) fn order_of(block: u64) -> Order {
    match block % 7 {
        0 => Order::new(1 + (block / 7 % u64::from(ORDER_MAX.get())) as u8),
        _ => Order::ZERO,
    }
}

/// Maps blocks to frames, and frames to blocks.
#[derive(Default)]
pub(super) struct Index {
    frames: BTreeMap<u64, Pfn>,
    blocks: BTreeMap<Pfn, u64>,
    /// What is left of blocks that were reclaimed.
    shadows: BTreeMap<u64, Shadow>,
}

impl Index {
    pub(super) fn take_shadow(&mut self, block: u64) -> Option<Shadow> {
        self.shadows.remove(&block)
    }

    pub(super) fn find(&self, block: u64) -> Option<Pfn> {
        self.frames.get(&block).copied()
    }

    pub(super) fn enter(&mut self, block: u64, frame: Pfn) {
        let before = (self.frames.insert(block, frame), self.blocks.insert(frame, block));
        assert_eq!(before, (None, None), "the work itself entered block {block} or {frame} twice");
    }

    pub(super) fn remove(&mut self, block: u64) -> Option<Pfn> {
        let frame = self.frames.remove(&block)?;
        self.blocks.remove(&frame);
        Some(frame)
    }
}

/// The owner. It also records frames in use that are not in the index: a frame is stamped when it
/// is allocated and loses its stamp when it is released.
pub(in crate::check) struct Shelf {
    frames: Rc<dyn Frames>,
    /// Guards the index, while other CPUs may run.
    lock: SimLock,
    index: RefCell<Index>,
    stamps: RefCell<BTreeMap<Pfn, u64>>,
    tally: Rc<RefCell<LruTally>>,
    /// Counts requests, some of which get a different answer.
    asked: Cell<u64>,
}

/// The index, with its lock held.
pub(super) struct Locked<'a>(&'a Shelf);

impl Locked<'_> {
    pub(super) fn index(&self) -> RefMut<'_, Index> {
        self.0.index.borrow_mut()
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.lock.unlock();
    }
}

impl Shelf {
    pub(super) fn new(frames: Rc<dyn Frames>, tally: Rc<RefCell<LruTally>>) -> Self {
        Shelf {
            frames,
            lock: SimLock::new(LockClass::Owner),
            index: RefCell::default(),
            stamps: RefCell::default(),
            tally,
            asked: Cell::new(0),
        }
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        self.lock.lock();
        Locked(self)
    }

    /// Stamps a frame that was allocated for a block.
    pub(super) fn stamp(&self, frame: Pfn, block: u64) {
        let before = self.stamps.borrow_mut().insert(frame, block);
        assert_eq!(before, None, "{frame} was allocated while a block is in it");
    }

    /// Removes the stamp of a frame that is released.
    pub(super) fn unstamp(&self, frame: Pfn) {
        let before = self.stamps.borrow_mut().remove(&frame);
        assert!(before.is_some(), "{frame} was released, but not in use");
    }

    /// The block that is in a frame.
    pub(super) fn block_in(&self, frame: Pfn) -> Option<u64> {
        self.stamps.borrow().get(&frame).copied()
    }

    /// Frames and blocks of them that were allocated and have not been released.
    pub(super) fn stamped(&self) -> usize {
        self.stamps.borrow().len()
    }

    /// How many frames those are.
    pub(super) fn stamped_frames(&self) -> FrameCount {
        self.stamps.borrow().values().map(|&block| order_of(block).frames()).sum()
    }

    /// Frames in the index.
    pub(super) fn indexed(&self) -> usize {
        self.index.borrow().frames.len()
    }

    /// Empties the index.
    pub(super) fn take_all(&self) -> Vec<Pfn> {
        self.index.take().frames.into_values().collect()
    }
}

impl Owner for Shelf {
    fn reclaim(&self, frame: Pfn) -> Verdict {
        assert!(self.block_in(frame).is_some(), "{frame} is to be reclaimed, but not in use");
        self.asked.set(self.asked.get() + 1);
        match self.asked.get() % 13 {
            0 => Verdict::Keep,
            1 => Verdict::Activate,
            2 => Verdict::Failed,
            3 | 4 => Verdict::Written,
            _ => Verdict::Drop,
        }
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        let locked = self.lock();
        let block = locked.index().blocks.get(&frame).copied();
        if let Some(block) = block
            && let Some(claimed) = claim.take()
        {
            locked.index().remove(block);
            // Other CPUs may run during the commit, so the index is not borrowed then.
            let shadow = claimed.commit();
            locked.index().shadows.insert(block, shadow);
            self.tally.borrow_mut().reclaimed += order_of(block).frames().get();
        }
    }

    fn release(&self, frames: &[Pfn], order: Order) {
        for &frame in frames {
            let block = self.block_in(frame);
            assert_eq!(block.map(order_of), Some(order), "{frame} was released as {order}");
            self.unstamp(frame);
            let indexed = self.index.borrow().blocks.contains_key(&frame);
            assert!(!indexed, "{frame} was released while it is in the index");
        }
        self.tally.borrow_mut().released += frames.len() as u64 * order.frames().get();
        self.frames.free_bulk(frames, order).expect("the frames came from there");
    }

    fn migrate(&self, from: Pfn, to: Pfn, claim: Claim<'_>) -> Result<(), MigrateError> {
        let locked = self.lock();
        let block = locked.index().blocks.get(&from).copied().ok_or(MigrateError::Busy)?;
        let Some(claimed) = claim.take() else { return Err(MigrateError::Busy) };
        self.asked.set(self.asked.get() + 1);
        if self.asked.get().is_multiple_of(7) {
            // With the claim, which ends before the lock.
            return Err(MigrateError::Failed);
        }
        locked.index().remove(block);
        locked.index().enter(block, to);
        claimed.commit();
        self.unstamp(from);
        self.stamp(to, block);
        self.tally.borrow_mut().moves += order_of(block).frames().get();
        Ok(())
    }
}
