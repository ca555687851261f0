//! jemalloc on a [`PageHeap`], by extent hooks.
//!
//! jemalloc keeps its size classes, thread caches and arenas; where it would map and unmap memory
//! and advise the kernel, it calls the nine hooks of an [`ExtentHooks`] instead. Works with any
//! jemalloc since 5.0: the one that a program has linked, or, with the feature `jemalloc`, the one
//! that the crate `tikv-jemalloc-sys` builds.
//!
//! ```
//! # #[cfg(feature = "jemalloc")] {
//! use freehold_host::{Arena, FrameCount};
//! use freehold_malloc::jemalloc::{Hooks, Jemalloc};
//! use freehold_malloc::{HeapSettings, PurgeAges};
//! use std::time::Duration;
//!
//! # /*
//! freehold_malloc::malloc_conf!(); // An item of the program: see `Hooks::install`.
//! # */
//!
//! // At the start of `main`, with `tikv_jemallocator::Jemalloc` as the global allocator.
//! let arena = Arena::builder().bytes(1 << 30).min_free(FrameCount::ZERO);
//! let purge_every = Some((Duration::from_secs(1), PurgeAges::default()));
//! let settings = HeapSettings { purge_every, ..HeapSettings::default() };
//! Hooks::new(arena, settings)?.leak().install(&Jemalloc::TIKV)?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which memory
//!
//! What jemalloc had mapped before stays as it is: the hooks pass on what is not in the arena. When
//! the arena is full, jemalloc gets memory from the machine as without the hooks; with
//! [`HeapSettings::refuse_for`] without a search of the arena each time.
//!
//! # When memory goes back
//!
//! An extent that jemalloc has not used for a while (`dirty_decay_ms`) returns to the heap, without
//! a system call, and is there for all of jemalloc's arenas. Once it is old enough, the heap gives
//! it back to the machine, by [`HeapSettings::purge_every`] or when [`HeapView::purge`] is called:
//! whole pageblocks first, many by one system call. Set jemalloc's decay to a second or less then
//! (`dirty_decay_ms:1000`), since the heap has a decay of its own.
//!
//! # fork
//!
//! Children can use jemalloc and the arena. jemalloc's handlers of forks must have been registered
//! after those of Freehold: with the feature `jemalloc`, this crate sees to that before `main`;
//! with another jemalloc, call [`freehold_host::install_fork_handlers`] before its first
//! allocation.

#[cfg(feature = "jemalloc")]
mod early;
mod hooks;
mod install;
mod table;
#[cfg(test)]
mod tests;

pub use hooks::Hooks;
pub use install::{InstallError, Jemalloc, LARGE_BYTES, Mallctl};
pub use table::ExtentHooks;

#[cfg(doc)]
use crate::{HeapSettings, HeapView, PageHeap};
