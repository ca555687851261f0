//! The pool, and the baseline: the same slots under one lock.

use std::sync::Mutex;

use freehold_pool::{ModuleKey, Pool, Slot};

use crate::Mix;
use crate::index::{Index, Taken};

/// A slot of the pool `'p`, and its number in the free list of the baseline.
pub(crate) struct Instance<'p> {
    pub(crate) slot: Slot<&'p Pool>,
    number: usize,
}

/// Who hands out slots.
pub(crate) trait Contestant<'p>: Sync {
    fn take(&self, module: Option<u64>) -> Instance<'p>;
    fn put(&self, instance: Instance<'p>, module: Option<u64>, keeps: bool);
}

/// The pool as it is.
pub(crate) struct Ours<'p>(pub(crate) &'p Pool);

impl<'p> Contestant<'p> for Ours<'p> {
    fn take(&self, module: Option<u64>) -> Instance<'p> {
        let slot = self.0.take(module.map(ModuleKey::new)).expect("there are enough slots");
        Instance { slot, number: 0 }
    }

    fn put(&self, instance: Instance<'p>, _module: Option<u64>, keeps: bool) {
        if keeps {
            instance.slot.keep();
        }
    }
}

/// What wasmtime has: one lock around the free list, one around the queue of slots to be reset. A
/// full queue is reset by the thread that filled it, without the lock, by a system call for each
/// slot. The slots are those of a pool of which all were taken at first.
pub(crate) struct Locked<'p> {
    free: Mutex<Index<Slot<&'p Pool>>>,
    queue: Mutex<Vec<(Instance<'p>, Option<u64>)>>,
    batch_slots: usize,
    /// Whether a slot is reset by writing alone, and needs no queue.
    is_resident: bool,
    /// Whether slots have content when they are free.
    keeps: bool,
}

impl<'p> Locked<'p> {
    pub(crate) fn new(
        pool: &'p Pool,
        slots: u32,
        warm_slots_max: usize,
        batch_slots: usize,
        mix: &Mix,
    ) -> Self {
        let slots = (0..slots).map(|_| pool.take(None).expect("all are free"));
        Locked {
            free: Mutex::new(Index::new(slots, warm_slots_max)),
            queue: Mutex::default(),
            batch_slots,
            is_resident: mix.is_reset_by_writing(),
            keeps: mix.keeps,
        }
    }

    fn free(&self, instance: Instance<'p>, module: Option<u64>) {
        let Instance { slot, number } = instance;
        self.free.lock().unwrap().put(number, module, slot);
    }
}

impl<'p> Contestant<'p> for Locked<'p> {
    fn take(&self, module: Option<u64>) -> Instance<'p> {
        let taken = self.free.lock().unwrap().take(module);
        let Taken { number, content, is_foreign } = taken.expect("there are enough slots");
        let mut slot = content;
        if is_foreign && self.keeps {
            slot.reset().expect("it can be reset");
        }
        Instance { slot, number }
    }

    fn put(&self, mut instance: Instance<'p>, module: Option<u64>, keeps: bool) {
        if keeps {
            return self.free(instance, module);
        }
        if self.is_resident {
            instance.slot.reset().expect("it can be reset");
            return self.free(instance, module);
        }
        let mut queue = self.queue.lock().unwrap();
        queue.push((instance, module));
        if queue.len() < self.batch_slots {
            return;
        }
        let mut full = std::mem::take(&mut *queue);
        drop(queue);
        full.iter_mut().for_each(|(dirty, _)| dirty.slot.reset().expect("it can be reset"));
        full.into_iter().for_each(|(clean, module)| self.free(clean, module));
    }
}
