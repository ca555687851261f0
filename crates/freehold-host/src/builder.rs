//! The builder of arenas.

use std::fmt;

use freehold::designs::Freehold;
use freehold::{Design, FrameSize};

use crate::mapping::page_bytes;
use crate::plan::{Plan, Wishes};
use crate::region::Region;
use crate::{Arena, FrameArena, Host, HostError, Leases, Topology};

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
    huge_pages: bool,
    frame_size: Option<FrameSize>,
    frame_record_bytes: usize,
    cpus: Option<usize>,
    nodes: Option<usize>,
    topology: Option<Topology>,
    settings: D::Settings,
    leases: Leases,
    pub(crate) region: Option<Region>,
}

impl<D: Design<Host>> ArenaBuilder<D> {
    /// A builder of an arena without memory: [`ArenaBuilder::bytes`] is the one required call.
    pub fn new() -> Self {
        ArenaBuilder {
            bytes: 0,
            capacity_bytes: 0,
            huge_pages: false,
            frame_size: None,
            frame_record_bytes: 0,
            cpus: None,
            nodes: None,
            topology: None,
            settings: D::Settings::default(),
            leases: Leases::Off,
            region: None,
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
    pub fn build(self) -> Result<Arena<D>, HostError> {
        Ok(Arena::from_new_frames(self.build_frames()?))
    }

    /// Builds an arena that allocates bare frame numbers.
    ///
    /// # Errors
    ///
    /// As for [`ArenaBuilder::build`].
    pub fn build_frames(self) -> Result<FrameArena<D>, HostError> {
        // Of a region the arena cannot tell where its parts come from.
        let nodes = if self.region.is_some() { Some(1) } else { self.nodes };
        let topology = match (self.topology, self.cpus, nodes) {
            (Some(topology), _, _) => topology,
            (None, Some(_), Some(1)) => Topology::flat(1),
            (None, _, _) => Topology::discover()?,
        };
        let wishes = Wishes {
            frame_size: self.frame_size,
            bytes: match self.region {
                Some(region) if self.bytes == 0 => region.bytes(),
                _ => self.bytes,
            },
            capacity_bytes: self.capacity_bytes,
            cpus: self.cpus,
            nodes,
        };
        let mut plan = Plan::new(&topology, page_bytes(), wishes)?;
        let memory =
            self.region.map(|region| region.hold(&mut plan, self.bytes == 0)).transpose()?;
        if self.leases == Leases::Auto {
            plan.add_lease_homes()?;
        }
        let huge_pages = self.huge_pages;
        let (record_bytes, settings) = (self.frame_record_bytes, &self.settings);
        FrameArena::new(plan, memory, huge_pages, record_bytes, settings, self.leases)
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
            .field("huge_pages", &self.huge_pages)
            .field("frame_size", &self.frame_size)
            .field("frame_record_bytes", &self.frame_record_bytes)
            .field("cpus", &self.cpus)
            .field("nodes", &self.nodes)
            .field("topology", &self.topology)
            .field("settings", &self.settings)
            .field("leases", &self.leases)
            .field("region", &self.region)
            .finish()
    }
}
