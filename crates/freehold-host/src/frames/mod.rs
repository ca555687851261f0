//! An allocator on real memory whose frames are bare numbers.
#![expect(unsafe_code, reason = "lends the allocator its metadata and writes bytes into frames")]

use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::panic::{RefUnwindSafe, UnwindSafe};
use std::io;
use std::sync::Arc;

use freehold::designs::Freehold;
use freehold::{
    Config, Design, Error, FrameCount, FrameSize, Frozen, MemoryRange, Metadata, NodeId, Order,
    PageAllocator, Pfn, Request,
};

use crate::backing::UserMapping;
use crate::fork::{Forks, Registration};
use crate::leases::{Homes, Pool, with_leases};
use crate::mapping::Mapping;
use crate::mapping::Placing;
use crate::plan::{PART_ALIGN, Part, Plan};
use crate::{ArenaBuilder, Host, HostError, Leases, Numa};

mod content;
mod memory;
mod place;
mod purge;

use memory::Extent;

/// The largest alignment of an arena, so that an arena of a few MiB wastes no address space.
const BASE_ALIGN_MAX: usize = 1 << 30;

/// Where the memory of an arena comes from.
#[derive(Debug)]
#[non_exhaustive]
pub enum Placement {
    /// The arena has one node; the machine places its memory.
    OneNode,
    /// Each node's part takes its memory from that node: while it has any, or, with
    /// [`Numa::Bind`], only.
    ByNode,
    /// All nodes of the machine in turn.
    Interleaved,
    /// Nothing was asked of the machine.
    Machine,
    /// The kernel refused to place the part of some node, for example in a sandbox, and this is
    /// its answer. From that part on, memory comes from the node of the CPU that first touches it.
    FirstTouch(io::Error),
}

/// An arena whose frames are bare numbers: for benchmarks, and as the ground under allocators that
/// keep their own account of who owns what.
///
/// Frame 0 is the first of the arena, so a [`Pfn`] here is an index, not an address divided by the
/// size; [`FrameArena::address_of`] converts. A block lies at a multiple of its size in the
/// arena, and in memory too, up to the buddy system's largest blocks (4 MiB of frames of 4 KiB) in
/// any arena and to 1 GiB in arenas that large. In a mapping that the user gave, it does so as far
/// as that is aligned.
///
/// # Who may touch a frame
///
/// Code that can name this value can allocate, free, write and discard any frame: all of that is
/// safe, for the memory is only reached through raw pointers and atomic bytes. Code that makes
/// references from these pointers must therefore keep the `FrameArena` to itself.
/// [`Arena`](crate::Arena) does exactly that, and hands out owned memory instead.
pub struct FrameArena<D: Design<Host> = Freehold<Host>> {
    // Fields are dropped in this order: handlers of forks know the arena no longer when the
    // allocator goes, and that goes before the metadata that it uses.
    _fork: Registration,
    allocator: PageAllocator<Host, D>,
    metadata: Mapping,
    memory: Mapping,
    frame_size: FrameSize,
    extent: Arc<Extent>,
    cpu_nodes: Vec<NodeId>,
    placement: Placement,
    leases: Option<Pool>,
}

impl<D: Design<Host>> FrameArena<D> {
    pub(crate) fn new(plan: Plan, wishes: &ArenaBuilder<D>) -> Result<Self, HostError> {
        let (span, settings) = (plan.span(), &wishes.settings);
        let ranges: Vec<MemoryRange> =
            plan.parts.iter().map(|part| range(part, part.start, part.frames)).collect();
        let config = Config::new(&ranges, &plan.cpu_nodes)
            .distances(&plan.distances)
            .span((Pfn::new(0), span))
            .frame_size(plan.frame_size)
            .frame_record_bytes(wishes.frame_record_bytes)
            .min_free(wishes.min_free);
        // Checks the configuration too, so that nothing has been mapped if it is refused.
        let layout = PageAllocator::<Host, D>::layout(&config, settings)?;
        let memory = map(wishes, plan.frame_size, span)?;
        let placement = place(&memory, wishes.numa, &plan)?;
        if wishes.lock {
            memory.lock()?;
        }
        let frame_size = plan.frame_size;
        let metadata = Mapping::reserve(layout.size().max(1), layout.align())?;
        // SAFETY: The mapping is new, so its memory is zeroed and has no other user. It is mapped
        // until after the allocator is gone: it is dropped after it, both here and as a field.
        let lent = unsafe { Metadata::from_zeroed_raw_parts(metadata.base(), metadata.bytes()) };
        let allocator = PageAllocator::new(Host::new(), &config, settings, lent)?;
        let (extent, cpu_nodes) = (Arc::new(Extent::new(plan.parts)), plan.cpu_nodes);
        let leases = match (wishes.leases, with_leases(&allocator)) {
            (Leases::Off, _) => None,
            (Leases::Auto, Some(allocator)) => {
                Pool::new(allocator, &cpu_nodes[..cpu_nodes.len() - plan.lease_homes])
            }
            (Leases::Auto, None) => {
                let reason = format!("the design {} has none: choose `off`", D::NAME);
                return Err(HostError::BadSetting { setting: "leases", reason });
            }
        };
        let homes = leases.as_ref().map(Pool::homes);
        let at_fork = AtFork {
            allocator: second_way(&allocator),
            extent: Arc::clone(&extent),
            homes,
            frozen: Cell::new(None),
        };
        // Last but for prefaults: what was mapped is there as long as it is registered.
        let fork = Registration::new(Box::new(at_fork))?;
        let arena = FrameArena {
            _fork: fork,
            allocator,
            metadata,
            memory,
            frame_size,
            extent,
            cpu_nodes,
            placement,
            leases,
        };
        if wishes.prefault_threads > 0 {
            for range in arena.ranges() {
                arena.prefault(range.start, range.frames, wishes.prefault_threads)?;
            }
        }
        Ok(arena)
    }

    /// Allocates one block, as [`PageAllocator::alloc`] does; by the lease of the calling thread,
    /// if it has one.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`].
    #[inline]
    pub fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        if let (Some(leases), Some(allocator)) = (&self.leases, with_leases(&self.allocator)) {
            return leases.alloc(allocator, request);
        }
        self.allocator.alloc(request)
    }

    /// Frees a block, or part of one, as [`PageAllocator::free`] does; by the lease of the calling
    /// thread, if it has one.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::free`].
    #[inline]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        if let (Some(leases), Some(allocator)) = (&self.leases, with_leases(&self.allocator)) {
            return leases.free(allocator, pfn, order);
        }
        self.allocator.free(pfn, order)
    }

    /// Whether threads get leases by themselves: [`Leases::Off`] also where that was wished for,
    /// and the machine has no `membarrier(2)`.
    pub fn leases(&self) -> Leases {
        if self.leases.is_some() { Leases::Auto } else { Leases::Off }
    }

    /// How many threads more could have a lease: as many as there are CPUs at first. 0 without
    /// leases.
    pub fn spare_leases(&self) -> usize {
        self.leases.as_ref().map_or(0, Pool::spare_homes)
    }

    /// The allocator's front door. Calls here take no lease.
    #[inline]
    pub fn allocator(&self) -> &PageAllocator<Host, D> {
        &self.allocator
    }

    /// The node of each CPU, those for leases included.
    pub(crate) fn cpu_nodes(&self) -> &[NodeId] {
        &self.cpu_nodes
    }

    /// The size of a frame.
    #[inline]
    pub fn frame_size(&self) -> FrameSize {
        self.frame_size
    }

    /// How much address space the allocator's metadata has, in bytes.
    pub fn metadata_bytes(&self) -> usize {
        self.metadata.bytes()
    }

    /// Whether all of its memory was zero when it was built: it is no file's and not the user's.
    #[doc(hidden)]
    pub fn is_new_memory(&self) -> bool {
        self.memory.is_new_memory()
    }

    /// Has it taken for memory in huge pages, of which a machine that runs tests need have none.
    #[doc(hidden)]
    pub fn pretend_huge(&mut self, page_bytes: usize) {
        self.memory.pretend_huge(page_bytes);
    }

    /// Where the memory comes from.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }
}

// As for `Arena`.
impl<D: Design<Host>> UnwindSafe for FrameArena<D> {}
impl<D: Design<Host>> RefUnwindSafe for FrameArena<D> {}

impl<D: Design<Host>> core::fmt::Debug for FrameArena<D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FrameArena")
            .field("memory", &self.memory)
            .field("metadata", &self.metadata)
            .field("placement", &self.placement)
            .finish_non_exhaustive()
    }
}

/// What handlers of forks have of an arena: nothing of it that moves, since arenas do.
struct AtFork<D: Design<Host>> {
    allocator: ManuallyDrop<PageAllocator<Host, D>>,
    extent: Arc<Extent>,
    homes: Option<Homes>,
    frozen: Cell<Option<Frozen<Host>>>,
}

// SAFETY: The designs of the core, which are all that there are (`Design` has private traits), are
// tables of the host's atomics and cells, which are atomics too, and plain values. Any thread may
// use them. `Frozen` holds what the host's interrupts were, which is nothing. Extent and homes are
// `Send` without this. The handlers have the registry to themselves from the one before the fork to
// the one after.
unsafe impl<D: Design<Host>> Send for AtFork<D> {}

/// A second way to the books of an allocator, to be used as long as the metadata is there.
fn second_way<D: Design<Host>>(
    allocator: &PageAllocator<Host, D>,
) -> ManuallyDrop<PageAllocator<Host, D>> {
    // SAFETY: The core says that a bitwise copy that is never dropped may be used like the
    // original: neither ever changes itself. `Host` is `Copy`.
    ManuallyDrop::new(unsafe { core::ptr::read(allocator) })
}

/// Why there is something to thaw.
const FROZEN: &str = "handlers freeze before the fork";

impl<D: Design<Host>> Forks for AtFork<D> {
    fn freeze(&self) {
        self.extent.hold();
        self.homes.iter().for_each(Homes::hold);
        self.frozen.set(Some(self.allocator.freeze()));
    }

    fn thaw(&self) {
        let frozen = self.frozen.take().expect(FROZEN);
        self.allocator.thaw(frozen);
        self.homes.iter().for_each(Homes::release);
        self.extent.release();
    }

    fn thaw_copy(&self) {
        let frozen = self.frozen.take().expect(FROZEN);
        self.allocator.thaw_copy(frozen);
        if let (Some(homes), Some(allocator)) = (&self.homes, with_leases(&self.allocator)) {
            homes.release();
            homes.inherit(allocator);
        }
        self.extent.release();
    }
}

fn range(part: &Part, start: Pfn, frames: FrameCount) -> MemoryRange {
    MemoryRange::new(start, frames).on_node(part.node)
}

/// The memory for so many frames.
fn map<D: Design<Host>>(
    wishes: &ArenaBuilder<D>,
    frame_size: FrameSize,
    span: FrameCount,
) -> Result<Mapping, HostError> {
    let bytes = frame_size.bytes_of(span);
    let memory = match wishes.mapping {
        Some(UserMapping { base, shared, .. }) => {
            if !base.addr().get().is_multiple_of(frame_size.bytes()) {
                let reason = format!("{base:p} is no multiple of a frame of {frame_size}");
                return Err(HostError::BadSetting { setting: "mapping", reason });
            }
            // SAFETY: So the caller of `ArenaBuilder::mapping` has promised.
            unsafe { Mapping::of_user(base, bytes, shared) }
        }
        None => {
            let part_align = frame_size.bytes_of(PART_ALIGN.frames());
            let align = bytes.min(BASE_ALIGN_MAX).max(part_align).next_power_of_two();
            Mapping::new(&wishes.backing, bytes, align, wishes.guard_pages)?
        }
    };
    if wishes.huge_pages {
        memory.advise_huge_pages()?;
    }
    Ok(memory)
}

/// Has memory come from the nodes that it is wanted from. That it comes from the node of its part
/// is a matter of speed, so an arena does without where the kernel refuses.
fn place(memory: &Mapping, numa: Numa, plan: &Plan) -> Result<Placement, HostError> {
    let refuse =
        |source| HostError::Advise { advice: "to take memory from the nodes wanted", source };
    let extent = |part: &Part| {
        let offset = plan.frame_size.bytes_of(part.start - Pfn::new(0));
        (offset, plan.frame_size.bytes_of(part.capacity).min(memory.bytes() - offset))
    };
    match numa {
        Numa::Prefer if plan.parts.len() == 1 => return Ok(Placement::OneNode),
        Numa::Machine => return Ok(Placement::Machine),
        Numa::Interleave => {
            let placed = memory.place(0, memory.bytes(), Placing::Interleave, &plan.os_nodes);
            return placed.map(|()| Placement::Interleaved).map_err(refuse);
        }
        Numa::Prefer | Numa::Bind => {}
    }
    for part in &plan.parts {
        let (offset, bytes) = extent(part);
        let placing = if numa == Numa::Bind { Placing::Bind } else { Placing::Prefer };
        if let Err(error) = memory.place(offset, bytes, placing, &[part.os_node]) {
            return match numa {
                Numa::Bind => Err(refuse(error)),
                _ => Ok(Placement::FirstTouch(error)),
            };
        }
    }
    Ok(Placement::ByNode)
}
