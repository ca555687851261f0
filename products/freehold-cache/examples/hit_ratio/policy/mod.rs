//! Replacement policies. Keys are small numbers, since policies have tables indexed by them.

pub(crate) mod arc;
pub(crate) mod clock;
pub(crate) mod lirs;
pub(crate) mod lru;
pub(crate) mod opt;
pub(crate) mod ours;
pub(crate) mod s3_fifo;
pub(crate) mod two_q;

/// A replacement policy, with a cache of its own.
pub(crate) trait Policy {
    /// Uses a key; returns whether it was cached. It is cached afterwards.
    fn access(&mut self, key: u64) -> bool;
}
