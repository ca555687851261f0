//! The threads of a race: one for each CPU, bound to it, for as long as the race lasts.
//!
//! A malloc caches memory per thread, so new threads for each measurement would measure that, too.

use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use freehold::CpuId;
use rayon_core::{ThreadPool, ThreadPoolBuilder};

use super::referee::Failure;
use crate::host::tasks::bind;

/// Threads that wait for work.
pub(super) struct Crew {
    pool: ThreadPool,
}

impl Crew {
    /// Starts a thread on each of these CPUs.
    ///
    /// # Errors
    ///
    /// A thread cannot be started or bound.
    pub(super) fn new(cpus: &[CpuId]) -> Result<Self> {
        let pool = ThreadPoolBuilder::new().num_threads(cpus.len()).build();
        let pool = pool.context("cannot start the threads of a race")?;
        let crew = Crew { pool };
        crew.together(cpus.len(), |thread| bind(cpus[thread]))
            .into_iter()
            .collect::<Result<()>>()?;
        Ok(crew)
    }

    /// Runs some work on the first `parties` threads at the same time, and waits for all of it.
    pub(super) fn together<R: Send>(
        &self,
        parties: usize,
        work: impl Fn(usize) -> R + Sync,
    ) -> Vec<R> {
        self.broadcast(parties, &work)
    }

    /// Compiled once, and not once for each contestant.
    fn broadcast<R: Send>(&self, parties: usize, work: &(dyn Fn(usize) -> R + Sync)) -> Vec<R> {
        let all = self.pool.broadcast(|context| {
            let thread = context.index();
            (thread < parties).then(|| work(thread))
        });
        all.into_iter().flatten().collect()
    }

    /// Runs some work on the first thread.
    pub(super) fn alone<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let work = Mutex::new(Some(work));
        let take = || work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut done = self.together(1, |_| take().map(|work| work()));
        done.pop().flatten().expect("the first thread has done the work")
    }
}

/// A barrier at which threads spin, since a thread that sleeps starts late. It fails when one of
/// them fails, so that none waits for one that never arrives.
pub(super) struct Meeting {
    parties: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    failed: AtomicBool,
}

impl Meeting {
    pub(super) fn new(parties: usize) -> Self {
        let zero = || AtomicUsize::new(0);
        Meeting { parties, arrived: zero(), round: zero(), failed: AtomicBool::new(false) }
    }

    /// Makes all waiting fail from now on.
    pub(super) fn fail(&self) {
        // Relaxed: it publishes nothing else.
        self.failed.store(true, Relaxed);
    }

    /// Waits until all have arrived.
    ///
    /// # Errors
    ///
    /// [`Failure::Abandoned`].
    pub(super) fn wait(&self) -> Result<(), Failure> {
        /// How often a waiter spins before it yields its CPU.
        const SPINS: u32 = 1000;
        let round = self.round.load(Acquire);
        // Everything that each thread did before is visible to all after: the count passes it to
        // the last one that arrives, and the round from there to the others.
        if self.arrived.fetch_add(1, AcqRel) + 1 == self.parties {
            // Relaxed: the round publishes it.
            self.arrived.store(0, Relaxed);
            self.round.store(round + 1, Release);
        }
        let mut spins = 0;
        while self.round.load(Acquire) == round {
            if self.failed.load(Relaxed) {
                return Err(Failure::Abandoned);
            }
            spins += 1;
            if spins % SPINS == 0 {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::three_meet;
    use freehold_host::allowed_cpus;

    #[test]
    fn every_thread_runs_on_its_cpu() {
        let cpus = allowed_cpus().unwrap();
        let crew = Crew::new(&cpus).unwrap();
        for _ in 0..3 {
            let found = crew.together(cpus.len(), |_| allowed_cpus().unwrap());
            assert_eq!(found, cpus.iter().map(|&cpu| vec![cpu]).collect::<Vec<_>>());
        }
        assert_eq!(crew.together(1, |thread| thread), [0]);
        assert_eq!(crew.alone(|| allowed_cpus().unwrap()), [cpus[0]]);
    }

    #[test]
    fn a_meeting_waits_for_all_and_ends_when_one_fails() {
        let meeting = Meeting::new(3);
        three_meet(|| meeting.wait().unwrap());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| meeting.wait());
            meeting.fail();
            assert_eq!(waiter.join().unwrap(), Err(Failure::Abandoned));
        });
    }
}
