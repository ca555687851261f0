//! What the LRU requires of the owner of the frames' contents.

use core::fmt;

use crate::compact::MigrateError;
use crate::units::Pfn;

/// The owner of the frames' contents: a page cache, a pool of blocks, the pages of processes.
///
/// # The protocol
///
/// The owner has an index that maps content to frames, and holds one reference to each frame in it:
/// the one that [`Lru::add`](super::Lru::add) began with. A lock of the owner's guards each entry.
/// Under that lock,
///
/// * a lookup takes a reference by [`Lru::get`](super::Lru::get), which cannot fail there, and
///   drops it by [`Lru::put`](super::Lru::put) after use;
/// * a caller that removes an entry owns the index's reference from then on, and puts it, under the
///   lock or after;
/// * [`Owner::forget`] and [`Owner::migrate`] take their [`Claim`], and change the entry if they
///   get it.
///
/// An index without a lock works too: then a lookup takes a reference, which fails while the frame
/// is being reclaimed, and re-checks the entry. The owner of such an index must not fail to
/// [migrate](Owner::migrate) once it has the claim: a reader with an old entry may have taken a
/// reference to the new place by then.
///
/// The LRU holds no lock when it asks, so the owner may call it, and other CPUs proceed. A panic of
/// the owner counts as a refusal: every frame is put back while the stack unwinds.
pub trait Owner {
    /// Asks whether the content of a frame can be dropped, and to write it back if it must be
    /// written first. The frame may be in use meanwhile, and after.
    fn reclaim(&self, frame: Pfn) -> Verdict;

    /// Asks the owner to remove the entry of a frame from the index, if its content can still be
    /// dropped and the frame is unused, which the claim determines. If the claim is granted, the
    /// entry must go, and the index's reference goes with it.
    fn forget(&self, frame: Pfn, claim: Claim<'_>);

    /// Returns frames whose last reference is gone, up to [`BATCH_MAX`](super::BATCH_MAX) at a
    /// time, for the owner to free. They are no longer in the LRU, and can be added again.
    fn release(&self, frames: &[Pfn]);

    /// Asks the owner to move the content of `from` to `to`, and the entry in the index with it, if
    /// the frame is unused, which the claim determines. From then on the index's reference is to
    /// `to`.
    ///
    /// # Errors
    ///
    /// [`MigrateError`] if nothing has moved. An owner should find out before it takes the claim:
    /// once the claim is granted, `from` cannot be looked up until this call has returned.
    fn migrate(&self, from: Pfn, to: Pfn, claim: Claim<'_>) -> Result<(), MigrateError> {
        let _ = (from, to, claim);
        Err(MigrateError::Failed)
    }
}

/// Exclusive control of a frame, granted only if the index holds the only reference to it.
pub struct Claim<'a>(pub(super) &'a mut dyn FnMut() -> bool);

impl Claim<'_> {
    /// Returns whether the index holds the only reference to the frame. If so, no new reference can
    /// be taken any more. Call it under the lock that guards the entry, which must still be there.
    #[must_use]
    pub fn take(self) -> bool {
        (self.0)()
    }
}

/// An owner's decision about a frame to be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The content can be restored from elsewhere: drop it.
    Drop,
    /// The content has just been written back: drop it.
    Written,
    /// Keep the content for now.
    Keep,
    /// The content is in use: keep it, and ask later for it than for other frames.
    Activate,
    /// The content had to be written back, which failed. It stays.
    Failed,
}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Claim")
    }
}
