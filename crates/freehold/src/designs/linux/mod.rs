//! The Linux family: a zone has one lock over its buddy lists, with per-CPU lists in front.
//!
//! `zone_lock` is the kernel's allocator. The four designs beside it implement published series
//! that change it, as policies of one skeleton: each changes where frames merge, or by whom and for
//! how long the lock is held.
//!
//! From the bottom: records of frames and pageblocks (`frame`, `pageblock`, `unmerged`, `stack`),
//! the buddy system over them (`buddy`), a zone with its lock (`zone`, `fallback`), per-CPU lists
//! (`pcp`, `pcp_tuning`, `bookkeeping`), what all five share (`skeleton`), and the five.

pub mod block_owner;
pub(crate) mod bookkeeping;
pub(crate) mod buddy;
pub mod cluster;
pub(crate) mod fallback;
pub(crate) mod frame;
pub mod lazy_merge;
pub mod merge_ahead;
pub(crate) mod pageblock;
pub(crate) mod pcp;
pub(crate) mod pcp_tuning;
pub(crate) mod skeleton;
pub(crate) mod stack;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod unmerged;
pub(crate) mod zone;
pub mod zone_lock;
