//! The page heap of this crate, and purges of an arena, on a machine whose words order nothing.

pub(crate) use freehold_host::HostError;

pub(crate) type Host = crate::loom_platform::LoomPlatform<true, true, false>;
pub(crate) type FrameArena<D> = crate::ground::FrameArena<Host, D>;

pub(crate) use crate::ground as clock;
pub(crate) use crate::ground::ForkGuard;

#[expect(unreachable_pub, reason = "the crate has it public")]
#[path = "../../src/heap/mod.rs"]
pub(crate) mod heap;
#[expect(unreachable_pub, reason = "the crate has it public")]
#[path = "../../../../crates/freehold-host/src/frames/purge.rs"]
mod purge;
#[expect(dead_code, reason = "one of them will do")]
#[path = "scenarios.rs"]
pub(crate) mod scenarios;
