//! The baseline: a free list of slots with affinity, to be used under one lock. It works as the
//! index allocator of wasmtime's pooling allocator does (`ModuleAffinityIndexAllocator`): the
//! newest free slot of the same module; or else, below the limit of unused warm slots, one that was
//! never used; or else the oldest free one.

use std::collections::HashMap;

const NONE: usize = usize::MAX;

/// A slot that was taken.
pub(crate) struct Taken<T> {
    pub(crate) number: usize,
    pub(crate) content: T,
    /// Whether its last user was of another module, and so may have left what this one must not
    /// see.
    pub(crate) is_foreign: bool,
}

/// The free slots. `T` is what a slot has of its own.
pub(crate) struct Index<T> {
    entries: Vec<Entry<T>>,
    /// The free slots that were used before, by age.
    oldest: usize,
    newest: usize,
    warm_slots: usize,
    warm_slots_max: usize,
    /// Slots from here on were never used.
    cold: usize,
    /// The newest free slot of each module.
    modules: HashMap<u64, usize>,
}

struct Entry<T> {
    content: Option<T>,
    module: Option<u64>,
    older: usize,
    newer: usize,
    older_of_module: usize,
    newer_of_module: usize,
}

impl<T> Index<T> {
    pub(crate) fn new(slots: impl Iterator<Item = T>, warm_slots_max: usize) -> Self {
        let entry = |content| Entry {
            content: Some(content),
            module: None,
            older: NONE,
            newer: NONE,
            older_of_module: NONE,
            newer_of_module: NONE,
        };
        Index {
            entries: slots.map(entry).collect(),
            oldest: NONE,
            newest: NONE,
            warm_slots: 0,
            warm_slots_max,
            cold: 0,
            modules: HashMap::new(),
        }
    }

    /// Takes a slot; `None` if there is none.
    pub(crate) fn take(&mut self, module: Option<u64>) -> Option<Taken<T>> {
        let of_module = module.and_then(|module| self.modules.get(&module).copied());
        let slot = of_module.or_else(|| {
            let cold = (self.cold < self.entries.len()).then_some(self.cold);
            let warm = (self.oldest != NONE).then_some(self.oldest);
            let prefers_cold = self.warm_slots < self.warm_slots_max || self.warm_slots_max == 0;
            if prefers_cold { cold.or(warm) } else { warm.or(cold) }
        })?;
        let is_cold = slot == self.cold;
        if is_cold {
            self.cold += 1;
        } else {
            self.unlink(slot);
        }
        let is_foreign = !is_cold && self.entries[slot].module != module;
        Some(Taken { number: slot, content: self.entries[slot].content.take()?, is_foreign })
    }

    /// Puts a slot back that is ready for its next use.
    pub(crate) fn put(&mut self, slot: usize, module: Option<u64>, content: T) {
        let older = std::mem::replace(&mut self.newest, slot);
        match older {
            NONE => self.oldest = slot,
            older => self.entries[older].newer = slot,
        }
        let of_module = module.and_then(|module| self.modules.insert(module, slot));
        if let Some(before) = of_module {
            self.entries[before].newer_of_module = slot;
        }
        self.warm_slots += 1;
        self.entries[slot] = Entry {
            content: Some(content),
            module,
            older,
            newer: NONE,
            older_of_module: of_module.unwrap_or(NONE),
            newer_of_module: NONE,
        };
    }

    fn unlink(&mut self, slot: usize) {
        let Entry { module, older, newer, older_of_module, newer_of_module, .. } =
            self.entries[slot];
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer].older = older,
        }
        if older_of_module != NONE {
            self.entries[older_of_module].newer_of_module = newer_of_module;
        }
        if newer_of_module != NONE {
            self.entries[newer_of_module].older_of_module = older_of_module;
        } else if let Some(module) = module {
            match older_of_module {
                NONE => self.modules.remove(&module),
                older => self.modules.insert(module, older),
            };
        }
        self.warm_slots -= 1;
    }
}
