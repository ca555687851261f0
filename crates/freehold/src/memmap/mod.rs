//! The caller-owned metadata: its layout, typed tables in it, and lists through the records of
//! tables.
//!
//! Knows no locks.

pub(crate) mod index;
pub(crate) mod list;
pub(crate) mod region;
mod table;
