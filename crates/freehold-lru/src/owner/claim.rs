//! An owner's claim to a frame: control that it commits, or that ends as if it had never been.

use core::fmt;

use super::shadow::Shadow;

/// A frame whose content is to go, as the LRU knows it.
pub(crate) trait Subject {
    /// Takes all references away, if the index holds the only one; returns whether it does.
    fn freeze(&self) -> bool;

    /// Undoes `freeze`.
    fn thaw(&self);

    /// Notes that the index has no entry for the frame any more; returns what is left of its
    /// content.
    fn commit(&self) -> Shadow;
}

/// How far the owner has come with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not taken, not granted, or given back.
    Open,
    Frozen,
    Committed,
}

/// An offer of exclusive control of a frame, granted only if the index holds the only reference to
/// it.
pub struct Claim<'a>(&'a dyn Subject);

/// Exclusive control of a frame: no reference to it can be taken or dropped.
///
/// [`Claimed::commit`] states that the entry in the index is gone, or leads to another frame.
/// Dropping this without it, as an early return or a panic does, gives the control back: the index
/// has its reference again, as if the claim had never been granted. Drop it under the lock that
/// guards the entry: the next holder of that lock finds entry and reference together.
#[must_use = "dropping it gives the frame back"]
pub struct Claimed<'a>(&'a dyn Subject);

impl<'a> Claim<'a> {
    pub(crate) fn new(subject: &'a dyn Subject) -> Self {
        Claim(subject)
    }

    /// Control of the frame, if the index holds the only reference to it. Call it under the lock
    /// that guards the entry, which must still be there.
    ///
    /// Cost: one compare-exchange on the frame's word.
    #[must_use]
    pub fn take(self) -> Option<Claimed<'a>> {
        self.0.freeze().then_some(self.0).map(Claimed)
    }
}

impl Claimed<'_> {
    /// States that the index has no entry for the frame any more, so that the index's reference is
    /// the LRU's. Call it last, under the lock under which the entry was changed: a panic in
    /// between would give back a frame without an entry.
    ///
    /// Returns what the index may keep in place of the entry, for
    /// [`Lru::refault`](crate::Lru::refault) if the content is read again. For content that moved
    /// it has no meaning.
    pub fn commit(self) -> Shadow {
        let shadow = self.0.commit();
        core::mem::forget(self);
        shadow
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.0.thaw();
    }
}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Claim")
    }
}

impl fmt::Debug for Claimed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Claimed")
    }
}
