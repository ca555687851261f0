//! An owner of frames whose answers a test chooses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use freehold::{MigrateError, Order, Pfn};
use freehold_lru::{Claim, Owner, Verdict};

/// An index of frames by number, and a record of calls.
#[derive(Default)]
pub(crate) struct Shelf {
    state: Mutex<Contents>,
}

#[derive(Default)]
pub(crate) struct Contents {
    /// The frames in the index, with their content.
    pub(crate) index: BTreeMap<Pfn, u64>,
    /// The orders of blocks in the index; of others, none are known.
    pub(crate) orders: BTreeMap<Pfn, Order>,
    /// Frames whose content must be written back.
    pub(crate) dirty: BTreeSet<Pfn>,
    /// The owner's answers for frames with a special one.
    pub(crate) verdicts: BTreeMap<Pfn, Verdict>,
    /// Frames that were released, in order.
    pub(crate) released: Vec<Pfn>,
    /// A frame at which the owner panics.
    pub(crate) panics_at: Option<Pfn>,
    /// Frames that the owner was asked for, in order.
    pub(crate) asked: Vec<Pfn>,
}

impl Shelf {
    pub(crate) fn contents(&self) -> MutexGuard<'_, Contents> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The frames released since the last call, in the order of their numbers.
    pub(crate) fn take_released(&self) -> Vec<u64> {
        let mut released: Vec<_> = self.contents().released.drain(..).map(Pfn::get).collect();
        released.sort_unstable();
        released
    }
}

/// The answer of an owner whose index is a set of frames, all of which may go.
pub(crate) fn forget(index: &Mutex<BTreeSet<Pfn>>, frame: Pfn, claim: Claim<'_>) {
    let mut index = index.lock().unwrap();
    if index.contains(&frame)
        && let Some(claimed) = claim.take()
    {
        index.remove(&frame);
        claimed.commit();
    }
}

impl Owner for Shelf {
    fn reclaim(&self, frame: Pfn) -> Verdict {
        let mut contents = self.contents();
        contents.asked.push(frame);
        if contents.panics_at == Some(frame) {
            drop(contents);
            panic!("the owner panics, as it was told to");
        }
        match contents.verdicts.get(&frame).copied() {
            Some(verdict) => verdict,
            None if contents.dirty.remove(&frame) => Verdict::Written,
            None => Verdict::Drop,
        }
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        let mut contents = self.contents();
        let can_go = contents.index.contains_key(&frame) && !contents.dirty.contains(&frame);
        if can_go && let Some(claimed) = claim.take() {
            contents.index.remove(&frame);
            claimed.commit();
        }
    }

    fn release(&self, frames: &[Pfn], order: Order) {
        let mut contents = self.contents();
        for frame in frames {
            let added = contents.orders.remove(frame);
            assert_eq!(order, added.unwrap_or(Order::ZERO), "{frame} was added as {added:?}");
        }
        contents.released.extend(frames);
    }

    fn migrate(&self, from: Pfn, to: Pfn, claim: Claim<'_>) -> Result<(), MigrateError> {
        let mut contents = self.contents();
        let Some(&content) = contents.index.get(&from) else { return Err(MigrateError::Busy) };
        let Some(claimed) = claim.take() else { return Err(MigrateError::Busy) };
        if contents.verdicts.get(&from) == Some(&Verdict::Failed) {
            return Err(MigrateError::Failed);
        }
        contents.index.remove(&from);
        contents.index.insert(to, content);
        if let Some(order) = contents.orders.remove(&from) {
            contents.orders.insert(to, order);
        }
        claimed.commit();
        Ok(())
    }
}

// Not every binary uses everything here.
const _: fn(&Mutex<BTreeSet<Pfn>>, Pfn, Claim<'_>) = forget;
