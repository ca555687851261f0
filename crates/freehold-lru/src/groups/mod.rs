//! Memory groups: which group is charged for a frame, and how much each may have.
//!
//! Groups form a tree. A frame counts in its group and in those above, up to the root. A group
//! occupies a slot. When it is removed, its frames keep the number of the slot, which from then on
//! stands for the parent, until they are next put on a list; the slot is free again once no frame
//! has its number.

pub(crate) mod bounds;
pub(crate) mod charge;
mod queue;
pub(crate) mod slot;
pub(crate) mod table;
pub(crate) mod tree;
