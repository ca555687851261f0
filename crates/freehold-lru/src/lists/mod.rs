//! Lruvecs: the lists of one group on one node, the lock over them, and what reclaim remembers of
//! them.

pub(crate) mod carry;
pub(crate) mod divide;
mod extent;
pub(crate) mod history;
pub(crate) mod lock;
pub(crate) mod lruvec;
pub(crate) mod shard;
pub(crate) mod turns;
