//! The yardstick of all timings on a real machine: one uncontended lock and unlock, measured in
//! the same run, round by round beside what is compared with it.

use std::hint::black_box;
use std::time::Instant;

use crate::host::HostDesign;
use anyhow::Result;
use freehold::platform::{LockClass, Platform, RawLock};
use freehold::{CpuId, Order, Request};
use freehold_host::{FrameArena, Host};
use serde_json::{Map, Value, json};

use super::tasks::bind;
use crate::report::summary::Summary;

/// How many rounds of each kind alternate.
const ROUNDS: usize = 15;

/// How often the measured step is repeated in a round: about a millisecond.
const REPEATS: u32 = 100_000;

/// What an allocation and free of one frame costs on one CPU, measured against a lock.
#[derive(Debug)]
pub(crate) struct Yardstick {
    /// An uncontended lock and unlock of the lock that the allocator itself uses, in ns.
    pub(crate) lock_pair_ns: Summary,
    /// An allocation and free of one frame, in ns.
    pub(crate) pair_ns: Summary,
    /// Their ratio, round by round.
    pub(crate) pair_lock_pairs: Summary,
}

impl Yardstick {
    /// Measures on `cpu`, which should have nothing else to do.
    pub(crate) fn measure<D: HostDesign>(arena: &FrameArena<D>, cpu: CpuId) -> Result<Self> {
        std::thread::scope(|scope| {
            let measuring = scope.spawn(|| {
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
            "pair_lock_pairs": self.pair_lock_pairs,
        });
        match fields {
            Value::Object(fields) => fields,
            _ => unreachable!("the macro makes an object"),
        }
    }
}

fn measure_bound<D: HostDesign>(arena: &FrameArena<D>) -> Result<Yardstick> {
    let lock = <Host as Platform>::Lock::new(LockClass::Zone);
    let (mut locks, mut pairs) = (Vec::new(), Vec::new());
    // One round more, which is not counted, warms up.
    for round in 0..=ROUNDS {
        let lock_ns = time_ns(|| {
            let lock = black_box(&lock);
            lock.lock();
            black_box(lock).unlock();
            Ok(())
        })?;
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
        pair_lock_pairs: Summary::of(&ratios),
    })
}

/// The mean time of one call, in ns.
fn time_ns(mut step: impl FnMut() -> Result<(), freehold::Error>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..REPEATS {
        step()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(REPEATS))
}
