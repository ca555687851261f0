//! What a pool says of itself.

/// What has happened in a pool since it was built, and how many slots wait now.
///
/// Read while calls are under way, counts may miss what these calls do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Slots that were taken.
    pub taken: u64,
    /// Of these, slots that the last user of the same key had left: warm ones.
    pub warm_hits: u64,
    /// Of the warm hits, those found in the lists of another CPU.
    pub warm_hits_elsewhere: u64,
    /// Calls that found no clean slot and no warm one of their key: each has
    /// reset slots out of turn, or taken a warm one of another key, or failed.
    pub scarce: u64,
    /// Batches of slots that were reset.
    pub batches: u64,
    /// Slots that were reset in batches.
    pub reset_slots: u64,
    /// System calls that batches made: `madvise(2)` or `process_madvise(2)`.
    pub system_calls: u64,
    /// Slots that had another image than the one they were taken with, or had to have none.
    pub image_changes: u64,
    /// System calls that this took: `mmap(2)`, and `mprotect(2)` of what lies before an image.
    pub image_calls: u64,
    /// Slots that are handed out no more: they could not be reset, or a mapping was refused and had
    /// left their addresses to other mappings of the process.
    pub lost_slots: u64,
    /// Slots that wait to be reset, now.
    pub dirty_slots: u64,
    /// Slots that wait for users of their keys, now.
    pub warm_slots: u64,
}

impl PoolStats {
    /// How many slots a batch had, on average; 0 if there was none.
    pub fn slots_per_batch(&self) -> f64 {
        if self.batches == 0 { 0.0 } else { self.reset_slots as f64 / self.batches as f64 }
    }
}
