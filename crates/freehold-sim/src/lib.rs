//! A simulated machine of hundreds of CPUs on one thread of the host.
//!
//! The same source of the allocator that runs on a real machine runs here, deterministically: the
//! platform's storage ([`Sim`]) charges every access to a model of caches, sockets and memory, and
//! the machine always runs the virtual CPU with the smallest virtual time. A [`Report`] says where
//! the time went. The same machine under a random [`Schedule`] and with [`Faults`] is a tester.
//!
//! `docs/machine.md` describes the model, where its figures come from, and what it leaves out.
//!
//! From the inside out, each using those before it: `spec` (figures), `access`, `cache`,
//! `account`, `memory`, `sharers` and `hierarchy` (what there is between a CPU and its data),
//! `holders`, `directory` and `frames` (the cost of an access), `schedule` and `fault`
//! (scheduling, failures), `parts` and `state` (all that a machine consists of), `lock` and
//! `barrier` (waiting), `coroutine` and `current` (how the allocator's code is suspended and finds
//! its machine), `platform`, `costless`, `region`, `cpu`, `report`, `machine`, `interrupt`,
//! `halt`, `embed` and `table` (what allocators, workloads and labs use).

#![deny(unsafe_code)]

mod access;
mod account;
mod barrier;
mod cache;
mod coroutine;
mod costless;
mod cpu;
mod current;
mod directory;
mod embed;
mod fault;
mod frames;
mod halt;
mod hierarchy;
mod holders;
mod interrupt;
mod lock;
mod machine;
mod memory;
mod parts;
mod platform;
mod prefetch;
mod region;
mod report;
mod schedule;
mod sharers;
mod spec;
mod state;
mod table;

pub use account::Path;
pub use costless::{Costless, CostlessLock};
pub use cpu::{Barrier, CpuHandle, WorkLock};
pub use embed::{LruCosts, SimFrames, SimLru};
pub use fault::{Departure, Faults, Halt, Stop, Torn};
pub use halt::{Halted, Waiting};
pub use machine::{Machine, RunError};
pub use platform::{Sim, SimCell, SimLocalCell, SimLock, SimWord};
pub use region::{Home, Kind, Region};
pub use report::{
    DataReport, IrqReport, LatencyReport, LockReport, MemoryReport, Report, ServedReport,
    TimeReport,
};
pub use schedule::Schedule;
pub use spec::{
    BadSpec, CORES_MAX, CPUS_MAX, Figure, FileError, Key, LLCS_MAX, NODES_MAX, Spec, Unit,
    UnknownMachine, preset, preset_names,
};
pub use table::SimTable;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
