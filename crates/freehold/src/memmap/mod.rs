//! The caller-owned metadata: its layout, and the tables of frames and pageblocks in it.
//!
//! Knows no locks. Each module's documentation says who may write a field, and under which lock.

pub(crate) mod block;
pub(crate) mod frame;
pub(crate) mod list;
pub(crate) mod region;
pub(crate) mod stack;
mod table;
