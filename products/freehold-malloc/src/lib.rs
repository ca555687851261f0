//! Mallocs on [Freehold](freehold_host): [jemalloc] and [mimalloc] get their memory from a
//! [`PageHeap`] and give it back there.
//!
//! The modules need no C: they take the functions of any jemalloc or mimalloc. The features
//! `jemalloc` and `mimalloc` bring one. A malloc of your own is put on a [`PageHeap`], or on bare
//! frames of a [`StaticArena`]. For programs that are not changed there is
//! `libfreehold_malloc.so`, for `LD_PRELOAD`: see the README.

#![deny(unsafe_code)]

mod clock;
mod heap;
mod heap_view;
pub mod jemalloc;
pub mod mimalloc;
mod static_arena;

pub use freehold_host;
pub use heap::{HeapSettings, PageHeap, PurgeAges, Purged, Span};
pub use heap_view::HeapView;
pub use static_arena::StaticArena;

// What the heap uses of an arena, by `super`.
use freehold_host::{ForkGuard, FrameArena, Host, HostError};

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
