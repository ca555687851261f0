//! The workloads: one file each.

pub(crate) mod bulk;
pub(crate) mod page_fault;
