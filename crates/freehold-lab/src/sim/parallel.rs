//! Simulated cells run side by side: they share nothing, and virtual time is unaffected.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use anyhow::Result;

use crate::host::memory_available;

/// How many jobs can run at the same time on this machine.
pub(crate) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs all jobs, as many at a time as the host has CPUs and memory for, or at most `workers_max`;
/// `job_bytes` is what the largest takes. Results come in the order of the jobs.
pub(crate) fn run_all<J: Sync, R: Send>(
    jobs: &[J],
    job_bytes: u64,
    workers_max: Option<usize>,
    run: impl Fn(&J) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let fitting = memory_available().map_or(1, |bytes| bytes / 2 / job_bytes.max(1)).max(1);
    let workers = workers_max
        .unwrap_or_else(cpus)
        .min(jobs.len())
        .min(usize::try_from(fitting).unwrap_or(usize::MAX));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            // Relaxed: the counter only assigns numbers.
            let index = next.fetch_add(1, Relaxed);
            let Some(job) = jobs.get(index) else { return done };
            done.push((index, run(job)));
        }
    };
    let mut results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no job panics")).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        let jobs: Vec<u64> = (0..50).collect();
        let squares = run_all(&jobs, 1, None, |job| Ok(job * job)).unwrap();
        assert_eq!(squares, jobs.iter().map(|job| job * job).collect::<Vec<_>>());
    }

    #[test]
    fn one_error_is_the_result() {
        let result = run_all(&[1, 2, 3], 1, Some(2), |job| {
            if *job == 2 { Err(anyhow::anyhow!("two")) } else { Ok(()) }
        });
        assert_eq!(result.unwrap_err().to_string(), "two");
    }
}
