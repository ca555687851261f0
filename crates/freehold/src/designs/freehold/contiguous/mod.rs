//! Contiguous memory: compaction, ranges, and their common base, isolated pageblocks.

mod compact;
pub(super) mod isolate;
mod migrate;
mod range;
mod target;
