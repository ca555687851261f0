//! Child processes of a test.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child that takes longer is considered hung.
const DEADLINE_SECONDS: u32 = 10;

/// The exit status of a child that panicked.
const PANICKED: i32 = 101;

/// Forks, runs `act` in the child, and waits for it; returns how it ended: 0 if all was well.
pub(crate) fn in_child(act: impl FnOnce()) -> Result<(), String> {
    // SAFETY: The child calls only what the library allows in children.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "the machine refuses to fork");
    if child == 0 {
        // SAFETY: Its signal ends the child by default, and no test has a handler for it.
        unsafe { libc::alarm(DEADLINE_SECONDS) };
        let code = catch_unwind(AssertUnwindSafe(act)).map_or(PANICKED, |()| 0);
        // SAFETY: Ends the child without exit handlers, which are the parent's.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: The status is written to a variable of this function.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, code) => Err(format!("the child ended with {code}")),
        (false, _) if libc::WTERMSIG(status) == libc::SIGALRM => Err("the child hung".into()),
        (false, _) => Err(format!("the child died of signal {}", libc::WTERMSIG(status))),
    }
}
