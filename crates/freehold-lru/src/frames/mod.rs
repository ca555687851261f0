//! What the LRU knows of each frame: one word of state, and the links of a list.

pub(crate) mod few;
pub(crate) mod sharding;
pub(crate) mod state;
pub(crate) mod table;
