//! Index, count and size are different types: a frame number is not a number of frames.

mod frames;
mod kinds;
mod machine;
mod order;

pub use frames::{FrameCount, FrameSize, Pfn};
pub use kinds::{MigrateType, ZoneKind};
pub use machine::{CpuId, NodeId};
pub use order::Order;

#[doc(hidden)]
pub use order::ORDERS;
