//! Processes: forks and their children, signals, and system calls that the kernel refuses.

use std::sync::Mutex;

mod barrier;
mod crowd;
mod faults;
mod fork;
mod fork_leases;
mod signals;
mod tebibyte;

#[path = "../common/calls.rs"]
mod calls;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/refuse.rs"]
mod refuse;
#[path = "../common/two_nodes.rs"]
mod two_nodes;

/// Tests that fork run one at a time: children of others would slow them down.
static ONE: Mutex<()> = Mutex::new(());
