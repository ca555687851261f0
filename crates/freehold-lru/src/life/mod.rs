//! A frame's life in the LRU: it is charged and added, referenced, used and pinned, isolated, and
//! released.

pub(crate) mod add;
pub(crate) mod batches;
pub(crate) mod frame_ref;
pub(crate) mod inherit;
pub(crate) mod isolate;
pub(crate) mod refs;
pub(crate) mod stock;
pub(crate) mod uses;
