//! The cache under shuttle: the real sources on locks, atomics, threads and time whose every step a
//! scheduler decides on. Calls of the arena and the LRU are one step each; these have models of
//! their own.
//!
//! `schedules`: several threads under random schedules, and under those with few preemptions (PCT).
//! `stops`: each pair of calls, of which one is stopped before each of its steps.
//!
//! Seeds are fixed, so every run is the same. `FREEHOLD_SEED` and `FREEHOLD_SCHEDULES` choose other
//! seeds and more schedules; a failing schedule is printed.
#![expect(dead_code, reason = "a model uses a part of the sources")]

mod disk;
mod explore;
mod raw;
mod schedules;
mod shuttle_runs;
mod stops;
mod sync;
mod world;

// All of the crate.
#[path = "../../src/ahead.rs"]
mod ahead;
#[path = "../../src/background.rs"]
mod background;
#[path = "../../src/batch.rs"]
mod batch;
#[path = "../../src/builder.rs"]
mod builder;
#[path = "../../src/cache.rs"]
mod cache;
#[path = "../../src/counters.rs"]
mod counters;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/evict.rs"]
mod evict;
#[path = "../../src/file.rs"]
mod file;
#[path = "../../src/file_state.rs"]
mod file_state;
#[path = "../../src/guard.rs"]
mod guard;
#[path = "../../src/index.rs"]
mod index;
#[path = "../../src/io/mod.rs"]
mod io;
#[path = "../../src/key.rs"]
mod key;
#[path = "../../src/load.rs"]
mod load;
#[path = "../../src/pool.rs"]
mod pool;
#[path = "../../src/read_on.rs"]
mod read_on;
#[path = "../../src/shared.rs"]
mod shared;
#[path = "../../src/signal.rs"]
mod signal;
#[path = "../../src/slot.rs"]
mod slot;
#[path = "../../src/stat.rs"]
mod stat;
#[path = "../../src/tenant.rs"]
mod tenant;
#[path = "../../src/tenant_state.rs"]
mod tenant_state;
#[path = "../../src/write_back.rs"]
mod write_back;

// What the sources find at the root of their crate.
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
