//! Freehold behind the interfaces of other crates, each behind a feature of the same name.
//!
//! | feature | what it gives | for |
//! |---|---|---|
//! | `allocator-api2` | `ArenaAllocator`: collections whose memory is an arena's | databases |
//! | `vm-memory` | `GuestRegion`: a guest's memory, of any size, of an arena | VMMs |
//! | `x86_64` | `PagingFrames`: frames of 4 KiB, 2 MiB and 1 GiB for page tables | kernels |
//!
//! They are here, and not features of the crates that they adapt, so that those depend on nothing
//! that their users did not ask for.

#![no_std]

#[cfg(feature = "allocator-api2")]
pub use self::collections::ArenaAllocator;
#[cfg(feature = "vm-memory")]
pub use self::guest::{GuestRegion, GuestRegionError};
#[cfg(feature = "x86_64")]
pub use self::paging::PagingFrames;

#[cfg(feature = "allocator-api2")]
mod collections;
#[cfg(feature = "vm-memory")]
mod guest;
#[cfg(feature = "x86_64")]
mod paging;
