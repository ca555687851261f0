//! Handlers of forks that several threads want installed, under loom: all interleavings with a
//! bounded number of preemptions, and all values that the memory orderings allow a load to see.
//!
//! `LOOM_MAX_PREEMPTIONS` explores further. Each model prints how many executions it took
//! (`cargo test -- --nocapture`).

#[expect(dead_code, reason = "words and cells alone are used")]
#[path = "../../../freehold/tests/common/loom_platform.rs"]
mod loom_platform;
#[path = "../../../freehold/tests/common/loom_runs.rs"]
mod loom_runs;

mod handlers;

#[expect(dead_code, reason = "a part of it does")]
#[path = "../../src/fork/install.rs"]
mod install;
