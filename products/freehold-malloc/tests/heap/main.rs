//! Page heaps: what they give out and take back, whatever the calls, and what the machine refuses.

mod backing;
mod beyond;
mod calls;
mod faults;
mod fuzz;
mod limits;
mod spans;

#[path = "../../../../crates/freehold-host/tests/common/cgroup.rs"]
mod cgroup;
#[path = "../../../../crates/freehold-host/tests/common/mod.rs"]
mod common;
#[path = "../../../../crates/freehold-host/tests/common/ranges_beyond.rs"]
mod ranges_beyond;
#[path = "../../../../crates/freehold-host/tests/common/refuse.rs"]
mod refuse;
