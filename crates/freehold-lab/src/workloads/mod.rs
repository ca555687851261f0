//! The workloads: one file each.

pub(crate) mod build;
pub(crate) mod bulk;
pub(crate) mod cross_cpu;
pub(crate) mod page_fault;
pub(crate) mod parallel_free;
pub(crate) mod purge;
