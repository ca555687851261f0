//! Discarding several stretches of memory by one system call.
#![expect(unsafe_code, reason = "discards memory of the process")]

use core::ffi::c_long;
use core::ptr::{NonNull, null_mut};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::page_bytes;

/// The calling process, in place of a file descriptor for it: after a fork, that would be the
/// parent (Linux: `PIDFD_SELF_THREAD_GROUP`).
const PIDFD_SELF: c_long = -10_001;

/// A stretch of the process's own memory, for [`discard_stretches`]. It may be empty.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Stretch(libc::iovec);

impl Stretch {
    /// A stretch of no bytes.
    pub const EMPTY: Self = Stretch(libc::iovec { iov_base: null_mut(), iov_len: 0 });

    /// The stretch of so many bytes that begins here.
    pub fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Stretch(libc::iovec { iov_base: start.as_ptr().cast(), iov_len: bytes })
    }
}

/// Discards stretches of the process's own private memory (`MADV_DONTNEED`): they read as zero
/// then, or as the file behind them. Returns the number of system calls.
///
/// That is one, if `at_once` and the kernel takes several stretches of the caller's own memory
/// ([`discards_at_once`]). Otherwise, or if it refuses one of them, it is one for each stretch, and
/// `refused` is called with the position and the error of each that was not discarded.
///
/// # Safety
///
/// The stretches are mapped. Other code that uses them during the call does so by atomic accesses,
/// and expects them to find zero, or the file; and there is no reference to other content of them.
pub unsafe fn discard_stretches(
    stretches: &[Stretch],
    at_once: bool,
    mut refused: impl FnMut(usize, io::Error),
) -> u64 {
    let mut calls = 0;
    if at_once && stretches.len() > 1 && discards_at_once() {
        calls += 1;
        // SAFETY: As the caller promises.
        if unsafe { discard_at_once(stretches) } {
            return calls;
        }
    }
    for (at, Stretch(range)) in stretches.iter().enumerate() {
        calls += 1;
        // SAFETY: As the caller promises.
        let discarded = unsafe { madvise(range.iov_base, range.iov_len, Advice::LinuxDontNeed) };
        if let Err(errno) = discarded {
            refused(at, errno.into());
        }
    }
    calls
}

/// Whether the kernel discards several stretches of the caller's own memory by one system call
/// (`process_madvise(2)` with `MADV_DONTNEED` since Linux 6.13, by way of `PIDFD_SELF` of 6.14).
/// The first call tries it out.
pub fn discards_at_once() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    // Not a lock: another thread might hold it while this one forks.
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    // Relaxed: all threads that try find the same.
    match ANSWER.load(Relaxed) {
        UNKNOWN => {
            // Without a page to try it on, a later call tries.
            let Some(answer) = takes_a_page() else { return false };
            ANSWER.store(if answer { YES } else { NO }, Relaxed);
            answer
        }
        answer => answer == YES,
    }
}

/// Tries it out on a page of its own, if the machine has one.
#[cold]
fn takes_a_page() -> Option<bool> {
    let bytes = page_bytes();
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: Without an address of ours the kernel picks an unused one.
    let page = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), flags) }.ok()?;
    let stretch = Stretch(libc::iovec { iov_base: page, iov_len: bytes });
    // SAFETY: The page was just mapped, and nothing uses it.
    let answer = unsafe { discard_at_once(&[stretch]) };
    // SAFETY: As above. A machine that is out of memory may refuse; then the page stays.
    let _stays = unsafe { munmap(page, bytes) };
    Some(answer)
}

/// Discards stretches by one system call. Returns whether the kernel took all of them.
///
/// # Safety
///
/// As for [`discard_stretches`].
unsafe fn discard_at_once(stretches: &[Stretch]) -> bool {
    let bytes: usize = stretches.iter().map(|stretch| stretch.0.iov_len).sum();
    // SAFETY: Takes nothing.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: The C library's variable of this thread, here and below. This may be a call of
    // `free`, which does not change it (POSIX.1-2024); rustix's calls do not know it.
    let before = unsafe { *errno };
    // SAFETY: The caller vouches for the content. The kernel reads as many entries as there are
    // stretches, which are as it wants them: `Stretch` is an `iovec`.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            PIDFD_SELF,
            stretches.as_ptr(),
            stretches.len(),
            c_long::from(libc::MADV_DONTNEED),
            0 as c_long,
        )
    };
    // SAFETY: As above.
    unsafe { *errno = before };
    usize::try_from(advised) == Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of a mapping of its own, each filled with 7; unmapped at the end of the process.
    fn pages(count: usize) -> NonNull<u8> {
        let bytes = count * page_bytes();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: As in `discards_at_once`.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, access, MapFlags::PRIVATE) };
        let start = NonNull::new(start.unwrap().cast::<u8>()).unwrap();
        // SAFETY: The pages are new, and ours.
        unsafe { start.write_bytes(7, bytes) };
        start
    }

    fn page(start: NonNull<u8>, number: usize) -> NonNull<u8> {
        // SAFETY: Callers pass pages that there are.
        unsafe { start.add(number * page_bytes()) }
    }

    /// The first byte of each of four pages.
    fn first_bytes(start: NonNull<u8>) -> [u8; 4] {
        // SAFETY: The pages are ours, mapped for ever, and not written to meanwhile.
        [0, 1, 2, 3].map(|number| unsafe { page(start, number).read() })
    }

    fn stretch(start: NonNull<u8>, pages: core::ops::Range<usize>) -> Stretch {
        Stretch::new(page(start, pages.start), pages.len() * page_bytes())
    }

    #[test]
    fn stretches_are_discarded_at_once_or_one_by_one() {
        for at_once in [true, false] {
            let start = pages(4);
            let stretches = [stretch(start, 0..1), Stretch::EMPTY, stretch(start, 2..4)];
            let refused = |at, error| panic!("stretch {at}: {error}");
            // SAFETY: The pages are ours, and nothing refers to them.
            let calls = unsafe { discard_stretches(&stretches, at_once, refused) };
            assert_eq!(calls, if at_once && discards_at_once() { 1 } else { 3 });
            assert_eq!(first_bytes(start), [0, 7, 0, 0]);
        }
    }

    #[test]
    fn a_stretch_that_is_refused_is_named_and_the_others_go() {
        let start = pages(4);
        // SAFETY: Locks a page of our own.
        if unsafe { rustix::mm::mlock(page(start, 1).as_ptr().cast(), 1) }.is_err() {
            eprintln!("SKIPPED: memory cannot be locked here (`ulimit -l`)");
            return;
        }
        let stretches = [stretch(start, 0..1), stretch(start, 1..2), stretch(start, 3..4)];
        let mut refused = Vec::new();
        // SAFETY: The pages are ours, and nothing refers to them.
        let calls = unsafe { discard_stretches(&stretches, true, |at, _| refused.push(at)) };
        assert_eq!((calls, refused), (if discards_at_once() { 4 } else { 3 }, vec![1]));
        assert_eq!(first_bytes(start), [0, 7, 7, 0]);
    }

    #[test]
    fn errno_is_that_of_the_caller_after_a_refusal() {
        let odd = Stretch::new(page(pages(2), 0).map_addr(|at| at | 1), page_bytes());
        // SAFETY: Takes nothing.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: The variable of this thread, here and below.
        unsafe { errno.write(4242) };
        // SAFETY: A stretch that does not begin with a page is refused.
        assert!(!unsafe { discard_at_once(&[odd]) });
        // SAFETY: As above.
        assert_eq!(unsafe { errno.read() }, 4242);
    }

    #[test]
    fn the_child_of_a_fork_discards_its_own_memory() {
        if !discards_at_once() {
            eprintln!("SKIPPED: the kernel has no process_madvise(2) with PIDFD_SELF");
            return;
        }
        let start = pages(4);
        let stretches = [stretch(start, 0..1), stretch(start, 2..3)];
        // SAFETY: The child makes system calls and reads memory, and ends without destructors.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", io::Error::last_os_error()),
            0 => {
                // SAFETY: As above; the pages are copies of the child's own.
                let calls = unsafe { discard_stretches(&stretches, true, |_, _| {}) };
                let done = calls == 1 && first_bytes(start) == [0, 7, 0, 7];
                // SAFETY: Ends the child.
                unsafe { libc::_exit(i32::from(!done)) };
            }
            child => {
                let mut status = 0;
                // SAFETY: Waits for our own child, and writes its status.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
                assert_eq!(first_bytes(start), [7; 4], "the parent still has its pages");
            }
        }
    }
}
