//! A malloc on Freehold for programs that are not changed: `LD_PRELOAD=libfreehold_preload.so`.
//!
//! The README says how to build, use and configure it. From the outside in: `symbols` (the
//! functions of the C library that it replaces), `malloc` (the malloc that serves them), `setup`
//! (what runs before `main`), `options` (the environment variable), `stats`.

#![deny(unsafe_code)]

#[cfg_attr(not(any(feature = "jemalloc", feature = "mimalloc")), cfg(test))]
mod options;

#[cfg(feature = "jemalloc")]
#[path = "jemalloc.rs"]
mod malloc;
#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
#[path = "mimalloc.rs"]
mod malloc;
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
mod setup;
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
mod stats;
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
mod symbols;
