//! Statistics of what was done.

use std::fmt;

use serde::Serialize;

/// Statistics, over one seed or many.
pub(super) trait Count: Default + Serialize + fmt::Display + Send {
    /// Adds what another seed did.
    fn add(&mut self, other: &Self);
}

/// The operations on an allocator.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Tally {
    pub(super) operations: u64,
    pub(super) allocations: u64,
    /// Allocations that were refused for lack of memory.
    pub(super) refusals: u64,
    /// Full consistency checks while other CPUs worked.
    pub(super) validations: u64,
    /// Reads of the counters while other CPUs worked.
    pub(super) probes: u64,
    /// CPUs that left in the middle.
    pub(super) departures: u64,
    /// Blocks that several CPUs freed at once.
    pub(super) fights: u64,
    /// Blocks whose content was moved.
    pub(super) moves: u64,
    /// Contiguous ranges that were allocated.
    pub(super) ranges: u64,
    /// Ranges of memory that were removed.
    pub(super) removals: u64,
    /// Leases that were used.
    pub(super) leases: u64,
    /// Times that a handler interrupted a CPU.
    pub(super) interrupts: u64,
}

impl Count for Tally {
    fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.allocations += other.allocations;
        self.refusals += other.refusals;
        self.validations += other.validations;
        self.probes += other.probes;
        self.departures += other.departures;
        self.fights += other.fights;
        self.moves += other.moves;
        self.ranges += other.ranges;
        self.removals += other.removals;
        self.leases += other.leases;
        self.interrupts += other.interrupts;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} allocations, {} refused, {} checks in the middle, {} reads of \
             counters, {} CPUs departed, {} racing frees, {} blocks moved, {} ranges, {} removed, \
             {} leases, {} interrupts.",
            self.operations,
            self.allocations,
            self.refusals,
            self.validations,
            self.probes,
            self.departures,
            self.fights,
            self.moves,
            self.ranges,
            self.removals,
            self.leases,
            self.interrupts
        )
    }
}
