//! Memory of the machine, by the C library alone.
#![expect(unsafe_code, reason = "maps memory")]

use core::ptr::{NonNull, null_mut};

/// A stretch of zeroed memory, until it is dropped. A page of it takes memory from the machine when
/// it is first touched.
#[derive(Debug)]
pub(super) struct Mapped {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: addresses. Who may access what is there is the user's affair.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// So many bytes, at a multiple of a page; `None` if the machine has no place for them.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory, at a place that the kernel chooses.
        let base = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
        let base = (base != libc::MAP_FAILED).then(|| NonNull::new(base.cast()))??;
        Some(Mapped { base, bytes })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: ours, and what was given out of it ends with it.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(unmapped, 0);
    }
}

/// The size of the machine's pages.
pub(super) fn page_bytes() -> usize {
    // SAFETY: reads a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every machine has pages")
}

/// The machine's number of the calling thread.
pub(super) fn this_thread() -> core::num::NonZeroU32 {
    // SAFETY: reads a number.
    let number = unsafe { libc::gettid() };
    core::num::NonZeroU32::new(number.unsigned_abs()).expect("threads have numbers above 0")
}
