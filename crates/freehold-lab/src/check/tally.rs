//! Statistics of what was done.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{from_value, to_value};

/// Statistics, over one seed or many.
pub(super) trait Count: Default + Serialize + DeserializeOwned + Send {
    /// What is told of them, with the names of fields where their values come.
    const TEXT: &'static str;

    /// All of them by name.
    fn fields(&self) -> Result<BTreeMap<String, u64>> {
        Ok(from_value(to_value(self)?)?)
    }

    /// Adds what another seed did: of a field whose name ends in `_max`, the larger one counts.
    fn add(&mut self, other: &Self) -> Result<()> {
        let mut sum = self.fields()?;
        for (name, more) in other.fields()? {
            let is_max = name.ends_with("_max");
            let own = sum.entry(name).or_default();
            *own = if is_max { more.max(*own) } else { *own + more };
        }
        *self = from_value(to_value(sum)?)?;
        Ok(())
    }

    /// The text with the values.
    fn told(&self) -> Result<String> {
        let told = |text: String, (name, value): (&String, &u64)| {
            text.replace(&format!("{{{name}}}"), &value.to_string())
        };
        Ok(self.fields()?.iter().fold(Self::TEXT.to_owned(), told))
    }
}

/// The operations on an allocator.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
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
    const TEXT: &'static str = "{operations} operations, {allocations} allocations, {refusals} \
        refused, {validations} checks in the middle, {probes} reads of counters, {departures} CPUs \
        departed, {fights} racing frees, {moves} blocks moved, {ranges} ranges, {removals} \
        removed, {leases} leases, {interrupts} interrupts.";
}

/// The results of runs in which a CPU stops forever.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct StopTally {
    pub(super) runs: u64,
    /// Runs in which a CPU stopped; in the others, it had ended its work before.
    pub(super) stopped: u64,
    /// Of these, runs in which it held a lock.
    pub(super) with_lock: u64,
    /// Runs in which it was in a section.
    pub(super) in_section: u64,
    /// Runs in which it had interrupts off.
    pub(super) irqs_off: u64,
    /// Calls after the stop that waited forever.
    pub(super) waited: u64,
    /// Calls after the stop that allocated or freed frames.
    pub(super) served: u64,
    /// Calls after the stop that failed for lack of memory.
    pub(super) short: u64,
    /// Of these, calls that could have had any frame: there was none.
    pub(super) shortages: u64,
    /// Calls after the stop that failed rather than wait.
    pub(super) would_wait: u64,
}

impl Count for StopTally {
    const TEXT: &'static str = "{stopped} runs stopped a CPU forever: {with_lock} with a lock \
        held, {in_section} in a section, {irqs_off} with interrupts off.\nOf the calls of others, \
        {waited} waited for it forever, {served} were served, {short} failed for lack of memory\n\
        (of these, {shortages} could have had any frame), and {would_wait} failed rather than \
        wait.";
}

/// The operations on an LRU.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct LruTally {
    pub(super) operations: u64,
    /// Blocks that were looked up.
    pub(super) reads: u64,
    /// Of these, blocks that were in the cache.
    pub(super) hits: u64,
    /// Blocks of more than one frame that were added.
    pub(super) large: u64,
    /// Frames that were released.
    pub(super) released: u64,
    /// Frames that reclaim took.
    pub(super) reclaimed: u64,
    /// Frames that were isolated.
    pub(super) isolated: u64,
    /// Of these, frames that went to another group.
    pub(super) regrouped: u64,
    /// Frames that were not isolated, since they were isolated already, or waited in a batch.
    pub(super) busy: u64,
    /// Frames whose content was moved by compaction.
    pub(super) moves: u64,
    /// Groups that were created.
    pub(super) groups_made: u64,
    /// Groups that were removed.
    pub(super) groups_removed: u64,
    /// Frames that went to the parent of a group that was removed.
    pub(super) inherited: u64,
    /// Blocks that were read again after they were reclaimed.
    pub(super) refaults: u64,
    /// Of these, blocks that were activated at once.
    pub(super) restored: u64,
    /// Times that a frame was pinned.
    pub(super) pins: u64,
    /// CPUs that left in the middle.
    pub(super) departures: u64,
}

impl Count for LruTally {
    const TEXT: &'static str = "{operations} operations, {reads} reads, {hits} hits, {reclaimed} \
        frames reclaimed, {released} released, {isolated} isolated,\n{busy} found busy, \
        {regrouped} to another group, {moves} moved by compaction, {pins} pinned, {groups_made} \
        groups made,\n{groups_removed} removed with {inherited} frames, {refaults} blocks read \
        again, {restored} of them soon, {large} large,\n{departures} CPUs departed.";
}

/// What threads have done to an allocator on this machine.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct ThreadsTally {
    /// Steps of all threads, each of which allocates, frees, or both.
    pub(super) operations: u64,
    pub(super) allocations: u64,
    /// Allocations for which there was no memory, or not enough above a watermark.
    pub(super) refusals: u64,
    pub(super) frees: u64,
    /// The most threads of a seed.
    pub(super) threads_max: u64,
    /// Seeds whose threads leased caches.
    pub(super) leased: u64,
    /// Blocks that several threads freed at once, whole and in parts.
    pub(super) fights: u64,
    pub(super) compactions: u64,
    /// Blocks whose content was moved.
    pub(super) moves: u64,
    pub(super) ranges: u64,
    /// Free frames whose memory went back to the machine.
    pub(super) purged: u64,
    /// Times that memory was taken away.
    pub(super) removals: u64,
    /// Full checks of all invariants while threads worked.
    pub(super) validations: u64,
}

impl Count for ThreadsTally {
    const TEXT: &'static str = "{operations} operations of up to {threads_max} threads, \
        {allocations} allocations, {refusals} refused, {frees} frees, {leased} seeds with leases, \
        {fights} racing frees,\n{compactions} compactions, {moves} blocks moved, {ranges} ranges, \
        {purged} frames purged, {removals} times memory removed,\n{validations} checks in the \
        middle.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_texts_are_those_of_fields() {
        let [one, two] = [Tally::default().told(), StopTally::default().told()];
        let [three, four] = [LruTally::default().told(), ThreadsTally::default().told()];
        for text in [one, two, three, four].map(Result::unwrap) {
            assert!(!text.contains(['{', '}']) && text.matches('0').count() >= 9, "{text}");
        }
    }
}
