//! The arena that mimalloc manages, and the function that commits and decommits its memory.
#![expect(unsafe_code, reason = "is called by C, and calls C")]

use core::ffi::{c_int, c_void};
use core::fmt;
use core::ptr::null_mut;

use freehold_host::designs::Freehold;
use freehold_host::{Design, Error, FrameCount, Host, PageHeap, Pfn};

/// mimalloc's `mi_commit_fun_t`: `(commit, start, size, is_zero, argument)`; whether it could.
pub type Commit = unsafe extern "C" fn(bool, *mut c_void, usize, *mut bool, *mut c_void) -> bool;

/// mimalloc's `mi_manage_memory`.
pub type ManageMemory = unsafe extern "C" fn(
    start: *mut c_void,
    size: usize,
    is_committed: bool,
    is_pinned: bool,
    is_zero: bool,
    numa_node: c_int,
    exclusive: bool,
    commit_fun: Option<Commit>,
    commit_fun_arg: *mut c_void,
    arena_id: *mut *mut c_void,
) -> bool;

/// The function of the mimalloc that gets the arena.
#[derive(Clone, Copy, Debug)]
pub struct Mimalloc {
    manage_memory: ManageMemory,
}

impl Mimalloc {
    /// The mimalloc of the crate `libmimalloc-sys`, which the crate `mimalloc` uses too.
    #[cfg(feature = "sys")]
    pub const SYS: Mimalloc = Mimalloc { manage_memory: mi_manage_memory };

    /// A mimalloc, by its function `mi_manage_memory`.
    ///
    /// # Safety
    ///
    /// It is that of mimalloc 3.
    pub const unsafe fn new(manage_memory: ManageMemory) -> Self {
        Mimalloc { manage_memory }
    }
}

#[cfg(feature = "sys")]
use libmimalloc_sys as _;

#[cfg(feature = "sys")]
unsafe extern "C" {
    // libmimalloc-sys does not declare it.
    fn mi_manage_memory(
        start: *mut c_void,
        size: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
        exclusive: bool,
        commit_fun: Option<Commit>,
        commit_fun_arg: *mut c_void,
        arena_id: *mut *mut c_void,
    ) -> bool;
}

/// Why mimalloc did not take the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManageError {
    /// mimalloc refused: the memory is too small, of so many bytes, or it has too many arenas.
    Refused {
        /// The size in bytes.
        bytes: usize,
    },
}

impl fmt::Display for ManageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ManageError::Refused { bytes } => write!(
                f,
                "mimalloc does not manage an arena of {bytes} bytes: give it 64 MiB or more, and \
                 at most some hundred arenas"
            ),
        }
    }
}

impl core::error::Error for ManageError {}

/// How much mimalloc manages as one arena: it refuses 16 GiB, since what it writes about them does
/// not fit into what it allocates as a whole.
const MANAGED_BYTES_MAX: usize = 8 << 30;

/// A [`PageHeap`] whose arena mimalloc manages, all of it.
#[derive(Debug)]
pub struct Managed<D: Design<Host> = Freehold<Host>> {
    heap: PageHeap<D>,
}

impl<D: Design<Host>> Managed<D> {
    /// Memory for mimalloc.
    pub fn new(heap: PageHeap<D>) -> Self {
        Managed { heap }
    }

    /// For good: mimalloc uses the memory as long as the process lives.
    pub fn leak(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    /// The heap, to purge it and to look at its arena. Its frames are mimalloc's.
    pub fn heap(&self) -> &PageHeap<D> {
        &self.heap
    }

    /// Gives the memory to a mimalloc: once. Its option `page_commit_on_demand` must be 0, as it is
    /// by default: otherwise it would use memory that it has not committed here.
    ///
    /// # Errors
    ///
    /// See [`ManageError`].
    pub fn manage(&'static self, mimalloc: &Mimalloc) -> Result<(), ManageError> {
        let arena = self.heap.arena();
        let most = FrameCount::from_bytes(MANAGED_BYTES_MAX, arena.frame_size());
        for range in arena.ranges() {
            let (mut first, end) = (range.start, range.start + range.frames);
            while first < end {
                let frames = most.min(end - first);
                let managed = self.manage_part(mimalloc, first, frames);
                // The rest of a range may be too small for mimalloc, and is left alone then.
                if managed.is_err() && first == range.start {
                    return managed;
                }
                first += frames;
            }
        }
        Ok(())
    }

    fn manage_part(
        &'static self,
        mimalloc: &Mimalloc,
        first: Pfn,
        frames: FrameCount,
    ) -> Result<(), ManageError> {
        let arena = self.heap.arena();
        let start = arena.address_of(first);
        let bytes = arena.frame_size().bytes_of(frames);
        let this: *const Self = self;
        // SAFETY: the memory is the heap's, which is there for good, and nothing else allocates
        // there. The function gets the heap as its argument, and never writes through it.
        let is_managed = unsafe {
            (mimalloc.manage_memory)(
                start.as_ptr().cast(),
                bytes,
                false,
                false,
                self.heap.is_zeroed(first, frames),
                -1,
                false,
                Some(commit::<D>),
                this.cast_mut().cast(),
                null_mut(),
            )
        };
        if is_managed { Ok(()) } else { Err(ManageError::Refused { bytes }) }
    }

    fn frames_of(&self, start: *mut c_void, bytes: usize) -> Option<(Pfn, FrameCount)> {
        let arena = self.heap.arena();
        Some((arena.pfn_of(start)?, FrameCount::from_bytes(bytes, arena.frame_size())))
    }

    /// Takes frames in place, of which some may be allocated already: mimalloc commits what is in
    /// part committed. Returns whether all of it is zero.
    fn commit(&self, first: Pfn, frames: FrameCount) -> Result<bool, Error> {
        match self.heap.alloc_at(first, frames) {
            Ok(span) => Ok(span.is_zeroed),
            Err(Error::RangeBusy) => {
                let one = FrameCount::new(1);
                for nth in 0..frames.get() {
                    let frame = first + FrameCount::new(nth);
                    if self.heap.arena().allocator().is_free(frame) {
                        self.heap.alloc_at(frame, one)?;
                    }
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Frees those of the frames that are allocated.
    fn decommit(&self, first: Pfn, frames: FrameCount) -> bool {
        if self.heap.free(first, frames).is_ok() {
            return true;
        }
        let one = FrameCount::new(1);
        for nth in 0..frames.get() {
            // Free already: then there is nothing to do.
            let _is_free = self.heap.free(first + FrameCount::new(nth), one);
        }
        true
    }
}

unsafe extern "C" fn commit<D: Design<Host>>(
    commits: bool,
    start: *mut c_void,
    size: usize,
    is_zero: *mut bool,
    argument: *mut c_void,
) -> bool {
    // SAFETY: the argument is that of `manage`.
    let this: &Managed<D> = unsafe { &*argument.cast() };
    let mut zero = false;
    let done = match this.frames_of(start, size) {
        Some((first, frames)) if commits => match this.commit(first, frames) {
            Ok(is_zeroed) => {
                zero = is_zeroed;
                true
            }
            Err(_) => false,
        },
        Some((first, frames)) => this.decommit(first, frames),
        None => false,
    };
    // SAFETY: null, or mimalloc's variable.
    if let Some(is_zero) = unsafe { is_zero.as_mut() } {
        *is_zero = zero;
    }
    done
}
