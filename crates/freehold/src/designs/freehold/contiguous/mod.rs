//! Memory made contiguous: compaction, ranges, and what both rest on, pageblocks out of circulation.

mod compact;
pub(super) mod isolate;
mod migrate;
mod range;
