//! An allocator on real memory whose frames are bare numbers.
#![expect(unsafe_code, reason = "lends the allocator its metadata and writes bytes into frames")]

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::io;
use std::sync::Arc;

use freehold::designs::Freehold;
use freehold::{
    Config, Design, Error, FrameCount, FrameSize, MemoryRange, Metadata, NodeId, Order,
    PageAllocator, Pfn, Request,
};

use crate::fork::{ForkMutex, Forks, Registration};
use crate::leases::{Homes, Pool, with_leases};
use crate::mapping::Mapping;
use crate::plan::{PART_ALIGN, Part, Plan, growth};
use crate::{Host, HostError, Leases};

/// The largest alignment of an arena, so that an arena of a few MiB wastes no address space.
const BASE_ALIGN_MAX: usize = 1 << 30;

/// The first word of a frame is accessed by bytes, all others as a whole.
const WORD_BYTES: usize = size_of::<u64>();

/// Where the memory of an arena comes from.
#[derive(Debug)]
#[non_exhaustive]
pub enum Placement {
    /// The arena has one node; the machine places its memory.
    OneNode,
    /// Each node's part takes its memory from that node while it has any.
    ByNode,
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
/// any arena and to 1 GiB in arenas that large.
///
/// # Who may touch a frame
///
/// Whoever can name this value can allocate, free and write any frame: all of that is safe, for
/// the memory is only reached through raw pointers and atomic bytes. Code that makes references
/// from these pointers must therefore keep the `FrameArena` to itself. [`Arena`](crate::Arena)
/// does exactly that, and hands out owned memory instead.
pub struct FrameArena<D: Design<Host> = Freehold<Host>> {
    // Fields are dropped in this order: handlers of forks know the arena no longer when the
    // allocator goes, and that goes before the metadata that it uses.
    _fork: Registration,
    allocator: PageAllocator<Host, D>,
    metadata: Mapping,
    memory: Mapping,
    frame_size: FrameSize,
    parts: Arc<ForkMutex<Vec<Part>>>,
    cpu_nodes: Vec<NodeId>,
    placement: Placement,
    leases: Option<Pool>,
}

impl<D: Design<Host>> FrameArena<D> {
    pub(crate) fn new(
        plan: Plan,
        huge_pages: bool,
        frame_record_bytes: usize,
        settings: &D::Settings,
        leases: Leases,
    ) -> Result<Self, HostError> {
        let span = plan.span();
        let ranges: Vec<MemoryRange> =
            plan.parts.iter().map(|part| range(part, part.start, part.frames)).collect();
        let config = Config::new(&ranges, &plan.cpu_nodes)
            .distances(&plan.distances)
            .span((Pfn::new(0), span))
            .frame_size(plan.frame_size)
            .frame_record_bytes(frame_record_bytes);
        // Checks the configuration too, so that nothing has been mapped if it is refused.
        let layout = PageAllocator::<Host, D>::layout(&config, settings)?;

        let frame_size = plan.frame_size;
        let bytes = frame_size.bytes_of(span);
        let part_align = frame_size.bytes_of(PART_ALIGN.frames());
        let align = bytes.min(BASE_ALIGN_MAX).max(part_align).next_power_of_two();
        let memory = Mapping::reserve(bytes, align)?;
        if huge_pages {
            memory.advise_huge_pages()?;
        }
        let placement = place(&memory, frame_size, &plan.parts);
        let metadata = Mapping::reserve(layout.size().max(1), layout.align())?;
        // SAFETY: The mapping is new, so nobody else uses its memory. It stays mapped until after
        // the allocator is gone: it is dropped after it, both here and as a field.
        let lent = unsafe { Metadata::from_raw_parts(metadata.base(), metadata.bytes()) };
        let allocator = PageAllocator::new(Host::new(), &config, settings, lent)?;
        let (parts, cpu_nodes) = (Arc::new(ForkMutex::new(plan.parts)), plan.cpu_nodes);
        let leases = match (leases, with_leases(&allocator)) {
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
        let at_fork =
            AtFork { allocator: second_way(&allocator), parts: Arc::clone(&parts), homes };
        // The last thing that can fail: what was mapped is there as long as it is registered.
        let fork = Registration::new(Box::new(at_fork))?;
        Ok(FrameArena {
            _fork: fork,
            allocator,
            metadata,
            memory,
            frame_size,
            parts,
            cpu_nodes,
            placement,
            leases,
        })
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

    /// The address of a frame. Costs a comparison and an addition.
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity.
    #[inline]
    pub fn address_of(&self, pfn: Pfn) -> NonNull<u8> {
        // A number too large saturates to an offset that is beyond any mapping.
        self.memory.address(self.frame_size.bytes_of(FrameCount::new(pfn.get())))
    }

    /// Writes the first byte of a frame, which makes the machine back it with memory. Relaxed.
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity.
    #[inline]
    pub fn store_byte(&self, pfn: Pfn, value: u8) {
        self.first_byte(pfn).store(value, Relaxed);
    }

    /// Reads the first byte of a frame: 0 in a frame never written. Relaxed.
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity.
    #[inline]
    pub fn load_byte(&self, pfn: Pfn) -> u8 {
        self.first_byte(pfn).load(Relaxed)
    }

    /// Copies the content of one block into another, for an owner whose block moves. Relaxed: a
    /// tenth of a microsecond or more a frame. Blocks that overlap are copied frame by frame.
    ///
    /// # Panics
    ///
    /// If a block lies beyond the arena's capacity.
    pub fn copy_block(&self, from: Pfn, to: Pfn, order: Order) {
        for frame in 0..order.frames().get() {
            let [from, to] = [from, to].map(|pfn| pfn.offset(FrameCount::new(frame)));
            // Bytes that `store_byte` writes are bytes here, too, and all others are words in every
            // access: atomic accesses of one size never race.
            for byte in 0..WORD_BYTES {
                self.byte(to, byte).store(self.byte(from, byte).load(Relaxed), Relaxed);
            }
            for word in 1..self.frame_size.bytes() / WORD_BYTES {
                self.word(to, word).store(self.word(from, word).load(Relaxed), Relaxed);
            }
        }
    }

    /// Fills a frame. Relaxed, as [`FrameArena::copy_block`].
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity, or the content is not as long as a frame.
    pub fn write_frame(&self, pfn: Pfn, content: &[u8]) {
        assert_eq!(content.len(), self.frame_size.bytes(), "the content of one frame");
        for (index, bytes) in content.as_chunks::<WORD_BYTES>().0.iter().enumerate() {
            if index == 0 {
                // The bytes of the first word are bytes in every access.
                for (index, &byte) in bytes.iter().enumerate() {
                    self.byte(pfn, index).store(byte, Relaxed);
                }
            } else {
                self.word(pfn, index).store(u64::from_ne_bytes(*bytes), Relaxed);
            }
        }
    }

    /// Copies what is in a frame. Relaxed, as [`FrameArena::copy_block`].
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity, or there is not room for just one.
    pub fn read_frame(&self, pfn: Pfn, content: &mut [u8]) {
        assert_eq!(content.len(), self.frame_size.bytes(), "room for one frame");
        for (index, bytes) in content.as_chunks_mut::<WORD_BYTES>().0.iter_mut().enumerate() {
            *bytes = match index {
                0 => core::array::from_fn(|index| self.byte(pfn, index).load(Relaxed)),
                _ => self.word(pfn, index).load(Relaxed).to_ne_bytes(),
            };
        }
    }

    /// The memory that the arena manages now, node by node, and the node of each CPU.
    pub(crate) fn shape(&self) -> (Vec<MemoryRange>, &[NodeId]) {
        let parts = self.parts.lock();
        (parts.iter().map(|part| range(part, part.start, part.frames)).collect(), &self.cpu_nodes)
    }

    /// Gives the memory of a block back to the machine. The block stays usable and reads as zero.
    /// One system call.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses: the memory is locked (`mlockall`).
    ///
    /// # Panics
    ///
    /// If the block does not lie in the arena's capacity.
    ///
    /// # Safety
    ///
    /// The caller owns the block: nobody else reads or writes it during the call.
    pub unsafe fn discard(&self, pfn: Pfn, order: Order) -> Result<(), HostError> {
        let offset = self.frame_size.bytes_of(FrameCount::new(pfn.get()));
        let bytes = self.frame_size.bytes_of(order.frames());
        // SAFETY: The caller vouches that the block is in nobody else's use.
        unsafe { self.memory.discard(offset, bytes) }
    }

    /// Adds memory within the capacity that the arena was built with: `bytes`, divided evenly over
    /// its nodes, each share rounded up to a pageblock. Returns how much that was.
    ///
    /// # Errors
    ///
    /// [`HostError::CapacityExceeded`] if a share does not fit; nothing has changed then.
    /// [`HostError::Allocator`] if the allocator refuses a share; those before it have been added.
    pub fn grow(&self, bytes: usize) -> Result<FrameCount, HostError> {
        // A panic under this lock leaves the books of at most one share behind: they stay usable.
        let mut parts = self.parts.lock();
        let share = growth(bytes, parts.len(), self.frame_size);
        let left = |part: &Part| part.capacity.get() - part.frames.get();
        let left_min = parts.iter().map(left).min().unwrap_or(0);
        if share.get() > left_min {
            let left = self.frame_size.bytes_of(FrameCount::new(left_min)) * parts.len();
            return Err(HostError::CapacityExceeded { bytes, left });
        }
        let mut added = FrameCount::ZERO;
        if share == added {
            return Ok(added);
        }
        for part in parts.iter_mut() {
            self.allocator.add_memory(range(part, part.start.offset(part.frames), share))?;
            part.frames += share;
            added += share;
        }
        Ok(added)
    }

    /// How much memory the arena manages now, free or not.
    pub fn total_frames(&self) -> FrameCount {
        let parts = self.parts.lock();
        parts.iter().map(|part| part.frames).sum()
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

    /// Where the memory comes from.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    #[inline]
    fn first_byte(&self, pfn: Pfn) -> &AtomicU8 {
        self.byte(pfn, 0)
    }

    /// One of the first bytes of a frame: those of its first word.
    #[inline]
    fn byte(&self, pfn: Pfn, index: usize) -> &AtomicU8 {
        assert!(index < WORD_BYTES);
        let address = self.address_of(pfn).as_ptr().wrapping_add(index);
        // SAFETY: The frame is mapped as long as `self` lives. All safe accesses to frames of a
        // `FrameArena` are atomic; its documentation asks unsafe ones to keep others away.
        unsafe { AtomicU8::from_ptr(address) }
    }

    /// One of the words of a frame, but not the first.
    #[inline]
    fn word(&self, pfn: Pfn, index: usize) -> &AtomicU64 {
        assert!((1..self.frame_size.bytes() / WORD_BYTES).contains(&index));
        let address = self.address_of(pfn).as_ptr().wrapping_add(index * WORD_BYTES);
        // SAFETY: As in `byte`. A frame begins at a multiple of its size, so its words are aligned.
        unsafe { AtomicU64::from_ptr(address.cast()) }
    }
}

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
    parts: Arc<ForkMutex<Vec<Part>>>,
    homes: Option<Homes>,
}

// SAFETY: The designs of the core, which are all that there are, are tables of the host's atomics
// and cells, which are atomics too, and plain values. Any thread may use them.
unsafe impl<D: Design<Host>> Send for AtFork<D> {}

/// A second way to the books of an allocator, to be used as long as the metadata is there.
fn second_way<D: Design<Host>>(
    allocator: &PageAllocator<Host, D>,
) -> ManuallyDrop<PageAllocator<Host, D>> {
    // SAFETY: The core says that a bitwise copy that is never dropped may be used like the
    // original: neither ever changes itself. `Host` is `Copy`.
    ManuallyDrop::new(unsafe { core::ptr::read(allocator) })
}

impl<D: Design<Host>> Forks for AtFork<D> {
    fn freeze(&self) {
        self.parts.hold();
        self.homes.iter().for_each(Homes::hold);
        self.allocator.freeze();
    }

    fn thaw(&self) {
        self.allocator.thaw();
        self.homes.iter().for_each(Homes::release);
        self.parts.release();
    }

    fn thaw_copy(&self) {
        self.allocator.thaw_copy();
        if let (Some(homes), Some(allocator)) = (&self.homes, with_leases(&self.allocator)) {
            homes.release();
            homes.inherit(allocator);
        }
        self.parts.release();
    }
}

fn range(part: &Part, start: Pfn, frames: FrameCount) -> MemoryRange {
    MemoryRange::new(start, frames).on_node(part.node)
}

/// Binds each part to its node. Placement is a matter of speed, so an arena does without where
/// the kernel refuses.
fn place(memory: &Mapping, frame_size: FrameSize, parts: &[Part]) -> Placement {
    if parts.len() == 1 {
        return Placement::OneNode;
    }
    for part in parts {
        let offset = frame_size.bytes_of(FrameCount::new(part.start.get()));
        let bytes = frame_size.bytes_of(part.capacity);
        if let Err(error) = memory.prefer_node(offset, bytes, part.os_node) {
            return Placement::FirstTouch(error);
        }
    }
    Placement::ByNode
}
