//! Queues of slots that have no group.

use super::slot::Slot;
use crate::id::NO_SLOT;
use freehold::memmap::region::Table;
use freehold::platform::{Platform, SharedCell};

/// A queue of slots, linked by their field `queued`. Guarded by the lock over the tree.
pub(super) struct Queue<P: Platform> {
    first: P::Cell<u32>,
    last: P::Cell<u32>,
    len: P::Cell<u32>,
}

impl<P: Platform> Queue<P> {
    pub(super) fn new() -> Self {
        Queue {
            first: P::Cell::new(u32::from(NO_SLOT)),
            last: P::Cell::new(u32::from(NO_SLOT)),
            len: P::Cell::new(0),
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.len.get()
    }

    pub(super) fn push(&self, slots: &Table<Slot<P>>, slot: u16) {
        slots.get(usize::from(slot)).queued.set(u32::from(NO_SLOT));
        match self.last.get() as u16 {
            NO_SLOT => self.first.set(u32::from(slot)),
            last => slots.get(usize::from(last)).queued.set(u32::from(slot)),
        }
        self.last.set(u32::from(slot));
        self.len.set(self.len.get() + 1);
    }

    pub(super) fn pop(&self, slots: &Table<Slot<P>>) -> Option<u16> {
        let slot = self.first.get() as u16;
        if slot == NO_SLOT {
            return None;
        }
        let next = slots.get(usize::from(slot)).queued.get();
        self.first.set(next);
        if next as u16 == NO_SLOT {
            self.last.set(u32::from(NO_SLOT));
        }
        self.len.set(self.len.get() - 1);
        Some(slot)
    }

    pub(super) fn iter<'a>(&self, slots: &'a Table<Slot<P>>) -> impl Iterator<Item = u16> + 'a {
        let some = |slot: u32| (slot as u16 != NO_SLOT).then_some(slot as u16);
        core::iter::successors(some(self.first.get()), move |&slot| {
            some(slots.get(usize::from(slot)).queued.get()) //
        })
    }
}
