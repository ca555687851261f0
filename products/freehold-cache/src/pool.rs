//! The frames, their records and the index.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use freehold_host::{Arena, OwnedPages, Request};

use crate::index::Index;
use crate::key::SlotIndex;
use crate::slot::Slot;
use crate::sync::AtomicU64;

/// The frames, their records and the index.
pub(crate) struct Pool {
    arena: Arc<Arena>,
    slots: Box<[Slot]>,
    pub(crate) index: Index,
    /// How many frames are free.
    free: AtomicU64,
    /// Frames beyond the size of the cache, since an arena has whole pageblocks. Never touched, so
    /// they take no memory.
    _surplus: Vec<OwnedPages>,
}

impl Pool {
    /// A pool of so many frames of this arena, not used yet.
    pub(crate) fn new(arena: &Arc<Arena>, frames: u64, shards: usize) -> Self {
        let surplus = arena.total_frames().get().saturating_sub(frames);
        let surplus = (0..surplus).map_while(|_| arena.allocate_owned(Request::default()).ok());
        let slots = arena.capacity_bytes() / arena.frame_size().bytes();
        Pool {
            arena: Arc::clone(arena),
            slots: (0..slots).map(|_| Slot::new()).collect(),
            index: Index::new(shards),
            free: AtomicU64::new(frames),
            _surplus: surplus.collect(),
        }
    }

    pub(crate) fn slot(&self, index: SlotIndex) -> &Slot {
        &self.slots[index.get() as usize]
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = (SlotIndex, &Slot)> {
        let slots = self.slots.iter().enumerate();
        slots.map(|(index, slot)| (SlotIndex::new(index as u32), slot))
    }

    /// How many frames are free.
    pub(crate) fn free(&self) -> u64 {
        // Relaxed: a recent value will do.
        self.free.load(Relaxed)
    }

    /// A free frame, if there is one.
    pub(crate) fn allocate(&self) -> Option<OwnedPages> {
        let less = |free: u64| free.checked_sub(1);
        // Acquire: a frame that was given back is free in the arena. Release: keeps the order of
        // those that gave back before, for the next one.
        self.free.fetch_update(AcqRel, Relaxed, less).ok()?;
        let memory = self.arena.allocate_owned(Request::default());
        memory.inspect_err(|_| self.note_free(1)).ok()
    }

    /// Gives frames back.
    pub(crate) fn give_back(&self, memory: Option<OwnedPages>) {
        let frames = u64::from(memory.is_some());
        drop(memory);
        self.note_free(frames);
    }

    fn note_free(&self, frames: u64) {
        // Release: the frames were freed before they are counted.
        self.free.fetch_add(frames, AcqRel);
    }
}
