//! Freehold for C and C++: arenas of real memory, given out by pages and freed by their address.
//!
//! `include/freehold.h` is the interface, generated from this crate, and `docs/embedding.md` of the
//! repository says how to build and link. Rust programs use `freehold-host` instead.
//!
//! What a wrong call may do is decided in two layers. `ffi` has the functions as C calls them: it
//! turns pointers into references and refuses NULL. All else is safe code over
//! [`FrameArena`](freehold_host::FrameArena), for which any address is a number to be checked.
//!
//! A panic is a defect of this library: `extern "C"` ends the process before it could unwind into
//! frames of C. No argument leads to one.

#![deny(unsafe_code)]

mod arena;
mod args;
mod error;
mod ffi;
mod heads;
mod lease;
mod options;
mod report;

pub use arena::freehold_arena;
pub use args::*;
pub use error::{freehold_error, freehold_strerror};
pub use ffi::*;
pub use lease::freehold_lease;
pub use options::*;
