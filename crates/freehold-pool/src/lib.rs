//! A pool of equal, large slots of memory: taken, used, reset and taken again, as WebAssembly
//! runtimes do with the memories and stacks of instances.

#![deny(unsafe_code)]

mod builder;
mod content;
mod error;
mod home;
mod key;
mod pool;
mod reserved;
pub mod slots;
mod stat;

pub use builder::PoolBuilder;
pub use error::PoolError;
pub use key::{ModuleKey, SlotIndex};
pub use pool::{Pool, PoolRef, Slot};
pub use slots::BATCH_SLOTS_MAX;
pub use stat::PoolStats;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
