//! The page heap of this crate, and purges of an arena, on a machine whose words order nothing.

pub(crate) use freehold_host::HostError;

pub(crate) type Host = crate::loom_platform::LoomPlatform<true, true, false>;
pub(crate) type FrameArena<D> = crate::ground::FrameArena<Host, D>;

pub(crate) use crate::ground as fork;
pub(crate) use crate::ground as mapping;

pub(crate) mod frames {
    pub(crate) const BATCH_MAX: usize = 4;
}

#[expect(unreachable_pub, reason = "the crate has it public")]
#[path = "../../src/page_heap/mod.rs"]
pub(crate) mod page_heap;
#[expect(unreachable_pub, reason = "the crate has it public")]
#[path = "../../src/frames/purge.rs"]
mod purge;
#[expect(dead_code, reason = "one of them will do")]
#[path = "scenarios.rs"]
pub(crate) mod scenarios;
