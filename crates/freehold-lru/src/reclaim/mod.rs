//! Reclaim: evicts frames that were not recently used, if their owner agrees. `share` has the rule
//! by which groups bear it.

pub(crate) mod evict;
pub(crate) mod hunt;
pub(crate) mod passes;
mod protection;
mod reach;
mod refault;
mod resistant;
mod share;
mod turn;
mod two_lists;
mod weights;
