//! Locks, atomics, threads and time: in one place, since the models in `tests/models` run the cache
//! on others, whose every step a scheduler decides on.
//!
//! Not here: counters that nothing depends on, and what the engine for io_uring has for itself.

pub(crate) use std::hash::RandomState;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
pub(crate) use std::thread;
pub(crate) use std::time::Instant;

pub(crate) use parking_lot::{
    Condvar, MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};
