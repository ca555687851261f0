//! The yardsticks of all timings on a real machine, measured in the same run, in rounds that
//! alternate with the compared ones: above all, one uncontended lock and unlock.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

use crate::host::HostDesign;
use anyhow::Result;
use freehold::platform::{LockClass, Platform, RawLock};
use freehold::{CpuId, Order, Request};
use freehold_host::{FrameArena, Host};
use serde_json::{Map, Value, json};

use super::tasks::{bind, start};
use crate::report::summary::Summary;

/// How many rounds of each kind alternate.
const ROUNDS: usize = 15;

/// How often the measured step is repeated in a round: about a millisecond.
const REPEATS: u32 = 100_000;

/// The cost of an allocation and free of one frame on one CPU, compared with a lock.
#[derive(Debug)]
pub(crate) struct Yardstick {
    /// An uncontended lock and unlock of the lock that the allocator itself uses, in ns.
    pub(crate) lock_pair_ns: Summary,
    /// An allocation and free of one frame, in ns.
    pub(crate) pair_ns: Summary,
    /// The same, round by round.
    samples_pair_ns: Vec<f64>,
    /// Their ratio, round by round.
    pub(crate) pair_lock_pairs: Summary,
}

impl Yardstick {
    /// Measures on `cpu`, which should be otherwise idle.
    pub(crate) fn measure<D: HostDesign>(arena: &FrameArena<D>, cpu: CpuId) -> Result<Self> {
        std::thread::scope(|scope| {
            let measuring = start(scope, || {
                bind(cpu)?;
                measure_bound(arena)
            });
            measuring.join().expect("measuring does not panic")
        })
    }

    /// The fields of a report.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let fields = json!({
            "lock_pair_ns": self.lock_pair_ns,
            "pair_ns": self.pair_ns,
            "samples_pair_ns": self.samples_pair_ns,
            "pair_lock_pairs": self.pair_lock_pairs,
        });
        match fields {
            Value::Object(fields) => fields,
            _ => unreachable!("the macro makes an object"),
        }
    }
}

fn measure_bound<D: HostDesign>(arena: &FrameArena<D>) -> Result<Yardstick> {
    let (mut locks, mut pairs) = (Vec::new(), Vec::new());
    // One extra round, which is not counted, warms up.
    for round in 0..=ROUNDS {
        let lock_ns = lock_pair_ns();
        let pair_ns = time_ns(|| {
            let frame = arena.allocator().alloc(Request::default())?;
            arena.allocator().free(black_box(frame), Order::ZERO)
        })?;
        if round > 0 {
            locks.push(lock_ns);
            pairs.push(pair_ns);
        }
    }
    let ratios: Vec<_> = pairs.iter().zip(&locks).map(|(pair, lock)| pair / lock).collect();
    Ok(Yardstick {
        lock_pair_ns: Summary::of(&locks),
        pair_ns: Summary::of(&pairs),
        samples_pair_ns: pairs,
        pair_lock_pairs: Summary::of(&ratios),
    })
}

/// The current time of an uncontended lock and unlock of the lock that the allocators use, in ns.
pub(crate) fn lock_pair_ns() -> f64 {
    let lock = <Host as Platform>::Lock::new(LockClass::Zone);
    let time = time_ns(|| {
        let lock = black_box(&lock);
        lock.lock();
        black_box(lock).unlock();
        Ok::<(), Infallible>(())
    });
    time.unwrap_or_else(|never| match never {})
}

/// The current time of popping a number off a vector and pushing it back, in ns: a lower bound for
/// a single-threaded allocator.
pub(crate) fn vec_pair_ns() -> f64 {
    let mut frames: Vec<u64> = (0..512).collect();
    let time = time_ns(|| {
        let frame = frames.pop().unwrap_or_default();
        // Otherwise the two would cancel out.
        frames.push(black_box(frame));
        Ok::<(), Infallible>(())
    });
    time.unwrap_or_else(|never| match never {})
}

/// The cost of reading the clock twice, in ns: the minimum, since preemption may lengthen it, and
/// too much would then be subtracted from all times.
pub(crate) fn clock_ns() -> f64 {
    const ROUNDS: u32 = 20;
    const LOOKS: u32 = 500;
    let round = || {
        let start = Instant::now();
        for _ in 0..LOOKS {
            black_box(Instant::now());
        }
        // Half of each of the two reads around a call lies outside the measured interval.
        start.elapsed().as_nanos() as f64 / f64::from(LOOKS)
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// The mean time of one call, in ns.
fn time_ns<E>(mut step: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    for _ in 0..REPEATS {
        step()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(REPEATS))
}
