//! Whoever owns what is in the frames: what the LRU asks of them.

use crate::compact::MigrateError;
use crate::units::Pfn;

/// The owner of the frames' contents: a page cache, a pool of blocks, the pages of processes.
///
/// # The protocol
///
/// The owner has an index that says where content lies, and holds one reference to each frame in
/// it: the one that [`Lru::add`](super::Lru::add) began with. Some lock of the owner's guards an
/// entry. Under that lock,
///
/// * whoever looks content up takes a reference by [`Lru::get`](super::Lru::get), which cannot fail
///   there, and gives it up by [`Lru::put`](super::Lru::put) after use;
/// * whoever removes an entry owns the index's reference from then on, and puts it, under the lock
///   or after;
/// * [`Owner::forget`] and [`Owner::migrate`] take their [`Claim`], and change the entry if they
///   get it.
///
/// An index without a lock works too: then a lookup takes a reference, which fails while the frame
/// is being reclaimed, and looks at the entry again. The owner of such an index must not fail to
/// [migrate](Owner::migrate) once it has the claim: a reader with an old entry may have taken a
/// reference to the new place by then.
///
/// The LRU holds no lock when it asks, so the owner may call it, and other CPUs go on. A panic of
/// the owner counts as a refusal: every frame is put back while the stack unwinds.
pub trait Owner {
    /// Asks whether the content of a frame can be done without, and to write it back if it must be
    /// written first. Others may use the frame meanwhile, and after.
    fn reclaim(&self, frame: Pfn) -> Verdict;

    /// Asks the owner to remove the entry of a frame from the index, if its content can still be
    /// done without, and if nobody uses it: that is what the claim says. If the claim was given,
    /// the entry has to go; the index's reference goes with it.
    fn forget(&self, frame: Pfn, claim: Claim<'_>);

    /// Hands back frames that nobody refers to any more, up to [`BATCH_MAX`](super::BATCH_MAX) at a
    /// time, for the owner to free. The LRU knows them no longer: they can be added again.
    fn release(&self, frames: &[Pfn]);

    /// Asks the owner to move the content of `from` to `to`, and the entry in the index with it, if
    /// nobody uses the frame: that is what the claim says. From then on the index's reference is to
    /// `to`.
    ///
    /// # Errors
    ///
    /// [`MigrateError`] if nothing has moved. An owner had better find out before it takes the
    /// claim: once that was given, `from` cannot be looked up until this has returned.
    fn migrate(&self, from: Pfn, to: Pfn, claim: Claim<'_>) -> Result<(), MigrateError> {
        let _ = (from, to, claim);
        Err(MigrateError::Failed)
    }
}

/// The right to decide over a frame, if nobody but the index refers to it.
pub struct Claim<'a>(pub(super) &'a mut dyn FnMut() -> bool);

impl Claim<'_> {
    /// Says whether nobody but the index refers to the frame. If so, nobody can get a reference any
    /// more. To be called under the lock that guards the entry, which is still there.
    #[must_use]
    pub fn take(self) -> bool {
        (self.0)()
    }
}

/// What an owner says of a frame that is to be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The content can be had again from elsewhere: drop it.
    Drop,
    /// The content has been written back just now: drop it.
    Written,
    /// The content is to stay for now.
    Keep,
    /// The content is in use: it is to stay, and to be asked for later than others.
    Activate,
    /// The content should have been written back, which failed. It stays.
    Failed,
}
