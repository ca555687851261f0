//! The protocols of the LRU between CPUs under the model checker loom.

#[path = "../../../freehold/tests/common/loom_platform.rs"]
mod loom_platform;
#[path = "../../../freehold/tests/common/loom_runs.rs"]
mod loom_runs;
#[path = "../../../freehold/tests/common/loom_threads.rs"]
mod loom_threads;
#[path = "../common/room.rs"]
mod room;

mod frames;
mod groups;
mod shards;
mod sound;
