//! The time.
#![expect(unsafe_code, reason = "calls the C library")]

/// Milliseconds since some moment, by the clock that is read without a system call, to a few of
/// them. By the C library: other ways need more than valgrind gives a program.
pub(crate) fn now_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time to a variable of this function.
    let read = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    debug_assert_eq!(read, 0, "Linux has this clock");
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
