//! The duration of a task's calls of the allocator.

use std::cell::Cell;

use freehold_sim::Path;
use serde::Serialize;

/// Calls of one kind and the time they took, of one task or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Calls {
    pub(crate) count: u64,
    pub(crate) total_ns: f64,
    pub(crate) mean_ns: f64,
}

/// The calls of the allocator by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct AllCalls {
    pub(crate) alloc: Calls,
    pub(crate) free: Calls,
}

impl AllCalls {
    /// Those of all tasks together.
    pub(crate) fn sum(tasks: impl Iterator<Item = AllCalls> + Clone) -> Self {
        let sum = |of: fn(AllCalls) -> Calls| {
            let calls = tasks.clone().map(of);
            Calls::new(
                calls.clone().map(|calls| calls.count).sum(),
                calls.map(|c| c.total_ns).sum(),
            )
        };
        AllCalls { alloc: sum(|task| task.alloc), free: sum(|task| task.free) }
    }

    /// The time of all calls, in ns.
    pub(crate) fn total_ns(&self) -> f64 {
        self.alloc.total_ns + self.free.total_ns
    }
}

impl Calls {
    fn new(count: u64, total_ns: f64) -> Self {
        let mean_ns = if count == 0 { 0.0 } else { total_ns / count as f64 };
        Calls { count, total_ns, mean_ns }
    }
}

/// Records the calls of one task, all of which or some are timed: the time of the others is
/// estimated from theirs.
#[derive(Debug, Default)]
pub(super) struct Meter([Kept; 2]);

#[derive(Debug, Default)]
struct Kept {
    count: Cell<u64>,
    timed: Cell<u64>,
    timed_ns: Cell<f64>,
}

impl Meter {
    /// Counts a call; returns how many there were before.
    #[inline]
    pub(super) fn count(&self, path: Path) -> u64 {
        self.kept(path).map_or(0, |kept| kept.count.replace(kept.count.get() + 1))
    }

    /// Records the time of a call that has been counted.
    pub(super) fn enter(&self, path: Path, ns: f64) {
        if let Some(kept) = self.kept(path) {
            kept.timed.set(kept.timed.get() + 1);
            kept.timed_ns.set(kept.timed_ns.get() + ns);
        }
    }

    /// Resets all counts.
    pub(super) fn clear(&self) {
        for kept in &self.0 {
            kept.count.set(0);
            kept.timed.set(0);
            kept.timed_ns.set(0.0);
        }
    }

    /// The recorded calls.
    pub(super) fn calls(&self) -> AllCalls {
        let [alloc, free] = [&self.0[0], &self.0[1]].map(|kept| {
            let (count, timed) = (kept.count.get(), kept.timed.get());
            let timed_ns = kept.timed_ns.get().max(0.0);
            let scale = if timed == 0 { 0.0 } else { count as f64 / timed as f64 };
            Calls::new(count, timed_ns * scale)
        });
        AllCalls { alloc, free }
    }

    fn kept(&self, path: Path) -> Option<&Kept> {
        self.0.get(path as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_some_calls_stand_for_all() {
        let meter = Meter::default();
        for _ in 0..10 {
            if meter.count(Path::Free).is_multiple_of(5) {
                meter.enter(Path::Free, 7.0);
            }
        }
        let calls = meter.calls();
        assert_eq!(calls.free, Calls { count: 10, total_ns: 70.0, mean_ns: 7.0 });
        assert_eq!(calls.alloc, Calls::default());
        let both = AllCalls::sum([calls, calls].into_iter());
        assert_eq!(both.free, Calls { count: 20, total_ns: 140.0, mean_ns: 7.0 });
        meter.clear();
        assert_eq!(meter.calls(), AllCalls::default());
    }
}
