//! mimalloc on a [`PageHeap`]: an arena that it manages, and the function by which it commits and
//! decommits memory there.
//!
//! mimalloc 3 can be given memory to manage (`mi_manage_memory`), with a function that it calls
//! where it would commit memory, or return it to the machine. Here, what it returns is free in the
//! heap, without a system call, until it is old enough for the heap's purge; what it commits again
//! before is there with its pages, and what it commits after reads as zero without being cleared.
//!
//! mimalloc chooses what lies where, so it gains less than a malloc that asks for spans of any
//! place, such as [jemalloc](crate::jemalloc).
//!
//! When the arena is full, mimalloc maps memory of the machine, as without it, unless its option
//! `disallow_os_alloc` says otherwise.
#![expect(unsafe_code, reason = "is called by C, and calls C")]

use core::ffi::{c_int, c_void};
use core::fmt;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

use freehold_host::designs::Freehold;
use freehold_host::{ArenaBuilder, Design, Error, FrameCount, Host, HostError, Pfn};

use crate::heap::FrameBits;
use crate::{HeapSettings, HeapView, PageHeap};

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
    commits_on_demand: fn() -> bool,
}

impl Mimalloc {
    /// The mimalloc of the crate `libmimalloc-sys`, which the crate `mimalloc` uses too.
    #[cfg(feature = "mimalloc")]
    pub const SYS: Mimalloc =
        Mimalloc { manage_memory: mi_manage_memory, commits_on_demand: sys_commits_on_demand };

    /// A mimalloc, by its function `mi_manage_memory`.
    ///
    /// # Safety
    ///
    /// It is that of mimalloc 3, whose option `page_commit_on_demand` is 0, as it is by default:
    /// otherwise it would use memory that it has not committed here.
    pub const unsafe fn new(manage_memory: ManageMemory) -> Self {
        Mimalloc { manage_memory, commits_on_demand: || false }
    }
}

impl Mimalloc {
    /// Has [`Mimalloc::SYS`] return what was freed a while ago (`MIMALLOC_PURGE_DELAY`). mimalloc
    /// looks at that when it is called, so a program that is idle keeps what it has: call this at
    /// intervals, before [`HeapView::purge`].
    #[cfg(feature = "mimalloc")]
    pub fn collect_sys() {
        // SAFETY: any thread may call it at any time.
        unsafe { libmimalloc_sys::mi_collect(false) };
    }

    /// Has the mimalloc of libmimalloc-sys return all that this thread does not use, and what
    /// other threads have left.
    #[cfg(feature = "mimalloc")]
    pub fn collect_all_sys() {
        // SAFETY: any thread may call it at any time.
        unsafe { libmimalloc_sys::mi_collect(true) };
    }
}

/// `mi_option_page_commit_on_demand` of the mimalloc.h of libmimalloc-sys.
#[cfg(feature = "mimalloc")]
const PAGE_COMMIT_ON_DEMAND: libmimalloc_sys::mi_option_t = 40;

#[cfg(feature = "mimalloc")]
fn sys_commits_on_demand() -> bool {
    // SAFETY: reads an option that there is.
    unsafe { libmimalloc_sys::mi_option_get(PAGE_COMMIT_ON_DEMAND) != 0 }
}

#[cfg(feature = "mimalloc")]
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
    /// It was given to a mimalloc before, all or some of it.
    Again,
    /// mimalloc's option `page_commit_on_demand` is set: it would use memory that it has not
    /// committed in the arena.
    CommitsOnDemand,
}

impl fmt::Display for ManageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ManageError::Refused { bytes } => write!(
                f,
                "mimalloc does not manage an arena of {bytes} bytes: give it 64 MiB or more, and \
                 at most some hundred arenas"
            ),
            ManageError::Again => {
                f.write_str("a mimalloc has this arena already: build one for each")
            }
            ManageError::CommitsOnDemand => f.write_str(
                "mimalloc commits parts of its pages: leave MIMALLOC_PAGE_COMMIT_ON_DEMAND at 0",
            ),
        }
    }
}

impl core::error::Error for ManageError {}

/// How often a commit asks for frames that a purge, or the commit of a neighbour, has in hand.
const TRIES_MAX: usize = 10_000;

/// How much mimalloc manages as one arena: it refuses 16 GiB, since what it writes about them does
/// not fit into what it allocates as a whole.
const MANAGED_BYTES_MAX: usize = 8 << 30;

/// How much of each node's part it is given at first, as much as it reserves by itself. When half
/// of what it has is committed, it is given as much again: it writes tables for all that it is
/// given.
const MANAGED_BYTES_FIRST: usize = 1 << 30;

/// What mimalloc commits and decommits at least, and at multiples of what (`MI_ARENA_SLICE_SIZE`).
const SLICE_BYTES: usize = 64 << 10;

/// A [`PageHeap`] whose arena mimalloc manages, all of it.
#[derive(Debug)]
pub struct Managed<D: Design<Host> = Freehold<Host>> {
    heap: PageHeap<D>,
    /// A bit for each frame that mimalloc has committed: it may commit and decommit frames of which
    /// some are in that state already.
    committed: FrameBits<AtomicU64>,
    /// How many these are.
    committed_frames: AtomicU64,
    /// The mimalloc that was given some of it.
    mimalloc: OnceLock<Mimalloc>,
    /// How many frames it was given of each node's part, of so many.
    given_frames: AtomicU64,
    part_frames: u64,
    nodes: u64,
    /// Whether it is being given some.
    is_giving: AtomicBool,
}

impl<D: Design<Host>> Managed<D> {
    /// A heap for mimalloc. Nothing but that gets at its frames:
    ///
    /// ```compile_fail,E0599
    /// # use freehold_malloc::{freehold_host::{FrameCount, Pfn}, mimalloc::Managed};
    /// fn discard(managed: &'static Managed, first: Pfn) {
    ///     managed.heap().arena().discard(first, FrameCount::new(1)).unwrap();
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`PageHeap::build`]. [`HostError::BadSetting`] for frames above 64 KiB,
    /// which is what mimalloc commits and decommits at a time.
    pub fn new(arena: ArenaBuilder<D>, settings: HeapSettings) -> Result<Self, HostError> {
        let heap = PageHeap::build(arena, settings)?;
        let size = heap.arena().frame_size();
        if size.bytes() > SLICE_BYTES {
            let reason = format!("{size} is more than mimalloc commits at a time: 64 KiB");
            return Err(HostError::BadSetting { setting: "frame_size", reason });
        }
        let frames = FrameCount::from_bytes(heap.arena().capacity_bytes(), size);
        let rooms = (0..).map_while(|nth| heap.arena().room(nth));
        let (part_frames, nodes) =
            rooms.fold((0, 0), |(_, count), (start, end)| ((end - start).get(), count + 1));
        Ok(Managed {
            part_frames,
            nodes,
            heap,
            committed: FrameBits::new(frames, false),
            committed_frames: AtomicU64::new(0),
            mimalloc: OnceLock::new(),
            given_frames: AtomicU64::new(0),
            is_giving: AtomicBool::new(false),
        })
    }

    /// For good: mimalloc uses the memory as long as the process lives.
    pub fn leak(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    /// The heap, to purge it and to report on it.
    pub fn heap(&self) -> HeapView<'_, D> {
        self.heap.view()
    }

    /// Gives the memory to a mimalloc, once: more and more of the capacity as it uses it.
    ///
    /// # Errors
    ///
    /// See [`ManageError`]. After [`ManageError::Refused`], it may have some of the memory.
    pub fn manage(&'static self, mimalloc: &Mimalloc) -> Result<(), ManageError> {
        if (mimalloc.commits_on_demand)() {
            return Err(ManageError::CommitsOnDemand);
        }
        self.mimalloc.set(*mimalloc).map_err(|_| ManageError::Again)?;
        self.give()
    }

    /// Gives as much as mimalloc has, of each node's part. It may be about to use what it has.
    fn give(&'static self) -> Result<(), ManageError> {
        // Relaxed, here and below: of two calls, one finds that it is the first, and the other
        // need not wait for it.
        let (Some(mimalloc), false) = (self.mimalloc.get(), self.is_giving.swap(true, Relaxed))
        else {
            return Ok(());
        };
        let arena = self.heap.arena();
        let frames = |bytes| FrameCount::from_bytes(bytes, arena.frame_size());
        let given = FrameCount::new(self.given_frames.load(Relaxed));
        let more = given.max(frames(MANAGED_BYTES_FIRST)).min(frames(MANAGED_BYTES_MAX));
        let mut done = Ok(());
        for (start, end) in (0..).map_while(|nth| arena.room(nth)) {
            let first = start + given;
            // The rest of a part may be too small for mimalloc, and is left alone then.
            if first < end && done.is_ok() {
                done = self.manage_part(mimalloc, first, more.min(end - first));
            }
        }
        self.given_frames.store((given + more).get(), Relaxed);
        self.is_giving.store(false, Relaxed);
        done
    }

    /// Gives more if half of what mimalloc has is committed.
    fn give_if_due(&'static self) {
        let committed = self.committed_frames.load(Relaxed);
        let (given, nodes) = (self.given_frames.load(Relaxed), self.nodes);
        if committed > given / 2 * nodes && given < self.part_frames {
            // Refused, mimalloc has what it has, and the kernel's.
            let _refused = self.give();
        }
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
        // SAFETY: the addresses are the heap's for good, and the memory is there once mimalloc has
        // committed it; it is given away once, and no safe code reaches frames of the heap. The
        // function gets this value as its argument, and never writes through it.
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

    /// The frames that memory is made of, if it is of whole frames of the capacity: mimalloc was
    /// given addresses that nothing is mapped at yet.
    fn frames_of(&self, start: *mut c_void, bytes: usize) -> Option<(Pfn, FrameCount)> {
        let (arena, size) = (self.heap.arena(), self.heap.arena().frame_size());
        let offset = start.addr().checked_sub(arena.base().addr().get())?;
        let is_whole = [offset, bytes].iter().all(|it| it.is_multiple_of(size.bytes()));
        let is_here = offset < arena.capacity_bytes() && is_whole;
        let frames = FrameCount::from_bytes(bytes, size);
        is_here.then(|| (Pfn::from_address(offset as u64, size), frames))
    }

    /// Takes those of the frames that are not committed. Returns whether all of them are zero.
    ///
    /// The caller owns the frames: no other call commits or decommits any of them meanwhile.
    fn commit(&self, first: Pfn, frames: FrameCount) -> Result<bool, Error> {
        let mut is_zeroed = true;
        for (run, count, is_committed) in self.runs(first, frames) {
            if is_committed {
                is_zeroed = false;
                continue;
            }
            let mut tries = 0;
            let span = loop {
                // Nothing but mimalloc allocates here, so they are free, or will be in a moment,
                // unless the machine has none to add: mimalloc has the kernel's then.
                match self.heap.alloc_at(run, count) {
                    Err(Error::RangeBusy | Error::OutOfMemory) if tries < TRIES_MAX => tries += 1,
                    done => break done?,
                }
                std::thread::yield_now();
            };
            is_zeroed &= span.is_zeroed;
            self.note(run, count, true);
        }
        Ok(is_zeroed)
    }

    /// Frees those of the frames that are committed. The caller owns them, as for `commit`.
    fn decommit(&self, first: Pfn, frames: FrameCount) -> bool {
        for (run, count, is_committed) in self.runs(first, frames) {
            if is_committed {
                self.note(run, count, false);
                let freed = self.heap.free(run, count);
                debug_assert_eq!(freed, Ok(()), "{count} from {run}");
            }
        }
        true
    }

    /// The frames as runs of which all or none are committed.
    fn runs(
        &self,
        first: Pfn,
        frames: FrameCount,
    ) -> impl Iterator<Item = (Pfn, FrameCount, bool)> + '_ {
        let (mut at, end) = (first.get(), first.get() + frames.get());
        std::iter::from_fn(move || {
            let (start, is_committed) = (at, at < end && self.is_committed(at));
            while at < end && self.is_committed(at) == is_committed {
                at += 1;
            }
            (at > start).then(|| (Pfn::new(start), FrameCount::new(at - start), is_committed))
        })
    }

    /// A bit is read and changed by the owner of its frame alone, and mimalloc orders what one
    /// owner did before what the next one does.
    fn is_committed(&self, frame: u64) -> bool {
        self.committed.any(Pfn::new(frame), FrameCount::new(1))
    }

    fn note(&self, first: Pfn, frames: FrameCount, is_committed: bool) {
        // Relaxed: it says when mimalloc may soon have too little.
        match is_committed {
            true => {
                self.committed.set(first, frames);
                self.committed_frames.fetch_add(frames.get(), Relaxed);
            }
            false => {
                self.committed.clear(first, frames);
                self.committed_frames.fetch_sub(frames.get(), Relaxed);
            }
        }
    }
}

unsafe extern "C" fn commit<D: Design<Host>>(
    commits: bool,
    start: *mut c_void,
    size: usize,
    is_zero: *mut bool,
    argument: *mut c_void,
) -> bool {
    // SAFETY: the argument is that of `manage_part`.
    let this: &'static Managed<D> = unsafe { &*argument.cast() };
    let mut zero = false;
    let done = match this.frames_of(start, size) {
        Some((first, frames)) if commits => match this.commit(first, frames) {
            Ok(is_zeroed) => {
                zero = is_zeroed;
                this.give_if_due();
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
