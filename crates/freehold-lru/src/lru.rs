//! The LRU: its tables, and what is asked of the frame table alone.

use core::fmt;
use core::num::NonZeroU32;

use crate::cpu::{Cpus, CpusPlan};
use crate::error::LruError;
use crate::frames::sharding::Sharding;
use crate::frames::table::{FrameTable, FrameTablePlan};
use crate::groups::table::{Groups, GroupsPlan};
use crate::kind::List;
use crate::lists::lruvec::{Lruvecs, LruvecsPlan};
use crate::owner::protocol::Owner;
use crate::settings::{LruPolicy, LruSettings};
use freehold::Error;
use freehold::config::{Config, MemoryRange};
use freehold::memmap::region::{Carver, LayoutBuilder, Metadata, MetadataLayout};
use freehold::memmap::stretches::StretchesPlan;
use freehold::platform::Platform;
use freehold::units::{FrameCount, FrameSize, NodeId, Order, Pfn};

/// References, lists, groups and reclaim for the frames of a machine, whose contents belong to `O`.
///
/// Any CPU may call any method at any time, but not from interrupt handlers: methods wait for the
/// lock of a CPU's batches.
pub struct Lru<P: Platform, O: Owner> {
    pub(crate) platform: P,
    pub(crate) owner: O,
    pub(crate) frames: FrameTable<P>,
    pub(crate) vecs: Lruvecs<P>,
    pub(crate) groups: Groups<P>,
    pub(crate) cpus: Cpus<P>,
    pub(crate) policy: LruPolicy,
    pub(crate) swappiness: u32,
    pub(crate) frame_size: FrameSize,
}

/// Where the tables will lie.
struct Plan<P: Platform> {
    sharding: Sharding,
    frames: FrameTablePlan<P>,
    vecs: LruvecsPlan<P>,
    groups: GroupsPlan<P>,
    cpus: CpusPlan<P>,
}

impl<P: Platform> Plan<P> {
    fn new(
        config: &Config<'_>,
        settings: &LruSettings,
        layout: &mut LayoutBuilder<'_>,
    ) -> Result<Self, Error> {
        config.check()?;
        settings.check()?;
        let slots = settings.groups as usize;
        let sharding = Sharding::new(config, settings.lock).ok_or(Error::BadTopology)?;
        Ok(Plan {
            sharding,
            frames: FrameTablePlan::new(config, layout)?,
            vecs: LruvecsPlan::new(config, sharding, slots, layout)?,
            groups: GroupsPlan::new(slots, layout)?,
            cpus: CpusPlan::new(config.cpu_nodes.len(), layout)?,
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
        MetadataLayout::of(StretchesPlan::new(config)?.first(), |layout| {
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
            frames: FrameTable::carve(&plan.frames, config, plan.sharding, &mut carver),
            vecs: Lruvecs::carve(&plan.vecs, plan.sharding, settings, &mut carver),
            groups: Groups::carve(&plan.groups, &mut carver),
            cpus: Cpus::carve(&plan.cpus, config, plan.sharding, settings.batch, &mut carver),
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

    /// Adds memory, within the span that the metadata was laid out for or where it has room.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownNode`], [`Error::BadRange`], [`Error::OutsideSpan`] or
    /// [`Error::RangeOverlaps`].
    pub fn add_memory(&self, range: MemoryRange) -> Result<(), Error> {
        if range.node.get() >= self.vecs.nodes() {
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
            node: NodeId::new(self.frames.sharding.node(state)),
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
