//! Targets for fuzzers: what any bytes stand for, against a naive model. `tools/fuzz` runs them for
//! long; as tests they replay their corpora and try a few random inputs.

#[path = "../../../freehold/tests/fuzz/bytes.rs"]
mod bytes;
#[path = "../../../freehold/tests/common/mod.rs"]
mod common;
#[path = "../common/naive.rs"]
mod naive;
#[path = "../common/pair.rs"]
mod pair;
#[path = "../../../freehold/tests/fuzz/parts.rs"]
mod parts;
#[path = "../common/room.rs"]
mod room;
#[path = "../common/shelf.rs"]
mod shelf;

mod calls;
mod configs;
