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
//!   groups of a node, as in Linux up to 5.10, or one for each group on each node, as since then.
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

use core::fmt;
use core::num::NonZeroU32;

use freehold::Error;
use freehold::config::{Config, MemoryRange};
use freehold::memmap::region::{Carver, LayoutBuilder, Metadata, MetadataLayout};
use freehold::platform::Platform;
use freehold::units::{FrameCount, FrameSize, NodeId, Order, Pfn};

pub use claim::{Claim, Claimed};
pub use cpu::BATCH_MAX;
pub use error::{LruError, PutBulkError};
pub use frame_ref::FrameRef;
pub use group::GroupId;
pub use history::Shadow;
pub use isolate::Isolated;
pub use kind::{Kind, List};
pub use owner::{Owner, Verdict};
pub use policy::LruPolicy;
pub use reclaim::{Reclaimed, Scope};
pub use tenants::{GroupRef, GroupStats};
pub use validate::{LruCensus, LruRule, LruViolation};

mod attempts;
mod balance;
mod charge;
mod claim;
mod cpu;
mod error;
mod evict;
mod frame;
mod frame_ref;
mod group;
mod history;
mod inherit;
mod isolate;
mod kind;
mod lists;
mod migrate;
mod owner;
mod policy;
mod pressure;
mod protect;
mod reclaim;
mod refault;
mod refs;
mod resistant;
mod state;
mod tenants;
mod tree;
mod turns;
mod two_lists;
mod validate;
mod vec;

#[cfg(test)]
#[path = "../../freehold/tests/common/mod.rs"]
mod testing;
#[cfg(test)]
mod tests;

/// The scope of a lock over lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LruLock {
    /// All groups on a node, as in Linux up to 5.10.
    Node,
    /// One group on a node, as in Linux since 5.11.
    #[default]
    Group,
}

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LruSettings {
    /// The scope of a lock over lists.
    pub lock: LruLock,
    /// The maximum number of groups at a time, the root included: 1 to 65535. A removed group
    /// counts while any of its frames is still in use.
    pub groups: u32,
    /// How many frames a CPU collects before it takes a lock for them: 1 to [`BATCH_MAX`].
    pub batch: u32,
    /// Which content goes first.
    pub policy: LruPolicy,
    /// How much reclaim leans towards anonymous frames, from 0 (files only) over 100 (both alike)
    /// to 200.
    pub swappiness: u32,
}

impl Default for LruSettings {
    fn default() -> Self {
        LruSettings {
            lock: LruLock::Group,
            groups: 64,
            batch: BATCH_MAX as u32,
            policy: LruPolicy::default(),
            swappiness: 60,
        }
    }
}

impl LruSettings {
    /// Sets [`LruSettings::lock`].
    #[must_use]
    pub const fn lock(self, lock: LruLock) -> Self {
        LruSettings { lock, ..self }
    }

    /// Sets [`LruSettings::groups`].
    #[must_use]
    pub const fn groups(self, groups: u32) -> Self {
        LruSettings { groups, ..self }
    }

    /// Sets [`LruSettings::batch`].
    #[must_use]
    pub const fn batch(self, frames: u32) -> Self {
        LruSettings { batch: frames, ..self }
    }

    /// Sets [`LruSettings::policy`].
    #[must_use]
    pub const fn policy(self, policy: LruPolicy) -> Self {
        LruSettings { policy, ..self }
    }

    /// Sets [`LruSettings::swappiness`].
    #[must_use]
    pub const fn swappiness(self, swappiness: u32) -> Self {
        LruSettings { swappiness, ..self }
    }

    fn check(&self) -> Result<(), Error> {
        let groups = 1..=group::SLOTS_MAX as u32;
        let batch = 1..=BATCH_MAX as u32;
        match groups.contains(&self.groups) && batch.contains(&self.batch) && self.swappiness <= 200
        {
            true => Ok(()),
            false => Err(Error::BadSetting),
        }
    }
}

/// References, lists, groups and reclaim for the frames of a machine, whose contents belong to `O`.
///
/// Any CPU may call any method at any time, but not from interrupt handlers: methods wait for the
/// lock of a CPU's batches.
pub struct Lru<P: Platform, O: Owner> {
    platform: P,
    owner: O,
    frames: frame::FrameTable<P>,
    vecs: vec::Lruvecs<P>,
    groups: group::Groups<P>,
    cpus: cpu::Cpus<P>,
    policy: LruPolicy,
    swappiness: u32,
    frame_size: FrameSize,
}

/// Where the tables will lie.
struct Plan<P: Platform> {
    frames: frame::FrameTablePlan<P>,
    vecs: vec::LruvecsPlan<P>,
    groups: group::GroupsPlan<P>,
    cpus: cpu::CpusPlan<P>,
}

impl<P: Platform> Plan<P> {
    fn new(
        config: &Config<'_>,
        settings: &LruSettings,
        layout: &mut LayoutBuilder<'_>,
    ) -> Result<Self, Error> {
        config.check()?;
        settings.check()?;
        let (nodes, slots) = (config.nodes(), settings.groups as usize);
        if nodes > state::NODES_MAX {
            return Err(Error::BadTopology);
        }
        Ok(Plan {
            frames: frame::FrameTablePlan::new(config, layout)?,
            vecs: vec::LruvecsPlan::new(nodes, slots, layout)?,
            groups: group::GroupsPlan::new(slots, layout)?,
            cpus: cpu::CpusPlan::new(config.cpu_nodes.len(), layout)?,
        })
    }
}

impl<P: Platform, O: Owner> Lru<P, O> {
    /// How much metadata is needed, and its layout. The configuration may be that of the allocator
    /// that the frames come from.
    ///
    /// # Errors
    ///
    /// [`Error::BadSetting`], [`Error::SpanTooLarge`], or the error for a wrong part of the
    /// configuration.
    pub fn layout(config: &Config<'_>, settings: &LruSettings) -> Result<MetadataLayout, Error> {
        config.check()?;
        MetadataLayout::of(config.span_of_blocks()?.0, |layout| {
            Plan::<P>::new(config, settings, layout)
        })
    }

    /// An LRU of unused frames, with one group: the root.
    ///
    /// # Errors
    ///
    /// Those of [`Lru::layout`], and [`Error::MetadataTooSmall`].
    pub fn new(
        platform: P,
        config: &Config<'_>,
        settings: &LruSettings,
        metadata: Metadata,
        owner: O,
    ) -> Result<Self, Error> {
        let mut layout = LayoutBuilder::new();
        let plan = Plan::<P>::new(config, settings, &mut layout)?;
        let mut carver = Carver::new(metadata, &layout.finish())?;
        let lru = Lru {
            platform,
            owner,
            frames: frame::FrameTable::carve(&plan.frames, &mut carver),
            vecs: vec::Lruvecs::carve(&plan.vecs, settings.lock, &mut carver),
            groups: group::Groups::carve(&plan.groups, &mut carver),
            cpus: cpu::Cpus::carve(&plan.cpus, settings.batch, &mut carver),
            policy: settings.policy,
            swappiness: settings.swappiness,
            frame_size: config.frame_size,
        };
        config.ranges.iter().try_for_each(|range| lru.add_memory(*range))?;
        Ok(lru)
    }

    /// The owner of the contents.
    pub fn owner(&self) -> &O {
        &self.owner
    }

    /// The machine that the LRU runs on.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// Adds memory, within the span that the metadata was laid out for.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownNode`], [`Error::BadRange`], [`Error::OutsideSpan`] or
    /// [`Error::RangeOverlaps`].
    pub fn add_memory(&self, range: MemoryRange) -> Result<(), Error> {
        if range.node.index() >= self.vecs.nodes() {
            return Err(Error::UnknownNode);
        }
        let _tree = self.groups.tree(&self.platform);
        self.frames.add_memory(&range)
    }

    /// Forgets unused frames, which have been removed from the allocator. They may be added again,
    /// on another node as well.
    ///
    /// Cost: a locked step for each frame.
    ///
    /// # Errors
    ///
    /// [`LruError::ForeignFrame`]; [`LruError::FrameBusy`] if a frame is in the LRU. The call has
    /// then changed nothing.
    pub fn remove_memory(&self, first: Pfn, frames: FrameCount) -> Result<(), LruError> {
        let _tree = self.groups.tree(&self.platform);
        self.frames.remove_memory(first, frames)
    }

    /// A recent state of a frame.
    ///
    /// # Errors
    ///
    /// [`LruError::ForeignFrame`], or [`LruError::NotAdded`].
    pub fn frame_stats(&self, pfn: Pfn) -> Result<FrameStats, LruError> {
        let state = self.frames.state(self.frames.index_of(pfn)?);
        if !state.is_used() || state.is_tail() {
            return Err(LruError::NotAdded);
        }
        Ok(FrameStats {
            references: NonZeroU32::new(state.refs()),
            pins: state.pins(),
            order: state.order(),
            node: NodeId::new(state.node() as u16),
            list: state.is_listed().then(|| state.list()),
        })
    }
}

/// The state of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameStats {
    /// References, including those of batches that the frame waits in; `None` while it is being
    /// reclaimed, moved or released.
    pub references: Option<NonZeroU32>,
    /// How often it is pinned.
    pub pins: u32,
    /// The order of the block that it is the first frame of: 0 for a single frame.
    pub order: Order,
    /// The node that it is near to.
    pub node: NodeId,
    /// The list that it is on; `None` while it is on its way to one, or isolated.
    pub list: Option<List>,
}

impl<P: Platform, O: Owner> fmt::Debug for Lru<P, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lru").field("swappiness", &self.swappiness).finish_non_exhaustive()
    }
}
