//! The pool, and the baseline: the same slots under one lock.

use std::sync::Mutex;

use freehold_pool::{Image, ModuleKey, Pool, Slot};

use crate::Mix;
use crate::files::Files;
use crate::index::{Index, Taken};

/// A slot of the pool `'p`, and its number in the free list of the baseline.
pub(crate) struct Instance<'p> {
    pub(crate) slot: Slot<&'p Pool>,
    number: usize,
    /// The module whose image the baseline has mapped.
    mapped: Option<u64>,
}

/// Who hands out slots.
pub(crate) trait Contestant<'p>: Sync {
    fn take(&self, module: Option<u64>) -> Instance<'p>;
    fn put(&self, instance: Instance<'p>, module: Option<u64>, keeps: bool);
}

/// What instances of a module find in memory.
pub(crate) enum Initial {
    Zero,
    /// By module.
    Images(Vec<Image>),
    /// By module: copied into each instance.
    Copies(Vec<Vec<u8>>),
}

/// The pool as it is.
pub(crate) struct Ours<'p> {
    pool: &'p Pool,
    initial: Initial,
}

impl<'p> Ours<'p> {
    pub(crate) fn new(pool: &'p Pool, initial: Initial) -> Self {
        Ours { pool, initial }
    }
}

impl<'p> Contestant<'p> for Ours<'p> {
    fn take(&self, module: Option<u64>) -> Instance<'p> {
        let (key, number) = (module.map(ModuleKey::new), module.unwrap_or(0) as usize);
        let taken = match &self.initial {
            Initial::Images(images) => self.pool.take_with(key, &images[number]),
            Initial::Zero | Initial::Copies(_) => self.pool.take(key),
        };
        let mut slot = taken.expect("there are enough slots");
        if let Initial::Copies(contents) = &self.initial {
            let content = &contents[number];
            slot.grow(content.len()).expect("memory");
            slot.bytes_mut()[..content.len()].copy_from_slice(content);
        }
        Instance { slot, number: 0, mapped: None }
    }

    fn put(&self, instance: Instance<'p>, _module: Option<u64>, keeps: bool) {
        if keeps {
            instance.slot.keep();
        }
    }
}

/// What wasmtime has: one lock around the free list, one around the queue of slots to be reset. A
/// full queue is reset by the thread that filled it, without the lock, by a system call for each
/// slot. The slots are those of a pool of which all were taken at first; the images are mapped
/// over them.
pub(crate) struct Locked<'p> {
    free: Mutex<Index<(Slot<&'p Pool>, Option<u64>)>>,
    queue: Mutex<Vec<(Instance<'p>, Option<u64>)>>,
    batch_slots: usize,
    /// Whether a slot is reset by writing alone, and needs no queue.
    is_resident: bool,
    /// Whether slots have content when they are free.
    keeps: bool,
    maps: Maps,
}

/// When the baseline maps images.
pub(crate) enum Maps {
    Nothing,
    /// For each instance.
    Always(Files),
    /// For each whose slot has another image, as wasmtime does. That of an affine slot is reset by
    /// `madvise(2)`.
    IfOther(Files),
}

impl<'p> Locked<'p> {
    pub(crate) fn new(
        pool: &'p Pool,
        slots: u32,
        warm_slots_max: usize,
        batch_slots: usize,
        mix: &Mix,
        maps: Maps,
    ) -> Self {
        let slots = (0..slots).map(|_| (pool.take(None).expect("all are free"), None));
        Locked {
            free: Mutex::new(Index::new(slots, warm_slots_max)),
            queue: Mutex::default(),
            batch_slots,
            is_resident: mix.is_reset_by_writing(),
            keeps: mix.keeps,
            maps,
        }
    }

    fn free(&self, instance: Instance<'p>, module: Option<u64>) {
        let Instance { slot, number, mapped } = instance;
        self.free.lock().unwrap().put(number, module, (slot, mapped));
    }
}

impl<'p> Contestant<'p> for Locked<'p> {
    fn take(&self, module: Option<u64>) -> Instance<'p> {
        let taken = self.free.lock().unwrap().take(module);
        let Taken { number, content, is_foreign } = taken.expect("there are enough slots");
        let (mut slot, mut mapped) = content;
        if is_foreign && self.keeps {
            slot.reset().expect("it can be reset");
        }
        let files = match &self.maps {
            Maps::Always(files) => Some(files),
            Maps::IfOther(files) => Some(files).filter(|_| mapped != module),
            Maps::Nothing => None,
        };
        if let (Some(files), Some(module)) = (files, module) {
            files.map(&mut slot, module as usize);
            mapped = Some(module);
        }
        Instance { slot, number, mapped }
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
