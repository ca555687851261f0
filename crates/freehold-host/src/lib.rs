//! The real machine under Freehold: memory from the operating system, CPU numbers by rseq, memory
//! nodes from `/sys`, and owned pages.
//!
//! ```
//! use freehold_host::{Arena, Order};
//!
//! let arena = Arena::builder().bytes(64 << 20).build()?;
//! let mut pages = arena.allocate_zeroed(Order::new(3))?; // Eight frames: 32 KiB.
//! pages[..5].copy_from_slice(b"hello");
//! std::thread::scope(|scope| {
//!     scope.spawn(move || drop(pages)); // Freed on another thread.
//! });
//! let purged = arena.purge()?; // Returns what is free to the machine.
//! println!("{purged} in {arena:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | what you want | use |
//! |---|---|
//! | owned memory that frees itself | [`Arena`], [`Pages`] |
//! | owned memory that outlives a borrow of the arena | [`OwnedPages`] |
//! | bare frame numbers on real memory | [`FrameArena`] |
//! | shared memory, a file, huge pages | [`ArenaBuilder::backing`] |
//! | an arena in your own mapping | [`ArenaBuilder::mapping`] |
//! | memory taken beforehand, locked, or from some nodes | [`prefault`], [`lock`], [`numa`] |
//! | an LRU over an arena's frames | [`FrameArena::lru`], [`HostLru`] |
//! | threads that take no lock | [`ArenaBuilder::leases`] |
//! | your own memory and metadata | [`Host`] with [`freehold::PageAllocator`] |
//! | an allocator's statistics, as text or for Prometheus | [`Snapshot`] |
//! | the machine's CPUs and nodes | [`Topology`], [`allowed_cpus`], [`bind_current_thread`] |
//!
//! What an arena's user needs of the crate `freehold` is here too; the crate itself is
//! [`freehold_host::freehold`](freehold).
//!
//! The crate runs on Linux. It works without glibc, without NUMA and without `/sys`, and then
//! reports what is missing. Only [`Leases`] need thread-locals.
//!
//! # fork, threads that die, and signals
//!
//! ## fork
//!
//! A child can use every arena of its parent: allocate, free, drain, grow and drop it, with any
//! design, whatever other threads of the parent were doing. Handlers of `pthread_atfork(3)`, which
//! the first arena installs, take all locks of all arenas before a fork and release them after.
//! This costs calls nothing. A fork waits for calls that hold a lock, and takes 0.1 µs longer for
//! each arena; the child takes about 20 µs for each GiB that the arena has, or had, to repair what
//! other threads were doing without a lock
//! ([`thaw_copy`](freehold::PageAllocator::thaw_copy)).
//!
//! | what | in the child |
//! |---|---|
//! | private memory | a copy of its own: no arena is shared with the parent |
//! | shared memory: a memfd, a file | shared, without the account of it: see [`Backing`] |
//! | frames that the forking thread had | its own, to use and to free |
//! | frames that other threads had | allocated forever |
//! | frames that other threads were just allocating or freeing | perhaps the same |
//! | counts of events | may miss what calls under way did |
//! | [`Leases::Auto`] | all revoked, as in the parent; those of other threads are spare |
//! | a [`Lease`] | revoked, as in the parent; another thread's can be [inherited] |
//! | a [`HostLru`] | empty: it returns errors, and a new one can be created |
//! | CPU numbers, `membarrier(2)` | as in the parent |
//! | any lease, where `membarrier(2)` is refused by now | its caches stay leased; no call waits |
//!
//! What does not work:
//!
//! * Children created bypassing the C library, by `clone(2)` or `syscall(SYS_fork)`: no handlers
//!   run, and the child must not call an arena. `vfork(2)` and `posix_spawn(3)` are fine, since
//!   their child only executes another program.
//! * A fork from inside a call: from an owner whose content moves, or from a signal handler that
//!   interrupted a call. It may deadlock on a lock of its own thread. (POSIX.1-2024 has removed
//!   `fork` from its list of functions for signal handlers.)
//! * Fork handlers that were registered before the first arena was built, or
//!   [`install_fork_handlers`] was called: they run while all arenas are locked, and must neither
//!   call any nor wait for a thread that does.
//! * With the design [`Freehold`], frees of parts of a block of a pageblock or more during the
//!   fork, if other threads own its other parts: the child may take these for free.
//! * [`Host`] with your own [`freehold::PageAllocator`] is not registered: call its
//!   [`freeze`](freehold::PageAllocator::freeze) and what follows it in your own handlers. If its
//!   metadata is shared with children (`MAP_SHARED`), all processes share one allocator state, and
//!   there is no copy to thaw. Leases do not work then: their barrier orders the threads of one
//!   process.
//!
//! ## System calls that fail
//!
//! Calls that need the machine return a [`HostError`] that names what it refused, and leave the
//! arena as it was; they may be made again. Without them, an arena goes on: frames come from its
//! own books. Two things are not errors:
//!
//! * A process that loses the right to `membarrier(2)`, as by a filter of system calls that it
//!   enters after its threads got leases. Nothing can be taken from a lease then, so up to what
//!   its caches hold is out of reach of others until its thread ends it.
//! * Memory beyond what a control group or the machine has: the kernel ends the process (`SIGKILL`)
//!   when a frame is first touched. [`ArenaBuilder::prefault`] and [`ArenaBuilder::lock`] have that
//!   happen early, and with an error where the kernel has one.
//!
//! ## Threads that die
//!
//! | a thread that | leaves behind |
//! |---|---|
//! | ends with frames, or forgotten [`Pages`] | these, allocated |
//! | ends with an automatic lease | nothing: the next thread gets it, with what it holds |
//! | panics | nothing: leases and pages end as the stack unwinds |
//! | panics as an owner that a call has asked | nothing: the call undoes what it did |
//! | ends with a forgotten [`Lease`] | caches that stay leased, but empty once needed |
//! | is cancelled | what it had allocated |
//!
//! Thread-local destructors may call an arena: once the automatic lease is gone, they work without.
//!
//! No call has a cancellation point, so `pthread_cancel(3)` ends a thread between two calls. (Rust
//! ends the process unless the thread is one of C, without destructors on its stack.) With
//! asynchronous cancellation a thread may end while it holds a lock: do not use it.
//!
//! ## Signals
//!
//! A handler may have interrupted any call, and its thread may hold a lock, or a pageblock, until
//! the handler returns. So a handler must not wait for these. With the design [`Freehold`]:
//!
//! | call | in a handler |
//! |---|---|
//! | [`alloc`] with [`nowait`](freehold::Request::nowait) | yes |
//! | [`alloc`] of another request | while memory is plentiful; otherwise it may deadlock |
//! | [`free`] of less than a pageblock | yes |
//! | [`free`] of more | unless the interrupted call frees another part of the same block |
//! | `try_alloc` and `try_free` of a [`Lease`] | yes: `None` inside one of its calls |
//! | addresses and content of frames in a [`FrameArena`] | yes |
//! | everything else: bulk calls, drains, reports, checks, leasing, a [`HostLru`], `fork` | no |
//!
//! [`alloc`] and [`free`] are those of [`FrameArena::allocator`]. Those of [`FrameArena`] and
//! [`Arena`], and dropping [`Pages`], are the same with [`Leases::Off`]; with [`Leases::Auto`] they
//! may get the thread a lease, for which the C library allocates memory.
//!
//! With other designs, allocating and freeing wait for the lock of a zone: block the signal around
//! calls (`pthread_sigmask(3)`), or use no arena in handlers.
//!
//! [`prefault`]: ArenaBuilder::prefault
//! [`lock`]: ArenaBuilder::lock
//! [`numa`]: ArenaBuilder::numa
//! [`Lease`]: freehold::designs::Lease
//! [`Error::Leased`]: freehold::Error::Leased
//! [inherited]: freehold::PageAllocator::inherit_lease
//! [`alloc`]: freehold::PageAllocator::alloc
//! [`free`]: freehold::PageAllocator::free

#![deny(unsafe_code)]

mod affinity;
mod arena;
mod backing;
mod builder;
#[cfg(test)]
#[expect(unsafe_code, reason = "forks")]
#[path = "../tests/common/mod.rs"]
mod children;
mod cpulist;
mod error;
mod fork;
mod frames;
mod host_lru;
mod leases;
mod mapping;
mod pages;
mod plan;
mod platform;
mod prometheus;
mod rseq;
mod stat;
mod topology;

pub use freehold;
pub use freehold::{
    BulkFreeError, Census, Compaction, CpuId, Design, Error, Events, FrameCount, FrameSize,
    FrameStatus, Immovable, MemoryRange, Migrate, MigrateError, MigrateType, NodeId, Order,
    PageAllocator, Pfn, RangeRequest, Request, Violation, Watermark, ZoneKind, ZoneStats, designs,
};
pub use freehold_lru as lru;

use designs::Freehold;

pub use affinity::{allowed_cpus, bind_current_thread};
pub use arena::Arena;
pub use backing::{Backing, Numa};
pub use builder::ArenaBuilder;
pub use error::HostError;
pub use fork::install_fork_handlers;
#[doc(hidden)]
pub use fork::{ForkGuard, ForkMutex, Forks, Registration};
pub use frames::{FrameArena, Placement};
pub use host_lru::HostLru;
pub use leases::Leases;
#[doc(hidden)]
pub use mapping::{Stretch, discard_stretches, discards_at_once};
pub use pages::{ArenaRef, Block, Extent, OwnedPageRange, OwnedPages, PageRange, Pages};
pub use platform::{Host, SpinThenYield};
#[doc(hidden)]
pub use prometheus::Metrics;
pub use stat::{Snapshot, ZoneSnapshot};
pub use topology::{Node, Topology};

/// The allocator on this machine: an alias that fills in the platform.
pub type HostAllocator<D = Freehold<Host>> = PageAllocator<Host, D>;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
