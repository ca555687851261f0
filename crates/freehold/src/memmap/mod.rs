//! The caller-owned metadata: its layout, typed tables in it, and lists linked through records of
//! tables.
//!
//! This module knows no locks.

pub(crate) mod index;
pub(crate) mod list;
pub(crate) mod region;
mod table;
pub(crate) mod zeroable;
