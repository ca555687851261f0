//! Targets for fuzzers: what any bytes stand for, against a naive model. `tools/fuzz` runs them for
//! long; as tests they replay their corpora and play lists that are drawn by seed.
//!
//! A program of its own, so that a fuzzer's build has these alone. As tests they are in `native`.

#[path = "../../../freehold/tests/fuzz/bytes.rs"]
mod bytes;
#[path = "../../../freehold/tests/common/mod.rs"]
mod common;
#[path = "../../../freehold/tests/fuzz/parts.rs"]
mod parts;
#[path = "../../../freehold/tests/common/random.rs"]
mod random;
#[path = "../common/room.rs"]
mod room;
#[path = "../../../freehold/tests/fuzz/seeds.rs"]
mod seeds;
#[path = "../common/shelf.rs"]
mod shelf;

mod calls;
mod configs;
mod naive;
mod pair;
