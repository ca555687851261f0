//! A malloc on Freehold for programs that are not changed: `LD_PRELOAD=libfreehold_malloc.so`.
//!
//! The README says how to build, use and configure it. From the outside in: `symbols` (the
//! functions of the C library that it replaces), `malloc` (the malloc that serves them), `setup`
//! (what runs before `main`), `own` (the memory for that), `options` (the environment variable),
//! `blocks` (how much the program has in large ones), `stats`. Without a malloc, it is empty; in
//! tests there is nothing but the options, so that they keep the malloc of theirs.

#![cfg(any(test, feature = "jemalloc", feature = "mimalloc"))]
#![deny(unsafe_code)]

#[cfg(not(test))]
mod blocks;
mod options;

#[cfg(all(not(test), feature = "jemalloc"))]
#[path = "jemalloc.rs"]
mod malloc;
#[cfg(all(not(test), feature = "mimalloc", not(feature = "jemalloc")))]
#[path = "mimalloc.rs"]
mod malloc;
#[cfg(not(test))]
mod own;
#[cfg(not(test))]
mod setup;
#[cfg(not(test))]
mod stats;
#[cfg(not(test))]
mod symbols;
