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

/// Binds the calling thread to these CPUs, until it is bound elsewhere. Threads and processes that
/// it starts afterwards inherit the binding.
///
/// # Errors
///
/// [`HostError::Affinity`], with the first of the CPUs, if none is online, exists, and is among
/// those that the process may use; with the one that has too large a number, if one has.
pub fn bind_current_thread(cpus: &[CpuId]) -> Result<(), HostError> {
    let refuse = |cpu, errno: rustix::io::Errno| HostError::Affinity { cpu, source: errno.into() };
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu.index() >= CpuSet::MAX_CPU {
            return Err(refuse(Some(cpu), rustix::io::Errno::INVAL));
        }
        set.set(cpu.index());
    }
    sched_setaffinity(None, &set).map_err(|errno| refuse(cpus.first().copied(), errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binding_leaves_one_cpu() {
        let bound = std::thread::spawn(|| {
            let last = *allowed_cpus().unwrap().last().unwrap();
            bind_current_thread(&[last]).unwrap();
            (last, allowed_cpus().unwrap())
        });
        let (last, allowed) = bound.join().unwrap();
        assert_eq!(allowed, [last]);
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused_by_name() {
        for cpu in [CpuSet::MAX_CPU as u32 - 1, CpuSet::MAX_CPU as u32, u32::MAX] {
            let error = bind_current_thread(&[CpuId::new(cpu)]).unwrap_err();
            assert!(error.to_string().contains(&format!("CPU {cpu}")), "{error}");
        }
    }
}
