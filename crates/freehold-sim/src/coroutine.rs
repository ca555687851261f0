//! Virtual CPUs as stackful coroutines of the host thread.

#![expect(unsafe_code, reason = "a coroutine is suspended from deep inside, through a pointer")]

use std::cell::Cell;
use std::fmt;
use std::ptr;

use corosensei::{Coroutine, CoroutineResult, Yielder};

thread_local! {
    /// How the coroutine that runs on this thread returns to the scheduler.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

/// Clears the yielder when a task stops running, also if it panics.
struct ClearYielder;

impl Drop for ClearYielder {
    #[inline]
    fn drop(&mut self) {
        YIELDER.set(ptr::null());
    }
}

/// The work of one virtual CPU, at some point of its execution.
pub(crate) struct Task(Coroutine<(), (), ()>);

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("done", &self.0.done()).finish()
    }
}

impl Task {
    /// A task that has not started. Its stack is mapped memory of the host, of which only the pages
    /// in use are ever backed.
    pub(crate) fn new(work: impl FnOnce() + 'static) -> Self {
        Task(Coroutine::new(move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            work();
        }))
    }

    /// Runs the task until it suspends itself; returns whether it is done.
    ///
    /// # Panics
    ///
    /// If the task panics, its panic propagates to the caller. If the task is done already.
    #[inline]
    pub(crate) fn resume(&mut self) -> bool {
        let _no_task_runs = ClearYielder;
        matches!(self.0.resume(()), CoroutineResult::Return(()))
    }
}

/// Suspends the task that runs on this thread, until it is resumed. Outside a task it does nothing.
#[inline]
pub(crate) fn suspend() {
    let yielder = YIELDER.get();
    if yielder.is_null() {
        return;
    }
    // SAFETY: The pointer was set by the task that runs now, either when it began or below, when it
    // was resumed, and `resume` clears it whenever a task stops running. The yielder lives on the
    // task's stack until the task is done, so it is alive while the task runs.
    unsafe { (*yielder).suspend(()) };
    YIELDER.set(yielder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_inside_a_task_leaves_the_thread_usable() {
        let mut task = Task::new(|| panic!("inside"));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| task.resume()));
        assert!(result.is_err());
        suspend();
    }
}
