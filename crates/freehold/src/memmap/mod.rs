//! The caller-owned metadata: its layout, typed tables in it, and lists linked through records of
//! tables.
//!
//! This module knows no locks.

pub mod bits;
pub mod index;
pub mod list;
pub mod region;
pub mod stretches;
mod table;
pub mod zeroable;
