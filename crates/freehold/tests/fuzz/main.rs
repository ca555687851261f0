//! Targets for fuzzers: what any bytes stand for, against naive models. `tools/fuzz` runs them for
//! long; as tests they replay their corpora and play lists that are drawn by seed.
//!
//! A program of its own, so that a fuzzer's build has these alone. As tests they are in `native`.

#[path = "../common/mod.rs"]
mod common;
#[expect(unused_macros, reason = "a corpus is of one design, by the name of its test")]
#[path = "../common/designs.rs"]
mod designs;
#[path = "../common/machine.rs"]
mod machine;
#[path = "../common/naive.rs"]
mod naive;
#[path = "../common/random.rs"]
mod random;

mod bytes;
mod configs;
mod counts;
mod naive_moves;
mod operations;
mod pair;
mod parts;
mod seeds;
mod setup;
