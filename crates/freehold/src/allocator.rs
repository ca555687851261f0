//! The API of every design.

use crate::compact::{Compaction, Migrate};
use crate::config::MemoryRange;
use crate::designs::{Context, Design, places};
use crate::error::{BulkFreeError, Error};
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::{RangeRequest, Request};
use crate::topology::Topology;
use crate::units::{CpuId, FrameCount, Order, Pfn};

mod boot;
mod build;
mod firmware;
mod freeze;
mod inspect;

pub use firmware::{BootMap, BootReport};
pub use freeze::Frozen;

/// A page-frame allocator: design `D` on platform `P`.
///
/// All methods take `&self`. Any CPU may call them at any time, except from an interrupt or signal
/// handler: a handler must not wait for the call that it interrupted. It may free, and allocate
/// with [`Request::nowait`]. `docs/progress.md` lists what each call may wait for.
///
/// The value itself never changes: all mutable state lies in the metadata. If the platform can be
/// copied, a bitwise copy that is never dropped, in [`ManuallyDrop`](core::mem::ManuallyDrop), is a
/// second handle to the same allocator for as long as the metadata exists.
///
/// Frames are numbers. The allocator never touches the memory that they stand for, so misuse can
/// corrupt its accounting, but is never undefined behaviour.
// In this order, and at the start of a cache line, so that what the fast paths need of platform and
// design is on few lines.
#[repr(C, align(64))]
pub struct PageAllocator<P: Platform, D: Design<P>> {
    platform: P,
    design: D,
    topology: Topology,
}

/// How many blocks a modest bulk allocation wants.
#[derive(Clone, Copy)]
struct Wanted {
    blocks: usize,
    /// A zone is tried only if it has room for so many blocks above its watermark.
    spare: usize,
}

/// Blocks to be handed out next. Dropping this frees the blocks that are left because handing one
/// out panicked.
struct Rest<'a, P: Platform, D: Design<P>> {
    allocator: &'a PageAllocator<P, D>,
    order: Order,
    blocks: core::slice::Iter<'a, Pfn>,
}

impl<P: Platform, D: Design<P>> Drop for Rest<'_, P, D> {
    fn drop(&mut self) {
        let left = self.blocks.as_slice();
        if !left.is_empty() {
            // These blocks were allocated just now: only another caller's mistake can cause an
            // error.
            let _freed = self.allocator.free_bulk(left, self.order);
        }
    }
}

impl<P: Platform, D: Design<P>> PageAllocator<P, D> {
    /// For the crates of designs.
    #[doc(hidden)]
    #[inline(always)]
    pub fn design(&self) -> &D {
        &self.design
    }

    /// For the crates of designs.
    #[doc(hidden)]
    #[inline(always)]
    pub fn context(&self) -> Context<'_, P> {
        Context { platform: &self.platform, topology: &self.topology }
    }

    /// Validates the request, fills in its node, and returns it with the zones that it may use.
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
    /// The content of the frames is undefined: whatever they held before.
    ///
    /// It fails for lack of memory only after collecting even the frames that other CPUs cache.
    /// With `freehold`, a request for one frame then fails only if at some moment of the call no
    /// free one existed that it may have, and one for more also if no such block was left alone by
    /// other calls meanwhile; with the other designs, if one look at each of the zones, one after
    /// the other, found none. Frames of pageblocks that a range or compaction is emptying count as
    /// not available, and so do those of a lease that the machine refuses the barrier to revoke.
    ///
    /// Cost: nanoseconds if the CPU has a cached frame. A call that fails examines the state of
    /// every CPU, and waits for calls that have free frames in hand, unless it has
    /// [`Request::nowait`]: 0.2 ms with 4,096 CPUs. With `freehold`, the first one that fails for a
    /// small block where free frames are scattered looks at every pageblock for runs, some 2 ms for
    /// 64 GiB; what it finds is remembered.
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

    /// Allocates blocks of one kind into `out` and returns how many: fewer than asked for, perhaps
    /// none, if memory ran out. The previous content of `out` does not matter; slots past the count
    /// are unchanged.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`] about the request itself. Running out of memory is not an
    /// error.
    #[inline]
    pub fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error> {
        let (request, zones) = self.resolve(request)?;
        Ok(self.design.alloc_bulk(self.context(), zones, request, out))
    }

    /// Fills the empty slots of `slots` with blocks of one kind. Returns how many slots from the
    /// front on are full then, including those that were full before; these keep their content.
    ///
    /// This is the kernel's bulk allocation into an array. It is either quick or modest: it takes
    /// what the running CPU and the preferred node can spare at once. If that is nothing, or if
    /// only one block is wanted, it makes one ordinary allocation into the first empty slot. So
    /// fewer slots may be full than memory allows, and a caller that needs all of them calls again.
    /// [`PageAllocator::alloc_bulk`] does not give up while there is memory.
    ///
    /// Deviations: any order is allowed; and there is no memcg accounting, which in the kernel
    /// turns a bulk allocation into a single one.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`] about the request itself. Running out of memory is not an
    /// error.
    pub fn alloc_into_slots(
        &self,
        request: Request,
        slots: &mut [Option<Pfn>],
    ) -> Result<usize, Error> {
        let (request, zones) = self.resolve(request)?;
        let blocks = slots.iter().filter(|slot| slot.is_none()).count();
        // As in the kernel, there must be room for all slots, full ones included.
        let wanted = Wanted { blocks, spare: slots.len() };
        let mut empty = slots.iter_mut().filter(|slot| slot.is_none());
        self.alloc_modestly(zones, request, wanted, |block| {
            if let Some(slot) = empty.next() {
                *slot = Some(block);
            }
        });
        Ok(slots.iter().take_while(|slot| slot.is_some()).count())
    }

    /// Appends up to `count` blocks of one kind to `list`; returns how many were added. This is the
    /// kernel's bulk allocation to a list, quick or modest like
    /// [`PageAllocator::alloc_into_slots`].
    ///
    /// If `list` panics, the blocks passed to it stay allocated, including the last one. The
    /// allocator frees the others.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`] about the request itself. Running out of memory is not an
    /// error.
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

    /// Passes blocks to `put` while some are wanted and can be had quickly. If there was none of
    /// these, makes one ordinary allocation.
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

    /// Frees the block of `order` at `pfn`: an allocation, or an aligned part of one. The rest of
    /// the allocation stays allocated, in blocks that can be freed one by one, or again in parts.
    ///
    /// # Errors
    ///
    /// [`Error::DoubleFree`], [`Error::ForeignFrame`], [`Error::Misaligned`],
    /// [`Error::WrongOrder`], [`Error::OrderTooLarge`]; the call has then changed nothing. If two
    /// frees of one block race, exactly one succeeds. With the design `freehold`, both may succeed
    /// if one is of a single frame; the frame is counted in
    /// [`Events::double_frees_late`](crate::Events::double_frees_late) when this is detected.
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        self.design.free(self.context(), pfn, order)
    }

    /// Frees blocks of one order, in any sequence. Takes fewer locks than one by one.
    ///
    /// # Errors
    ///
    /// [`BulkFreeError`] at the first block that [`PageAllocator::free`] would refuse.
    pub fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError> {
        self.design.free_bulk(self.context(), blocks, order)
    }

    /// Allocates one block, as [`PageAllocator::alloc`] does. If that fails because free memory is
    /// fragmented, compacts: has content moved until a block of this order is free.
    ///
    /// Compaction that is likely to fail is deferred: after each failure, for twice as many
    /// attempts.
    ///
    /// Cost: if nothing moves, asks the owner about one block of each pageblock: 0.1 s for 64 GiB
    /// with `freehold`. Of calls that go on failing, as few as one in 64 do.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`].
    pub fn alloc_compacting(&self, request: Request, owner: &dyn Migrate) -> Result<Pfn, Error> {
        let (request, zones) = self.resolve(request)?;
        self.design.alloc_compacting(self.context(), zones, request, owner, true)
    }

    /// As [`PageAllocator::alloc_compacting`], but defers nothing: for a caller that decides itself
    /// when another attempt is worth its cost, as Linux does.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`].
    pub fn alloc_compacting_now(
        &self,
        request: Request,
        owner: &dyn Migrate,
    ) -> Result<Pfn, Error> {
        let (request, zones) = self.resolve(request)?;
        self.design.alloc_compacting(self.context(), zones, request, owner, false)
    }

    /// Compacts all of memory, zone by zone: moves content so that free memory becomes contiguous.
    ///
    /// Cost: visits every frame and moves up to half of the content. Drops all locks every few
    /// frames. If nothing moves, about 9 s for 64 GiB with `freehold`, which takes and returns a
    /// target for each block that the owner is asked for, and 1 s with `zone-lock`.
    pub fn compact(&self, owner: &dyn Migrate) -> Compaction {
        let mut total = Compaction::default();
        for zone in self.zone_indexes() {
            total.add(&self.design.compact_zone(self.context(), zone, owner, None));
        }
        total
    }

    /// Compacts each zone where more than so many thousandths of the free memory are of no use for
    /// blocks of a pageblock, until that is no longer so: for a thread in the background that calls
    /// it now and then, so that such blocks are at hand before anybody wants them. If nothing was
    /// moved, memory stays fragmented, and the next call can wait longer.
    ///
    /// Source: Linux 5.9, proactive compaction (`fragmentation_score_zone`; every 500 ms).
    ///
    /// Cost: if there is nothing to do, with `freehold` a look at the state of each pageblock, with
    /// the others that of [`PageAllocator::zones`]. Otherwise what [`PageAllocator::compact`]
    /// costs, as far as it has to go.
    pub fn compact_proactively(&self, unusable_max: u32, owner: &dyn Migrate) -> Compaction {
        let context = self.context();
        let wanted = |zone: ZoneIndex| {
            let [free, whole] = self.design.free_and_whole(context, zone)?;
            let usable_min = free * u64::from(1000 - unusable_max.min(1000)) / 1000;
            let lacking = usable_min.checked_sub(whole).filter(|&lacking| lacking > 0)?;
            Some((zone, lacking.div_ceil(Order::PAGEBLOCK.frames().get())))
        };
        let mut total = Compaction::default();
        for (zone, wanted) in self.zone_indexes().filter_map(wanted) {
            total.add(&self.design.compact_zone(context, zone, owner, Some(wanted)));
        }
        total
    }

    fn zone_indexes(&self) -> impl Iterator<Item = ZoneIndex> {
        let zones = (0..).take_while(|&zone| self.design.zone_level(usize::from(zone)).is_some());
        zones.map(ZoneIndex)
    }

    /// Allocates contiguous frames in one zone, and returns the first. Movable content in the way
    /// is moved elsewhere, to zones of the same kind or a more restricted one.
    ///
    /// The frames are held in blocks of the largest orders that fit, as unmovable content. They may
    /// be freed by [`PageAllocator::free_range`], all at once or in parts, or by
    /// [`PageAllocator::free`], in parts that lie within one block.
    ///
    /// Cost: visits every frame once for each place that it tries, and isolates the pageblocks
    /// concerned meanwhile: their frames are not available then. Other CPUs proceed. If nothing
    /// moves, one attempt for each pageblock: some 0.1 s for 64 GiB with `freehold`.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`] for no frames; [`Error::BadAlignment`]; with [`RangeRequest::at`],
    /// [`Error::Misaligned`], [`Error::OutsideSpan`], and [`Error::ForeignFrame`] if there is a
    /// hole; [`Error::OutOfMemory`] if no zone is large enough or too little is free;
    /// [`Error::BelowWatermark`] if what is free is reserved; [`Error::RangeBusy`] if every place
    /// contains content that cannot be moved, or another range is being allocated there.
    pub fn alloc_range(
        &self,
        mut request: RangeRequest,
        owner: &dyn Migrate,
    ) -> Result<Pfn, Error> {
        if request.frames == FrameCount::ZERO {
            return Err(Error::BadRange);
        }
        if !request.align.get().is_power_of_two() {
            return Err(Error::BadAlignment);
        }
        let zones;
        (request.near, zones) = self.resolve(request.near)?;
        places::alloc_range(&self.design, self.context(), zones, &request, owner)
    }

    /// Frees contiguous frames of one zone, whatever blocks they were allocated in. The rest of
    /// blocks that extend beyond them stays allocated, in blocks of its own.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`], [`Error::ForeignFrame`], and [`Error::DoubleFree`] if any of the frames
    /// is free; the call has then changed nothing.
    pub fn free_range(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        if frames == FrameCount::ZERO {
            return Err(Error::BadRange);
        }
        self.design.free_range(self.context(), first, frames)
    }

    /// Adds memory, within the span that the configuration named or where it left room.
    ///
    /// Cost: visits every frame of the range; other CPUs proceed meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`]; [`Error::OutsideSpan`], also if there is no more room, or for memory on
    /// both sides of a place where records end (they do at multiples of 1024 frames, and in memory
    /// that was added last they go on), and with `freehold` for memory beyond that which the zone
    /// began with, if there is neither [`Config::span`](crate::Config::span) nor
    /// [`Config::room`](crate::Config::room); [`Error::RangeOverlaps`],
    /// [`Error::SharedPageblock`], [`Error::UnknownNode`], [`Error::UnknownZone`]; the call has
    /// then changed nothing.
    pub fn add_memory(&self, range: MemoryRange) -> Result<(), Error> {
        self.design.add_memory(self.context(), &[range])
    }

    /// Takes memory out of use: `frames` frames from `first` on, all of one zone. Movable content
    /// in the way is moved elsewhere, as for [`PageAllocator::alloc_range`]. From then on the
    /// frames are no memory of this allocator, like a hole between two ranges:
    /// [`PageAllocator::add_memory`] may add them again, whole pageblocks also to another zone.
    /// Watermarks follow.
    ///
    /// This is for memory that is unplugged, and also for a single frame that has gone bad (Linux:
    /// `offline_pages`, `soft_offline_page`).
    ///
    /// Cost: as for [`PageAllocator::alloc_range`] with a given place.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`] for no frames, or if they are of more than one zone;
    /// [`Error::OutsideSpan`]; [`Error::ForeignFrame`] if there is a hole; [`Error::RangeBusy`] if
    /// there is content that cannot be moved, and [`Error::OutOfMemory`] or
    /// [`Error::BelowWatermark`] if there is no room for it elsewhere. All frames are then in use
    /// as before, though content may have been moved.
    pub fn remove_memory(
        &self,
        first: Pfn,
        frames: FrameCount,
        owner: &dyn Migrate,
    ) -> Result<(), Error> {
        if frames == FrameCount::ZERO {
            return Err(Error::BadRange);
        }
        places::remove_range(&self.design, self.context(), first, frames, owner)
    }

    /// Returns the frames that a CPU caches to the zones. Any CPU may call it.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCpu`].
    pub fn drain(&self, cpu: CpuId) -> Result<(), Error> {
        self.check_cpu(cpu)?;
        self.design.drain(self.context(), cpu);
        Ok(())
    }

    /// Returns the frames that all CPUs cache to the zones.
    pub fn drain_all(&self) {
        for cpu in 0..self.topology.cpus() {
            self.design.drain(self.context(), CpuId::new(cpu as u32));
        }
    }

    /// Takes a CPU offline: returns the frames that it caches to the zones, and stops what would
    /// send more to it. A concurrent free may still put a frame on its lists; a drain of all CPUs
    /// finds that frame. A CPU that asks for frames again is online again.
    ///
    /// Cost: as [`PageAllocator::drain`]; where CPUs own pageblocks, also visits each pageblock.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCpu`].
    pub fn offline_cpu(&self, cpu: CpuId) -> Result<(), Error> {
        self.check_cpu(cpu)?;
        self.design.offline_cpu(self.context(), cpu);
        Ok(())
    }

    /// Periodic upkeep of one CPU: shrinks per-CPU lists that have not been needed. The embedder
    /// calls it about once a second if idle CPUs should release memory.
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

    /// The machine that the allocator runs on.
    pub fn platform(&self) -> &P {
        &self.platform
    }
}
