//! An allocator on real memory whose frames are bare numbers.
#![expect(unsafe_code, reason = "lends the allocator its metadata and writes bytes into frames")]

use core::panic::{RefUnwindSafe, UnwindSafe};
use std::io;
use std::sync::Arc;

use freehold::designs::Freehold;
use freehold::{
    Config, Design, Error, FrameCount, FrameSize, MemoryRange, Metadata, NodeId, Order,
    PageAllocator, Pfn, Request,
};

use crate::backing::UserMapping;
use crate::fork::Registration;
use crate::leases::{Pool, with_leases};
use crate::mapping::{Mapping, PLACES_MAX};
use crate::plan::{PART_ALIGN, Part, Plan};
use crate::{ArenaBuilder, Host, HostError, Leases};

mod asked;
mod at_fork;
mod content;
mod memory;
mod place;
mod purge;

use asked::{Asked, extent};
use at_fork::AtFork;
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
    /// [`Numa::Bind`](crate::Numa::Bind), only.
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
    at_fork: Arc<AtFork<D>>,
    allocator: PageAllocator<Host, D>,
    metadata: Mapping,
    memory: Mapping,
    asked: Asked,
    frame_size: FrameSize,
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
        let memory = map(wishes, &plan)?;
        let asked = Asked::new(wishes, &plan);
        let placement = asked.of_new(&memory, &plan, wishes.maps_as_it_grows)?;
        let frame_size = plan.frame_size;
        let metadata = Mapping::reserve(layout.size().max(1), layout.align())?;
        // SAFETY: The mapping is new, so its memory is zeroed and has no other user. It is mapped
        // until after the allocator is gone: it is dropped after it, both here and as a field.
        let lent = unsafe { Metadata::from_zeroed_raw_parts(metadata.base(), metadata.bytes()) };
        let allocator = PageAllocator::new(Host::new(), &config, settings, lent)?;
        let (extent, cpu_nodes) = (Extent::new(plan.parts), plan.cpu_nodes);
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
        let at_fork = Arc::new(AtFork::new(&allocator, extent, homes, wishes.repairs_late));
        // Last but for prefaults: what was mapped is there as long as it is registered.
        let fork = Registration::new(Box::new(Arc::clone(&at_fork)))?;
        let arena = FrameArena {
            _fork: fork,
            at_fork,
            allocator,
            metadata,
            memory,
            asked,
            frame_size,
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

fn range(part: &Part, start: Pfn, frames: FrameCount) -> MemoryRange {
    MemoryRange::new(start, frames).on_node(part.node)
}

/// The memory of an arena, without what is asked of the machine for it.
fn map<D: Design<Host>>(wishes: &ArenaBuilder<D>, plan: &Plan) -> Result<Mapping, HostError> {
    let frame_size = plan.frame_size;
    let bytes = frame_size.bytes_of(plan.span());
    if let Some(UserMapping { base, shared, .. }) = wishes.mapping {
        if !base.addr().get().is_multiple_of(frame_size.bytes()) {
            let reason = format!("{base:p} is no multiple of a frame of {frame_size}");
            return Err(HostError::BadSetting { setting: "mapping", reason });
        }
        // SAFETY: So the caller of `ArenaBuilder::mapping` has promised.
        return Ok(unsafe { Mapping::of_user(base, bytes, shared) });
    }
    let part_align = frame_size.bytes_of(PART_ALIGN.frames());
    let align = bytes.min(BASE_ALIGN_MAX).max(part_align).next_power_of_two();
    if !wishes.maps_as_it_grows {
        return Mapping::new(&wishes.backing, bytes, align, wishes.guard_pages);
    }
    let part_bytes = frame_size.bytes_of(plan.parts[0].capacity);
    let mut mapped = Err(HostError::Map { bytes, source: io::ErrorKind::AddrInUse.into() });
    // Others may get the addresses before they are mapped.
    for _ in 0..PLACES_MAX {
        let memory = Mapping::unmapped(bytes, align, part_bytes)?;
        let refused = plan
            .parts
            .iter()
            .find_map(|part| memory.map_up_to(extent(frame_size, part, part.frames)).err());
        match refused {
            None => return Ok(memory),
            Some(refusal) => mapped = Err(refusal),
        }
        if !matches!(&mapped, Err(error) if error.is_taken()) {
            break;
        }
    }
    mapped
}
