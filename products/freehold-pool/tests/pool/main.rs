//! Pools on this machine, on one that refuses calls, and on the simulated one.

mod faults;
mod fuzz;
mod images;
mod pool;
mod schedules;

mod common;
#[path = "../../../../crates/freehold-host/tests/common/refuse.rs"]
mod refuse;
