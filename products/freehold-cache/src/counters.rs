//! What a tenant's calls count: each thread on a line that few others write to.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// What is counted for each tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Hit,
    Miss,
    Coalesced,
    ReadAhead,
    Evicted,
    WrittenBack,
    ReadError,
    WriteError,
}

impl Count {
    const ALL: usize = Count::WriteError as usize + 1;
}

/// Eight counts: a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe([AtomicU64; Count::ALL]);

/// The counts of a tenant.
#[derive(Debug)]
pub(crate) struct Counters(Box<[Stripe]>);

impl Counters {
    /// All zero, for so many threads at a time.
    pub(crate) fn new(threads: usize) -> Self {
        let stripes = threads.next_power_of_two().clamp(1, 64);
        Counters((0..stripes).map(|_| Stripe::default()).collect())
    }

    pub(crate) fn add(&self, count: Count, by: u64) {
        let stripe = &self.0[of_thread() & (self.0.len() - 1)];
        // Relaxed: a count on which no other memory depends.
        stripe.0[count as usize].fetch_add(by, Relaxed);
    }

    pub(crate) fn sum(&self, count: Count) -> u64 {
        // Relaxed: as above.
        self.0.iter().map(|stripe| stripe.0[count as usize].load(Relaxed)).sum()
    }
}

/// A number of the running thread. Threads get theirs in turn.
pub(crate) fn of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Relaxed: only the number matters.
        static NUMBER: usize = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.try_with(|number| *number).unwrap_or(0)
}
