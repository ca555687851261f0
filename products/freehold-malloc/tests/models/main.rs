//! What threads do to each other in this crate without the allocator's help, under loom: all
//! interleavings with a bounded number of preemptions, and all values that the memory orderings
//! allow a load to see.
//!
//! The models run the source files of the crate, and the purge of an arena, which take what they
//! use from the module above them: here, that is an arena with loom's atomics whose frames contain
//! a cell each, so that loom panics if two of their users are not ordered.
//!
//! `LOOM_MAX_PREEMPTIONS` explores further. Each model prints how many executions it took
//! (`cargo test -- --nocapture`).
#![expect(clippy::duplicate_mod, reason = "a copy for each machine, which is what is above it")]

#[path = "../../../../crates/freehold/tests/common/loom_platform.rs"]
mod loom_platform;
#[path = "../../../../crates/freehold/tests/common/loom_runs.rs"]
mod loom_runs;
#[path = "../../../../crates/freehold/tests/common/loom_threads.rs"]
mod loom_threads;
#[path = "../../../../crates/freehold/tests/common/machine.rs"]
mod machine;

mod ground;
mod heaps;
mod sound;
mod static_arena;
mod unordered;
mod words;

// Files of the crate, each by itself.
#[expect(dead_code, reason = "a part of it does")]
#[path = "../../src/heap/ages.rs"]
mod ages;
#[path = "../../src/heap/bits.rs"]
mod bits;
#[path = "../../src/static_arena/bump.rs"]
mod bump;
#[path = "../../src/static_arena/first.rs"]
mod first;
#[expect(dead_code, reason = "a part of it does")]
#[path = "../../src/heap/refusal.rs"]
mod refusal;
#[path = "../../src/heap/used.rs"]
mod used;

// What one of them uses.
use ground::now_ms;
