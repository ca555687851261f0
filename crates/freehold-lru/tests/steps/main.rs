//! The calls of the LRU, stopped at each of their steps: built when it is named.
//! `cargo xtask prove stops`

#[path = "../common/room.rs"]
mod room;
#[path = "../../../freehold/tests/common/steps.rs"]
mod steps;

mod stops;
