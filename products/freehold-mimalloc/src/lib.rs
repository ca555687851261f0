//! mimalloc on [Freehold](freehold_host): a managed arena, whose memory mimalloc commits and
//! decommits in a [`PageHeap`].
//!
//! mimalloc 3 can be given memory to manage (`mi_manage_memory`), with a function that it calls
//! where it would commit memory, or return it to the machine. Here, what it returns is free in the
//! heap, without a system call, until it is old enough for the heap's purge; what it commits again
//! before is there with its pages, and what it commits after reads as zero without being cleared.
//!
//! mimalloc chooses what lies where, so it gains less than a malloc that asks for spans of any
//! place, such as jemalloc by `freehold-jemalloc`.
//!
//! When the arena is full, mimalloc maps memory of the machine, as without it, unless its option
//! `disallow_os_alloc` says otherwise.

#![deny(unsafe_code)]

mod managed;

pub use freehold_host;
pub use managed::{Commit, ManageError, ManageMemory, Managed, Mimalloc};

#[cfg(doc)]
use freehold_host::PageHeap;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
