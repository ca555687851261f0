//! What an arena's memory is made of.

use core::ptr::NonNull;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What an arena's memory is made of: [`ArenaBuilder::backing`](crate::ArenaBuilder::backing).
///
/// A memfd and a file are shared memory: others can write it, so slices of it are for unsafe code
/// ([`ArenaBuilder::build_shared`](crate::ArenaBuilder::build_shared)). Frames by number
/// ([`ArenaBuilder::build_frames`](crate::ArenaBuilder::build_frames)) can be of any memory.
///
/// A child of a `fork` has a copy of private memory. Shared memory it has in common with its
/// parent, but not the account of what is allocated there: it can use what it has, and must neither
/// allocate nor free.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Backing {
    /// Memory of the process, in the machine's pages.
    #[default]
    Private,
    /// Memory of the process, from the machine's pool of huge pages (`vm.nr_hugepages`), all of
    /// which is taken at once.
    ///
    /// Memory goes back to the machine in whole huge pages only: a purge gives back those of which
    /// all frames are free.
    HugeTlb {
        /// The size of a huge page: a power of two that the machine has, such as 2 MiB or 1 GiB.
        page_bytes: usize,
        /// Whether [`Backing::Private`] will do where the pool has too few.
        or_private: bool,
    },
    /// An anonymous file (`memfd_create(2)`), which other processes can map: its descriptor is
    /// [`FrameArena::file`](crate::FrameArena::file). Frame 0 is at its beginning. It cannot be
    /// made shorter (`F_SEAL_SHRINK`).
    Memfd,
    /// A file, mapped shared, that is made as large as the arena's capacity if it is smaller. Frame
    /// 0 is at its beginning. Its content is that of the frames: not zero, if it was not. If it is
    /// made shorter while the arena lives, accesses to frames beyond its end are a `SIGBUS`.
    File(Arc<OwnedFd>),
}

impl Backing {
    /// A file that is open for reading and writing.
    pub fn file(file: impl Into<OwnedFd>) -> Self {
        Backing::File(Arc::new(file.into()))
    }
}

/// A mapping that the user of an arena gave it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserMapping {
    pub(crate) base: NonNull<u8>,
    pub(crate) bytes: usize,
    pub(crate) shared: bool,
}

/// From which memory nodes of the machine an arena's memory comes:
/// [`ArenaBuilder::numa`](crate::ArenaBuilder::numa).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Numa {
    /// Each node's part comes from that node while it has any, and then from others. An arena of
    /// one node is left to the machine.
    #[default]
    Prefer,
    /// Each node's part comes from that node alone: the process is killed, or gets `SIGBUS`, if it
    /// has no more.
    Bind,
    /// All nodes of the machine that have memory in turn, page by page, whatever part of the arena
    /// a frame is in.
    Interleave,
    /// What the machine, or the mapping that was given, does anyway.
    Machine,
}
