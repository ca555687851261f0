//! What the books of every run have to satisfy.

use freehold_sim::Report;

pub(crate) fn near(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-6, "{left} is not {right}");
}

/// The parts of the time have to add up to the whole in every run.
pub(crate) fn check_books(report: &Report) {
    let time = &report.time;
    let parts = [
        time.compute_ns,
        time.memory_ns,
        time.lock_wait_ns,
        time.idle_ns,
        time.barrier_ns,
        time.stopped_ns,
    ];
    let parts: f64 = parts.iter().sum();
    assert!((parts - time.all_ns).abs() < 0.5, "{parts} of {}", time.all_ns);
    let by_path: f64 = report.paths.values().flat_map(|path| path.values()).sum();
    assert!((by_path - time.all_ns).abs() < 0.5);
    let waits: f64 = report.locks.iter().map(|lock| lock.wait_ns).sum();
    assert!((waits - time.lock_wait_ns).abs() < 0.5, "{waits} of {}", time.lock_wait_ns);
    let shares = report.time_share.iter().filter(|(class, _)| !class.contains('.'));
    let shares: f64 = shares.map(|(_, share)| share).sum();
    let shared_ns = time.all_ns - time.barrier_ns;
    assert!((shares * shared_ns - waits).abs() < 0.5, "{shares} of {shared_ns} is not {waits}");
}
