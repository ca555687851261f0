//! The options of arenas.

use freehold::{FrameCount, FrameSize};
use freehold_host::{ArenaBuilder, Backing, Leases, Numa};

use crate::args::duplicate;
use crate::error::freehold_error::*;
use crate::error::{Result, explain};

/// In freehold_options.flags: threads that make many calls get leases of caches, which they use
/// without a locked step. It costs metadata for twice the CPUs.
pub const FREEHOLD_LEASES: u32 = 1;
/// In freehold_options.flags: asks the kernel for huge pages.
pub const FREEHOLD_HUGE_PAGES: u32 = 2;
/// In freehold_options.flags, for a region: it is mapped shared (MAP_SHARED).
pub const FREEHOLD_SHARED: u32 = 4;
/// In freehold_options.flags: a page before the memory and one after it can be neither read nor
/// written. Not for regions.
pub const FREEHOLD_GUARD_PAGES: u32 = 8;
/// In freehold_options.flags: memory that was touched stays in memory (mlock2). Then none can be
/// given back either.
pub const FREEHOLD_LOCK: u32 = 16;
/// In freehold_options.flags: FREEHOLD_PRIVATE will do where FREEHOLD_HUGETLB has too few pages.
pub const FREEHOLD_OR_PRIVATE: u32 = 32;
/// In freehold_options.flags: min_free_bytes counts, 0 as well. Without this flag, a small part of
/// the memory is kept back, as Linux would.
pub const FREEHOLD_MIN_FREE: u32 = 64;

const FLAGS: u32 = FREEHOLD_LEASES
    | FREEHOLD_HUGE_PAGES
    | FREEHOLD_SHARED
    | FREEHOLD_GUARD_PAGES
    | FREEHOLD_LOCK
    | FREEHOLD_OR_PRIVATE
    | FREEHOLD_MIN_FREE;

/// In freehold_options.backing: memory of the process, in the machine's pages. The default.
pub const FREEHOLD_PRIVATE: u32 = 0;
/// In freehold_options.backing: memory of the process, from the machine's pool of huge pages of
/// huge_page_bytes (vm.nr_hugepages), all of which is taken at once.
pub const FREEHOLD_HUGETLB: u32 = 1;
/// In freehold_options.backing: an anonymous file (memfd_create), which other processes can map:
/// see freehold_file.
pub const FREEHOLD_MEMFD: u32 = 2;
/// In freehold_options.backing: the file of the descriptor `file`, open for reading and writing. It
/// is mapped shared, and made as large as the arena's capacity if it is smaller. The descriptor is
/// duplicated.
pub const FREEHOLD_FILE: u32 = 3;

/// In freehold_options.numa: FREEHOLD_NUMA_PREFER, or FREEHOLD_NUMA_MACHINE for a region.
pub const FREEHOLD_NUMA_DEFAULT: u32 = 0;
/// In freehold_options.numa: each node's part comes from that node while it has memory.
pub const FREEHOLD_NUMA_PREFER: u32 = 1;
/// In freehold_options.numa: each node's part comes from that node alone. The process is killed, or
/// gets SIGBUS, if it has no more.
pub const FREEHOLD_NUMA_BIND: u32 = 2;
/// In freehold_options.numa: all nodes in turn, page by page.
pub const FREEHOLD_NUMA_INTERLEAVE: u32 = 3;
/// In freehold_options.numa: what the machine does anyway.
pub const FREEHOLD_NUMA_MACHINE: u32 = 4;

/// How an arena is to be. Set `size` to sizeof(freehold_options) and the rest to 0, then what you
/// need: all but `bytes` has a default, which is 0.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct freehold_options {
    /// sizeof(freehold_options).
    pub size: usize,
    /// How much memory the arena manages, rounded up to pageblocks (512 frames, 2 MiB of frames of
    /// 4 KiB) for each node. Required, except by freehold_arena_from_region: all of the region.
    pub bytes: usize,
    /// How much freehold_grow can extend it to. It costs address space.
    pub capacity_bytes: usize,
    /// The size of a frame: a power of two, at least a page of the machine. Default: 4 KiB, or the
    /// machine's page where that is larger.
    pub frame_bytes: usize,
    /// For FREEHOLD_HUGETLB: a size of pages that the machine has, such as 2 MiB.
    pub huge_page_bytes: usize,
    /// With FREEHOLD_MIN_FREE: how much ordinary requests leave alone.
    pub min_free_bytes: usize,
    /// For how many CPUs the arena keeps caches. Default: those of the machine.
    pub cpus: u32,
    /// Over how many NUMA nodes it spreads. Default: all; in a region always 1.
    pub nodes: u32,
    /// FREEHOLD_LEASES and others.
    pub flags: u32,
    /// What the memory is made of: FREEHOLD_PRIVATE and so on. Not for regions.
    pub backing: u32,
    /// For FREEHOLD_FILE.
    pub file: i32,
    /// From which nodes the memory comes: FREEHOLD_NUMA_DEFAULT and so on.
    pub numa: u32,
    /// Takes all memory from the machine at once, by so many threads. Default: when it is touched.
    pub prefault_threads: u32,
    /// 0.
    pub reserved: u32,
}

/// Refuses an option, and says why.
fn bad<T>(why: &str) -> Result<T> {
    explain(why.to_owned());
    Err(FREEHOLD_EINVAL)
}

impl freehold_options {
    const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// A builder of an arena on memory of its own.
    pub(crate) fn builder(&self) -> Result<ArenaBuilder> {
        if self.has(FREEHOLD_SHARED) {
            return bad("flags: FREEHOLD_SHARED is for regions");
        }
        let backing = match self.backing {
            FREEHOLD_PRIVATE => Backing::Private,
            FREEHOLD_HUGETLB => Backing::HugeTlb {
                page_bytes: self.huge_page_bytes,
                or_private: self.has(FREEHOLD_OR_PRIVATE),
            },
            FREEHOLD_MEMFD => Backing::Memfd,
            FREEHOLD_FILE => Backing::file(duplicate(self.file)?),
            _ => return bad("backing: none of FREEHOLD_PRIVATE to FREEHOLD_FILE"),
        };
        if self.backing != FREEHOLD_FILE && self.file != 0 {
            return bad("file: is for the backing FREEHOLD_FILE");
        }
        if self.backing != FREEHOLD_HUGETLB
            && (self.huge_page_bytes != 0 || self.has(FREEHOLD_OR_PRIVATE))
        {
            return bad("huge_page_bytes, FREEHOLD_OR_PRIVATE: are for FREEHOLD_HUGETLB");
        }
        Ok(self.common()?.backing(backing).guard_pages(self.has(FREEHOLD_GUARD_PAGES)))
    }

    /// A builder of an arena on memory of the program's, and whether that is shared.
    pub(crate) fn region_builder(&self) -> Result<(ArenaBuilder, bool)> {
        let is_plain = self.backing == FREEHOLD_PRIVATE && self.file == 0;
        if !is_plain
            || self.huge_page_bytes != 0
            || self.has(FREEHOLD_GUARD_PAGES | FREEHOLD_OR_PRIVATE)
        {
            return bad("a region has no backing, file, huge_page_bytes or guard pages");
        }
        let builder = self.common()?.nodes(1);
        let builder = match self.numa {
            FREEHOLD_NUMA_DEFAULT => builder.numa(Numa::Machine),
            _ => builder,
        };
        Ok((builder, self.has(FREEHOLD_SHARED)))
    }

    fn common(&self) -> Result<ArenaBuilder> {
        if self.flags & !FLAGS != 0 {
            return bad("flags: one that does not exist");
        }
        if self.reserved != 0 {
            return bad("reserved: must be 0");
        }
        let mut builder = ArenaBuilder::new()
            .bytes(self.bytes)
            .capacity_bytes(self.capacity_bytes)
            .huge_pages(self.has(FREEHOLD_HUGE_PAGES))
            .lock(self.has(FREEHOLD_LOCK))
            .prefault(self.prefault_threads as usize);
        if self.has(FREEHOLD_LEASES) {
            builder = builder.leases(Leases::Auto);
        }
        let mut frame_size = FrameSize::DEFAULT;
        if self.frame_bytes != 0 {
            match FrameSize::new(self.frame_bytes) {
                Some(size) => frame_size = size,
                None => return bad("frame_bytes: not a power of two from 4 KiB on"),
            }
            builder = builder.frame_size(frame_size);
        }
        if self.has(FREEHOLD_MIN_FREE) {
            builder = builder.min_free(FrameCount::from_bytes(self.min_free_bytes, frame_size));
        } else if self.min_free_bytes != 0 {
            return bad("min_free_bytes: needs the flag FREEHOLD_MIN_FREE");
        }
        if self.cpus != 0 {
            builder = builder.cpus(self.cpus as usize);
        }
        if self.nodes != 0 {
            builder = builder.nodes(self.nodes as usize);
        }
        match self.numa {
            FREEHOLD_NUMA_DEFAULT | FREEHOLD_NUMA_PREFER => Ok(builder.numa(Numa::Prefer)),
            FREEHOLD_NUMA_BIND => Ok(builder.numa(Numa::Bind)),
            FREEHOLD_NUMA_INTERLEAVE => Ok(builder.numa(Numa::Interleave)),
            FREEHOLD_NUMA_MACHINE => Ok(builder.numa(Numa::Machine)),
            _ => bad("numa: none of FREEHOLD_NUMA_DEFAULT to FREEHOLD_NUMA_MACHINE"),
        }
    }
}
