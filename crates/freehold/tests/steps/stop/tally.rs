//! What came of probes.

use std::ops::AddAssign;

/// How often a probe had which outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) served: u64,
    /// There was nothing for it, or there might have been nothing.
    pub(super) short: u64,
    /// It would have waited for the stopped call, and returned that or was unwound.
    pub(super) waits: u64,
    pub(super) unwound: u64,
    /// The same, although frames were free: the stopped call has them in hand.
    pub(super) though_free: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.served += other.served;
        self.short += other.short;
        self.waits += other.waits;
        self.unwound += other.unwound;
        self.though_free += other.though_free;
    }
}
