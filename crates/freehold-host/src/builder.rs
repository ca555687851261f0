//! The builder of arenas.

#![expect(unsafe_code, reason = "takes the user's word for a mapping")]

use core::ptr::NonNull;
use std::fmt;

use freehold::designs::Freehold;
use freehold::{Design, FrameCount, FrameSize};

use crate::backing::UserMapping;
use crate::mapping::page_bytes;
use crate::plan::{Plan, Wishes};
use crate::{Arena, Backing, FrameArena, Host, HostError, Leases, Numa, Topology};

/// Collects the properties of an arena; [`ArenaBuilder::build`] creates it.
///
/// ```
/// use freehold_host::{ArenaBuilder, Host};
/// use freehold::designs::Freehold;
///
/// // With the design named; `Arena::builder()` is the same for the default design.
/// let arena = ArenaBuilder::<Freehold<Host>>::new().bytes(16 << 20).cpus(4).nodes(1).build()?;
/// # Ok::<(), freehold_host::HostError>(())
/// ```
pub struct ArenaBuilder<D: Design<Host> = Freehold<Host>> {
    bytes: usize,
    capacity_bytes: usize,
    pub(crate) backing: Backing,
    pub(crate) mapping: Option<UserMapping>,
    pub(crate) huge_pages: bool,
    pub(crate) guard_pages: bool,
    pub(crate) maps_as_it_grows: bool,
    pub(crate) repairs_late: bool,
    pub(crate) lock: bool,
    pub(crate) prefault_threads: usize,
    pub(crate) numa: Numa,
    pub(crate) min_free: Option<FrameCount>,
    frame_size: Option<FrameSize>,
    pub(crate) frame_record_bytes: usize,
    cpus: Option<usize>,
    nodes: Option<usize>,
    topology: Option<Topology>,
    pub(crate) settings: D::Settings,
    pub(crate) leases: Leases,
}

impl<D: Design<Host>> ArenaBuilder<D> {
    /// A builder of an arena without memory: [`ArenaBuilder::bytes`] is the one required call.
    pub fn new() -> Self {
        ArenaBuilder {
            bytes: 0,
            capacity_bytes: 0,
            backing: Backing::Private,
            mapping: None,
            huge_pages: false,
            guard_pages: false,
            maps_as_it_grows: false,
            repairs_late: false,
            lock: false,
            prefault_threads: 0,
            numa: Numa::Prefer,
            min_free: None,
            frame_size: None,
            frame_record_bytes: 0,
            cpus: None,
            nodes: None,
            topology: None,
            settings: D::Settings::default(),
            leases: Leases::Off,
        }
    }

    /// How much memory the arena manages, in bytes, over all nodes together. Each node's share is
    /// rounded up to a pageblock: 512 frames, 2 MiB of frames of 4 KiB. Memory is taken from the
    /// machine when it is first touched.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// How much memory the arena can have after calls of `grow`, in bytes. Each node's share is
    /// rounded up to the largest block of the buddy system: two pageblocks, 4 MiB of frames of
    /// 4 KiB. Costs address space and metadata at once. Default: no growth.
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: usize) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// What the memory is made of. Default: [`Backing::Private`].
    #[must_use]
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = backing;
        self
    }

    /// Builds the arena in memory that is mapped already: of another process, of a device, of a
    /// guest, or by the user's own rules. Frame 0 is at its beginning, which must be a multiple of
    /// the frame size. [`ArenaBuilder::bytes`] may be left out: then all of it is used, to the last
    /// whole frame. The mapping stays when the arena is dropped. `shared` says whether it is one
    /// (`MAP_SHARED`), so that memory is given back by the right means.
    ///
    /// # Safety
    ///
    /// The memory must be one allocation of at most `isize::MAX` bytes, mapped, readable and
    /// writable, and used by this arena alone, for as long as the arena lives; of clones of this
    /// builder, only one builds an arena at a time. Its content must be initialised, for
    /// [`Pages`](crate::Pages) are slices of it, and a [`FrameArena`] reads any frame that safe
    /// code names. What is said to be private must be anonymous memory in the machine's own pages,
    /// since the arena says that what is given back is zero: of a private mapping of a file it
    /// reads as the file, and of huge pages from the pool the kernel keeps parts.
    #[must_use]
    pub unsafe fn mapping(mut self, base: NonNull<u8>, bytes: usize, shared: bool) -> Self {
        self.mapping = Some(UserMapping { base, bytes, shared });
        self
    }

    /// Whether a page before the arena's memory and one after it can be neither read nor written,
    /// so that accesses beyond the ends fault. Default: no. Not for a mapping of the user's.
    #[must_use]
    pub fn guard_pages(mut self, wanted: bool) -> Self {
        self.guard_pages = wanted;
        self
    }

    /// Whether memory is mapped as the arena grows, and not all of its capacity at once. Then what
    /// the process has locked (`mlockall(2)`), what counts towards its limits (`RLIMIT_AS`,
    /// `RLIMIT_DATA`) and what it has committed (`vm.overcommit_memory=2`) is what the arena has.
    /// Growth is refused ([`HostError::Map`]) beyond such a limit, and where others have mapped
    /// something since: the kernel places mappings far from the arena while it can. Frames that
    /// never were the arena's have no content: to name them panics. Default: no. For
    /// [`Backing::Private`] without guard pages.
    ///
    /// [Huge pages](ArenaBuilder::huge_pages) are asked for in what the arena grows by, and not in
    /// what it begins with: a small program fills little of each.
    #[must_use]
    pub fn map_as_it_grows(mut self, wanted: bool) -> Self {
        self.maps_as_it_grows = wanted;
        self
    }

    /// Whether children of forks repair their copy at [`FrameArena::ensure_repaired`], which must
    /// come before their first call then, and not while they are forked: most need none.
    #[doc(hidden)]
    #[must_use]
    pub fn late_repair(mut self, wanted: bool) -> Self {
        self.repairs_late = wanted;
        self
    }

    /// Whether memory that was touched stays in memory (`mlock2(2)` with `MLOCK_ONFAULT`) and is
    /// never swapped out. Then none can be given back either. Default: no.
    #[must_use]
    pub fn lock(mut self, wanted: bool) -> Self {
        self.lock = wanted;
        self
    }

    /// Takes the memory from the machine while the arena is built, by so many threads, so that no
    /// later access faults: see [`FrameArena::prefault`]. Default: 0, none of it.
    #[must_use]
    pub fn prefault(mut self, threads: usize) -> Self {
        self.prefault_threads = threads;
        self
    }

    /// From which memory nodes of the machine the memory comes. Default: [`Numa::Prefer`].
    #[must_use]
    pub fn numa(mut self, numa: Numa) -> Self {
        self.numa = numa;
        self
    }

    /// How many frames ordinary requests leave alone. See
    /// [`Config::min_free`](freehold::Config::min_free). Default: what Linux would, less than a
    /// fiftieth of small arenas. With 0, all of the memory can be allocated, in blocks of any
    /// order.
    #[must_use]
    pub fn min_free(mut self, frames: FrameCount) -> Self {
        self.min_free = Some(frames);
        self
    }

    /// Whether to ask the kernel to back the arena with huge pages (`MADV_HUGEPAGE`). Default:
    /// not to ask, which leaves it to the machine's setting.
    #[must_use]
    pub fn huge_pages(mut self, wanted: bool) -> Self {
        self.huge_pages = wanted;
        self
    }

    /// The size of a frame, at least a page of the machine. Default: that of
    /// [`Config`](freehold::Config), or the machine's pages where these are larger.
    #[must_use]
    pub fn frame_size(mut self, size: FrameSize) -> Self {
        self.frame_size = Some(size);
        self
    }

    /// The distance in bytes between the records of two frames, for designs that keep such records.
    /// Default: as close as they fit; 64 models Linux's `struct page`.
    #[must_use]
    pub fn frame_record_bytes(mut self, bytes: usize) -> Self {
        self.frame_record_bytes = bytes;
        self
    }

    /// For how many CPUs the allocator keeps separate state. Default: up to the highest number of a
    /// CPU that is online now. CPUs beyond the count share the state of others, and so do those
    /// with higher numbers that come online later.
    ///
    /// Each CPU may cache a share of the memory. With less than 64 MiB for each, the design
    /// `freehold` lets no CPU cache memory for content that cannot move: an allocation and free of
    /// it took 700 ns instead of 13 (one thread, a virtual machine of 2 CPUs). So do not count CPUs
    /// that never come online.
    #[must_use]
    pub fn cpus(mut self, count: usize) -> Self {
        self.cpus = Some(count);
        self
    }

    /// Over how many memory nodes the arena spreads: the first ones that have memory. Default: all.
    /// CPUs of other nodes are served by the nearest of these.
    #[must_use]
    pub fn nodes(mut self, count: usize) -> Self {
        self.nodes = Some(count);
        self
    }

    /// The machine to build for. Default: this one, as [`Topology::discover`] finds it; with both
    /// [`ArenaBuilder::cpus`] and `nodes(1)` given, no discovery is needed.
    #[must_use]
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self
    }

    /// The settings of the design. Default: the design's own.
    #[must_use]
    pub fn settings(mut self, settings: D::Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Whether the threads of the arena get leases automatically. Default: [`Leases::Off`].
    ///
    /// With [`Leases::Auto`], a thread that has made some thousand calls leases caches of its
    /// own, as long as there are any: the arena has one set for each CPU. The thread allocates and
    /// frees there without a locked step. What these caches hold is not lost to others: a call that
    /// runs out of memory, or drains or purges the arena, revokes the leases of all threads, idle
    /// ones included. Those go on as without a lease, and may get another one after as many calls.
    /// A thread that ends leaves its caches to the next one. One that goes idle keeps the lease,
    /// though not what the caches hold.
    ///
    /// Costs metadata for twice the CPUs. What caches may hold is divided among all of them. CPUs
    /// beyond [`ArenaBuilder::cpus`] share the caches that threads lease, so give no lower count
    /// there than the default, and count CPUs that are to come online later.
    ///
    /// A `fork` revokes all leases. In the child, those of other threads are available to its own.
    #[must_use]
    pub fn leases(mut self, leases: Leases) -> Self {
        self.leases = leases;
        self
    }

    /// Builds an arena that allocates owned [`Pages`](crate::Pages).
    ///
    /// # Errors
    ///
    /// The setting that is invalid, or the error of the operating system. See [`HostError`].
    /// [`HostError::BadSetting`] for a [`Backing::Memfd`] or [`Backing::File`].
    pub fn build(self) -> Result<Arena<D>, HostError> {
        self.refuse_shared("call `build_frames`, or, in unsafe code, `build_shared`")?;
        Ok(Arena::from_new_frames(self.build_frames()?))
    }

    /// The same with any backing.
    ///
    /// # Safety
    ///
    /// Of a [`Backing::Memfd`] or [`Backing::File`], nothing else writes the memory of a block
    /// while a slice of it, or a value in it, is used: no other process that maps the file, no
    /// other arena over it, and no call that takes its descriptor, which [`Arena::file`] gives to
    /// safe code. Memory that others write is reached by
    /// [`Block::address`](crate::Block::address) alone. Nothing makes the file shorter: an access
    /// beyond its end is a `SIGBUS`.
    ///
    /// # Errors
    ///
    /// As for [`ArenaBuilder::build`].
    pub unsafe fn build_shared(self) -> Result<Arena<D>, HostError> {
        Ok(Arena::from_new_frames(self.build_frames()?))
    }

    /// Refuses memory that others may write, whom no borrow keeps away.
    #[doc(hidden)]
    pub fn refuse_shared(&self, remedy: &str) -> Result<(), HostError> {
        match self.backing {
            Backing::Private | Backing::HugeTlb { .. } => Ok(()),
            Backing::Memfd | Backing::File(_) => {
                let reason = format!("others may write a memfd or a file: {remedy}");
                Err(HostError::BadSetting { setting: "backing", reason })
            }
        }
    }

    /// Builds an arena that allocates bare frame numbers.
    ///
    /// # Errors
    ///
    /// As for [`ArenaBuilder::build`].
    pub fn build_frames(self) -> Result<FrameArena<D>, HostError> {
        let flat;
        let topology = match (&self.topology, self.cpus, self.nodes) {
            (Some(topology), _, _) => topology,
            (None, cpus, nodes) => {
                flat = match (cpus, nodes, self.numa) {
                    (Some(_), Some(1), Numa::Prefer | Numa::Machine) => Topology::flat(1),
                    _ => Topology::discover()?,
                };
                &flat
            }
        };
        let is_plain =
            matches!(self.backing, Backing::Private) && !self.guard_pages && self.mapping.is_none();
        if self.maps_as_it_grows && !is_plain {
            let reason = "for private memory of the arena's own, without guard pages".into();
            return Err(HostError::BadSetting { setting: "map_as_it_grows", reason });
        }
        let wishes = Wishes {
            frame_size: self.frame_size,
            bytes: self.bytes,
            capacity_bytes: self.capacity_bytes,
            cpus: self.cpus,
            nodes: self.nodes,
            mapping_bytes: self.mapping.map(|mapping| mapping.bytes),
        };
        let mut plan = Plan::new(topology, page_bytes(), wishes)?;
        if self.leases == Leases::Auto {
            plan.add_lease_homes()?;
        }
        FrameArena::new(plan, &self)
    }
}

impl<D: Design<Host>> Clone for ArenaBuilder<D> {
    fn clone(&self) -> Self {
        ArenaBuilder {
            backing: self.backing.clone(),
            topology: self.topology.clone(),
            settings: self.settings.clone(),
            ..*self
        }
    }
}

impl<D: Design<Host>> Default for ArenaBuilder<D> {
    fn default() -> Self {
        ArenaBuilder::new()
    }
}

impl<D: Design<Host>> fmt::Debug for ArenaBuilder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArenaBuilder")
            .field("bytes", &self.bytes)
            .field("capacity_bytes", &self.capacity_bytes)
            .field("backing", &self.backing)
            .field("mapping", &self.mapping)
            .field("huge_pages", &self.huge_pages)
            .field("guard_pages", &self.guard_pages)
            .field("maps_as_it_grows", &self.maps_as_it_grows)
            .field("repairs_late", &self.repairs_late)
            .field("lock", &self.lock)
            .field("prefault_threads", &self.prefault_threads)
            .field("numa", &self.numa)
            .field("min_free", &self.min_free)
            .field("frame_size", &self.frame_size)
            .field("frame_record_bytes", &self.frame_record_bytes)
            .field("cpus", &self.cpus)
            .field("nodes", &self.nodes)
            .field("topology", &self.topology)
            .field("settings", &self.settings)
            .field("leases", &self.leases)
            .finish()
    }
}
