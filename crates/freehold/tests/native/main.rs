//! The guarantees of the library, on native storage: all designs, the LRU, and both under stress.
//!
//! One program: allocators are generic, so each test program would compile its own copies of them.

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../common/designs.rs"]
mod designs;
#[path = "../common/lru_cache.rs"]
mod lru_cache;
#[path = "../common/lru_pair.rs"]
mod lru_pair;
#[path = "../common/machine.rs"]
mod machine;
#[path = "../common/naive.rs"]
mod naive;
#[path = "../common/naive_lru.rs"]
mod naive_lru;
#[path = "../common/naive_moves.rs"]
mod naive_moves;
#[path = "../common/owner.rs"]
mod owner;
#[path = "../common/pair.rs"]
mod pair;
#[path = "../common/random.rs"]
mod random;
#[path = "../common/ranges.rs"]
mod ranges;
#[path = "../common/lru.rs"]
mod room;
#[path = "../common/scattered.rs"]
mod scattered;
#[path = "../common/seen_mutex.rs"]
mod seen_mutex;
#[path = "../common/setup.rs"]
mod setup;
#[path = "../common/shelf.rs"]
mod shelf;

mod bad_input;
mod bulk;
mod by_type;
mod compact;
mod compact_owners;
mod extremes;
mod fallback;
mod freehold_design;
mod freehold_paths;
mod geometry;
mod lease;
mod lru;
mod lru_bad_input;
mod lru_blocks;
mod lru_charges;
mod lru_claims;
mod lru_locks;
mod lru_model;
mod lru_owner;
mod lru_policy;
mod lru_pressure;
mod lru_protect;
mod lru_reclaim;
mod lru_stress;
mod lru_turns;
mod lru_waits;
mod model;
mod numa;
mod panics;
mod pressure;
mod range;
mod range_owners;
mod remove;
mod revocable;
mod stress;

/// The threads of `lru_cache`.
mod threads {
    pub(crate) use std::sync::MutexGuard;
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    pub(crate) use std::thread::{scope, yield_now};

    pub(crate) use crate::common::run_on;
    pub(crate) use crate::seen_mutex::SeenMutex as Mutex;
}
