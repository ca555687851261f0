//! Counted references that drop themselves.

use core::fmt;

use crate::error::LruError;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use freehold::platform::Platform;
use freehold::units::Pfn;

/// A reference to a frame, dropped together with this value: while it exists, the frame is neither
/// reclaimed nor moved. Created by [`Lru::hold`].
///
/// If it is the last reference, dropping it returns the frame to its owner by [`Owner::release`],
/// so it is not dropped under a lock that the owner takes there.
pub struct FrameRef<'a, P: Platform, O: Owner> {
    lru: &'a Lru<P, O>,
    pfn: Pfn,
}

impl<P: Platform, O: Owner> Lru<P, O> {
    /// As [`Lru::get`], but the reference drops itself.
    ///
    /// # Errors
    ///
    /// As [`Lru::get`].
    #[inline]
    pub fn hold(&self, pfn: Pfn) -> Result<FrameRef<'_, P, O>, LruError> {
        self.get(pfn).map(|()| FrameRef { lru: self, pfn })
    }
}

impl<'a, P: Platform, O: Owner> FrameRef<'a, P, O> {
    /// Takes over a reference that the caller has: the one that [`Lru::add`] or [`Lru::get`]
    /// returned with, that of an entry removed from the index, or one of
    /// [`into_raw`](FrameRef::into_raw).
    pub fn from_raw(lru: &'a Lru<P, O>, pfn: Pfn) -> Self {
        FrameRef { lru, pfn }
    }

    /// Hands the reference over to the caller, as that of a new entry in the index, or to be
    /// dropped by [`Lru::put`].
    #[must_use = "the reference must be dropped"]
    pub fn into_raw(self) -> Pfn {
        let pfn = self.pfn;
        core::mem::forget(self);
        pfn
    }

    /// The frame.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// Notes that the frame was used, as [`Lru::mark_accessed`]. With the maximum number of
    /// references to it, nothing is noted.
    #[inline]
    pub fn mark_accessed(&self) {
        // There is a reference, so that no other error is possible.
        let _full = self.lru.mark_accessed(self.pfn);
    }
}

impl<P: Platform, O: Owner> Drop for FrameRef<'_, P, O> {
    #[inline]
    fn drop(&mut self) {
        // An error means that another caller has dropped this reference, or that the metadata was
        // wiped, as in the child of a fork: there is nothing to drop.
        let _none = self.lru.put(self.pfn);
    }
}

impl<P: Platform, O: Owner> fmt::Debug for FrameRef<'_, P, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrameRef").field(&self.pfn).finish()
    }
}
