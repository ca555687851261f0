//! The guarantees of the LRU, on native storage, alone and under stress.

use freehold_linux::Pcp;
use freehold_linux::zone_lock::ZoneLockSettings;

#[path = "../common/cache.rs"]
mod cache;
#[path = "../../../freehold/tests/common/mod.rs"]
mod common;
#[path = "../../../freehold/tests/common/fragile.rs"]
mod fragile;
#[path = "../../../freehold/tests/common/machine.rs"]
mod machine;
#[path = "../../../freehold/tests/common/random.rs"]
mod random;
#[path = "../common/room.rs"]
mod room;
#[path = "../../../freehold/tests/common/seen_mutex.rs"]
mod seen_mutex;
#[path = "../common/shelf.rs"]
mod shelf;

mod bad_input;
mod blocks;
mod charges;
mod claims;
mod locks;
mod operations;
mod owner;
mod panics;
mod policy;
mod pressure;
mod protect;
mod reclaim;
mod rooms;
mod stress;
mod turns;
mod waits;

// The targets for fuzzers, which have a program of their own for that.
#[path = "../../../freehold/tests/fuzz/bytes.rs"]
mod bytes;
#[path = "../fuzz/calls.rs"]
mod calls;
#[path = "../fuzz/configs.rs"]
mod configs;
#[path = "../fuzz/naive.rs"]
mod naive;
#[path = "../fuzz/pair.rs"]
mod pair;
#[path = "../../../freehold/tests/fuzz/parts.rs"]
mod parts;
#[path = "../../../freehold/tests/fuzz/seeds.rs"]
mod seeds;

/// Linux's allocator with per-CPU lists of constant size.
fn fixed(batch: u32, high: u32) -> ZoneLockSettings {
    ZoneLockSettings { pcp: Pcp::Fixed, batch, high, ..Default::default() }
}
