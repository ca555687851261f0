//! Handlers of forks.
#![expect(unsafe_code, reason = "installs handlers of forks")]

use std::io;

/// Has functions called on the thread that forks: `prepare` before, `parent` and `child` after,
/// each in its process. For good: the process's children inherit the handlers.
///
/// # Errors
///
/// `ENOMEM` if there are too many.
pub(crate) fn at_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> io::Result<()> {
    // SAFETY: The functions are safe to call, take nothing, and are there as long as this code is.
    // If it is unloaded, glibc forgets the handlers, which it keeps by object; musl, which keeps
    // them for ever, unloads nothing.
    let answer = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
}
