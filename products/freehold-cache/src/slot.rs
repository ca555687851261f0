//! One record for each frame of the memory: its latch, and which block is in it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freehold_host::OwnedPages;

use crate::file_state::FileState;
use crate::key::Key;
use crate::sync::{AtomicU32, RwLock};

/// What is in a frame, guarded by its latch.
///
/// A lookup reads the index, and takes the latch after it. In between the block may have gone, so
/// it compares the key under the latch, and looks again if it is another one.
pub(crate) struct Page {
    /// The block, or [`Key::NONE`]: the frame is free, or on its way to be.
    pub(crate) key: Key,
    /// The file of the block.
    pub(crate) file: Option<Arc<FileState>>,
    /// The memory of the frame, unless it is free.
    pub(crate) memory: Option<OwnedPages>,
}

impl Page {
    /// The content. Empty only if the frame is free, which no caller that compared the key sees.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }
}

/// The record of a frame: one cache line.
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) latch: RwLock<Page>,
    flags: AtomicU32,
}

/// A mark of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Flag {
    /// The content is not on storage. Changes under the latch: set under the exclusive one, cleared
    /// under any, by the caller that removed the block from the file's set of dirty ones.
    Dirty = 1,
    /// The content is being read in, under the exclusive latch.
    Loading = 2,
    /// It was read ahead, and not asked for since.
    ReadAhead = 4,
}

impl Slot {
    pub(crate) fn new() -> Self {
        let page = Page { key: Key::NONE, file: None, memory: None };
        Slot { latch: RwLock::new(page), flags: AtomicU32::new(0) }
    }

    pub(crate) fn has(&self, flag: Flag) -> bool {
        // Relaxed: who must not err looks under the latch, whose lock orders it. Others take it for
        // a hint.
        self.flags.load(Relaxed) & flag as u32 != 0
    }

    pub(crate) fn set(&self, flag: Flag) {
        // Relaxed: as above. The bits are independent of each other.
        self.flags.fetch_or(flag as u32, Relaxed);
    }

    /// Clears a flag, and says whether it was set.
    pub(crate) fn clear(&self, flag: Flag) -> bool {
        // Relaxed: as above.
        self.flags.fetch_and(!(flag as u32), Relaxed) & flag as u32 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }
}
