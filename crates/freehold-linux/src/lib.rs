//! Linux's page allocator for [Freehold](freehold), and four designs from series that change it.
//!
//! In this family a zone has one lock over its buddy lists, with per-CPU lists in front.
//! [`ZoneLock`] is the kernel's allocator. The four designs beside it are policies of one skeleton:
//! each changes where frames merge, or by whom and for how long the lock is held. They are the
//! second type argument of a [`PageAllocator`](freehold::PageAllocator), as
//! [`Freehold`](freehold::designs::Freehold) is.
//!
//! From the bottom: records of frames and pageblocks (`frame`, `pageblock`, `unmerged`, `stack`),
//! what is asked for (`kind`), the buddy system over them (`buddy`), a zone with its lock (`zone`,
//! `fallback`), per-CPU lists (`pcp`, `pcp_tuning`, `bookkeeping`), what all five share
//! (`skeleton`), and the five.

#![no_std]
#![deny(unsafe_code)]

pub use block_owner::BlockOwner;
pub use bookkeeping::{Counters, Locking};
pub use cluster::Cluster;
pub use lazy_merge::LazyMerge;
pub use merge_ahead::MergeAhead;
pub use skeleton::{OwnSettings, Pcp, ZonedSettings};
pub use zone_lock::ZoneLock;

pub mod block_owner;
pub mod cluster;
pub mod lazy_merge;
pub mod merge_ahead;
pub mod zone_lock;

mod bookkeeping;
mod buddy;
mod fallback;
mod frame;
mod kind;
mod pageblock;
mod pcp;
mod pcp_tuning;
mod skeleton;
mod stack;
mod unmerged;
mod zone;

#[cfg(test)]
#[path = "../../freehold/tests/common/mod.rs"]
mod testing;
#[cfg(test)]
mod tests;

/// The example of the README, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
