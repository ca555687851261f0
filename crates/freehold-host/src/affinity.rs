//! The CPUs on which a thread may run.

use freehold::CpuId;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::HostError;

/// The CPUs on which the calling thread may run, ascending.
///
/// # Errors
///
/// [`HostError::Affinity`] if the kernel does not say: it refuses if it was built for more CPUs
/// than a [`CpuSet`] can name, which is 1024.
pub fn allowed_cpus() -> Result<Vec<CpuId>, HostError> {
    let set = sched_getaffinity(None)
        .map_err(|errno| HostError::Affinity { cpu: None, source: errno.into() })?;
    let is_allowed = |cpu: &u32| set.is_set(*cpu as usize);
    Ok((0..CpuSet::MAX_CPU as u32).filter(is_allowed).map(CpuId::new).collect())
}

/// Binds the calling thread to one CPU, until it is bound elsewhere. Threads that it starts
/// afterwards inherit the binding.
///
/// # Errors
///
/// [`HostError::Affinity`] if the CPU is offline, does not exist, or is not among those that the
/// process may use.
pub fn bind_current_thread(cpu: CpuId) -> Result<(), HostError> {
    let refuse =
        |errno: rustix::io::Errno| HostError::Affinity { cpu: Some(cpu), source: errno.into() };
    if cpu.index() >= CpuSet::MAX_CPU {
        return Err(refuse(rustix::io::Errno::INVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu.index());
    sched_setaffinity(None, &set).map_err(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binding_leaves_one_cpu() {
        let bound = std::thread::spawn(|| {
            let last = *allowed_cpus().unwrap().last().unwrap();
            bind_current_thread(last).unwrap();
            (last, allowed_cpus().unwrap())
        });
        let (last, allowed) = bound.join().unwrap();
        assert_eq!(allowed, [last]);
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused_by_name() {
        for cpu in [CpuSet::MAX_CPU as u32 - 1, CpuSet::MAX_CPU as u32, u32::MAX] {
            let error = bind_current_thread(CpuId::new(cpu)).unwrap_err();
            assert!(error.to_string().contains(&format!("CPU {cpu}")), "{error}");
        }
    }
}
