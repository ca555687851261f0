//! The guarantees of the library, on native storage: all designs, alone and under stress.
//!
//! One program: allocators are generic, so each test program would compile its own copies of them.

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../common/designs.rs"]
mod designs;
#[path = "../common/fragile.rs"]
mod fragile;
#[path = "../common/machine.rs"]
mod machine;
#[path = "../common/naive.rs"]
mod naive;
#[path = "../common/owner.rs"]
mod owner;
#[path = "../common/random.rs"]
mod random;
#[path = "../common/ranges.rs"]
mod ranges;
#[path = "../common/scattered.rs"]
mod scattered;
#[path = "../common/seen_mutex.rs"]
mod seen_mutex;
#[path = "../common/tested.rs"]
mod tested;

mod bad_input;
mod boot;
mod bulk;
mod by_type;
mod compact;
mod compact_owners;
mod extremes;
mod fallback;
mod far;
mod freehold_design;
mod freehold_paths;
mod geometry;
mod knowing_owner;
mod lease;
mod panics;
mod pressure;
mod range;
mod range_owners;
mod remove;
mod reporting;
mod sparing;
mod stress;
mod surplus;
