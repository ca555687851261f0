//! Fault injection, for tests of correctness.

use rand_core::RngCore;
use rand_pcg::Pcg32;

use crate::schedule::{below, chance};
use crate::spec::Picos;

/// A failure that stops a CPU for a while, now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The chance at each occasion, in millionths.
    pub per_million: u32,
    /// The longest stop, in nanoseconds. Lengths are drawn evenly from 1 to this.
    pub ns_max: u32,
}

/// A CPU that leaves in the middle of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The number of the CPU.
    pub cpu: usize,
    /// When it leaves, in nanoseconds of virtual time.
    pub at_ns: u64,
}

/// A CPU that stops forever in the middle of a [call](crate::Sim::in_call): before an access of
/// shared memory, or before a step of a lock. It keeps the locks that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halt {
    /// The number of the CPU.
    pub cpu: usize,
    /// In which of its calls, the first being 0.
    pub call: u64,
    /// Before which access within that call, the first being 0. If there are fewer, the count
    /// continues in its next calls.
    pub step: u64,
    /// How many accesses a CPU may make in one call, while no call of any CPU ends, until it counts
    /// as waiting forever.
    pub patience_accesses: u64,
}

/// Words whose compare-exchange is not atomic: it reads and writes in two steps, so that two CPUs
/// can both succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The size of the words.
    pub bytes: usize,
    /// The kind of data that they are in, by its name; `None` for all.
    pub data: Option<&'static str>,
}

/// The failures of a run. The default has none.
///
/// All draws come from the machine's seed, on their own stream: switching on a failure changes no
/// tie-break of the schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The holder of a lock is stopped right after it took the lock, as a hypervisor may do to a
    /// virtual CPU even with interrupts off.
    pub holder_stopped: Option<Stop>,
    /// A CPU is stopped before an access of shared memory.
    pub stopped: Option<Stop>,
    /// `try_lock` fails though the lock is free, in millionths of the attempts.
    pub try_lock_refused_per_million: u32,
    /// `cpu()` and `pin()` return a wrong CPU, in millionths of the calls: by the platform's
    /// contract it is a hint.
    pub cpu_hint_wrong_per_million: u32,
    /// A CPU is interrupted before an access of memory or a step of a lock while its interrupts are
    /// on, in millionths of the occasions, if the machine has a
    /// [handler](crate::Machine::set_handler). No [`swarm`](Faults::swarm) draws it: what handlers
    /// may do is for the user to know.
    pub interrupts_per_million: u32,
    /// CPUs that leave. A workload asks [`crate::CpuHandle::is_leaving`] where it can stop.
    pub departures: Vec<Departure>,
    /// A CPU that stops forever, which no [`swarm`](Faults::swarm) draws. It stays stopped in all
    /// later runs, whatever failures are set by then.
    pub halt: Option<Halt>,
    /// A planted bug: once a CPU has stopped forever, calls of this one never end, although it
    /// waits for nothing.
    pub hangs: Option<usize>,
    /// A planted bug, which no machine has and no [`swarm`](Faults::swarm) draws: a bug finder must
    /// detect it.
    pub torn: Option<Torn>,
}

impl Faults {
    /// A mixture drawn from a seed: each kind of failure is present in about half of all seeds, so
    /// that rare failures do not hide behind common ones. At most half of `cpus` leave, within the
    /// first `within_ns` nanoseconds.
    pub fn swarm(seed: u64, cpus: usize, within_ns: u32) -> Self {
        let mut rng = Pcg32::new(seed, 0xfa17);
        let stop = |rng: &mut Pcg32, per_million, ns_max| {
            let present = chance(rng, 500_000);
            let per_million = 1 + below(rng, per_million) as u32;
            let ns_max = 1 + below(rng, ns_max) as u32;
            present.then_some(Stop { per_million, ns_max })
        };
        let holder_stopped = stop(&mut rng, 100_000, 1_000_000);
        let stopped = stop(&mut rng, 100_000, 10_000);
        let mut rate =
            |most| if chance(&mut rng, 500_000) { below(&mut rng, most) as u32 } else { 0 };
        let try_lock_refused_per_million = rate(300_000);
        let cpu_hint_wrong_per_million = rate(300_000);
        let mut departures = Vec::new();
        if chance(&mut rng, 500_000) {
            for cpu in 0..cpus {
                if departures.len() < cpus / 2 && chance(&mut rng, 250_000) {
                    let at_ns = u64::from(rng.next_u32()) % u64::from(within_ns.max(1));
                    departures.push(Departure { cpu, at_ns });
                }
            }
        }
        Faults {
            holder_stopped,
            stopped,
            try_lock_refused_per_million,
            cpu_hint_wrong_per_million,
            departures,
            ..Faults::default()
        }
    }
}

/// The failures of a run, and their draws.
#[derive(Debug)]
pub(crate) struct FaultState {
    pub(crate) faults: Faults,
    rng: Pcg32,
}

impl FaultState {
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        FaultState { faults, rng: Pcg32::new(seed, 0xfa11) }
    }

    /// How long a holder that just took its lock is stopped.
    pub(crate) fn holder_stop(&mut self) -> Picos {
        let stop = self.faults.holder_stopped;
        self.draw(stop)
    }

    /// How long a CPU is stopped before an access of shared memory.
    pub(crate) fn stop(&mut self) -> Picos {
        let stop = self.faults.stopped;
        self.draw(stop)
    }

    /// Whether a CPU whose interrupts are on is interrupted now.
    pub(crate) fn interrupts(&mut self) -> bool {
        chance(&mut self.rng, self.faults.interrupts_per_million)
    }

    pub(crate) fn refuses_try_lock(&mut self) -> bool {
        chance(&mut self.rng, self.faults.try_lock_refused_per_million)
    }

    /// The CPU to name instead of the one that asks, out of `cpus`.
    pub(crate) fn wrong_cpu(&mut self, cpus: usize) -> Option<usize> {
        chance(&mut self.rng, self.faults.cpu_hint_wrong_per_million)
            .then(|| below(&mut self.rng, cpus))
    }

    fn draw(&mut self, stop: Option<Stop>) -> Picos {
        match stop {
            Some(stop) if chance(&mut self.rng, stop.per_million) => {
                (1 + below(&mut self.rng, stop.ns_max as usize) as Picos) * 1000
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swarm_is_reproducible_and_every_kind_is_sometimes_absent() {
        assert_eq!(Faults::swarm(5, 8, 1000), Faults::swarm(5, 8, 1000));
        let swarm: Vec<_> = (0..100).map(|seed| Faults::swarm(seed, 8, 1000)).collect();
        let present = [
            swarm.iter().filter(|f| f.holder_stopped.is_some()).count(),
            swarm.iter().filter(|f| f.stopped.is_some()).count(),
            swarm.iter().filter(|f| f.try_lock_refused_per_million > 0).count(),
            swarm.iter().filter(|f| f.cpu_hint_wrong_per_million > 0).count(),
            swarm.iter().filter(|f| !f.departures.is_empty()).count(),
        ];
        assert!(present.iter().all(|count| (20..80).contains(count)), "{present:?}");
        assert!(swarm.iter().all(|f| f.departures.len() <= 4));
    }

    #[test]
    fn no_faults_stop_nobody() {
        let mut state = FaultState::new(Faults::default(), 1);
        assert_eq!((state.stop(), state.holder_stop()), (0, 0));
        assert!(!state.refuses_try_lock());
        assert_eq!(state.wrong_cpu(4), None);
    }
}
