//! The threads of a run, and the CPUs that they are bound to.

use std::thread::{Scope, ScopedJoinHandle};

use anyhow::{Context, Result};
use freehold::CpuId;
use freehold_host::{allowed_cpus, bind_current_thread};

use crate::error::refuse;

/// The first `count` CPUs that this process may use. `flag` is the option that requested so many.
///
/// # Errors
///
/// A usage error if there are fewer.
pub(crate) fn cpus_for(count: u32, flag: &str) -> Result<Vec<CpuId>> {
    let allowed = allowed_cpus()?;
    if allowed.len() < count as usize {
        let there = allowed.len();
        return refuse(format!("{flag} {count}: this process may use {there} CPUs of the host"));
    }
    Ok(allowed.into_iter().take(count as usize).collect())
}

/// How many CPUs this process may use.
pub(crate) fn cpus_max() -> Result<u32> {
    Ok(allowed_cpus()?.len() as u32)
}

/// Binds the calling thread for the rest of its lifetime.
pub(crate) fn bind(cpu: CpuId) -> Result<()> {
    bind_current_thread(&[cpu]).context("cannot bind a task to its CPU")
}

/// Starts a thread. Its work is boxed, so that threads are compiled once and not once for each
/// design.
pub(crate) fn start<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, T> {
    let work: Box<dyn FnOnce() -> T + Send + 's> = Box::new(work);
    scope.spawn(work)
}
