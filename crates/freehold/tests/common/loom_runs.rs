//! Programs under loom: all interleavings with a bounded number of preemptions.

extern crate std;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Explores `model` with up to so many preemptions, or as many as `LOOM_MAX_PREEMPTIONS` says, and
/// prints how many executions that took (`cargo test -- --nocapture`): loom itself does not say.
pub(crate) fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let executions = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    // Taking a block from a zone visits all its lists, and each of those has words.
    builder.max_branches = 100_000;
    builder.check(move || {
        // Relaxed: a count, outside the model.
        count.fetch_add(1, Relaxed);
        model();
    });
    let (bound, executions) = (builder.preemption_bound, executions.load(Relaxed));
    let test = std::thread::current();
    let name = test.name().unwrap_or("");
    std::eprintln!("{name}: {} preemptions, {executions} executions", bound.unwrap_or(0));
}
