//! The adapters, each beside the crate whose interface it has.

#[cfg(feature = "allocator-api2")]
mod collections;
#[cfg(feature = "vm-memory")]
mod guest;
#[cfg(feature = "x86_64")]
mod paging;
