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
#[derive(Debug)]
pub(super) struct Meter {
    kept: [Kept; 2],
    /// When the window ends that is measured, in ns on the clock of the task.
    ends_ns: Cell<f64>,
}

#[derive(Debug, Default)]
struct Kept {
    count: Cell<u64>,
    timed: Cell<u64>,
    timed_ns: Cell<f64>,
}

impl Default for Meter {
    fn default() -> Self {
        Meter { kept: Default::default(), ends_ns: Cell::new(f64::INFINITY) }
    }
}

impl Meter {
    /// Resets all counts. Calls count that begin before `ends_ns`, and their time up to it.
    pub(super) fn clear(&self, ends_ns: f64) {
        for kept in &self.kept {
            kept.count.set(0);
            kept.timed.set(0);
            kept.timed_ns.set(0.0);
        }
        self.ends_ns.set(ends_ns);
    }

    /// Counts a call; returns how many there were before.
    #[inline]
    pub(super) fn count(&self, path: Path) -> u64 {
        self.kept(path).map_or(0, |kept| kept.count.replace(kept.count.get() + 1))
    }

    /// Records the time of a call that has been counted: from `began_ns`, for `ns`.
    pub(super) fn enter(&self, path: Path, began_ns: f64, ns: f64) {
        if let Some(kept) = self.kept(path) {
            kept.timed.set(kept.timed.get() + 1);
            let ns = ns.min((self.ends_ns.get() - began_ns).max(0.0));
            kept.timed_ns.set(kept.timed_ns.get() + ns);
        }
    }

    /// The recorded calls.
    pub(super) fn calls(&self) -> AllCalls {
        let [alloc, free] = self.kept.each_ref().map(|kept| {
            let (count, timed) = (kept.count.get(), kept.timed.get());
            let timed_ns = kept.timed_ns.get().max(0.0);
            let scale = if timed == 0 { 0.0 } else { count as f64 / timed as f64 };
            Calls::new(count, timed_ns * scale)
        });
        AllCalls { alloc, free }
    }

    fn kept(&self, path: Path) -> Option<&Kept> {
        self.kept.get(path as usize)
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
                meter.enter(Path::Free, 0.0, 7.0);
            }
        }
        let calls = meter.calls();
        assert_eq!(calls.free, Calls { count: 10, total_ns: 70.0, mean_ns: 7.0 });
        assert_eq!(calls.alloc, Calls::default());
        let both = AllCalls::sum([calls, calls].into_iter());
        assert_eq!(both.free, Calls { count: 20, total_ns: 140.0, mean_ns: 7.0 });
        meter.clear(f64::INFINITY);
        assert_eq!(meter.calls(), AllCalls::default());
    }

    #[test]
    fn a_call_counts_up_to_the_end_of_the_window() {
        let meter = Meter::default();
        meter.clear(100.0);
        for began_ns in [80.0, 90.0, 95.0] {
            meter.count(Path::Alloc);
            meter.enter(Path::Alloc, began_ns, 10.0);
        }
        assert_eq!(meter.calls().alloc, Calls { count: 3, total_ns: 25.0, mean_ns: 25.0 / 3.0 });
    }
}
