//! Recordings of what a kernel's page allocator did.
//!
//! * [`record`](tracefs::record) captures the running kernel's events through tracefs;
//!   [`import`](text::import) reads the text that ftrace, trace-cmd and perf print.
//! * [`Writer`] and [`Reader`] store them in a file, compressed and with checksums: the format is
//!   described in `FORMAT.md`.
//! * [`Summing`] counts what is in one; [`Live`] knows which blocks are allocated.
//!
//! The crate knows nothing of allocators: what an event means to one is up to the user.

#![deny(unsafe_code)]

pub mod event;
pub mod format;
pub mod gfp;
mod live;
pub mod machine;
pub mod summary;
pub mod text;
pub mod tracefs;

pub use event::{Context, Event, Kind, MigrateType, What};
pub use format::{FormatError, Header, Reader, Trailer, Writer};
pub use gfp::{Gfp, GfpLayout};
pub use live::{Freed, Live};
pub use summary::{Summary, Summing};

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
