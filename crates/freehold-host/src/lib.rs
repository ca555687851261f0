//! The real machine under Freehold: memory from the operating system, CPU numbers by rseq, memory
//! nodes from `/sys`, and owned pages.
//!
//! ```
//! use freehold::Order;
//! use freehold_host::Arena;
//!
//! let arena = Arena::builder().bytes(64 << 20).build()?;
//! let mut pages = arena.allocate_zeroed(Order::new(3))?; // Eight frames: 32 KiB.
//! pages[..5].copy_from_slice(b"hello");
//! std::thread::scope(|scope| {
//!     scope.spawn(move || drop(pages)); // Freed on another thread.
//! });
//! let purged = arena.purge()?; // Gives what is free back to the machine.
//! println!("{purged} in {arena:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | what you want | use |
//! |---|---|
//! | owned memory that frees itself | [`Arena`], [`Pages`] |
//! | bare frame numbers on real memory | [`FrameArena`] |
//! | threads that take no lock | [`ArenaBuilder::leases`] |
//! | your own memory and metadata | [`Host`] with [`freehold::PageAllocator`] |
//! | what an allocator knows of itself, as text or for Prometheus | [`Snapshot`] |
//! | the machine's CPUs and nodes | [`Topology`], [`allowed_cpus`], [`bind_current_thread`] |
//!
//! The crate runs on Linux. It works without glibc, without NUMA and without `/sys`, and then says
//! what it does without. Only [`Leases`] need thread-locals.

#![deny(unsafe_code)]

mod affinity;
mod arena;
mod builder;
mod cpulist;
mod error;
mod fork;
mod frames;
mod leases;
mod lru;
mod mapping;
mod pages;
mod plan;
mod platform;
mod rseq;
mod stat;
mod topology;

use freehold::PageAllocator;
use freehold::designs::Freehold;

pub use affinity::{allowed_cpus, bind_current_thread};
pub use arena::Arena;
pub use builder::ArenaBuilder;
pub use error::HostError;
pub use frames::{FrameArena, Placement};
pub use leases::Leases;
pub use lru::HostLru;
pub use pages::Pages;
pub use platform::{Host, SpinThenYield};
pub use stat::{Snapshot, ZoneSnapshot};
pub use topology::{Node, Topology};

/// The allocator on this machine, so that nobody has to type a platform.
pub type HostAllocator<D = Freehold<Host>> = PageAllocator<Host, D>;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
