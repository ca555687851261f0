//! What the LRU requires of the owner of the frames' contents.

use crate::owner::claim::Claim;
use freehold::compact::MigrateError;
use freehold::units::{Order, Pfn};

/// The owner of the frames' contents: a page cache, a pool of blocks, the pages of processes.
///
/// # The protocol
///
/// The owner has an index that maps content to frames, and holds one reference to each frame in it:
/// the one that [`Lru::add`](crate::Lru::add) began with. A lock of the owner's guards each entry.
/// Under that lock,
///
/// * a lookup takes a reference by [`Lru::hold`](crate::Lru::hold) or
///   [`Lru::get`](crate::Lru::get), which cannot fail there, and drops it after use;
/// * a caller that removes an entry owns the index's reference from then on, and drops it, under
///   the lock or after;
/// * [`Owner::forget`] and [`Owner::migrate`] take their [`Claim`]. If they get it, they change the
///   entry and [commit](crate::Claimed::commit), or leave the entry as it is and drop the
///   [`Claimed`](crate::Claimed).
///
/// An index without a lock works too: then a lookup takes a reference, which fails while the frame
/// is claimed, and re-checks the entry. The owner of such an index must not fail to
/// [migrate](Owner::migrate) once it has changed the entry: a reader may have taken a reference to
/// the new place by then. And a caller that has removed an entry retries its put while the frame is
/// claimed, and the put fails with [`NotAdded`](crate::LruError::NotAdded): the owner finds the
/// entry gone, and gives the claim back.
///
/// A [block](crate::Lru::add_block) of frames is named by its first one in all calls.
///
/// The LRU holds no lock when it asks, so the owner may call it, and other CPUs proceed. A reclaim
/// from within the owner's methods may begin another one, and so on: on each CPU up to 32 are under
/// way, then they are refused with [`TooManyReclaims`](crate::LruError::TooManyReclaims).
///
/// # Panics of the owner
///
/// They lose no frame. What has been asked counts as refused, claims that were not committed are
/// given back, committed ones count, and all frames are put back while the stack unwinds. For the
/// caller of the LRU whose call panics,
///
/// * [`Lru::add`](crate::Lru::add), [`Lru::put`](crate::Lru::put), and the calls that move a frame
///   to another list, have been done: other frames, which left with a batch, are handed to
///   [`Owner::release`] last. So after an `add` the caller has its reference;
/// * [`Lru::put_bulk`](crate::Lru::put_bulk) has been done for the frames up to the batch that was
///   handed to [`Owner::release`], and not for later ones;
/// * [`Lru::add_reclaiming`](crate::Lru::add_reclaiming) may have been done or not, since it
///   reclaims first: [`Lru::frame_stats`](crate::Lru::frame_stats) tells;
/// * [`Lru::reclaim`](crate::Lru::reclaim) and others that reclaim have stopped early.
///
/// Frames that were passed to a [`Owner::release`] that panicked are the owner's. Of a batch with
/// blocks of several orders, the others are handed over while the stack unwinds.
pub trait Owner {
    /// Asks whether the content of a frame can be dropped, and to write it back if it must be
    /// written first. The frame may be in use meanwhile, and after.
    fn reclaim(&self, frame: Pfn) -> Verdict;

    /// As [`Owner::reclaim`], for up to [`BATCH_MAX`](crate::BATCH_MAX) frames at a time: the LRU
    /// calls this one. An owner overrides it to write back many frames at once. There are as many
    /// verdicts as frames; each begins as [`Verdict::Keep`]. After a panic, all frames are kept.
    fn reclaim_bulk(&self, frames: &[Pfn], verdicts: &mut [Verdict]) {
        for (frame, verdict) in frames.iter().zip(verdicts) {
            *verdict = self.reclaim(*frame);
        }
    }

    /// Waits a little, since all that could be reclaimed is isolated by other calls that ask the
    /// owner about it, and most likely wait for it to be written back. Returns whether to look
    /// again; otherwise the call fails as if nothing could be reclaimed. `waits` says how often it
    /// has waited since it last reclaimed something.
    ///
    /// By default, spins twice as long each time and gives up after 16 times, in all after one to a
    /// few milliseconds. An owner that waits for storage sleeps here (Linux's
    /// `reclaim_throttle`). Those other calls may be the ones that the owner makes from within its
    /// own methods, so at some point it must give up.
    fn wait(&self, waits: u32) -> bool {
        if waits < 16 {
            (0..1_u32 << waits).for_each(|_| core::hint::spin_loop());
        }
        waits < 16
    }

    /// Asks the owner to remove the entry of a frame from the index, if its content can still be
    /// dropped and the frame is unused, which the claim determines. If the claim is granted, the
    /// owner removes the entry and commits the claim; the index's reference goes with it.
    fn forget(&self, frame: Pfn, claim: Claim<'_>);

    /// Returns blocks of an order whose last reference is gone, up to
    /// [`BATCH_MAX`](crate::BATCH_MAX) at a time, for the owner to free: single frames, unless it
    /// [adds blocks](crate::Lru::add_block). They are no longer in the LRU, and can be added again.
    fn release(&self, blocks: &[Pfn], order: Order);

    /// Asks the owner to move the content of `from`, a frame or a block, to `to`, and the entry in
    /// the index with it, if the frame is unused, which the claim determines. From the commit on,
    /// the index's reference is to `to`.
    ///
    /// Only a committed claim has moved the content. After that, an error counts as moved, since
    /// the entry leads to `to`. Without it, `Ok` counts as [`MigrateError::Failed`].
    ///
    /// # Errors
    ///
    /// [`MigrateError`] if nothing has moved.
    ///
    /// # Panics
    ///
    /// It must not panic once the claim is committed, so the commit comes last: the LRU then has
    /// the content at `to`, but an allocator that asked for the move
    /// [frees `to`](freehold::Migrate) when the stack unwinds.
    fn migrate(&self, from: Pfn, to: Pfn, claim: Claim<'_>) -> Result<(), MigrateError> {
        let _ = (from, to, claim);
        Err(MigrateError::Failed)
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
