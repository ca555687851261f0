//! The protocols of the LRU between CPUs under the model checkers loom and shuttle.

#[path = "../common/cache.rs"]
mod cache;
#[path = "../../../freehold/tests/common/loom_platform.rs"]
mod loom_platform;
#[path = "../../../freehold/tests/common/loom_runs.rs"]
mod loom_runs;
#[path = "../../../freehold/tests/common/loom_threads.rs"]
mod loom_threads;
#[path = "../../../freehold/tests/common/machine.rs"]
mod machine;
#[path = "../common/room.rs"]
mod room;
#[path = "../../../freehold/tests/common/shuttle_platform.rs"]
mod shuttle_platform;
#[path = "../../../freehold/tests/common/shuttle_runs.rs"]
mod shuttle_runs;

mod frames;
mod groups;
mod schedules;
mod sound;

/// The threads of `cache`.
mod threads {
    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{scope, yield_now};

    pub(crate) use crate::shuttle_platform::run_on;
}
