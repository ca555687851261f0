//! The page heap of this crate, and purges of an arena, on loom.

pub(crate) use freehold_host::HostError;

pub(crate) type Host = crate::loom_platform::LoomPlatform;
pub(crate) type FrameArena<D> = crate::ground::FrameArena<Host, D>;

pub(crate) use crate::ground as clock;
pub(crate) use crate::ground::ForkGuard;

#[expect(unreachable_pub, reason = "the crate has it public")]
#[path = "../../src/heap/mod.rs"]
pub(crate) mod heap;
#[expect(unreachable_pub, reason = "the crate has it public")]
#[path = "../../../../crates/freehold-host/src/frames/purge.rs"]
mod purge;
#[path = "scenarios.rs"]
pub(crate) mod scenarios;
