//! Freehold: a scalable page-frame allocator to embed.
//!
//! The core of the project: no `std`, no heap, no statics, no thread-locals, no clock, no operating
//! system. All its state lives in one buffer that the caller provides. Everything it needs from the
//! machine comes through one trait, [`Platform`](platform::Platform).
//!
//! * [`PageAllocator`] is the API. Its type arguments are a platform and a [design](designs): a
//!   strategy for getting frames to CPUs. Six interchangeable designs, five of them after Linux,
//!   share this API.
//! * [`Config`] describes memory and CPUs, [`Request`] an allocation, and [`Error`] why a call was
//!   refused.
//!
//! On a Linux host, the crate `freehold-host` brings a platform, mapped memory and RAII pages.
//!
//! # Example
//!
//! A custom platform, and an allocator for 16 MiB of memory:
//!
//! ```
//! use core::mem::MaybeUninit;
//! use core::sync::atomic::{AtomicU32, AtomicU64};
//! use freehold::designs::Freehold;
//! use freehold::platform::{Platform, native::{NativeCell, SpinLock}};
//! use freehold::{Config, CpuId, FrameCount, MemoryRange, Metadata, NodeId, PageAllocator};
//! use freehold::{Order, Pfn, Request};
//!
//! struct Kernel;
//!
//! impl Platform for Kernel {
//!     type U32 = AtomicU32;
//!     type U64 = AtomicU64;
//!     type Cell<T: freehold::platform::Scalar> = NativeCell<T>;
//!     type LocalCell<T: freehold::platform::Scalar> = NativeCell<T>;
//!     type Lock = SpinLock;
//!     type IrqState = ();
//!     fn cpu(&self) -> CpuId { CpuId::new(0) } // a kernel reads its CPU number here
//!     fn pin(&self) -> CpuId { self.cpu() }    // and disables preemption
//!     fn unpin(&self) {}
//!     fn irq_save(&self) {}                    // and interrupts
//!     fn irq_restore(&self, _state: ()) {}
//! }
//!
//! let memory = [MemoryRange::new(Pfn::new(0x1000), FrameCount::new(4096))];
//! let cpus = [NodeId::new(0)];
//! let config = Config::new(&memory, &cpus);
//! let settings = Default::default();
//!
//! type Frames = PageAllocator<Kernel, Freehold<Kernel>>;
//! let layout = Frames::layout(&config, &settings)?;
//! # #[repr(align(64))]
//! # #[derive(Clone)]
//! # struct Line([MaybeUninit<u8>; 64]);
//! # let lines = vec![Line([MaybeUninit::uninit(); 64]); layout.size() / 64];
//! # let base = std::ptr::NonNull::from(lines.leak()).cast();
//! # // SAFETY: the leaked lines are used for nothing else.
//! # let metadata = unsafe { Metadata::from_raw_parts(base, layout.size()) };
//! // `metadata` is layout.size() bytes at layout.align(), for example from the boot allocator.
//! let frames = Frames::new(Kernel, &config, &settings, metadata)?;
//!
//! let block = frames.alloc(Request::new(Order::new(3)))?;
//! frames.free(block, Order::new(3))?;
//! assert!(frames.free(block, Order::new(3)).is_err(), "a double free changes nothing");
//! # Ok::<(), freehold::Error>(())
//! ```

#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate self as freehold;

pub use allocator::PageAllocator;
pub use compact::{Compaction, Immovable, Migrate, MigrateError};
pub use config::{Config, MemoryRange};
pub use designs::{Design, Setting, SettingError, Settings};
pub use error::{BulkFreeError, Error};
pub use memmap::region::{Layout, Metadata, Section, SectionKind};
pub use request::{RangeRequest, Request};
pub use stat::{Census, Events, FreeByType, NumaEvents, Rule, Violation, ZoneStats};
pub use units::{CpuId, FrameCount, FrameSize, MigrateType, NodeId, Order, Pfn, ZoneKind};
pub use zone::watermark::{Marks, Watermark};

pub mod designs;
pub mod geometry;
pub mod lru;
pub mod platform;

mod allocator;
mod compact;
mod config;
mod error;
mod fragmentation;
mod memmap;
mod request;
mod stat;
mod topology;
mod units;
mod zone;

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod testing;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
