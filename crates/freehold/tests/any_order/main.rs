//! The tests that hold whatever the order of a pageblock: threads that use every call of every
//! design, free blocks by type, sizes of frames. They are part of `native`; built alone, another
//! order takes a third of the time:
//!
//! ```text
//! FREEHOLD_PAGEBLOCK_ORDER=13 CARGO_TARGET_DIR=target/geometry \
//!     cargo test -p freehold --test any_order
//! ```

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../common/designs.rs"]
mod designs;
#[path = "../common/machine.rs"]
mod machine;
#[path = "../common/naive.rs"]
mod naive;
#[path = "../common/owner.rs"]
mod owner;
#[path = "../common/random.rs"]
mod random;
#[path = "../common/seen_mutex.rs"]
mod seen_mutex;
#[path = "../common/tested.rs"]
mod tested;

#[path = "../native/by_type.rs"]
mod by_type;
#[path = "../native/geometry.rs"]
mod geometry;
#[path = "../native/stress.rs"]
mod stress;

// Not every binary uses everything here.
const _: fn(&tested::Tested<freehold::designs::Freehold<common::TestPlatform>>) =
    tested::check_whole;
