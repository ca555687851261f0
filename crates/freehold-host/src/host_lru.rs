//! An LRU for the frames of an arena.
#![expect(unsafe_code, reason = "lends the LRU its metadata")]

use core::fmt;
use core::ops::Deref;

use freehold::{Config, Design, FrameCount, Metadata, Pfn};
use freehold_lru::{Lru, LruSettings, Owner};

use crate::mapping::Mapping;
use crate::{FrameArena, Host, HostError};

/// An LRU that owns its metadata.
///
/// It covers the frames of its arena, by the same numbers. When the arena
/// [grows](FrameArena::grow) or shrinks, tell the LRU of each range by [`Lru::add_memory`] or
/// [`Lru::remove_memory`]. It does not keep the arena alive; the owner of the contents, which frees
/// frames to it, does.
///
/// A child of a `fork` has no LRU: the metadata of this one is empty there. For each frame it
/// returns [`LruError::ForeignFrame`](freehold_lru::LruError::ForeignFrame), and for each group,
/// the root included, [`LruError::UnknownGroup`](freehold_lru::LruError::UnknownGroup); reclaim
/// finds nothing. What the parent had on it stays allocated in the child, which can create a new
/// one. The reason is that references and frames in batches belong to threads that the child does
/// not have.
/// Kernels before Linux 4.14 copy it, with the locks that threads of the parent had: there, a child
/// must not call it.
pub struct HostLru<O: Owner> {
    // Fields are dropped in this order: the LRU goes before the metadata that it uses.
    lru: Lru<Host, O>,
    metadata: Mapping,
}

impl<D: Design<Host>> FrameArena<D> {
    /// Creates an LRU for the frames of this arena, whose contents belong to `owner`.
    ///
    /// # Errors
    ///
    /// [`HostError::Allocator`] if the settings are out of range, or the error of the operating
    /// system.
    pub fn lru<O: Owner>(&self, settings: &LruSettings, owner: O) -> Result<HostLru<O>, HostError> {
        let ranges = self.ranges();
        let capacity = FrameCount::from_bytes(self.capacity_bytes(), self.frame_size());
        let config = Config::new(&ranges, self.cpu_nodes())
            .span((Pfn::new(0), capacity))
            .frame_size(self.frame_size());
        let layout = Lru::<Host, O>::layout(&config, settings)?;
        let metadata = Mapping::reserve(layout.size(), layout.align())?;
        // Old kernels refuse: see the type.
        // SAFETY: An LRU is made of integers in words, cells and locks, to which zero is a value;
        // what they count and point to in its tables is checked at each use.
        let _refused = unsafe { metadata.wipe_on_fork() };
        // SAFETY: The mapping is new, so its memory is zeroed and has no other user. It is mapped
        // until after the LRU is gone: it is dropped after it, both here and as a field.
        let lent = unsafe { Metadata::from_zeroed_raw_parts(metadata.base(), metadata.bytes()) };
        let lru = Lru::new(Host::new(), &config, settings, lent, owner)?;
        Ok(HostLru { lru, metadata })
    }
}

impl<O: Owner> Deref for HostLru<O> {
    type Target = Lru<Host, O>;

    #[inline]
    fn deref(&self) -> &Lru<Host, O> {
        &self.lru
    }
}

impl<O: Owner> fmt::Debug for HostLru<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostLru").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}
