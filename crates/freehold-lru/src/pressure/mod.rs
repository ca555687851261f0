//! Memory pressure: who reclaims, when, and how much. At the limit of a group, beyond its `high`,
//! at the watermarks of a node, and when an allocation fails.

mod allocation;
mod attempts;
mod limits;
mod watermarks;
