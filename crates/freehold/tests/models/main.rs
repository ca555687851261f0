//! The protocols between CPUs under the model checker loom.
//!
//! One program: allocators are generic, so each test program would compile its own copies of them.

#[expect(unused_macros, reason = "a model is of one design")]
#[path = "../common/designs.rs"]
mod designs;
#[path = "../common/freehold_models.rs"]
mod freehold_models;
#[path = "../common/loom_platform.rs"]
mod loom_platform;
#[path = "../common/loom_runs.rs"]
mod loom_runs;
#[path = "../common/loom_threads.rs"]
mod loom_threads;
#[path = "../common/machine.rs"]
mod machine;

mod designs_loom;
mod freehold_loom;
mod freehold_loom_compact;
mod freehold_loom_events;
mod freehold_loom_frees;
mod freehold_loom_leases;
mod freehold_loom_ranges;
mod freehold_loom_remove;
mod llfree_loom;
mod seam_loom;
