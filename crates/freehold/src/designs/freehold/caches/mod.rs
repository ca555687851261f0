//! The upper layer: what CPUs cache, and every path of a call through it.

mod alloc;
mod bulk;
pub(super) mod cache;
mod drain;
mod fast_path;
mod free;
mod hold;
mod last_resort;
mod lease;
pub(super) mod lock;
mod operation;
mod put;
mod refill;
mod spares;
mod sparing;

pub use lease::{Lease, ParkedLease};
