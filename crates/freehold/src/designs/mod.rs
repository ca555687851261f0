//! How frames travel between CPUs and zones: one folder a design.
//!
//! A design knows no workload. The front door checks a request's node, zone and order, and hands
//! it on with the list of zones to try.

use core::fmt;

use crate::compact::{Compaction, Migrate};
use crate::config::{Config, MemoryRange};
use crate::error::{BulkFreeError, Error};
use crate::memmap::region::{Carver, LayoutBuilder};
use crate::platform::Platform;
use crate::request::{RangeRequest, Request};
use crate::stat::{Census, Events, FreeByType, NumaEvents, Violation, ZoneStats};
use crate::topology::Topology;
use crate::units::{CpuId, FrameCount, Order, Pfn};

pub use freehold::{
    DoubleFree, Freehold, FreeholdSettings, Lease, ParkedLease, Pick, RevocableLease,
};
pub use linux::block_owner::{self, BlockOwner};
pub use linux::bookkeeping::{Counters, Locking};
pub use linux::cluster::{self, Cluster};
pub use linux::lazy_merge::{self, LazyMerge};
pub use linux::merge_ahead::{self, MergeAhead};
pub use linux::skeleton::{OwnSettings, Pcp, ZonedSettings};
pub use linux::zone_lock::{self, ZoneLock};

pub mod freehold;
pub(crate) mod linux;

/// A way to hand out the frames of a machine: the second type argument of
/// [`PageAllocator`](crate::PageAllocator), which documents what each call means.
///
/// The designs of this crate are all that there are: the methods take types that only the crate
/// can name.
pub trait Design<P: Platform>: Sized + 'static {
    /// The name in reports and on the command line.
    const NAME: &'static str;
    /// The largest block that can be asked for.
    const ORDER_MAX: Order;
    /// What can be set.
    type Settings: Settings;
    /// Where its tables lie.
    type Plan;

    /// Plans the tables.
    ///
    /// # Errors
    ///
    /// [`Error::BadSetting`], or [`Error::SpanTooLarge`] if the tables cannot be addressed.
    fn plan(
        config: &Config<'_>,
        settings: &Self::Settings,
        layout: &mut LayoutBuilder,
    ) -> Result<Self::Plan, Error>;

    /// Initialises the tables. There is no memory yet.
    fn carve(
        plan: Self::Plan,
        config: &Config<'_>,
        topology: &Topology,
        settings: &Self::Settings,
        carver: &mut Carver,
    ) -> Self;

    /// Allocates a block that the running CPU has at hand, from the zone that is best for it: the
    /// fast path, for requests that any node may serve.
    fn alloc_at_hand(&self, context: Context<'_, P>, request: Request) -> Option<Pfn>;

    /// Allocates a block from the first of `zones` that will give one.
    fn alloc(&self, context: Context<'_, P>, zones: &[u16], request: Request)
    -> Result<Pfn, Error>;

    /// Allocates blocks into `out` until it is full or memory runs out; returns how many.
    fn alloc_bulk(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        out: &mut [Pfn],
    ) -> usize;

    /// Allocates blocks into `out` as far as they can be had without ado from the preferred node,
    /// and only if that has `spare` blocks more than it keeps back; returns how many.
    fn alloc_quickly(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        spare: usize,
        out: &mut [Pfn],
    ) -> usize;

    /// Frees a block, or part of one.
    fn free(&self, context: Context<'_, P>, pfn: Pfn, order: Order) -> Result<(), Error>;

    /// Frees blocks of one order up to the first that cannot be freed.
    fn free_bulk(
        &self,
        context: Context<'_, P>,
        blocks: &[Pfn],
        order: Order,
    ) -> Result<(), BulkFreeError>;

    /// As `alloc`, compacting zones if memory is too fragmented.
    fn alloc_compacting(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        owner: &dyn Migrate,
    ) -> Result<Pfn, Error>;

    /// Compacts all memory.
    fn compact(&self, context: Context<'_, P>, owner: &dyn Migrate) -> Compaction;

    /// Allocates a contiguous range from the first of `zones` that has a place for it.
    fn alloc_range(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &RangeRequest,
        owner: &dyn Migrate,
    ) -> Result<Pfn, Error>;

    /// Frees a contiguous range, which is not empty.
    fn free_range(
        &self,
        context: Context<'_, P>,
        first: Pfn,
        frames: FrameCount,
    ) -> Result<(), Error>;

    /// Brings ranges of memory into use, up to the first that is refused: that one, and the marks
    /// that depend on how much memory there is, stay as they are then.
    fn add_memory(&self, context: Context<'_, P>, ranges: &[MemoryRange]) -> Result<(), Error>;

    /// Returns what a CPU keeps to itself to the zones.
    fn drain(&self, context: Context<'_, P>, cpu: CpuId);

    /// Returns what a CPU keeps to the zones and sends nothing to it any more.
    fn offline_cpu(&self, context: Context<'_, P>, cpu: CpuId);

    /// Periodic upkeep of one CPU.
    fn tick(&self, context: Context<'_, P>, cpu: CpuId);

    /// Takes every lock, one after the other: of what calls do under locks, nothing is half done
    /// then.
    fn freeze(&self, context: Context<'_, P>);

    /// Releases what `freeze` took.
    fn thaw(&self, context: Context<'_, P>);

    /// The same in a copy of the memory in which no other CPU runs. Puts right first what calls of
    /// others had half done past all locks.
    fn thaw_copy(&self, context: Context<'_, P>);

    /// What the design knows of the zone at `index`, if there is one.
    fn zone_stats(&self, context: Context<'_, P>, index: usize) -> Option<ZoneStats>;

    /// Where the frames of the zone at `index` were wanted, if there is one.
    fn numa_events(&self, context: Context<'_, P>, index: usize) -> Option<NumaEvents>;

    /// The free blocks of the zone at `index` by migratetype, if there is one.
    fn free_by_type(&self, context: Context<'_, P>, index: usize) -> Option<FreeByType>;

    /// What has happened so far.
    fn events(&self, context: Context<'_, P>) -> Events;

    /// Checks every invariant of the books.
    fn validate(&self, context: Context<'_, P>) -> Result<Census, Violation>;
}

/// What a design is lent for a call: the machine and who is near whom.
pub struct Context<'a, P: Platform> {
    pub(crate) platform: &'a P,
    pub(crate) topology: &'a Topology,
}

impl<P: Platform> Clone for Context<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Context<'_, P> {}

impl<P: Platform> Context<'_, P> {
    /// Pins the caller; returns its CPU, in the range of those that there are.
    pub(crate) fn pin(self) -> usize {
        self.platform.pin();
        self.topology.fold(self.platform.cpu())
    }
}

/// The settings of a design, by name, for tools that learn them at run time.
pub trait Settings: Default + Clone + fmt::Debug {
    /// The settings that there are.
    const TABLE: &'static [Setting];

    /// Sets one by its name.
    ///
    /// # Errors
    ///
    /// [`SettingError`] if there is no such setting, or the value is not one of its values.
    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError>;

    /// What is wrong with the settings taken together, in words that name them; `None` if nothing.
    fn contradiction(&self) -> Option<&'static str>;

    /// Calls `each` with the name and value of every setting that has an effect as things are.
    fn for_each(&self, each: &mut dyn FnMut(&'static str, &dyn fmt::Display));
}

/// One setting of a design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name, as in `pcp=auto`.
    pub name: &'static str,
    /// The values that it can have.
    pub values: &'static str,
    /// The value without a word from the user.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// Why a setting was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// The design has no setting of this name.
    UnknownName,
    /// The setting has no such value.
    BadValue,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettingError::UnknownName => "the design has no such setting",
            SettingError::BadValue => "the setting has no such value",
        })
    }
}

impl core::error::Error for SettingError {}
