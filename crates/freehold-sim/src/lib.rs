//! A simulated machine of hundreds of CPUs on one thread of the host.
//!
//! The same source of the allocator that runs on a real machine runs here, deterministically: the
//! seam's storage ([`Sim`]) charges every access to a model of caches, sockets and memory, and the
//! machine lets the virtual CPU with the smallest virtual time run. A [`Report`] says where the
//! time went. The same machine under a random [`Schedule`] and with [`Faults`] is a tester.
//!
//! What the model is, where its figures come from and what it leaves out is on the page
//! `docs/simulated-machine.md`.
//!
//! From the inside out: `spec` (figures), `cache`, `memory`, `sharers`, `directory` and `frames`
//! (what an access costs), `schedule`, `fault`, `halt` and `account` (who runs, what goes wrong,
//! what is kept), `lock` and `barrier` (waiting), `state` (all of these), `coroutine` and `current`
//! (how the allocator's code is suspended and finds its machine), `platform`, `costless`, `cpu`,
//! `machine` and `embed` (what allocators, workloads and labs use).

#![deny(unsafe_code)]

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
mod lock;
mod machine;
mod memory;
mod platform;
mod prefetch;
mod region;
mod report;
mod schedule;
mod sharers;
mod spec;
mod state;

pub use account::Path;
pub use costless::{Costless, CostlessLock};
pub use cpu::{Barrier, CpuHandle, WorkLock};
pub use embed::{SimFrames, SimLru};
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
    BadSpec, CORES_MAX, CPUS_MAX, Figure, FileError, Key, LLCS_MAX, Spec, Unit, UnknownMachine,
    preset, preset_names,
};
