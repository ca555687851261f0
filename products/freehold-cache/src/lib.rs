//! A cache of blocks of files for several tenants: databases, storage servers.
//!
//! Blocks have frames of a [freehold](freehold_host) arena, and its LRU decides which of them goes:
//! tenants have limits, which hold at every moment, and protection; scans do not evict what is used
//! again and again. The promises, with their reasons and prices, are in `docs/cache.md`.
//!
//! ```
//! use freehold_cache::{Block, Cache, Limits};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("data");
//! let cache = Cache::builder().memory_bytes(8 << 20).block_bytes(16 << 10).build()?;
//! let tenant = cache.tenant("orders", Limits::new().max_bytes(2 << 20))?;
//! let file = cache.open(&tenant, path)?;
//!
//! file.write(Block(7))?[..5].copy_from_slice(b"hello"); // a guard, dropped at once
//! assert_eq!(&file.read(Block(7))?[..5], b"hello");
//! file.sync()?; // what was written before is on storage
//! print!("{}", cache.stats().prometheus());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! * [`CachedFile::read`] and [`CachedFile::write`] return guards. A guard keeps its block, and no
//!   other. However many threads miss a block, it is read once.
//! * After [`CachedFile::sync`], all writes whose guards were dropped before the call are on
//!   storage. Without it, a crash leaves any part of what was written: blocks are written in any
//!   order, and one that was being written may be torn.
//! * No failure is lost: a block that cannot be written stays dirty, and the next `sync` of its
//!   file reports it.
//! * The blocks of all tenants have no more memory than the cache was built with, and those of one
//!   no more than its limit.
//!
//! # fork
//!
//! A child must not use the cache of its parent: the LRU is empty there.

#![deny(unsafe_code)]

mod ahead;
mod background;
mod batch;
mod builder;
mod cache;
mod counters;
mod error;
mod evict;
mod file;
mod file_state;
mod guard;
mod index;
mod io;
mod key;
mod load;
mod pool;
mod read_on;
mod shared;
mod signal;
mod slot;
mod stat;
mod sync;
mod tenant;
mod tenant_state;
mod write_back;

pub use builder::CacheBuilder;
pub use cache::Cache;
pub use error::{CacheError, SyncError, SyncState};
pub use file::CachedFile;
pub use freehold_host::lru::LruPolicy;
pub use guard::{BlockMut, BlockRef};
pub use io::{EngineReport, FileStorage, IoEngine, ReadRun, Run, Storage};
pub use key::Block;
pub use stat::{CacheStats, TenantStats};
pub use tenant::Tenant;
pub use tenant_state::Limits;

/// The examples of the README and of the guide, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../docs/cache.md")]
struct Guide;
