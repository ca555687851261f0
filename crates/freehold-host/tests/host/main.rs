//! Arenas on this machine, whatever else the process does meanwhile.

mod arena;
mod backing;
mod beyond;
mod deaths;
mod frame_size;
mod frames;
mod leases;
mod mapped;
mod threads;

#[path = "../common/calls.rs"]
mod calls;
#[path = "../common/ranges_beyond.rs"]
mod ranges_beyond;
#[path = "../common/two_nodes.rs"]
mod two_nodes;
