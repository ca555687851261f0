//! Threads of a model under loom that share one thing, each on a CPU of its own.

use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use super::loom_platform::run_on;

/// Runs `other` on another CPU.
pub(crate) fn on_cpu<T: 'static, R: 'static>(
    shared: &Arc<T>,
    cpu: u32,
    other: impl FnOnce(&T) -> R + 'static,
) -> JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        run_on(cpu);
        other(&shared)
    })
}

/// The result of a thread.
pub(crate) fn join<R>(thread: JoinHandle<R>) -> R {
    thread.join().expect("the thread is well")
}

/// Runs `other` on CPU 1 beside `mine`, which comes first, on CPU 0; returns both results.
pub(crate) fn race<T: 'static, S, R: 'static>(
    shared: &Arc<T>,
    mine: impl FnOnce(&T) -> S,
    other: impl FnOnce(&T) -> R + 'static,
) -> (S, R) {
    let other = on_cpu(shared, 1, other);
    let mine = mine(shared);
    (mine, join(other))
}
