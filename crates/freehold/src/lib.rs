//! Freehold: a scalable page-frame allocator to embed.
//!
//! The core of the project: no `std`, no heap, no statics, no thread-locals, no clock, no operating
//! system. All its state lives in one buffer that the caller provides. Everything it needs from the
//! machine comes through one trait, [`Platform`](platform::Platform).
//!
//! * [`PageAllocator`] is the API. Its type arguments are a platform and a [design](designs): a
//!   strategy for getting frames to CPUs. [`Freehold`](designs::Freehold) is here; five after
//!   Linux, with the same API, are in the crate `freehold-linux`.
//! * [`Config`] describes memory and CPUs, [`Request`] an allocation, and [`Error`] why a call was
//!   refused.
//!
//! On a Linux host, the crate `freehold-host` brings a platform, mapped memory and RAII pages.
//!
//! # Example
//!
//! A machine with one CPU, and an allocator for 16 MiB of memory:
//!
//! ```
//! use core::mem::MaybeUninit;
//! use freehold::designs::Freehold;
//! use freehold::platform::{Native, OneCpu};
//! use freehold::{Config, FrameCount, MemoryRange, Metadata, NodeId, Order, PageAllocator};
//! use freehold::{Pfn, Request};
//!
//! type Kernel = Native<OneCpu>;
//! type Frames = PageAllocator<Kernel, Freehold<Kernel>>;
//!
//! let memory = [MemoryRange::new(Pfn::new(0x1000), FrameCount::new(4096))];
//! let cpus = [NodeId::new(0)];
//! let config = Config::new(&memory, &cpus);
//! let settings = Default::default();
//! let layout = Frames::layout(&config, &settings)?;
//! // From the boot allocator; `MetadataLayout::place_in` finds a place in a memory map.
//! let metadata: &'static mut [MaybeUninit<u8>] =
//!     vec![MaybeUninit::uninit(); layout.size_unaligned()].leak();
//! let frames =
//!     Frames::new(Native(OneCpu), &config, &settings, Metadata::from_static(metadata))?;
//!
//! let block = frames.alloc(Request::new(Order::new(3)))?;
//! assert_eq!(frames.order_of(block), Some(Order::new(3)));
//! frames.free(block, Order::new(3))?;
//! assert!(frames.free(block, Order::new(3)).is_err(), "a double free changes nothing");
//! # Ok::<(), freehold::Error>(())
//! ```

#![no_std]
#![deny(unsafe_code)]
#![expect(
    clippy::new_without_default,
    clippy::len_without_is_empty,
    reason = "hidden items are public for the crates of designs and of the LRU, no API"
)]

#[cfg(test)]
extern crate self as freehold;

pub use allocator::{BootMap, BootReport, Frozen, PageAllocator};
pub use compact::{Compaction, Immovable, Migrate, MigrateError};
pub use config::{Config, MemoryRange};
pub use designs::{Design, Setting, SettingError, Settings};
pub use error::{BulkFreeError, Error};
pub use memmap::region::{Metadata, MetadataLayout, MetadataSection, SectionKind};
pub use request::{RangeRequest, Request};
pub use stat::{
    Census, Events, FrameStatus, FreeByType, NumaEvents, Rule, Violation, ZoneLevel, ZoneStats,
};
pub use units::{CpuId, FrameCount, FrameSize, MigrateType, NodeId, Order, Pfn, ZoneKind};
pub use zone::watermark::{Marks, Watermark};

pub mod designs;
pub mod geometry;
pub mod platform;

mod allocator;
// What designs and the LRU are built of. Hidden: their crates are released with this one.
#[doc(hidden)]
pub mod compact;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod fragmentation;
#[doc(hidden)]
pub mod memmap;
#[doc(hidden)]
pub mod request;
#[doc(hidden)]
pub mod stat;
#[doc(hidden)]
pub mod topology;
#[doc(hidden)]
pub mod units;
#[doc(hidden)]
pub mod zone;

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod testing;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
