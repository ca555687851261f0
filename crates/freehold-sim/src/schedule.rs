//! Which CPU runs next.
//!
//! By time, the CPU with the smallest virtual time runs, until another is earlier. That is decided
//! before every access of shared memory, so all accesses happen in the order of virtual time. Among
//! CPUs at the same time a number drawn from the seed decides, anew at each turn.
//!
//! At random, any CPU that can run may be next, whatever its time. Costs mean little then; the
//! order of accesses is explored, for tests of correctness.

use rand_core::RngCore;
use rand_pcg::Pcg32;

use crate::spec::{CPUS_MAX, Picos};

/// How the next CPU is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// The CPU with the smallest virtual time: the machine as it is.
    #[default]
    ByTime,
    /// Any CPU, after this many of a million accesses of shared memory: a test of correctness.
    Random {
        /// The chance to change the CPU before an access, in millionths.
        switches_per_million: u32,
    },
}

/// Bits of a key that number the CPU.
const CPU_BITS: u32 = CPUS_MAX.ilog2();
/// Bits of a key that break ties.
const TIE_BITS: u32 = 5;

/// Virtual time ends here, after more than 9 minutes: keys have no room for more.
pub(crate) const TIME_MAX: Picos = (1 << (Key::BITS - CPU_BITS - TIE_BITS)) - 1;

/// A CPU's place in the order: its time, a tie-break, its number, from high bits to low.
type Key = u64;

/// The key of a CPU that cannot run.
const NEVER: Key = Key::MAX;

/// The CPUs that can run, as a tournament: each inner node holds the smaller key of its two
/// children, so the winner is at the root, and a change costs one path from leaf to root. The
/// tournament of 112 CPUs is 2 KiB, which stays in the host's first-level cache. The key of the
/// running CPU stays at its leaf: nearly every CPU asks for another turn, and then its path changes
/// once a turn, not twice.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Node 1 is the root, nodes `leaves..` are the CPUs.
    nodes: Vec<Key>,
    leaves: usize,
    schedule: Schedule,
    rng: Pcg32,
    /// The tie-break and number of the running CPU, as the low bits of its key.
    running: Key,
    /// The running CPU, as long as its old key is at its leaf.
    stale: Option<usize>,
    /// The smallest key of the other CPUs that can run.
    next: Key,
}

impl Queue {
    pub(crate) fn new(cpus: usize, seed: u64) -> Self {
        let leaves = cpus.next_power_of_two();
        Queue {
            nodes: vec![NEVER; 2 * leaves],
            leaves,
            schedule: Schedule::ByTime,
            rng: Pcg32::new(seed, 0x5eed),
            running: 0,
            stale: None,
            next: NEVER,
        }
    }

    pub(crate) fn set_schedule(&mut self, schedule: Schedule) {
        self.schedule = schedule;
    }

    pub(crate) fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Lets a CPU run from `now` on.
    pub(crate) fn insert(&mut self, cpu: usize, now: Picos) {
        let tie = Key::from(self.rng.next_u32() >> (32 - TIE_BITS));
        let key = (now << TIE_BITS | tie) << CPU_BITS | cpu as Key;
        self.next = self.next.min(key);
        self.stale = self.stale.filter(|&stale| stale != cpu);
        self.set(cpu, key);
    }

    /// Removes the next CPU from the queue.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        if let Some(cpu) = self.stale.take() {
            self.set(cpu, NEVER);
        }
        let key = match self.schedule {
            Schedule::ByTime => self.nodes[1],
            Schedule::Random { .. } => self.any(),
        };
        if key == NEVER {
            return None;
        }
        self.running = key & ((1 << (CPU_BITS + TIE_BITS)) - 1);
        let cpu = (key & ((1 << CPU_BITS) - 1)) as usize;
        self.stale = Some(cpu);
        self.next = self.best_but(cpu);
        Some(cpu)
    }

    /// Whether the running CPU, at `now`, must let another one go first.
    #[inline]
    pub(crate) fn is_over(&mut self, now: Picos) -> bool {
        match self.schedule {
            Schedule::ByTime => self.is_ahead(now),
            Schedule::Random { switches_per_million } => {
                self.next != NEVER && chance(&mut self.rng, switches_per_million)
            }
        }
    }

    /// Whether the running CPU, at `now`, is ahead of one that can run. At random there is no such
    /// order.
    #[inline]
    pub(crate) fn is_ahead(&self, now: Picos) -> bool {
        match self.schedule {
            Schedule::ByTime => now << (TIE_BITS + CPU_BITS) | self.running > self.next,
            Schedule::Random { .. } => false,
        }
    }

    /// The smallest key of all CPUs but one.
    #[inline]
    fn best_but(&self, cpu: usize) -> Key {
        let (mut at, mut best) = (self.leaves + cpu, NEVER);
        while at > 1 {
            best = best.min(self.nodes[at ^ 1]);
            at /= 2;
        }
        best
    }

    /// A key drawn among the CPUs that can run.
    fn any(&mut self) -> Key {
        let ready = self.nodes[self.leaves..].iter().filter(|&&key| key != NEVER);
        match ready.clone().count() {
            0 => NEVER,
            count => ready.clone().nth(below(&mut self.rng, count)).copied().unwrap_or(NEVER),
        }
    }

    #[inline]
    fn set(&mut self, cpu: usize, key: Key) {
        let mut at = self.leaves + cpu;
        self.nodes[at] = key;
        while at > 1 {
            let winner = self.nodes[at].min(self.nodes[at ^ 1]);
            at /= 2;
            if self.nodes[at] == winner {
                // Nothing changes further up.
                break;
            }
            self.nodes[at] = winner;
        }
    }
}

/// Whether an event with this chance happens.
pub(crate) fn chance(rng: &mut Pcg32, per_million: u32) -> bool {
    per_million > 0 && below(rng, 1_000_000) < per_million as usize
}

/// A number below `end`, which is at least 1 and small against 2^32.
pub(crate) fn below(rng: &mut Pcg32, end: usize) -> usize {
    ((u64::from(rng.next_u32()) * end as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_schedule_ignores_time_and_reaches_everyone() {
        let mut queue = Queue::new(4, 7);
        queue.set_schedule(Schedule::Random { switches_per_million: 500_000 });
        let mut seen = [0; 4];
        for cpu in 0..4 {
            queue.insert(cpu, cpu as Picos * 1_000);
        }
        for _ in 0..400 {
            let cpu = queue.pop().unwrap();
            seen[cpu] += 1;
            queue.insert(cpu, 0);
        }
        assert!(seen.iter().all(|&turns| turns > 50), "{seen:?}");
        let switches = (0..1000).filter(|_| queue.is_over(0)).count();
        assert!((400..600).contains(&switches), "{switches}");
    }
}
