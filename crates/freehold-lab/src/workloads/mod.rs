//! The workloads: one file each.

pub(crate) mod build;
pub(crate) mod bulk;
pub(crate) mod contig;
pub(crate) mod cross_cpu;
pub(crate) mod high_order;
pub(crate) mod page_fault;
pub(crate) mod parallel_free;
pub(crate) mod pressure;
pub(crate) mod purge;
pub(crate) mod races;
pub(crate) mod read_twice;
pub(crate) mod replay;
pub(crate) mod tenants;
pub(crate) mod thp_mix;
