//! Page reclaim: tracks by group which frames were used recently, so that the others can be
//! reclaimed.
//!
//! Software that caches content in page frames, for one tenant or for hundreds, must know which
//! frames to evict when memory runs short, and which tenant they belong to. The [`Lru`] tracks
//! that: references, lists by recency of use, groups with limits, and reclaim, which asks the
//! [`Owner`] of the content.
//!
//! It is independent of the allocator, with its own table in its own buffer, so an embedder that
//! needs no reclaim pays nothing. Its frames are whatever frame numbers are added to it, wherever
//! they come from.
//!
//! * Lists live in lruvecs, one for each group and node. Their lock is a setting: one for all
//!   groups of a node, as in Linux up to 5.10; one for each group on each node, as since then; or,
//!   by default, the latter until many CPUs want it, and then one for each two of them, which have
//!   a shard of the lists.
//! * Frames go onto lists, and from one to another, in per-CPU batches.
//! * A caller that needs a frame exclusively isolates it. Linux's protocol has three steps: take a
//!   reference, clear the LRU mark by an atomic test-and-clear, lock the lruvec. Here the first two
//!   are one compare-exchange, since one word holds both.
//!
//! `docs/lru.md` describes the protocols, and where they differ from Linux's.
//!
//! # Example
//!
//! A cache of fixed blocks for two tenants, each with a limit:
//!
//! ```
//! # use core::mem::MaybeUninit;
//! # use freehold::platform::{Native, OneCpu};
//! # use freehold::{Metadata, MetadataLayout, designs::Freehold};
//! # type Kernel = Native<OneCpu>;
//! # fn buffer(layout: &MetadataLayout) -> Metadata {
//! #     Metadata::from_static(vec![MaybeUninit::uninit(); layout.size_unaligned()].leak())
//! # }
//! use std::{collections::HashMap, sync::Mutex};
//! use freehold_lru::{Claim, FrameRef, GroupId, Kind, Lru, LruSettings, Owner, Verdict};
//! use freehold::{Config, FrameCount, MemoryRange, NodeId};
//! use freehold::{Order, PageAllocator, Pfn, Request};
//!
//! type Frames = PageAllocator<Kernel, Freehold<Kernel>>; // `Kernel` is a platform
//! type Block = (&'static str, u64); // tenant and block number
//!
//! /// Maps blocks to frames, and frames to blocks.
//! #[derive(Default)]
//! struct Index { frames: HashMap<Block, Pfn>, blocks: HashMap<Pfn, Block> }
//!
//! struct Blocks<'a> { frames: &'a Frames, index: Mutex<Index> }
//!
//! impl Owner for Blocks<'_> {
//!     fn reclaim(&self, _frame: Pfn) -> Verdict {
//!         Verdict::Drop // blocks are never written here, so they can be read again
//!     }
//!     fn forget(&self, frame: Pfn, claim: Claim<'_>) {
//!         let index = &mut *self.index.lock().unwrap();
//!         let Some(&block) = index.blocks.get(&frame) else { return };
//!         if let Some(claimed) = claim.take() {
//!             index.blocks.remove(&frame);
//!             index.frames.remove(&block);
//!             claimed.commit();
//!         }
//!     }
//!     fn release(&self, blocks: &[Pfn], order: Order) {
//!         self.frames.free_bulk(blocks, order).expect("the frames were ours");
//!     }
//! }
//!
//! /// Reads a block through the cache; returns whether it was there.
//! fn read(cache: &Lru<Kernel, Blocks>, tenant: GroupId, block: Block)
//!     -> Result<bool, Box<dyn std::error::Error>> {
//!     let Blocks { frames, index } = cache.owner();
//!     // Under the lock, so that the frame is not reclaimed before the reference is taken.
//!     let find = |index: &Index| index.frames.get(&block).map(|&at| cache.hold(at)).transpose();
//!     let found = find(&index.lock().unwrap())?;
//!     let is_hit = found.is_some();
//!     let frame = if let Some(frame) = found { frame } else {
//!         let frame = cache.alloc_reclaiming(frames, Request::default())?;
//!         // Read the block into the frame here.
//!         if let Err(error) = cache.add_reclaiming(frame, tenant, Kind::File) {
//!             frames.free(frame, Order::ZERO)?;
//!             return Err(error.into());
//!         }
//!         let ours = FrameRef::from_raw(cache, frame); // frees the frame, unless it is entered
//!         let mut index = index.lock().unwrap();
//!         if let Some(theirs) = find(&index)? { theirs } else { // read by no one else meanwhile
//!             index.blocks.insert(frame, block);
//!             index.frames.insert(block, ours.into_raw());
//!             cache.hold(frame)? // a reference for the reader, beside that of the index
//!         }
//!     };
//!     // Copy the block out of the frame here.
//!     frame.mark_accessed();
//!     Ok(is_hit)
//! }
//!
//! let memory = [MemoryRange::new(Pfn::new(0), FrameCount::new(4096))];
//! let cpus = [NodeId::new(0)];
//! let config = Config::new(&memory, &cpus);
//! let settings = LruSettings::default();
//! let metadata = buffer(&Frames::layout(&config, &Default::default())?);
//! let frames = Frames::new(Native(OneCpu), &config, &Default::default(), metadata)?;
//! let metadata = buffer(&Lru::<Kernel, Blocks>::layout(&config, &settings)?);
//! let blocks = Blocks { frames: &frames, index: Default::default() };
//! let cache = Lru::new(Native(OneCpu), &config, &settings, metadata, blocks)?;
//!
//! let [small, large] = [100, 500].map(|most| {
//!     cache.create_group(GroupId::ROOT, Some(FrameCount::new(most))).expect("room for both")
//! });
//! let read_all = |group, tenant, blocks: u64| {
//!     (0..blocks).for_each(|block| _ = read(&cache, group, (tenant, block)).unwrap());
//! };
//! std::thread::scope(|scope| {
//!     // Two threads that miss the same blocks.
//!     (0..2).for_each(|_| _ = scope.spawn(|| read_all(large, "large", 400)));
//! });
//! read_all(small, "small", 10_000);
//! assert!(read(&cache, large, ("large", 0))?, "no tenant pushes out what another has cached");
//! assert!(!read(&cache, small, ("small", 0))?, "its own old blocks make room for new ones");
//! assert!(cache.group_stats(small)?.charged <= FrameCount::new(100));
//! cache.drain_all();
//! let cached = cache.owner().index.lock().unwrap().frames.len() as u64;
//! assert_eq!(cache.validate()?.used.get(), cached, "every frame is in the index");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]
#![deny(unsafe_code)]

pub use error::{LruError, PutBulkError};
pub use id::GroupId;
pub use kind::{Kind, List};
pub use life::frame_ref::FrameRef;
pub use life::isolate::Isolated;
pub use lru::{FrameStats, Lru};
pub use owner::claim::{Claim, Claimed};
pub use owner::protocol::{Owner, Verdict};
pub use owner::shadow::Shadow;
pub use reclaim::hunt::Reclaimed;
pub use reclaim::passes::Scope;
pub use settings::{BATCH_MAX, LruLock, LruPolicy, LruSettings};
pub use tenants::{GroupRef, GroupStats};
pub use validate::{LruCensus, LruRule, LruViolation};

mod cpu;
mod error;
mod frames;
mod groups;
mod id;
mod kind;
mod life;
mod lists;
mod lru;
mod migrate;
mod owner;
mod pressure;
mod reclaim;
mod settings;
mod tenants;
mod validate;

#[cfg(test)]
#[path = "../../freehold/tests/common/mod.rs"]
mod testing;
#[cfg(test)]
mod tests;
