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

// The targets for fuzzers, which have a program of their own for that: as tests they share the
// allocators of this one.
#[path = "../fuzz/bytes.rs"]
mod bytes;
#[path = "../fuzz/configs.rs"]
mod configs;
#[path = "../fuzz/counts.rs"]
mod counts;
#[path = "../fuzz/naive_moves.rs"]
mod naive_moves;
#[path = "../fuzz/operations.rs"]
mod operations;
#[path = "../fuzz/pair.rs"]
mod pair;
#[path = "../fuzz/parts.rs"]
mod parts;
#[path = "../fuzz/seeds.rs"]
mod seeds;
#[path = "../fuzz/setup.rs"]
mod setup;
