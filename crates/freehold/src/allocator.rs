//! The front door.

use crate::compact::{Compaction, Migrate};
use crate::config::{Config, MemoryRange};
use crate::designs::{Context, Design};
use crate::error::{BulkFreeError, Error};
use crate::memmap::region::{Carver, Layout, LayoutBuilder, Metadata};
use crate::platform::Platform;
use crate::request::{RangeRequest, Request};
use crate::stat::{Census, Events, FreeByType, NumaEvents, Violation, ZoneStats};
use crate::topology::{Topology, TopologyPlan};
use crate::units::{CpuId, FrameCount, Order, Pfn};

mod freeze;

/// A page-frame allocator: design `D` on platform `P`.
///
/// All methods take `&self` and may be called from any CPU at any time, but for a handler of
/// interrupts or signals, which must not wait for the call that it has interrupted: it may free,
/// and allocate with [`Request::nowait`]. `docs/progress.md` tells what each call may wait for.
///
/// The value itself never changes: all that does lies in the metadata. So a bitwise copy of it that
/// is never dropped, in [`ManuallyDrop`](core::mem::ManuallyDrop), is a second way to the same
/// books, for as long as the metadata is there and if platforms can be copied.
///
/// Frames are numbers: the allocator never touches the memory that they stand for, so a mistake in
/// using it can confuse its books, but is never undefined behaviour.
// In this order, and at the begin of a cache line: what the fast paths need of platform and design
// is on few lines then.
#[repr(C, align(64))]
pub struct PageAllocator<P: Platform, D: Design<P>> {
    platform: P,
    design: D,
    topology: Topology,
}

/// How many blocks a modest bulk allocation is about.
#[derive(Clone, Copy)]
struct Wanted {
    blocks: usize,
    /// For how many a zone must have room above its watermark to be asked at all.
    spare: usize,
}

/// Blocks that are to be handed out next. Those that are left when this is dropped, because handing
/// one out panicked, are freed.
struct Rest<'a, P: Platform, D: Design<P>> {
    allocator: &'a PageAllocator<P, D>,
    order: Order,
    blocks: core::slice::Iter<'a, Pfn>,
}

impl<P: Platform, D: Design<P>> Drop for Rest<'_, P, D> {
    fn drop(&mut self) {
        let left = self.blocks.as_slice();
        if !left.is_empty() {
            // They were allocated just now: an error could only be another one's mistake.
            let _freed = self.allocator.free_bulk(left, self.order);
        }
    }
}

/// Where all tables lie.
struct Plan<P: Platform, D: Design<P>> {
    topology: TopologyPlan,
    design: D::Plan,
    layout: Layout,
}

impl<P: Platform, D: Design<P>> PageAllocator<P, D> {
    fn plan(config: &Config<'_>, settings: &D::Settings) -> Result<Plan<P, D>, Error> {
        config.check()?;
        let mut layout = LayoutBuilder::new(config.span_of_blocks()?.0);
        let topology = TopologyPlan::new(config, &mut layout)?;
        let design = D::plan(config, settings, &mut layout)?;
        Ok(Plan { topology, design, layout: layout.finish() })
    }

    /// Computes how much metadata an allocator for this machine needs, and what lies where in it.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with the configuration or the settings: see [`Error`].
    pub fn layout(config: &Config<'_>, settings: &D::Settings) -> Result<Layout, Error> {
        Ok(Self::plan(config, settings)?.layout)
    }

    /// Builds an allocator whose books live in `metadata`, and gives it the configured memory.
    ///
    /// A panic of the platform, for instance of [`RawLock::new`](crate::platform::RawLock::new),
    /// passes through: what was made before it is dropped, and nothing uses the metadata any more.
    ///
    /// Cost: initialises all of the metadata, whose size grows with the frames of the span, and
    /// with the number of zones times that of CPUs and of nodes. Beside that, looks at all ranges
    /// for each zone.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::layout`]; [`Error::MetadataTooSmall`]; and those of
    /// [`PageAllocator::add_memory`] for each range.
    pub fn new(
        platform: P,
        config: &Config<'_>,
        settings: &D::Settings,
        metadata: Metadata,
    ) -> Result<Self, Error> {
        let plan = Self::plan(config, settings)?;
        let mut carver = Carver::new(metadata, &plan.layout)?;
        let topology = Topology::carve(&plan.topology, config, &mut carver);
        let design = D::carve(plan.design, config, &topology, settings, &mut carver);
        let allocator = PageAllocator { platform, topology, design };
        allocator.design.add_memory(allocator.context(), config.ranges)?;
        Ok(allocator)
    }

    #[inline(always)]
    pub(crate) fn design(&self) -> &D {
        &self.design
    }

    #[inline(always)]
    pub(crate) fn context(&self) -> Context<'_, P> {
        Context { platform: &self.platform, topology: &self.topology }
    }

    /// The request with its node filled in, and the zones that it may use, if it makes sense.
    pub(crate) fn resolve(&self, request: Request) -> Result<(Request, &[u16]), Error> {
        if request.order() > D::ORDER_MAX {
            return Err(Error::OrderTooLarge);
        }
        let near = || self.topology.node_of(self.platform.cpu());
        let node = request.preferred_node().unwrap_or_else(near);
        let zones = self.topology.zonelist(node, request.effective_limit())?;
        Ok((request.node(node), zones))
    }

    /// Allocates one block and returns its first frame.
    ///
    /// The content of the frames is whatever was left in them.
    ///
    /// It fails for want of memory only after even the frames that other CPUs keep have been
    /// collected: with `freehold`, only if at some moment of the call there was no free block which
    /// the request may have; with the other designs, if looks at its zones one after the other have
    /// found none. Frames that a [`Lease`](crate::designs::Lease) holds, and those of pageblocks
    /// that are being emptied for a range or by compaction, are promised to no request.
    ///
    /// Cost: nanoseconds for what is at hand. A call that fails looks at each CPU's books, and
    /// waits for calls that have free frames in hand, unless it has [`Request::nowait`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] or [`Error::BelowWatermark`]; [`Error::WouldWait`] with
    /// [`Request::nowait`]; [`Error::OrderTooLarge`], [`Error::UnknownNode`],
    /// [`Error::UnknownZone`].
    #[inline(always)]
    pub fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        if request.is_anywhere()
            && let Some(pfn) = self.design.alloc_fast(self.context(), request)
        {
            return Ok(pfn);
        }
        self.alloc_slowly(request)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, request: Request) -> Result<Pfn, Error> {
        let (request, zones) = self.resolve(request)?;
        self.design.alloc(self.context(), zones, request)
    }

    /// Allocates blocks of one kind into `out` and returns how many there were: fewer than asked
    /// for, perhaps none, if memory ran out. What `out` held before does not matter, and what lies
    /// behind the count is left as it was.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`] about the request itself; running out of memory is none.
    #[inline]
    pub fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error> {
        let (request, zones) = self.resolve(request)?;
        Ok(self.design.alloc_bulk(self.context(), zones, request, out))
    }

    /// Fills the empty slots of `slots` with blocks of one kind; returns how many slots from the
    /// front on are full then, those that were full before included. What is in a full slot stays.
    ///
    /// This is the kernel's bulk allocation into an array. It is quick or modest: it takes what the
    /// running CPU and the preferred node have to spare at once, and if that is nothing, or if one
    /// block alone is wanted, it makes one ordinary allocation into the first empty slot. So fewer
    /// slots may be full than memory allows, and callers that need all of them call again.
    /// [`PageAllocator::alloc_bulk`] does not give up as long as there is memory.
    ///
    /// Deviations: any order will do; and there is no accounting to groups, which would make one
    /// allocation of many.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`] about the request itself; running out of memory is none.
    pub fn alloc_into_slots(
        &self,
        request: Request,
        slots: &mut [Option<Pfn>],
    ) -> Result<usize, Error> {
        let (request, zones) = self.resolve(request)?;
        let blocks = slots.iter().filter(|slot| slot.is_none()).count();
        // As the kernel has it, there must be enough for all slots, full ones included.
        let wanted = Wanted { blocks, spare: slots.len() };
        let mut empty = slots.iter_mut().filter(|slot| slot.is_none());
        self.alloc_modestly(zones, request, wanted, |block| {
            if let Some(slot) = empty.next() {
                *slot = Some(block);
            }
        });
        Ok(slots.iter().take_while(|slot| slot.is_some()).count())
    }

    /// Appends up to `count` blocks of one kind to `list`; returns how many were added. Quick or
    /// modest as [`PageAllocator::alloc_into_slots`]: the kernel's bulk allocation to a list.
    ///
    /// If `list` panics, the blocks that it was given stay allocated, the last one included, and
    /// the allocator takes the others back.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`] about the request itself; running out of memory is none.
    pub fn alloc_onto_list(
        &self,
        request: Request,
        count: usize,
        list: &mut impl Extend<Pfn>,
    ) -> Result<usize, Error> {
        let (request, zones) = self.resolve(request)?;
        let mut added = 0;
        self.alloc_modestly(zones, request, Wanted { blocks: count, spare: count }, |block| {
            list.extend([block]);
            added += 1;
        });
        Ok(added)
    }

    /// Hands blocks to `put` as long as some are wanted and can be had quickly; if there were none
    /// of these, one that cannot.
    fn alloc_modestly(
        &self,
        zones: &[u16],
        request: Request,
        wanted: Wanted,
        mut put: impl FnMut(Pfn),
    ) {
        const CHUNK_BLOCKS: usize = 64;
        let (mut chunk, mut count) = ([Pfn::default(); CHUNK_BLOCKS], 0);
        while wanted.blocks > 1 && count < wanted.blocks {
            let chunk = &mut chunk[..CHUNK_BLOCKS.min(wanted.blocks - count)];
            let spare = wanted.spare - count;
            let got = self.design.alloc_quickly(self.context(), zones, request, spare, chunk);
            let mut rest =
                Rest { allocator: self, order: request.order(), blocks: chunk[..got].iter() };
            rest.blocks.by_ref().for_each(|&block| put(block));
            count += got;
            if got < chunk.len() {
                break;
            }
        }
        if count == 0
            && wanted.blocks > 0
            && let Ok(block) = self.design.alloc(self.context(), zones, request)
        {
            put(block);
        }
    }

    /// Frees the block of `order` at `pfn`: an allocation, or an aligned part of one. What is left
    /// of an allocation stays allocated, in blocks that can be freed one by one or in parts again.
    ///
    /// # Errors
    ///
    /// [`Error::DoubleFree`], [`Error::ForeignFrame`], [`Error::Misaligned`],
    /// [`Error::WrongOrder`], [`Error::OrderTooLarge`]; nothing has changed then. Of two frees of
    /// one block that race, exactly one succeeds; with the design `freehold`, both may if one is of
    /// a single frame, which is counted once it is found
    /// ([`Events::double_frees_late`](crate::Events::double_frees_late)).
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        self.design.free(self.context(), pfn, order)
    }

    /// Frees blocks of one order, in any sequence, with fewer locks than one by one.
    ///
    /// # Errors
    ///
    /// [`BulkFreeError`] at the first block that [`PageAllocator::free`] would refuse.
    pub fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError> {
        self.design.free_bulk(self.context(), blocks, order)
    }

    /// Allocates one block, as [`PageAllocator::alloc`] does; if that fails because free memory is
    /// fragmented, has content moved until a block of this order is free.
    ///
    /// Attempts that are likely to be in vain are put off: after each failure, twice as many.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`].
    pub fn alloc_compacting(&self, request: Request, owner: &dyn Migrate) -> Result<Pfn, Error> {
        let (request, zones) = self.resolve(request)?;
        self.design.alloc_compacting(self.context(), zones, request, owner)
    }

    /// Moves content in all of memory, zone by zone, so that free memory comes to lie together.
    ///
    /// Cost: visits every frame and moves up to half of the content, with all locks dropped every
    /// few frames.
    pub fn compact(&self, owner: &dyn Migrate) -> Compaction {
        self.design.compact(self.context(), owner)
    }

    /// Allocates frames that lie side by side, in one zone, and returns the first. Movable content
    /// that is in the way is moved elsewhere, to zones of the same kind or a more restricted one.
    ///
    /// The frames are held in blocks of the largest orders that fit, as unmovable content. They may
    /// be freed by [`PageAllocator::free_range`], all at once or a part at a time, or by
    /// [`PageAllocator::free`], in parts that lie within one block.
    ///
    /// Cost: looks at every frame once for each place that is tried, and takes the frames of the
    /// pageblocks concerned out of circulation meanwhile. Other CPUs go on.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`] for no frames; [`Error::BadAlignment`]; with [`RangeRequest::at`],
    /// [`Error::Misaligned`], [`Error::OutsideSpan`], and [`Error::ForeignFrame`] if there is a
    /// hole; [`Error::OutOfMemory`] if no zone is large enough or too little is free;
    /// [`Error::BelowWatermark`] if what is free is reserved; [`Error::RangeBusy`] if content that
    /// cannot be moved is everywhere in the way, or another range is just being allocated there.
    pub fn alloc_range(&self, request: RangeRequest, owner: &dyn Migrate) -> Result<Pfn, Error> {
        if request.frames == FrameCount::ZERO {
            return Err(Error::BadRange);
        }
        if !request.align.get().is_power_of_two() {
            return Err(Error::BadAlignment);
        }
        let (near, zones) = self.resolve(request.near)?;
        let request = RangeRequest { near, ..request };
        self.design.alloc_range(self.context(), zones, &request, owner)
    }

    /// Frees frames that lie side by side in one zone, in whatever blocks they were allocated. What
    /// is left of blocks that reach beyond them stays allocated, in blocks of its own.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`], [`Error::ForeignFrame`], and [`Error::DoubleFree`] if any of the frames
    /// is free; nothing has changed then.
    pub fn free_range(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        if frames == FrameCount::ZERO {
            return Err(Error::BadRange);
        }
        self.design.free_range(self.context(), first, frames)
    }

    /// Brings further memory into use, within the span that the configuration named.
    ///
    /// Cost: visits every frame of the range; other CPUs go on meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`], [`Error::OutsideSpan`], [`Error::RangeOverlaps`],
    /// [`Error::SharedPageblock`], [`Error::UnknownNode`], [`Error::UnknownZone`]; nothing has
    /// changed then.
    pub fn add_memory(&self, range: MemoryRange) -> Result<(), Error> {
        self.design.add_memory(self.context(), &[range])
    }

    /// Returns the frames that a CPU keeps to itself to the zones, from whichever CPU calls.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCpu`].
    pub fn drain(&self, cpu: CpuId) -> Result<(), Error> {
        self.check_cpu(cpu)?;
        self.design.drain(self.context(), cpu);
        Ok(())
    }

    /// Returns the frames that all CPUs keep to themselves to the zones.
    pub fn drain_all(&self) {
        for cpu in 0..self.topology.cpus() {
            self.design.drain(self.context(), CpuId::new(cpu as u32));
        }
    }

    /// Takes leave of a CPU that goes away: returns the frames that it keeps to the zones, and ends
    /// what would send more to it. A frame that is being freed at this moment may still come to its
    /// lists; it is found by whoever drains all CPUs. A CPU that asks for frames again is back.
    ///
    /// Cost: as [`PageAllocator::drain`]; where CPUs own pageblocks, a look at each pageblock.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCpu`].
    pub fn offline_cpu(&self, cpu: CpuId) -> Result<(), Error> {
        self.check_cpu(cpu)?;
        self.design.offline_cpu(self.context(), cpu);
        Ok(())
    }

    /// Periodic upkeep of one CPU, for the embedder to call about once a second if it wants idle
    /// CPUs to give back memory: shrinks per-CPU lists that have not been needed.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCpu`].
    pub fn tick(&self, cpu: CpuId) -> Result<(), Error> {
        self.check_cpu(cpu)?;
        self.design.tick(self.context(), cpu);
        Ok(())
    }

    fn check_cpu(&self, cpu: CpuId) -> Result<(), Error> {
        if cpu.index() < self.topology.cpus() { Ok(()) } else { Err(Error::UnknownCpu) }
    }

    /// The state of every zone.
    pub fn zones(&self) -> impl Iterator<Item = ZoneStats> + '_ {
        (0..).map_while(|index| self.design.zone_stats(self.context(), index))
    }

    /// Where the frames of the zone at `index` of [`PageAllocator::zones`] were wanted. `None` if
    /// there is no such zone.
    pub fn numa_events(&self, index: usize) -> Option<NumaEvents> {
        self.design.numa_events(self.context(), index)
    }

    /// The free blocks of the zone at `index` of [`PageAllocator::zones`] by migratetype, counted
    /// without a lock: exact if no call is under way. `None` if there is no such zone.
    ///
    /// Cost: visits every block of the zone.
    pub fn free_by_type(&self, index: usize) -> Option<FreeByType> {
        self.design.free_by_type(self.context(), index)
    }

    /// What has happened since the allocator was built. Exact whenever no call is under way; while
    /// calls are, frames handed out, frames taken back and the difference of the two each lack at
    /// most what these calls do.
    ///
    /// Cost: takes the lock of each CPU's lists for a moment, or with `freehold` of its caches, and
    /// visits every pageblock there.
    pub fn events(&self) -> Events {
        self.design.events(self.context())
    }

    /// Checks every invariant of the books and says where the frames are.
    ///
    /// Cost: visits every frame with all locks of its zone held. Other CPUs may go on meanwhile,
    /// and wait.
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found.
    pub fn validate(&self) -> Result<Census, Violation> {
        self.design.validate(self.context())
    }

    /// The machine that the allocator runs on.
    pub fn platform(&self) -> &P {
        &self.platform
    }
}
